"""A matrix compared with a baseline: only changes are shown, the worse ones first; a broken baseline is refused."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from generators.compatibility.matrix import Matrix, build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.errors import BrokenInput, UsageError
from reports.matrix_changes import (
    CHANGES_SCHEMA,
    FAIL_ON,
    MatrixChanges,
    changes_text,
    check_words,
    compare_matrix,
    read_baseline,
)
from reports.matrix_text import matrix_text

HIGH, MEDIUM, LOW, UNSUPPORTED, UNKNOWN = Level
MEASURED, EXPIRED, PREDICTED = Basis.MEASURED, Basis.EXPIRED, Basis.PREDICTED


def matrix(*, target: str = "qnn", **levels: tuple[Level, Basis]) -> Matrix:
    """A matrix of models with one verdict each on a target without rules."""
    verdicts = [
        Verdict(
            cell=f"{model}/fill-mask/{target}/float32",
            level=level,
            basis=basis,
            reasons=(Reason.of("text", text=f"why {model}"),),
            evidence_ids=("r1",),
        )
        for model, (level, basis) in levels.items()
    ]
    return build_matrix(load_rules(), verdicts, timestamp="2026-03-01T00:00:00+00:00").only([target])


def changes(before: dict[str, tuple[Level, Basis]], now: dict[str, tuple[Level, Basis]]) -> MatrixChanges:
    return compare_matrix(json.loads(matrix_text(matrix(**before), "json")), matrix(**now))


def test_what_a_change_is_called_and_which_words_it_fails_on():
    for before, now, kind, words in (
        ((HIGH, MEASURED), (HIGH, MEASURED), "same", ""),
        ((HIGH, MEASURED), (LOW, MEASURED), "worse", "worse changed"),
        ((LOW, MEASURED), (UNSUPPORTED, MEASURED), "worse", "worse unsupported changed"),
        ((HIGH, MEASURED), (UNKNOWN, MEASURED), "worse", "worse expired unknown changed"),
        ((UNSUPPORTED, MEASURED), (UNKNOWN, MEASURED), "worse", "worse expired unknown changed"),
        ((UNKNOWN, MEASURED), (UNSUPPORTED, MEASURED), "worse", "worse unsupported changed"),
        ((HIGH, PREDICTED), (MEDIUM, EXPIRED), "worse", "worse changed"),
        ((HIGH, MEASURED), (HIGH, EXPIRED), "expired", "expired changed"),
        ((HIGH, MEASURED), (HIGH, PREDICTED), "expired", "expired changed"),
        ((UNSUPPORTED, MEASURED), (HIGH, PREDICTED), "expired", "expired changed"),
        ((HIGH, PREDICTED), (HIGH, EXPIRED), "changed", "changed"),
        ((HIGH, PREDICTED), (HIGH, MEASURED), "better", "changed"),
        ((UNSUPPORTED, MEASURED), (HIGH, MEASURED), "better", "changed"),
        ((UNKNOWN, MEASURED), (LOW, MEASURED), "better", "changed"),
    ):
        found = changes({"bert": before}, {"bert": now})
        assert [str(one.kind) for one in found.changes] == ([] if kind == "same" else [kind]), (before, now)
        assert set(found.met(tuple(FAIL_ON))) == set(words.split()), (before, now)


def test_worse_comes_first_and_what_stayed_is_only_counted():
    before = dict.fromkeys(("same", "old", "fell", "broke", "gone"), (HIGH, MEASURED))
    now = {
        "new": (HIGH, MEASURED),
        "same": (HIGH, MEASURED),
        "old": (HIGH, EXPIRED),
        "fell": (LOW, MEASURED),
        "broke": (UNSUPPORTED, MEASURED),
    }
    found = changes(before, now)
    assert [one.cell.split("/")[0] for one in found.changes] == ["broke", "fell", "old", "new", "gone"]
    assert found.same == 1
    text = " ".join(changes_text(found, "table").split())
    assert text.index("broke/") < text.index("fell/") < text.index("old/") < text.index("new/") < text.index("gone/")
    assert "high (measured) → unsupported (measured)" in text
    assert "why broke" in text
    assert "same/" not in text
    assert "2 worse, 1 expired, 1 new, 1 gone; 1 cells are the same" in text


def test_json_fits_its_schema_and_says_what_failed():
    found = changes({"bert": (HIGH, MEASURED), "t5": (HIGH, MEASURED)}, {"bert": (UNKNOWN, MEASURED)})
    data = json.loads(changes_text(found, "json", fail_on=("worse", "unsupported")))
    jsonschema.validate(data, json.loads(CHANGES_SCHEMA.read_text(encoding="utf-8")))
    assert data["fail_on"] == {"worse": 1, "unsupported": 0}
    assert data["changes"][0]["now"] == {"level": "unknown", "basis": None}
    assert data["changes"][1]["now"] is None
    same = {"bert": (HIGH, MEASURED)}
    assert "nothing changed" in changes_text(changes(same, same), "markdown")


def test_markdown_shows_a_hostile_baseline_as_text():
    data = json.loads(matrix_text(matrix(bert=(HIGH, MEASURED)), "json"))
    data["models"]["x"] = data["models"].pop("bert/fill-mask/float32")
    data["models"]["x"]["compatibility"]["qnn"]["cell"] = "a|<b>/[x](http://y)/\x1b[31m\n/z"
    found = compare_matrix(data, matrix())
    for format_ in ("markdown", "table"):
        text = changes_text(found, format_)
        assert "\x1b" not in text
    assert "<b>" not in changes_text(found, "markdown")
    assert "\\|&lt;b&gt;" in changes_text(found, "markdown")


def test_a_page_draws_how_many_changed():
    before, now = (
        {"gone": (HIGH, MEASURED), "fell": (HIGH, MEASURED), "b": (HIGH, MEASURED)},
        {"fell": (LOW, MEASURED), "b": (HIGH, EXPIRED)},
    )
    page = changes_text(changes(before, now), "html")
    assert re.findall(r'<rect class="(\w+)" x="(\d)" width="(\d)"', page) == [
        ("worse", "0", "1"),
        ("expired", "1", "1"),
        ("gone", "2", "1"),
    ]
    assert 'aria-label="1 worse, 1 expired, 1 gone"' in page
    assert '<td class="said">high (measured) → low (measured)</td>' in page


def test_unknown_words_and_formats_are_refused_with_a_hint():
    with pytest.raises(UsageError, match="Did you mean 'worse'"):
        check_words(("changed", "wrose"))
    with pytest.raises(UsageError, match="markdown"):
        changes_text(changes({}, {}), "csv")
    check_words(("none", "unsupported"))  # the older name too
    found = changes({"bert": (HIGH, MEASURED)}, {"bert": (UNSUPPORTED, MEASURED)})
    assert found.met(("none", "unsupported")) == {"none": 1, "unsupported": 1}


def test_a_file_that_is_no_baseline_is_refused_with_the_next_step(tmp_path):
    path = tmp_path / "old.json"
    whole = json.loads(matrix_text(matrix(bert=(HIGH, MEASURED)), "json"))
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert read_baseline(path) == whole
    whole["models"]["bert/fill-mask/float32"]["compatibility"]["qnn"]["level"] = "splendid"
    for content, message in (
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a matrix"),
        ('{"schema_version": 1}', "schema version 1.*Create it again"),
        ('{"schema_version": 2}', "not a matrix.*required property"),
        ('{"schema_version": 99}', "schema version 99.*the version of hwcompat that created it"),
        ('{"schema_version": 3}', "not a matrix.*required property"),
        (json.dumps(whole), "splendid"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(BrokenInput, match=message):
            read_baseline(path)


def of_version_2(data: dict) -> dict:
    """A matrix as version 2 wrote it: other words, reasons as texts, no new fields, and groups with a level."""
    words = {"unsupported": "none", "assumed": "declared"}
    older = json.loads(json.dumps(data)) | {"schema_version": 2}
    for row in older["models"].values():
        for verdict in row["compatibility"].values():
            verdict["level"] = words.get(verdict["level"], verdict["level"])
            verdict["basis"] = words.get(verdict["basis"], verdict["basis"])
            for name in ("reasons", "conditions"):
                verdict[name] = [one["text"] for one in verdict[name]]
            for name in ("fault", "route", "weights_asked", "weights_run"):
                del verdict[name]
    for view in ("compatibility", "architectures", "accelerators", "machines"):
        for cells in older[view].values():
            for cell in cells.values():
                del cell["levels"]
                cell["basis"] = words.get(cell["basis"], cell["basis"])
                cell["level"] = words.get(cell["level"], cell["level"]) or "unknown"
    return older


def test_a_baseline_of_version_2_is_compared_cell_by_cell(tmp_path):
    then = {"bert": (HIGH, MEASURED), "vit": (UNSUPPORTED, MEASURED), "t5": (UNSUPPORTED, Basis.ASSUMED)}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(of_version_2(json.loads(matrix_text(matrix(**then), "json")))), encoding="utf-8")
    assert '"none"' in path.read_text(encoding="utf-8")
    now = then | {"bert": (LOW, MEASURED)}
    found = compare_matrix(read_baseline(path), matrix(**now))
    assert [(one.cell.split("/")[0], str(one.kind)) for one in found.changes] == [("bert", "worse")]
    assert found.same == 2


def test_of_chosen_models_others_are_not_gone():
    before = json.loads(matrix_text(matrix(bert=(HIGH, MEASURED), vit=(HIGH, MEASURED)), "json"))
    now = matrix(bert=(LOW, MEASURED), vit=(HIGH, MEASURED)).of_models(["bert"])
    assert [one.cell for one in compare_matrix(before, now, models=["bert"]).changes] == [
        "bert/fill-mask/qnn/float32"
    ]
    assert "vit/fill-mask/qnn/float32" in [one.cell for one in compare_matrix(before, now).changes]
