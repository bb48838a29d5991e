"""Verdicts are read back from JSON as they were written, rest on a rule or on evidence, and have words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from generators.compatibility.grade import level_rules
from generators.compatibility.verdict import SCHEMA, Basis, Fault, Level, Reason, Verdict, worst
from hardware.errors import BrokenInput
from hardware.values import data_file
from reports.reason_text import reason_text, texts, with_texts

ROOT = Path(__file__).parents[2]
CELL = "bert/fill-mask/openvino:NPU/float32"


def make(**changes: object) -> Verdict:
    values = {
        "cell": CELL,
        "level": Level.MEDIUM,
        "basis": Basis.MEASURED,
        "fault": Fault.DEVICE,
        "route": "torch-export",
        "weights_asked": "config",
        "weights_run": "tiny",
        "reasons": (
            Reason.of("wide_tolerance", check="builds", limit=0.1, today=2e-5),
            Reason.of("nothing_measured"),
        ),
        "conditions": (Reason.of("on_host", operators=("aten.cumsum", "aten.gather")),),
        "evidence_ids": ("run/cell/check",),
    }
    return Verdict(**{**values, **changes})


def test_verdict_is_the_same_after_json_with_and_without_texts():
    worded = with_texts(make().to_dict())
    assert [one["text"] for one in worded["conditions"]] == ["on the host: aten.cumsum, aten.gather"]
    for one in (make().to_dict(), worded):
        jsonschema.validate(one, data_file(SCHEMA))
        assert Verdict.from_dict(one) == make()
    for number in (float("nan"), float("inf"), float("-inf")):
        reason = Reason.of("pass_without_error", check="builds", error=number, tolerance=1e-3)
        data = make(reasons=(reason,)).to_dict()
        assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_names_and_texts_of_the_first_edition_are_read():
    for level, basis, read in (
        ("none", "declared", (Level.UNSUPPORTED, Basis.ASSUMED)),
        ("unsupported", "assumed", (Level.UNSUPPORTED, Basis.ASSUMED)),
        ("medium", "measured", (Level.MEDIUM, Basis.MEASURED)),
    ):
        older = {"cell": CELL, "level": level, "basis": basis, "reasons": ["no memory"], "rule_ids": ["test.rule"]}
        verdict = Verdict.from_dict(older)
        assert (verdict.level, verdict.basis) == read
        assert texts(verdict.reasons) == ("no memory",)
        assert (verdict.fault, verdict.route, verdict.weights_asked, verdict.weights_run) == (None, "", "", "")


def test_known_level_needs_a_rule_or_evidence():
    with pytest.raises(ValueError, match="no rule and no evidence"):
        make(evidence_ids=())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**make().to_dict(), "evidence_ids": []}, data_file(SCHEMA))
    assert make(level=Level.UNKNOWN, evidence_ids=()).level is Level.UNKNOWN


def test_broken_verdict_names_the_field():
    for change, message in (
        ({"level": "hihg"}, "'level'"),
        ({"basis": 3}, "'basis'"),
        ({"reasons": "why"}, "'reasons'"),
        ({"evidence_ids": []}, "no evidence"),
        ({"reasons": [3]}, "'reasons'"),
        ({"conditions": [{"code": "text"}]}, "'conditions'"),
        ({"reasons": [{"code": "text", "parameters": {"text": None}}]}, "'reasons'"),
        ({"reasons": [{"code": "text", "parameters": {"text": True}}]}, "'reasons'"),
        ({"fault": "nobody"}, "'fault'"),
        ({"route": 3}, "'route'"),
        ({"reson": []}, "Did you mean 'reasons'"),
    ):
        with pytest.raises(BrokenInput) as caught:
            Verdict.from_dict({**make().to_dict(), **change})
        assert message in str(caught.value), change


def test_levels_and_bases_are_ordered_and_unknown_is_not_on_the_scale():
    on_scale = [Level.UNSUPPORTED, Level.LOW, Level.MEDIUM, Level.HIGH]
    assert [level.rank for level in on_scale] == [0, 1, 2, 3]
    assert Level.UNKNOWN.rank is None
    assert not Level.UNKNOWN.is_supported
    assert not Level.UNSUPPORTED.is_supported
    assert worst([Level.HIGH, Level.UNKNOWN, Level.LOW]) is Level.LOW
    assert worst([Level.UNSUPPORTED, Level.HIGH]) is Level.UNSUPPORTED
    assert worst([Level.UNKNOWN]) is worst([]) is Level.UNKNOWN
    by_rank = [Basis.ASSUMED, Basis.PREDICTED, Basis.EXPIRED, Basis.IMPORTED, Basis.MEASURED]
    assert sorted(Basis, key=lambda one: one.rank) == by_rank


def test_operators_with_parameters_are_recognized():
    with_parameters = (
        *("aten.addmm", "aten.mm.default", "aten::convolution", "aten.embedding", "aten.native_layer_norm"),
        *("openvino.FullyConnected", "MatMul", "Conv"),
    )
    without = ("aten.cumsum", "aten.linalg_vector_norm", "openvino.Convert", "openvino.Gather", "aten._to_copy")
    has = level_rules().has_parameters
    assert [name for name in (*with_parameters, *without) if has(name)] == list(with_parameters)


def test_every_code_of_a_reason_has_words():
    sources = [path for part in ("generators", "reports", "hwcompat") for path in (ROOT / part).rglob("*.py")]
    codes = {
        code for path in sources for code in re.findall(r'Reason\.of\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert len(codes) > 30
    assert [code for code in sorted(codes) if reason_text(Reason.of(code)) == code] == []
    later = Reason.of("of_a_later_version", check="builds", limit=0.25)
    assert reason_text(later) == "of_a_later_version: check builds, limit 0.25"
    older = Reason.of("tolerance_moved", then=0.5)  # without a parameter that it has today
    assert reason_text(older) == "measured with a tolerance of 0.5, now ?"
