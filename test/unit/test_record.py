"""Evidence lines: what is written is what the schema publishes, and is read back as it was."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.cell import PRECISIONS
from hardware.errors import BrokenInput
from hardware.evidence import record
from hardware.evidence.record import (
    CheckLine,
    EndLine,
    Outcome,
    PlannedCell,
    RunLine,
    Stage,
    Subject,
    from_dict,
    to_dict,
)

SCHEMA = json.loads((Path(record.__file__).parent / "schemas" / "evidence.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

CHECK = CheckLine(
    run_id="r",
    cell_id="bert/fill-mask/cpu/float32",
    check_name="builds",
    outcome=Outcome.PASSED,
    subject="tiny",
    requested_target="cpu",
    actual_target="cpu",
    precision="float32",
    model="bert",
    task="fill-mask",
    suite_hash="0",
    started_at="2026-01-01T00:00:00+00:00",
    duration_s=0.5,
)
PLANNED = PlannedCell(
    cell_id=CHECK.cell_id,
    checks=("builds",),
    suite="test_x.py",
    suite_hash="0",
    subject="tiny",
    verdict={"level": "high"},
)
RUN = RunLine(
    run_id="r",
    started_at=CHECK.started_at,
    command="pytest",
    machine="",
    inventory={"cpu": {"model": "x"}},
    versions={"torch": "2"},
    plan=(PLANNED, replace(PLANNED, verdict=None)),
)
END = EndLine(run_id="r", ended_at=CHECK.started_at, reason="done", counts={"passed": 1})
FULL = replace(
    CHECK,
    outcome=Outcome.FAILED,
    stage=Stage.COMPARE,
    model_revision="abc",
    config_hash="def",
    architecture="encoder-only",
    accelerator="H200",
    actual_dtype="float32",
    batch=2,
    sequence_length=16,
    conditions={"optimisation": "O0"},
    error_type="numerical_mismatch",
    error_message="assert 1 <= 0",
    max_abs_error=1.5,
    max_rel_error=float("inf"),
    tolerance=2e-5,
    native_ops={"aten.mm": 3},
    offloaded_ops={"aten.add": 1},
    latency_ms=1.25,
    peak_memory_bytes=2**40,
)


@pytest.mark.parametrize("line", [RUN, CHECK, FULL, END], ids=["run", "check", "full", "end"])
def test_a_line_fits_the_published_schema_and_comes_back_as_it_was(line):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    data = json.loads(json.dumps(to_dict(line), allow_nan=False))
    VALIDATOR.validate(data)
    assert from_dict(data) == line


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ("outcome", "ok"),
        ("stage", "somewhere"),
        ("subject", "huge"),
        ("schema_version", 3),
        ("max_rel_error", "large"),
        ("batch", -1),
        ("cell_id", "bert"),
        ("kind", "note"),
    ],
)
def test_the_schema_refuses_what_the_product_never_writes(changed, value):
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(to_dict(FULL) | {changed: value})


@pytest.mark.parametrize(("name", "enum"), [("outcome", Outcome), ("stage", Stage), ("subject", Subject)])
def test_the_schema_and_the_code_list_the_same_values(name, enum):
    assert SCHEMA["$defs"][name]["enum"] == [str(member) for member in enum]


@pytest.mark.parametrize(
    ("name", "cls"), [("run", RunLine), ("check", CheckLine), ("end", EndLine), ("planned_cell", PlannedCell)]
)
def test_the_schema_and_the_code_list_the_same_fields(name, cls):
    fields = {field.name for field in dataclasses.fields(cls)}
    assert set(SCHEMA["$defs"][name]["properties"]) == fields
    mandatory = {f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING}
    assert mandatory <= set(SCHEMA["$defs"][name]["required"])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_survive_as_themselves(number):
    data = json.loads(json.dumps(to_dict(replace(CHECK, max_rel_error=number)), allow_nan=False))
    VALIDATOR.validate(data)
    back = from_dict(data)
    assert isinstance(back, CheckLine)
    assert str(back.max_rel_error) == str(number)


@pytest.mark.parametrize("line", [RUN, CHECK, END], ids=["run", "check", "end"])
def test_fields_of_a_newer_minor_version_are_left_out(line):
    assert from_dict(to_dict(line) | {"something_new": 1}) == line


@pytest.mark.parametrize("version", [0, 3, "1", None, [1]])
def test_another_schema_version_is_refused_by_its_number(version):
    with pytest.raises(BrokenInput, match="schema version"):
        from_dict(to_dict(CHECK) | {"schema_version": version})


@pytest.mark.parametrize("kind", ["note", None, 1, ["check"], {}])
def test_an_unknown_kind_is_refused(kind):
    with pytest.raises(BrokenInput, match="no kind of evidence line"):
        from_dict(to_dict(CHECK) | {"kind": kind})


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "ok"},
        {"outcome": None},
        {"outcome": ["passed"]},
        {"stage": "somewhere"},
        {"max_rel_error": "large"},
        {"max_abs_error": [1]},
        {"tolerance": 10**400},
        {"duration_s": None},
        {"cell_id": ["bert"]},
        {"model": None},
        {"conditions": [1]},
        {"native_ops": None},
        {"native_ops": {"aten.mm": "many"}},
        {"conditions": {"optimisation": None}},
        {"batch": "2"},
    ],
)
def test_a_value_that_cannot_be_is_broken_input(change):
    with pytest.raises(BrokenInput, match="'check' line of evidence is broken"):
        from_dict(to_dict(CHECK) | change)


@pytest.mark.parametrize("plan", [None, 1, [1], [{}], ["cell"], [None], {"a": 1}])
def test_a_plan_that_cannot_be_is_broken_input(plan):
    with pytest.raises(BrokenInput, match="'run' line of evidence is broken"):
        from_dict(to_dict(RUN) | {"plan": plan})


@pytest.mark.parametrize("line", [RUN, CHECK, END], ids=["run", "check", "end"])
def test_each_missing_mandatory_field_is_broken_input(line):
    whole = to_dict(line)
    optional = {f.name for f in dataclasses.fields(line) if f.default is not f.default_factory}
    for name in set(whole) - optional:
        with pytest.raises(BrokenInput):
            from_dict({key: value for key, value in whole.items() if key != name})


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([RUN, CHECK, END]), st.data())
def test_whatever_a_field_holds_a_line_is_read_or_is_broken_input(line, data):
    whole = to_dict(line)
    name = data.draw(st.sampled_from(sorted(whole)))
    try:
        line = from_dict(whole | {name: data.draw(JSON)})
    except BrokenInput:
        return
    assert json.dumps(to_dict(line), allow_nan=False)
    assert isinstance(line.run_id, str)


def test_only_what_was_tried_and_did_not_work_is_a_failure():
    assert {o for o in Outcome if o.is_failure} == {
        Outcome.FAILED,
        Outcome.CRASHED,
        Outcome.TIMEOUT,
        Outcome.OUT_OF_MEMORY,
    }


def test_an_evidence_id_tells_run_cell_and_check():
    assert CHECK.evidence_id == "r/bert/fill-mask/cpu/float32/builds"


def test_precisions_of_the_schema_are_not_narrower_than_those_of_cells():
    for precision in PRECISIONS:
        assert VALIDATOR.is_valid(to_dict(replace(CHECK, precision=precision))), precision


@pytest.mark.parametrize("checks", ["builds", [1], [["builds"]], None, {"builds": 1}])
def test_the_checks_of_a_plan_are_texts(checks):
    planned = to_dict(RUN)["plan"][0]
    with pytest.raises(BrokenInput, match="'run' line of evidence is broken"):
        from_dict(to_dict(RUN) | {"plan": [planned | {"checks": checks}]})
