"""Lines of evidence: what is written fits the published schema and is read back as it was."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from evidence_lines import check_line, planned_cell, run_line
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.cell import PRECISIONS
from hardware.errors import BrokenInput
from hardware.evidence import record, store
from hardware.evidence.record import (
    CheckLine,
    EndLine,
    Outcome,
    PlannedCell,
    RunLine,
    Stage,
    WeightsKind,
    from_dict,
    to_dict,
)
from hardware.evidence.store import read_line

SCHEMA = json.loads((Path(record.__file__).parent / "schemas" / "evidence.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

CHECK = check_line()
PLANNED = planned_cell(checks=("builds",), verdict={"level": "high"})
RUN = run_line(PLANNED, replace(PLANNED, verdict=None), inventory={"cpu": {"model": "x"}}, versions={"torch": "2"})
END = EndLine(run_id="r1", ended_at=CHECK.started_at, reason="done", counts={"passed": 1})
FULL = check_line(
    "builds",
    Outcome.FAILED,
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


def test_a_line_fits_the_published_schema_and_comes_back_as_it_was() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    precisions = [replace(CHECK, precision=one) for one in PRECISIONS]
    for line in (RUN, CHECK, FULL, END, *precisions):
        data = json.loads(json.dumps(to_dict(line), allow_nan=False))
        VALIDATOR.validate(data)
        assert from_dict(data) == line
        assert from_dict(data | {"something_new": 1}) == line  # of a newer minor version
    for number in (float("nan"), float("inf"), float("-inf")):
        data = json.loads(json.dumps(to_dict(replace(CHECK, max_rel_error=number)), allow_nan=False))
        VALIDATOR.validate(data)
        assert str(from_dict(data).max_rel_error) == str(number)


def test_the_schema_refuses_what_the_product_never_writes() -> None:
    changes = {
        "outcome": "ok",
        "stage": "somewhere",
        "subject": "huge",
        "schema_version": 3,
        "max_rel_error": "large",
        "batch": -1,
        "cell_id": "bert",
        "kind": "note",
    }
    assert [one for one in changes.items() if VALIDATOR.is_valid(to_dict(FULL) | dict([one]))] == []


def test_the_schema_and_the_code_list_the_same_values_and_fields() -> None:
    for name, enum in (("outcome", Outcome), ("stage", Stage), ("subject", WeightsKind)):
        assert SCHEMA["$defs"][name]["enum"] == [str(member) for member in enum]
    for name, cls in (("run", RunLine), ("check", CheckLine), ("end", EndLine), ("planned_cell", PlannedCell)):
        assert set(SCHEMA["$defs"][name]["properties"]) == {field.name for field in dataclasses.fields(cls)}
        assert _mandatory(cls) <= set(SCHEMA["$defs"][name]["required"]), name


def _mandatory(cls: Any) -> set[str]:
    return {f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING}


def test_lines_that_cannot_be_are_broken_input() -> None:
    check, run = "'check' line of evidence is broken", "'run' line of evidence is broken"
    (planned, _) = to_dict(RUN)["plan"]
    changes: list[tuple[str, list[dict[str, Any]]]] = [
        ("schema version", [to_dict(CHECK) | {"schema_version": one} for one in (0, 3, "1", None, [1])]),
        ("not a kind of evidence line", [to_dict(CHECK) | {"kind": one} for one in ("note", None, 1, ["check"], {})]),
        (check, [to_dict(CHECK) | {name: value} for name, values in WRONG.items() for value in values]),
        (run, [to_dict(RUN) | {"plan": one} for one in (None, 1, [1], [{}], ["cell"], [None], {"a": 1})]),
        (
            run,
            [
                to_dict(RUN) | {"plan": [planned | {"checks": one}]}
                for one in ("builds", [1], [["builds"]], None, {"builds": 1})
            ],
        ),
    ]
    for message, lines in changes:
        for line in lines:
            with pytest.raises(BrokenInput, match=message):
                from_dict(line)


WRONG: dict[str, list[Any]] = {
    "outcome": ["ok", None, ["passed"]],
    "stage": ["somewhere"],
    "max_rel_error": ["large"],
    "max_abs_error": [[1]],
    "tolerance": [10**400],
    "duration_s": [None],
    "cell_id": [["bert"]],
    "model": [None],
    "conditions": [[1], {"optimisation": None}],
    "native_ops": [None, {"aten.mm": "many"}],
    "batch": ["2"],
}


@pytest.mark.parametrize("line", [RUN, CHECK, END], ids=["run", "check", "end"])
def test_no_field_may_be_missing_or_of_another_kind(line: Any) -> None:
    whole = to_dict(line)
    assert read_line(json.dumps(whole).encode()) == line
    optional = {f.name for f in dataclasses.fields(line)} - _mandatory(type(line))
    for name in set(whole) - optional:
        with pytest.raises(BrokenInput):
            from_dict({key: value for key, value in whole.items() if key != name})
    for name in whole.keys() - {"kind"}:
        with pytest.raises((ValueError, BrokenInput)):
            read_line(json.dumps({**whole, name: [["x"]]}).encode())
    for name in whole["plan"][0] if line is RUN else ():
        with pytest.raises((ValueError, BrokenInput)):
            read_line(json.dumps({**whole, "plan": [{**whole["plan"][0], name: [["x"]]}]}).encode())


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([RUN, CHECK, END]), st.data())
def test_whatever_a_field_holds_a_line_is_read_or_is_broken_input(line: Any, data: Any) -> None:
    whole = to_dict(line)
    name = data.draw(st.sampled_from(sorted(whole)))
    try:
        line = from_dict(whole | {name: data.draw(JSON)})
    except BrokenInput:
        return
    assert json.dumps(to_dict(line), allow_nan=False)
    assert isinstance(line.run_id, str)


def test_only_what_was_tried_and_did_not_work_is_a_failure() -> None:
    failures = {Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY}
    assert {one for one in Outcome if one.is_failure} == failures
    assert CHECK.evidence_id == "r1/bert/fill-mask/cpu/float32/builds"


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"duration_s": 1, "batch": True},
        {"max_abs_error": "inf", "max_rel_error": "nan"},
        {"error_message": "\ud800 \u00e9", "unknown": [1]},
        {"stage": "", "conditions": {"ulp": "1"}},
        {"native_ops": {"mm": 2**70}},
        {"speed": {"ms": [[1.5]]}},
        {"outcome": "nearly"},
        {"conditions": {"ulp": 1}},
        {"latency_ms": "fast"},
        {"schema_version": 99},
        {"schema_version": True},
        {"kind": "end"},
        {"run_id": None},
        {"kind": ...},
        {"schema_version": ...},
        {"unknown": 10**4400},
    ],
)
def test_lines_are_the_same_without_the_faster_reader(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    sys.set_int_max_str_digits(5000)
    whole = {**to_dict(check_line(accelerator="a")), **change}
    data = json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()
    sys.set_int_max_str_digits(4300)
    assert change or store._check_in(data) == check_line(accelerator="a"), "msgspec reads what is right"

    def found() -> object:
        try:
            return read_line(data)
        except (ValueError, BrokenInput) as error:
            return str(error)

    fast = found()
    monkeypatch.setattr(store, "_fast_decoders", lambda: None)
    assert str(fast) == str(found())  # NaN isn't equal to itself
