"""A verdict survives JSON, rests on something, and a broken one is refused with the field's name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from generators.compatibility.grade import level_rules
from generators.compatibility.verdict import Basis, Fault, Level, Reason, Verdict, schema, worst
from hardware.errors import BrokenInput
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


def test_verdict_is_the_same_after_json_and_fits_the_published_schema():
    verdict = make()
    data = verdict.to_dict()
    jsonschema.validate(data, schema())
    assert Verdict.from_dict(data) == verdict


def test_verdict_with_texts_beside_its_reasons_fits_the_schema_and_is_read_as_the_same():
    data = with_texts(make().to_dict())
    assert [one["text"] for one in data["conditions"]] == ["on the host: aten.cumsum, aten.gather"]
    jsonschema.validate(data, schema())
    assert Verdict.from_dict(data) == make()


@pytest.mark.parametrize(
    ("level", "basis", "read"),
    [
        ("none", "declared", (Level.UNSUPPORTED, Basis.ASSUMED)),
        ("unsupported", "assumed", (Level.UNSUPPORTED, Basis.ASSUMED)),
        ("medium", "measured", (Level.MEDIUM, Basis.MEASURED)),
    ],
)
def test_words_and_texts_of_the_first_edition_are_still_read(level, basis, read):
    older = {"cell": CELL, "level": level, "basis": basis, "reasons": ["no memory"], "rule_ids": ["test.rule"]}
    verdict = Verdict.from_dict(older)
    assert (verdict.level, verdict.basis) == read
    assert texts(verdict.reasons) == ("no memory",)
    assert (verdict.fault, verdict.route, verdict.weights_asked, verdict.weights_run) == (None, "", "", "")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_reason_with_no_finite_number_is_json_that_everybody_reads(number):
    data = make(reasons=(Reason.of("pass_without_error", check="builds", error=number, tolerance=1e-3),)).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_known_level_needs_a_rule_or_evidence():
    with pytest.raises(ValueError, match="no rule and no evidence"):
        make(evidence_ids=())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**make().to_dict(), "evidence_ids": []}, schema())
    assert make(level=Level.UNKNOWN, evidence_ids=()).level is Level.UNKNOWN


@pytest.mark.parametrize(
    ("change", "said"),
    [
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
    ],
)
def test_broken_verdict_names_the_field(change, said):
    with pytest.raises(BrokenInput) as caught:
        Verdict.from_dict({**make().to_dict(), **change})
    assert said in str(caught.value)


def test_worst_level_ignores_unknown_and_is_unknown_without_any():
    assert worst([Level.HIGH, Level.UNKNOWN, Level.LOW]) is Level.LOW
    assert worst([Level.UNSUPPORTED, Level.HIGH]) is Level.UNSUPPORTED
    assert worst([Level.UNKNOWN]) is Level.UNKNOWN
    assert worst([]) is Level.UNKNOWN


def test_a_stronger_basis_has_a_higher_rank():
    assert sorted(Basis, key=lambda one: one.rank) == [
        Basis.ASSUMED,
        Basis.PREDICTED,
        Basis.EXPIRED,
        Basis.IMPORTED,
        Basis.MEASURED,
    ]


def test_levels_are_ordered_and_unknown_is_not_on_the_scale():
    on_scale = [Level.UNSUPPORTED, Level.LOW, Level.MEDIUM, Level.HIGH]
    assert [level.rank for level in on_scale] == [0, 1, 2, 3]
    assert Level.UNKNOWN.rank is None
    assert not Level.UNKNOWN.is_supported
    assert not Level.UNSUPPORTED.is_supported


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("aten.addmm", True),
        ("aten.mm.default", True),
        ("aten::convolution", True),
        ("aten.embedding", True),
        ("aten.native_layer_norm", True),
        ("openvino.FullyConnected", True),
        ("MatMul", True),
        ("Conv", True),
        ("aten.cumsum", False),
        ("aten.linalg_vector_norm", False),
        ("openvino.Convert", False),
        ("openvino.Gather", False),
        ("aten._to_copy", False),
    ],
)
def test_operators_with_parameters_are_told_apart(name, has):
    assert level_rules().has_parameters(name) is has


def test_every_code_of_a_reason_has_words():
    sources = [path for floor in ("generators", "reports", "hwcompat") for path in (ROOT / floor).rglob("*.py")]
    codes = {
        code for path in sources for code in re.findall(r'Reason\.of\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert len(codes) > 30
    assert [code for code in sorted(codes) if reason_text(Reason.of(code)) == code] == []
    assert reason_text(Reason.of("of_a_later_version", check="builds", limit=0.25)) == (
        "of_a_later_version: check builds, limit 0.25"
    )


def test_a_reason_of_an_older_file_that_lacks_a_parameter_has_words():
    assert reason_text(Reason.of("tolerance_moved", then=0.5)) == "measured with a tolerance of 0.5, now ?"
