"""The matrix: levels are assumed until measured, groups have counts, and every format shows what a level rests on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping

import jsonschema
import pytest

from generators.compatibility.matrix import SCHEMA, Matrix, build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import SCHEMA as VERDICT
from generators.compatibility.verdict import Basis, Fault, Level, Reason, Verdict
from generators.models.recipe_store import load_recipe
from hardware.command_line import terminal_width
from hardware.errors import UsageError
from hardware.values import data_file
from reports.html.matrix_html import matrix_html
from reports.matrix_text import CONSOLE_WIDTH, NOTES, matrix_text

HIGH, MEDIUM, LOW, UNSUPPORTED, UNKNOWN = Level
MEASURED, EXPIRED, PREDICTED, ASSUMED = Basis.MEASURED, Basis.EXPIRED, Basis.PREDICTED, Basis.ASSUMED
FAMILY_OF = {"bert": "embedding", "albert": "embedding", "gpt2": "text_generation"}
CELL = "bert/fill-mask/cuda/float32"
COMMAND = "\n::error::gone\x1b[31m\x9b2J\u202e ##[error]x"


def verdict(cell: str, level: Level, basis: Basis = MEASURED, **changes) -> Verdict:
    proof = {"evidence_ids": (f"run/{cell}/builds",)} if basis is MEASURED else {"rule_ids": ("test.rule",)}
    return Verdict(cell=cell, level=level, basis=basis, **{**proof, **changes})


def because(text: str) -> tuple[Reason, ...]:
    """A reason with text that wasn't made safe."""
    return (Reason("text", (("text", text),)),)


def matrix(*verdicts: Verdict, **changes) -> Matrix:
    return build_matrix(load_rules(), verdicts, FAMILY_OF, timestamp="2026-01-01T00:00:00Z", **changes)


def rows_of(*verdicts: Verdict) -> dict[str, Mapping[str, Verdict]]:
    return {row.id: row.verdicts for row in matrix(*verdicts).rows}


def measured(found: Matrix) -> int:
    """How many models of all families were measured, over all targets."""
    return sum(cell.counts.measured for cells in found.families.values() for cell in cells.values())


def says(one) -> tuple[Level | None, Basis | None]:
    return one.level, one.basis


# Families


def test_levels_of_families_are_assumed_until_something_is_measured():
    families = matrix().families
    assert says(families["vision"]["cuda"]) == (HIGH, ASSUMED)
    assert families["audio"]["webnn"].level is UNSUPPORTED
    assert {says(cells["qnn"]) for cells in families.values()} == {(None, None)}
    assert measured(matrix()) == 0
    unmeasured = matrix(
        verdict(CELL, UNKNOWN),
        verdict("albert/fill-mask/cuda/float32", HIGH, PREDICTED),
        verdict("gpt2/text-generation/cuda/float32", HIGH, EXPIRED),
    )
    assert measured(unmeasured) == 0


def test_counts_are_of_models_and_a_model_is_as_good_as_its_worst_cell():
    found = matrix(
        verdict("bert/token-classification/cuda/float32", UNSUPPORTED),
        verdict(CELL, HIGH),
        verdict("albert/fill-mask/cuda/float32", MEDIUM),
        verdict("gpt2/text-generation/cuda/float32", LOW),
        verdict("gpt2/text-generation/openvino/float32", HIGH),
        family_sizes={"embedding": 120},
    ).families
    embedding = found["embedding"]["cuda"]
    assert (embedding.counts.supported, embedding.counts.measured, embedding.counts.models) == (1, 2, 120)
    assert embedding.levels == {MEDIUM: 1, UNSUPPORTED: 1}
    assert found["text_generation"]["cuda"].counts.supported == 0
    one = found["text_generation"]["openvino"]
    assert (*says(one), one.levels) == (None, MEASURED, {HIGH: 1})
    assert (one.counts.supported, one.counts.measured) == (1, 1)
    assert one.evidence == ("run/gpt2/text-generation/openvino/float32/builds",)


def test_a_fault_of_the_models_own_code_stands_at_the_model_and_counts_against_no_target():
    why = because("the cache is wrong")
    cells = [
        verdict(f"gpt2/text-generation/{target}/float32", UNSUPPORTED, basis, fault=Fault.MODEL, reasons=why)
        for target, basis in (("cpu", MEASURED), ("cuda", MEASURED), ("rocm", PREDICTED))
    ]
    found = matrix(*cells, verdict("llama/text-generation/cuda/float32", HIGH))
    cpu, cuda, rocm = (found.families["text_generation"][name] for name in ("cpu", "cuda", "rocm"))
    assert (cpu.counts.supported, cpu.counts.measured, cpu.counts.models_at_fault) == (0, 1, 0)
    assert (cuda.counts.supported, cuda.counts.measured, cuda.counts.models_at_fault) == (0, 0, 1)
    assert (rocm.counts.said, rocm.counts.models_at_fault) == (0, 1)
    text = matrix_text(found, by="model")
    row = next(line.split() for line in text.splitlines() if line.startswith("gpt2"))
    assert row[1:4] == ["unsupported+", "model+", "model~"]
    assert text.count("the cache is wrong") == 1
    page = matrix_html(found.to_dict(), versions={})
    assert '<td class="model measured"><button>model' in page
    assert "by its own code: the cache is wrong" in page


def test_another_precision_says_nothing_about_a_family():
    cells = {"float32": HIGH, "int4": UNSUPPORTED}
    verdicts = [verdict(f"gpt2/text-generation/openvino/{name}", level) for name, level in cells.items()]
    counts = matrix(*verdicts).families["text_generation"]["openvino"].counts
    assert (counts.supported, counts.measured) == (1, 1)
    int4 = matrix(*verdicts, precision="int4").families["text_generation"]["openvino"]
    assert (int4.counts.supported, int4.counts.measured) == (0, 1)
    assert (int4.levels, int4.basis) == ({UNSUPPORTED: 1}, MEASURED)
    assert rows_of(verdict("bert/fill-mask/cpu/int4", LOW))["bert/fill-mask/int4"]["cuda"].level is UNKNOWN


def test_measured_models_are_counted_if_nothing_was_assumed():
    one = matrix(verdict("bert/fill-mask/cpu/float32", HIGH))
    cell = one.families["embedding"]["cpu"]
    assert (cell.levels, *says(cell), cell.rule_ids) == ({HIGH: 1}, None, MEASURED, ())
    assert cell.evidence
    assert "1/1+" in matrix_text(one)
    two = matrix_text(matrix(verdict("bert/fill-mask/cpu/float32", HIGH), verdict("albert/x/cpu/float32", LOW)))
    assert "1/2+" in two
    assert "low" not in next(line for line in two.splitlines() if line.startswith("embedding"))


def test_a_variant_has_a_column_of_its_own_and_an_unknown_family_counts_in_none():
    found = matrix(verdict("bert/fill-mask/openvino:NPU/float32", HIGH))
    assert "openvino:NPU" in found.hardware_types
    assert found.families["embedding"]["openvino"].counts.measured == 0
    assert found.families["embedding"]["openvino:NPU"].counts.measured == 1
    strange = matrix(verdict("mystery/some-task/cuda/float32", HIGH))
    assert (strange.rows[0].family, measured(strange)) == ("unknown", 0)


# Rows


def test_a_measured_model_overrides_its_familys_prior_for_itself_only():
    rows = rows_of(
        verdict("bert/fill-mask/webgpu/float32", UNSUPPORTED), verdict("albert/fill-mask/cpu/float32", HIGH)
    )
    assert says(rows["bert/fill-mask/float32"]["webgpu"]) == (UNSUPPORTED, MEASURED)
    assert says(rows["bert/fill-mask/float32"]["cuda"]) == (HIGH, ASSUMED)
    assert says(rows["albert/fill-mask/float32"]["webgpu"]) == (MEDIUM, ASSUMED)


def test_a_measured_level_goes_before_a_predicted_one_unless_it_is_unknown():
    cell = "bert/fill-mask/cpu/float32"
    predicted = verdict(cell, HIGH, PREDICTED)
    assert says(matrix(verdict(cell, LOW), predicted).rows[0].verdicts["cpu"]) == (LOW, MEASURED)
    assert says(matrix(predicted, verdict(cell, UNKNOWN)).rows[0].verdicts["cpu"]) == (HIGH, PREDICTED)
    why = (Reason.of("not_run", check="builds"),)
    unknown = verdict("bert/fill-mask/qnn/float32", UNKNOWN, reasons=why)
    assert matrix(unknown).rows[0].verdicts["qnn"].reasons == why


def test_columns_and_models_can_be_chosen():
    cells = [verdict(CELL, HIGH), verdict("vit/x/cuda/float32", LOW)]
    whole = build_matrix(
        load_rules(),
        cells,
        {"bert": "embedding", "vit": "vision"},
        timestamp="t",
        architecture_of={"bert": "encoder-only", "vit": "vision"},
    )
    two = whole.only(["openvino", "cuda"])
    assert two.hardware_types == ("openvino", "cuda")
    assert all(list(cells) == ["openvino", "cuda"] for cells in two.families.values())
    bert = whole.of_models(["bert"])
    assert [row.model for row in bert.rows] == ["bert"]
    assert list(bert.families) == list(bert.model_families) == ["embedding"]
    assert list(bert.groups["architecture"]) == ["encoder-only"]
    jsonschema.validate(bert.to_dict(), json.loads(SCHEMA.read_text()))
    with pytest.raises(UsageError, match="'vt' isn't a row of the matrix"):
        whole.of_models(["vt"])
    with pytest.raises(UsageError, match="Did you mean 'openvino'"):
        whole.only(["opnvino"])
    # Notes are about the columns that are shown.
    assert whole.family_notes("vision") == whole.only(["openvino"]).family_notes("vision") == ("OpenVINO optimized",)
    web = whole.only(["webgpu", "webnn"])
    assert web.family_notes("vision") == web.family_notes("audio") == ()
    assert web.family_notes("text_generation") == ("memory critical",)


def test_a_checkpoint_has_a_row_under_its_name_with_the_hash_and_is_found_by_its_label():
    found = matrix(verdict("mine@1377e9af/text-generation/cpu/float32", HIGH))
    assert [row.id for row in found.of_models(["mine"]).rows] == ["mine@1377e9af/text-generation/float32"]
    assert load_recipe("mine@1377e9af", "text-generation") is None


# Other groups


def test_an_architecture_has_counts_of_each_level_and_no_level_of_its_own():
    cells = [
        verdict(CELL, HIGH),
        verdict("albert/fill-mask/cuda/float32", LOW),
        verdict("albert/fill-mask/mps/float32", MEDIUM, EXPIRED),
        verdict("bert/fill-mask/rocm/float32", HIGH, PREDICTED),
        verdict("albert/fill-mask/rocm/float32", UNSUPPORTED, PREDICTED),
        verdict("electra/fill-mask/rocm/float32", MEDIUM, ASSUMED),
        verdict("bert/fill-mask/xpu/float32", HIGH),
        verdict("albert/fill-mask/xpu/float32", LOW, PREDICTED),
    ]
    found = matrix(*cells, architecture_of=dict.fromkeys(("bert", "albert", "electra"), "encoder-only"))
    groups = found.groups["architecture"]["encoder-only"]
    cuda, mps = groups["cuda"], groups["mps"]
    assert (cuda.levels, cuda.basis) == ({HIGH: 1, LOW: 1}, MEASURED)
    assert (cuda.counts.supported, cuda.counts.measured, cuda.counts.models) == (1, 2, 3)
    assert (mps.levels, mps.basis, mps.counts.measured) == ({MEDIUM: 1}, EXPIRED, 0)
    rocm, xpu = groups["rocm"].counts, groups["xpu"].counts
    assert (rocm.said, rocm.said_supported, rocm.measured) == (3, 2, 0)
    assert (xpu.said, xpu.said_supported, xpu.measured, xpu.supported) == (1, 0, 1, 1)
    text = matrix_text(found, by="architecture")
    assert [one for one in ("1/2+", "(1/1)!", "(2/3)*", "1/1+") if one not in text] == []


def test_two_accelerators_that_disagree_are_apart_and_their_names_are_text():
    devices = {
        "accelerator": {
            "H200": [verdict(CELL, HIGH)],
            COMMAND: [verdict(CELL, UNSUPPORTED)],
            "<b>one|": [verdict(CELL, HIGH)],
            "[two](x)": [verdict(CELL, UNSUPPORTED)],
        },
        "machine": {"lab": [verdict(CELL, UNSUPPORTED)]},
    }
    found = matrix(verdict(CELL, UNSUPPORTED), devices=devices)
    view = found.groups["accelerator"]
    assert {name: set(view[name]["cuda"].levels) for name in view} == {
        name: {verdicts[0].level} for name, verdicts in devices["accelerator"].items()
    }
    (note,) = view["H200"]["cuda"].notes
    assert note.startswith(f"{CELL}: high here, ")
    assert "on H200" not in note
    assert [one for one in ("high on <b>one|", f"unsupported on {COMMAND}") if one not in note] == []
    text = matrix_text(found, by="accelerator")
    assert "Cells whose level differs between devices:" in text
    for form in ("table", "markdown", "csv", "json"):
        for by in ("accelerator", "machine"):
            lines = matrix_text(found, form, by=by).split("\n")
            assert [
                one for one in lines if one.lstrip().startswith("::") or "##[" in one or not one.isprintable()
            ] == []
    assert "Cells that" not in matrix_text(found, by="machine")
    markdown = matrix_text(found, "markdown", by="accelerator")
    assert "<b>" not in markdown
    assert "\\[two]" in markdown
    assert "one\\|" in markdown


# Formats


def test_json_fits_the_schema_and_is_what_reports_expect():
    high = verdict(CELL, HIGH)
    devices = {"machine": {"lab-1": [high]}, "accelerator": {"H200": [high]}}
    found = matrix(high, architecture_of={"bert": "encoder-only"}, devices=devices)
    data = json.loads(matrix_text(found, "json"))
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert data["timestamp"] == "2026-01-01T00:00:00Z"
    assert data["notes"]["text_generation"] == ["memory critical"]
    assert "cuda" in data["hardware_types"]
    assert set(data["architectures"]["encoder-only"]) == set(data["hardware_types"])
    shown = {
        "measured": data["compatibility"]["embedding"]["cuda"],
        "unknown": data["compatibility"]["embedding"]["qnn"],
        "assumed": data["compatibility"]["vision"]["cuda"],
        "lab": data["machines"]["lab-1"]["cuda"],
    }
    names = ("measured", "supported", "said", "said_supported", "models_at_fault")
    nothing = {**dict.fromkeys(names, 0), "models": None}
    assert shown["measured"]["counts"] == nothing | {"measured": 1, "supported": 1}
    assert {name: (one["level"], one["basis"], one["levels"]) for name, one in shown.items()} == {
        "measured": (None, "measured", {"high": 1}),
        "unknown": (None, None, {}),
        "assumed": ("high", "assumed", {}),
        "lab": (None, "measured", {"high": 1}),
    }
    assert shown["assumed"]["counts"]["measured"] == 0
    assert shown["lab"]["counts"]["measured"] == 1
    for one in data["models"]["bert/fill-mask/float32"]["compatibility"].values():
        jsonschema.validate(one, data_file(VERDICT))
    two = [high, verdict("gpt2/x/cpu/float32", LOW)]
    assert matrix_text(matrix(*two), "json") == matrix_text(matrix(*reversed(two)), "json")


def test_a_table_fits_the_console_and_shows_every_target(monkeypatch):
    found = matrix(verdict(f"{'a' * 100}/fill-mask/cuda/float32", HIGH), verdict(CELL, LOW))
    lines = {}
    for width in (60, 79, CONSOLE_WIDTH, 120):
        for by in ("family", "model"):
            text = matrix_text(found, by=by, width=width)
            assert max(len(line) for line in text.splitlines()) <= width
            assert [name for name in found.hardware_types if f" {name}" not in text] == []
            lines[by, width] = len(text.splitlines())
    assert lines["family", 120] < lines["family", 60]
    for columns, width in (("20", 60), ("90", 90), ("500", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal_width() == width
    assert terminal_width(most=1000) == 500
    wide = matrix_text(found, by="model", width=terminal_width(most=1000))
    assert wide.count("model/task/precision") == 1  # all targets in one table
    assert max(len(line) for line in wide.partition("* assumed")[2].splitlines()) <= 120


def test_marks_tell_assumed_from_measured_without_color():
    found = matrix(verdict(CELL, MEDIUM), verdict("gpt2/x/cuda/float32", LOW, EXPIRED))
    families = matrix_text(found)
    embedding = next(line for line in families.splitlines() if line.startswith("embedding"))
    assert "1/1+" in embedding
    assert "medium*" in embedding
    assert "(0/1)!" in families
    assert "* assumed for its family" in " ".join(families.split())
    assert "unknown" in families
    assert "unknown*" not in families
    models, markdown = matrix_text(found, by="model"), matrix_text(found, "markdown", by="model")
    assert [one for one in ("medium+", "low!", "+ measured") if one not in models] == []
    assert [one for one in ("medium+", "- `+` measured") if one not in markdown] == []


def test_legend_and_notes_are_below_the_last_table():
    found = matrix(verdict(CELL, HIGH))
    assert f"{NOTES}\n" in matrix_text(found)
    assert "text_generation: memory critical" in matrix_text(found)
    assert "- embedding: efficient everywhere" in matrix_text(found, "markdown")
    for format_ in ("table", "markdown"):
        family = matrix_text(found, format_, legend=False)
        assert "embedding" in family
        both = family + matrix_text(found, format_, by="model")
        for text in ("measured with other versions", "memory critical", NOTES):
            assert text not in family
            assert both.count(text) == 1


def csv_rows(found: Matrix, **how: str) -> dict[tuple[str, str], dict[str, str]]:
    """Rows of the table by the name of their group or model, and by target."""
    header, *rows = csv.reader(io.StringIO(matrix_text(found, "csv", **how)))
    assert {len(row) for row in rows} == {len(header)}
    shown = [dict(zip(header, row, strict=True)) for row in rows]
    return {(row[header[0]], row["hardware"]): row for row in shown}


def test_csv_has_a_row_for_each_cell_with_its_basis():
    found = matrix(verdict(CELL, HIGH), family_sizes={"embedding": 120})
    rows = csv_rows(found)
    cuda, qnn, mps = (rows["embedding", name] for name in ("cuda", "qnn", "mps"))
    assert (cuda["level"], cuda["basis"]) == ("", "measured")
    assert (cuda["supported"], cuda["measured"], cuda["models"]) == ("1", "1", "120")
    assert (qnn["level"], qnn["basis"]) == ("", "")
    assert (mps["level"], mps["basis"]) == ("high", "assumed")
    assert "OpenVINO optimized" not in matrix_text(found, "csv")


def test_csv_has_no_formula_and_no_tab():
    for start in ("=", "＝", "＋", "－", "＠", " =", "\t=", "\n@", "\n", "\t"):
        found = matrix(verdict(CELL, UNSUPPORTED, reasons=because(f'{start}cmd()\tx, "y"')))
        assert "\t" not in matrix_text(found, "csv", by="model")
        (row,) = [row for (_, target), row in csv_rows(found, by="model").items() if target == "cuda"]
        assert row["reasons"].startswith(("'", "\\")), start
        assert row["reasons"].endswith('cmd()\\tx, "y"'), start


def test_a_view_with_nothing_to_show_says_so_and_an_unknown_one_is_refused():
    assert "No model has a verdict" in matrix_text(matrix(), by="model")
    for by in ("architecture", "accelerator", "machine"):
        for format_ in ("table", "markdown"):
            assert matrix_text(matrix(), format_, by=by).startswith("No ")
        header, *rows = csv.reader(io.StringIO(matrix_text(matrix(), "csv", by=by)))
        assert (header[0], rows) == (by, [])
    with pytest.raises(UsageError, match="Did you mean 'markdown'"):
        matrix_text(matrix(), "markdwon")
    with pytest.raises(UsageError, match="family, model, architecture, accelerator, machine"):
        matrix_text(matrix(), by="colour")
