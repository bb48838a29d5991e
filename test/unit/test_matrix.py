"""The matrix: assumed until measured, counts for each group, a basis that can be seen in every format."""

from __future__ import annotations

import csv
import io
import json

import jsonschema
import pytest

from generators.compatibility.matrix import SCHEMA, build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Reason, Verdict, schema
from generators.models.recipe_store import load_recipe
from hardware.command_line import terminal_width
from hardware.errors import UsageError
from reports.matrix_text import CONSOLE_WIDTH, NOTES, matrix_text

FAMILY_OF = {"bert": "embedding", "albert": "embedding", "gpt2": "text_generation"}


def verdict(cell: str, level: Level, basis: Basis = Basis.MEASURED, **changes) -> Verdict:
    values = {"evidence_ids": (f"run/{cell}/builds",)}
    if basis is not Basis.MEASURED:
        values = {"rule_ids": ("test.rule",)}
    return Verdict(cell=cell, level=level, basis=basis, **{**values, **changes})


def text(words: str) -> Reason:
    return Reason.of("text", text=words)


def raw(words: str) -> Reason:
    """A reason that wasn't flattened."""
    return Reason("text", (("text", words),))


def matrix(*verdicts: Verdict, **changes):
    return build_matrix(load_rules(), verdicts, FAMILY_OF, timestamp="2026-01-01T00:00:00Z", **changes)


def test_levels_are_assumed_until_something_is_measured_and_qnn_is_unknown():
    families = matrix().families
    assert (families["vision"]["cuda"].level, families["vision"]["cuda"].basis) == (Level.HIGH, Basis.ASSUMED)
    assert families["audio"]["webnn"].level is Level.UNSUPPORTED
    assert {(cells["qnn"].level, cells["qnn"].basis) for cells in families.values()} == {(None, None)}
    assert {cell.counts.measured for cells in families.values() for cell in cells.values()} == {0}


def test_one_models_evidence_is_counted_and_gives_its_family_no_level():
    raised = matrix(verdict("gpt2/text-generation/openvino/float32", Level.HIGH)).families
    cell = raised["text_generation"]["openvino"]
    assert (cell.level, cell.basis) == (None, Basis.MEASURED)
    assert cell.levels == {Level.HIGH: 1}
    assert (cell.counts.supported, cell.counts.measured) == (1, 1)
    assert cell.evidence == ("run/gpt2/text-generation/openvino/float32/builds",)


def test_counts_are_of_models_and_a_model_is_as_good_as_its_worst_cell():
    found = matrix(
        verdict("bert/token-classification/cuda/float32", Level.UNSUPPORTED),
        verdict("bert/fill-mask/cuda/float32", Level.HIGH),
        verdict("albert/fill-mask/cuda/float32", Level.MEDIUM),
        verdict("gpt2/text-generation/cuda/float32", Level.LOW),
        family_sizes={"embedding": 120},
    ).families
    embedding = found["embedding"]["cuda"]
    assert (embedding.counts.supported, embedding.counts.measured, embedding.counts.models) == (1, 2, 120)
    assert embedding.levels == {Level.MEDIUM: 1, Level.UNSUPPORTED: 1}
    assert found["text_generation"]["cuda"].counts.supported == 0


def test_another_precision_says_nothing_of_a_family():
    measured = [
        verdict("gpt2/text-generation/openvino/float32", Level.HIGH),
        verdict("gpt2/text-generation/openvino/int4", Level.UNSUPPORTED),
    ]
    counts = matrix(*measured).families["text_generation"]["openvino"].counts
    assert (counts.supported, counts.measured) == (1, 1)
    int4 = matrix(*measured, precision="int4").families["text_generation"]["openvino"]
    assert (int4.counts.supported, int4.counts.measured) == (0, 1)
    assert (int4.levels, int4.basis) == ({Level.UNSUPPORTED: 1}, Basis.MEASURED)


def test_where_nothing_was_assumed_the_measured_models_are_counted_with_their_mark():
    one = matrix(verdict("bert/fill-mask/cpu/float32", Level.HIGH))
    cell = one.families["embedding"]["cpu"]
    assert (cell.levels, cell.basis, cell.rule_ids) == ({Level.HIGH: 1}, Basis.MEASURED, ())
    assert cell.level is None
    assert cell.evidence
    assert "1/1+" in matrix_text(one)
    two = matrix(verdict("bert/fill-mask/cpu/float32", Level.HIGH), verdict("albert/x/cpu/float32", Level.LOW))
    assert "1/2+" in matrix_text(two)
    assert "low" not in next(line for line in matrix_text(two).splitlines() if line.startswith("embedding"))


def test_a_prior_is_not_said_of_a_models_integer_precision():
    rows = {row.id: row for row in matrix(verdict("bert/fill-mask/cpu/int4", Level.LOW)).rows}
    assert rows["bert/fill-mask/int4"].verdicts["cuda"].level is Level.UNKNOWN


def test_unknown_and_predicted_and_expired_are_not_counted_as_measured():
    found = matrix(
        verdict("bert/fill-mask/cuda/float32", Level.UNKNOWN),
        verdict("albert/fill-mask/cuda/float32", Level.HIGH, Basis.PREDICTED),
        verdict("gpt2/text-generation/cuda/float32", Level.HIGH, Basis.EXPIRED),
    ).families
    assert {cell.counts.measured for cells in found.values() for cell in cells.values()} == {0}


def test_a_measured_model_overrides_its_familys_prior_for_itself_only():
    rows = {
        row.id: row
        for row in matrix(
            verdict("bert/fill-mask/webgpu/float32", Level.UNSUPPORTED),
            verdict("albert/fill-mask/cpu/float32", Level.HIGH),
        ).rows
    }
    bert = rows["bert/fill-mask/float32"].verdicts
    assert (bert["webgpu"].level, bert["webgpu"].basis) == (Level.UNSUPPORTED, Basis.MEASURED)
    assert (bert["cuda"].level, bert["cuda"].basis) == (Level.HIGH, Basis.ASSUMED)
    other = rows["albert/fill-mask/float32"].verdicts["webgpu"]
    assert (other.level, other.basis) == (Level.MEDIUM, Basis.ASSUMED)


def test_measured_goes_before_predicted_but_not_when_it_found_nothing():
    cell = "bert/fill-mask/cpu/float32"
    predicted = verdict(cell, Level.HIGH, Basis.PREDICTED)
    both = matrix(verdict(cell, Level.LOW), predicted).rows[0].verdicts["cpu"]
    assert (both.level, both.basis) == (Level.LOW, Basis.MEASURED)
    nothing = matrix(predicted, verdict(cell, Level.UNKNOWN)).rows[0].verdicts["cpu"]
    assert (nothing.level, nothing.basis) == (Level.HIGH, Basis.PREDICTED)


def test_an_unknown_verdict_keeps_its_reason_where_nothing_was_assumed():
    why = (Reason.of("not_run", check="builds"),)
    open_ = verdict("bert/fill-mask/qnn/float32", Level.UNKNOWN, reasons=why)
    assert matrix(open_).rows[0].verdicts["qnn"].reasons == why


def test_a_target_with_a_variant_has_a_column_of_its_own():
    found = matrix(verdict("bert/fill-mask/openvino:NPU/float32", Level.HIGH))
    assert "openvino:NPU" in found.hardware_types
    assert found.families["embedding"]["openvino"].counts.measured == 0
    assert found.families["embedding"]["openvino:NPU"].counts.measured == 1


def test_a_model_of_no_known_family_is_shown_and_counts_in_none():
    found = matrix(verdict("mystery/some-task/cuda/float32", Level.HIGH))
    assert found.rows[0].family == "unknown"
    assert {cell.counts.measured for cells in found.families.values() for cell in cells.values()} == {0}


def test_json_fits_the_schema_and_is_what_reports_expect():
    high = verdict("bert/fill-mask/cuda/float32", Level.HIGH)
    devices = {"machine": {"lab-1": [high]}, "accelerator": {"H200": [high]}}
    found = matrix(high, architecture_of={"bert": "encoder-only"}, devices=devices)
    data = json.loads(matrix_text(found, "json"))
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert data["timestamp"] == "2026-01-01T00:00:00Z"
    assert "cuda" in data["hardware_types"]
    cell = data["compatibility"]["embedding"]["cuda"]
    assert (cell["level"], cell["basis"], cell["levels"]) == (None, "measured", {"high": 1})
    assert cell["counts"] == {"measured": 1, "supported": 1, "said": 0, "said_supported": 0, "models": None}
    assert data["notes"]["text_generation"] == ["memory critical"]
    qnn = data["compatibility"]["embedding"]["qnn"]
    assert (qnn["level"], qnn["basis"], qnn["levels"]) == (None, None, {})
    vision = data["compatibility"]["vision"]["cuda"]
    assert (vision["level"], vision["basis"], vision["counts"]["measured"]) == ("high", "assumed", 0)
    assert set(data["architectures"]["encoder-only"]) == set(data["hardware_types"])
    lab = data["machines"]["lab-1"]["cuda"]
    assert (lab["levels"], lab["basis"], lab["counts"]["measured"]) == ({"high": 1}, "measured", 1)
    for one in data["models"]["bert/fill-mask/float32"]["compatibility"].values():
        jsonschema.validate(one, schema())


@pytest.mark.parametrize("width", [60, 79, CONSOLE_WIDTH, 120])
@pytest.mark.parametrize("by", ["family", "model"])
def test_a_table_fits_the_console_and_shows_every_target(by, width):
    long = "a" * 100
    found = matrix(
        verdict(f"{long}/fill-mask/cuda/float32", Level.HIGH), verdict("bert/fill-mask/cuda/float32", Level.LOW)
    )
    text = matrix_text(found, by=by, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    for name in found.hardware_types:
        assert f" {name}" in text


def test_a_reader_can_tell_assumed_from_measured_without_colour():
    found = matrix(
        verdict("bert/fill-mask/cuda/float32", Level.MEDIUM), verdict("gpt2/x/cuda/float32", Level.LOW, Basis.EXPIRED)
    )
    families = matrix_text(found)
    embedding = next(line for line in families.splitlines() if line.startswith("embedding"))
    assert "1/1+" in embedding
    assert "medium*" in embedding
    assert "(0/1)!" in families
    assert "* assumed for the whole family" in " ".join(families.split())
    assert "unknown" in families
    assert "unknown*" not in families
    models = matrix_text(found, by="model")
    assert "medium+" in models
    assert "low!" in models
    assert "+ measured" in models
    markdown = matrix_text(found, "markdown", by="model")
    assert "medium+" in markdown
    assert "- `+` measured" in markdown


def test_a_wide_console_is_used():
    assert len(matrix_text(matrix(), width=120).splitlines()) < len(matrix_text(matrix(), width=60).splitlines())


@pytest.mark.parametrize(("columns", "width"), [("20", 60), ("90", 90), ("500", 120)])
def test_the_width_is_the_terminals_within_bounds(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


@pytest.mark.parametrize("format_", ["table", "markdown"])
def test_of_two_views_the_first_can_do_without_legend_and_notes(format_):
    found = matrix(verdict("bert/fill-mask/cuda/float32", Level.HIGH))
    family = matrix_text(found, format_, legend=False)
    assert "embedding" in family
    both = family + matrix_text(found, format_, by="model")
    for text in ("measured with other versions", "memory critical", NOTES):
        assert text not in family
        assert both.count(text) == 1


def test_notes_stand_below_the_table():
    assert f"{NOTES}\n" in matrix_text(matrix())
    assert "text_generation: memory critical" in matrix_text(matrix())
    assert "- embedding: efficient everywhere" in matrix_text(matrix(), "markdown")


def test_csv_has_a_row_for_each_cell_with_its_basis():
    found = matrix(verdict("bert/fill-mask/cuda/float32", Level.HIGH), family_sizes={"embedding": 120})
    rows = list(csv.DictReader(io.StringIO(matrix_text(found, "csv"))))
    cuda = next(row for row in rows if (row["family"], row["hardware"]) == ("embedding", "cuda"))
    assert (cuda["level"], cuda["basis"]) == ("", "measured")
    assert (cuda["supported"], cuda["measured"], cuda["models"]) == ("1", "1", "120")
    qnn = next(row for row in rows if (row["family"], row["hardware"]) == ("embedding", "qnn"))
    assert (qnn["level"], qnn["basis"]) == ("", "")
    mps = next(row for row in rows if (row["family"], row["hardware"]) == ("embedding", "mps"))
    assert (mps["level"], mps["basis"]) == ("high", "assumed")
    assert "OpenVINO optimised" not in matrix_text(found, "csv")


@pytest.mark.parametrize("by", ["family", "model"])
def test_csv_of_a_view_is_one_table(by):
    found = matrix(verdict("bert/fill-mask/cuda/float32", Level.UNSUPPORTED, reasons=(text('a, "b"\nc'),)))
    header, *rows = csv.reader(io.StringIO(matrix_text(found, "csv", by=by)))
    assert rows
    assert {len(row) for row in rows} == {len(header)}


def test_csv_hands_no_formula_to_a_spreadsheet():
    found = matrix(verdict("bert/fill-mask/cuda/float32", Level.UNSUPPORTED, reasons=(text("=cmd()"),)))
    rows = list(csv.DictReader(io.StringIO(matrix_text(found, "csv", by="model"))))
    assert next(row for row in rows if row["hardware"] == "cuda")["reasons"] == "'=cmd()"


def test_csv_has_no_tab_that_a_terminal_would_obey():
    hostile = (raw("\t=cmd()\tx"), raw("\n=cmd()"))
    found = matrix(verdict("bert/fill-mask/cuda/float32", Level.UNSUPPORTED, reasons=hostile))
    text = matrix_text(found, "csv", by="model")
    assert "\t" not in text
    cell = next(row for row in csv.DictReader(io.StringIO(text)) if row["hardware"] == "cuda")["reasons"]
    assert cell.startswith("\\t=cmd()\\tx")


def test_no_models_is_said_in_words():
    assert "No model has a verdict" in matrix_text(matrix(), by="model")


def test_an_unknown_format_or_view_is_refused():
    with pytest.raises(UsageError, match="Did you mean 'markdown'"):
        matrix_text(matrix(), "markdwon")
    with pytest.raises(UsageError, match="family, model, architecture, accelerator, machine"):
        matrix_text(matrix(), by="colour")


def test_the_same_input_gives_the_same_text():
    verdicts = [verdict("bert/fill-mask/cuda/float32", Level.HIGH), verdict("gpt2/x/cpu/float32", Level.LOW)]
    assert matrix_text(matrix(*verdicts), "json") == matrix_text(matrix(*reversed(verdicts)), "json")


def test_chosen_columns_alone_in_their_order():
    matrix = build_matrix(load_rules(), timestamp="t").only(["openvino", "cuda"])
    assert matrix.hardware_types == ("openvino", "cuda")
    assert all(list(cells) == ["openvino", "cuda"] for cells in matrix.families.values())


def test_chosen_models_alone_with_their_families_and_architectures():
    cells = [verdict("bert/fill-mask/cuda/float32", Level.HIGH), verdict("vit/x/cuda/float32", Level.LOW)]
    matrix = build_matrix(
        load_rules(),
        cells,
        {"bert": "embedding", "vit": "vision"},
        timestamp="t",
        architecture_of={"bert": "encoder-only", "vit": "vision"},
    ).of_models(["bert"])
    assert [row.model for row in matrix.rows] == ["bert"]
    assert list(matrix.families) == list(matrix.model_families) == ["embedding"]
    assert list(matrix.groups["architecture"]) == ["encoder-only"]
    jsonschema.validate(matrix.to_dict(), json.loads(SCHEMA.read_text()))
    with pytest.raises(UsageError, match="'vt' is no row of the matrix"):
        matrix.of_models(["vt"])


def test_footnotes_speak_of_the_columns_that_are_shown():
    whole = build_matrix(load_rules(), timestamp="t")
    assert whole.family_notes("vision") == ("OpenVINO optimised",)
    assert whole.only(["openvino"]).family_notes("vision") == ("OpenVINO optimised",)
    web = whole.only(["webgpu", "webnn"])
    assert web.family_notes("vision") == web.family_notes("audio") == ()
    assert web.family_notes("text_generation") == ("memory critical",)


def test_a_column_that_is_not_there_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="Did you mean 'openvino'"):
        build_matrix(load_rules(), timestamp="t").only(["opnvino"])


def test_an_architecture_has_counts_of_each_level_and_no_level_of_its_own():
    cells = [
        verdict("bert/fill-mask/cuda/float32", Level.HIGH),
        verdict("albert/fill-mask/cuda/float32", Level.LOW),
        verdict("albert/fill-mask/mps/float32", Level.MEDIUM, Basis.EXPIRED),
    ]
    found = matrix(*cells, architecture_of=dict.fromkeys(("bert", "albert"), "encoder-only"))
    cell = found.groups["architecture"]["encoder-only"]["cuda"]
    assert (cell.levels, cell.basis) == ({Level.HIGH: 1, Level.LOW: 1}, Basis.MEASURED)
    assert (cell.counts.supported, cell.counts.measured, cell.counts.models) == (1, 2, 2)
    # What was measured once goes before what is assumed of a family, and is no present measurement.
    older = found.groups["architecture"]["encoder-only"]["mps"]
    assert (older.levels, older.basis, older.counts.measured) == ({Level.MEDIUM: 1}, Basis.EXPIRED, 0)
    assert "1/2+" in matrix_text(found, by="architecture")
    assert "(1/1)!" in matrix_text(found, by="architecture")


def test_what_rules_say_of_a_group_is_counted_where_nothing_was_measured():
    cells = [
        verdict("bert/fill-mask/cuda/float32", Level.HIGH, Basis.PREDICTED),
        verdict("albert/fill-mask/cuda/float32", Level.UNSUPPORTED, Basis.PREDICTED),
        verdict("electra/fill-mask/cuda/float32", Level.MEDIUM, Basis.ASSUMED),
        verdict("bert/fill-mask/mps/float32", Level.HIGH),
        verdict("albert/fill-mask/mps/float32", Level.LOW, Basis.PREDICTED),
    ]
    found = matrix(*cells, architecture_of=dict.fromkeys(("bert", "albert", "electra"), "encoder-only"))
    cuda, mps = (found.groups["architecture"]["encoder-only"][name].counts for name in ("cuda", "mps"))
    assert (cuda.said, cuda.said_supported, cuda.measured) == (3, 2, 0)
    assert (mps.said, mps.said_supported, mps.measured, mps.supported) == (1, 0, 1, 1)
    text = matrix_text(found, by="architecture")
    assert "(2/3)*" in text
    assert "1/1+" in text


def test_two_accelerators_that_disagree_stand_apart_and_name_the_cell():
    cell = "bert/fill-mask/cuda/float32"
    devices = {
        "accelerator": {"H200": [verdict(cell, Level.HIGH)], "T4\x1b": [verdict(cell, Level.UNSUPPORTED)]},
        "machine": {"lab": [verdict(cell, Level.UNSUPPORTED)]},
    }
    found = matrix(verdict(cell, Level.UNSUPPORTED), devices=devices)
    view = found.groups["accelerator"]
    assert [(name, view[name]["cuda"].levels) for name in view] == [
        ("H200", {Level.HIGH: 1}),
        ("T4\x1b", {Level.UNSUPPORTED: 1}),
    ]
    assert view["H200"]["cuda"].notes == (f"{cell}: high here, unsupported on T4\x1b",)
    text = matrix_text(found, by="accelerator")
    assert "Cells that have another level elsewhere:" in text
    assert "\x1b" not in text
    assert "Cells that" not in matrix_text(found, by="machine")


def test_names_of_machines_and_accelerators_are_no_markup():
    cell = "bert/fill-mask/cuda/float32"
    devices = {
        "accelerator": {"<b>one|": [verdict(cell, Level.HIGH)], "[two](x)": [verdict(cell, Level.UNSUPPORTED)]}
    }
    text = matrix_text(matrix(verdict(cell, Level.UNSUPPORTED), devices=devices), "markdown", by="accelerator")
    assert "<b>" not in text
    assert "\\[two]" in text
    assert "one\\|" in text


@pytest.mark.parametrize("by", ["architecture", "accelerator", "machine"])
def test_a_view_with_nothing_to_show_says_so(by):
    for format_ in ("table", "markdown"):
        assert matrix_text(matrix(), format_, by=by).startswith("No ")
    header, *rows = csv.reader(io.StringIO(matrix_text(matrix(), "csv", by=by)))
    assert header[0] == by
    assert rows == []


def test_a_checkpoint_has_a_row_under_its_name_with_the_hash_and_under_its_label():
    cell = "mine@1377e9af/text-generation/cpu/float32"
    found = matrix(verdict(cell, Level.HIGH))
    assert [row.id for row in found.of_models(["mine"]).rows] == ["mine@1377e9af/text-generation/float32"]
    assert load_recipe("mine@1377e9af", "text-generation") is None
