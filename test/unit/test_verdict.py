"""A verdict survives JSON, rests on something, and a broken one is refused with the field's name."""

from __future__ import annotations

import jsonschema
import pytest

from generators.compatibility.levels import level_rules
from generators.compatibility.verdict import Basis, Level, Verdict, schema, worst
from hardware.errors import BrokenInput

CELL = "bert/fill-mask/openvino:NPU/float32"


def make(**changes: object) -> Verdict:
    values = {
        "cell": CELL,
        "level": Level.MEDIUM,
        "basis": Basis.MEASURED,
        "reasons": ("why",),
        "conditions": ("static shapes",),
        "evidence_ids": ("run/cell/check",),
    }
    return Verdict(**{**values, **changes})


def test_verdict_is_the_same_after_json_and_fits_the_published_schema():
    verdict = make()
    data = verdict.to_dict()
    jsonschema.validate(data, schema())
    assert Verdict.from_dict(data) == verdict


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
