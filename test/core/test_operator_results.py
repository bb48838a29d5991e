"""What results of operators say: outcomes, coverage and the formats of `hwcompat ops`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from evidence_lines import check_line
from front_doors import invoke

from generators.operators.operator_results import (
    OperatorOutcome,
    OperatorReport,
    coverage_of,
    judged,
    report_of,
    support_report,
)
from generators.operators.operator_variants import (
    called_by_models,
    needing_types,
    operators_with_suites,
    types_by_call,
    types_of_others,
)
from generators.operators.render_operator import operator_cell, render_operator
from generators.operators.run_operators import chosen_operators
from hardware.backends.factory import backend_class
from hardware.backends.simulated import FAULT_VARIABLE, SimulatedFault
from hardware.evidence.record import EDITED, CheckLine, Outcome, Stage
from hardware.export import program, verify_export
from hardware.model.model_types import Unsupported
from hardware.operators import Call, OperatorTest, Tensor
from hardware.operators.call import made, name_of
from hardware.operators.numbers import apart, by_position, keeps_subnormals, limit_of
from hardware.operators.tried_call import FAILED_CALLS, REMOVED, UNJUDGED_CALLS
from hardware.target import Target
from hardware.testing.measurement import NotApplicable
from reports.operator_tables import COLUMNS, operators_text

CPU = Target(name="cpu")


def line(check: str, outcome: Outcome = Outcome.PASSED, **changes: object) -> CheckLine:
    return check_line(check, outcome, max_rel_error=1e-7, conditions={"ulp": "2"}, **changes)


PASSED = (line("matches_reference"), line("runs_natively"), line("special_numbers"))


OFFLOADED = {"outcome": Outcome.FAILED, "error_type": "silent_offload"}


@pytest.mark.parametrize(
    ("number", "change", "outcome", "blocks"),
    [
        (0, {}, "supported", False),
        (0, {"outcome": Outcome.FAILED, "error_type": "numerical_mismatch"}, "wrong", True),
        (0, {"outcome": Outcome.FAILED, "error_type": "unsupported_op"}, "unsupported", True),
        (0, {"outcome": Outcome.SKIPPED, "error_type": "not_run"}, "unknown", False),
        (
            1,
            {"outcome": Outcome.FAILED, "error_type": "silent_offload", "offloaded_ops": {"aten.mm": 1}},
            "host",
            True,
        ),
        (1, OFFLOADED, "unknown", False),
        (
            0,
            {"outcome": Outcome.FAILED, "error_type": "numerical_mismatch", "offloaded_ops": {"aten.mm": 1}},
            "host",
            True,
        ),
        (0, {"conditions": {EDITED: "yes"}}, "unknown", False),
        (0, {"outcome": Outcome.TIMEOUT, "stage": Stage.BUILD}, "unknown", False),
        (0, {"outcome": Outcome.CRASHED, "stage": Stage.EXPORT}, "unsupported", True),
        (0, {"outcome": Outcome.TIMEOUT, "stage": Stage.EXPORT}, "unknown", False),
        (0, {"outcome": Outcome.CRASHED, "stage": Stage.COMPILE}, "crashed", True),
        (1, {"outcome": Outcome.CRASHED}, "crashed", True),
        (2, {"outcome": Outcome.SKIPPED, "error_type": "not_applicable"}, "supported", False),
        (2, {"outcome": Outcome.FAILED, "error_type": "numerical_mismatch"}, "wrong", False),
    ],
)
def test_checks_decide_the_outcome(number: int, change: dict[str, object], outcome: str, blocks: bool) -> None:
    lines = [replace(one, **change) if place == number else one for place, one in enumerate(PASSED)]
    found = judged(lines, "aten.mm", "float32")
    assert (found.outcome, found.blocks) == (outcome, blocks)
    assert (found.error, found.ulp) == (1e-7, 2.0)


def test_what_a_target_may_leave_to_the_host_blocks_no_model() -> None:
    where = {"requested_target": "webgpu", "outcome": Outcome.FAILED, "error_type": "silent_offload"}
    for operator, blocks in (("onnx.NonZero of whole numbers", False), ("onnx.Round", True)):
        on_host = replace(PASSED[1], offloaded_ops={operator: 1}, **where)
        found = judged([PASSED[0], on_host], "aten.nonzero", "float32")
        assert (found.outcome, found.blocks, found.proven) == (OperatorOutcome.HOST, blocks, not blocks)


def test_the_reason_is_that_of_a_check_that_blocks_models() -> None:
    refused = {"outcome": Outcome.FAILED, "error_type": "unsupported_op"}
    beyond = check_line("no_elements", error_message="no elements", **refused)
    own = replace(PASSED[0], error_message="no kernel", **refused)
    assert judged([beyond, own], "aten.mm", "float32").reason == "no kernel"


def test_an_operator_whose_checks_did_not_run_is_unknown() -> None:
    assert judged([], "aten.mm", "float32").outcome is OperatorOutcome.UNKNOWN
    assert judged(PASSED[:1], "aten.mm", "float32").outcome is OperatorOutcome.UNKNOWN


def report(operators: Sequence[str], wrong: str = "") -> OperatorReport:
    lines = [
        replace(
            one,
            cell_id=operator_cell(name, CPU, "float32").id,
            **({"error_type": "numerical_mismatch"} if bad else {}),
        )
        for name in operators
        for one in PASSED
        for bad in [name == wrong and one.check_name == "matches_reference"]
    ]
    lines = [replace(one, outcome=Outcome.FAILED) if one.error_type else one for one in lines]
    return report_of(lines, CPU, operators, ["float32"], "a run")


def test_an_operator_without_a_proven_call_makes_no_type_possible() -> None:
    lines = [replace(one, cell_id=operator_cell("aten.mm", CPU, "float32").id) for one in PASSED]
    lines = [
        replace(one, outcome=Outcome.SKIPPED, error_type="not_applicable")
        if one.check_name == "matches_reference"
        else replace(one, outcome=Outcome.FAILED, error_type="numerical_mismatch")
        if one.check_name == "special_numbers"
        else one
        for one in lines
    ]
    (result,) = report_of(lines, CPU, ["aten.mm"], ["float32"], "a run").results
    assert (result.outcome, result.blocks, result.proven) == ("wrong", False, False)
    whole = report(list(operators_with_suites()))
    others = tuple(one for one in whole.results if one.operator != "aten.mm")
    assert coverage_of(whole, "float32").unknown == 0
    assert coverage_of(replace(whole, results=(*others, result)), "float32").unknown > 100


def test_coverage_names_the_types_that_an_operator_alone_blocks() -> None:
    everything = tuple(operators_with_suites())
    full = coverage_of(report(everything), "float32")
    assert len(full.possible) == full.types > 500
    without = coverage_of(report(everything, wrong="aten.erfinv"), "float32")
    assert without.next == {"aten.erfinv": needing_types()["aten.erfinv"]}
    assert len(without.possible) == without.types - len(needing_types()["aten.erfinv"])
    some = coverage_of(report(everything[:1]), "float32")
    assert (some.not_asked, some.unknown) == (full.types, 0)


def test_an_operator_blocks_only_the_types_that_make_a_call_that_fails() -> None:
    name = "aten.where"
    callers = types_by_call(name)
    bad = [call for call in callers if "int64" in call]
    good = next(call for call in callers if call not in bad)
    change = {"outcome": Outcome.FAILED, "error_type": "unsupported_op", "conditions": {FAILED_CALLS: "; ".join(bad)}}
    lines = [replace(one, cell_id=operator_cell(name, CPU, "float32").id) for one in PASSED]
    lines = [replace(one, **change) if one.check_name != "special_numbers" else one for one in lines]
    (result,) = report_of(lines, CPU, [name], ["float32"], "a run").results
    whole = report(tuple(operators_with_suites()))
    others = tuple(one for one in whole.results if one.operator != name)
    found = coverage_of(replace(whole, results=(*others, result)), "float32")
    blocked, untested = set().union(*(callers[call] for call in bad)), types_of_others(name, bad)
    assert not callers[good] <= untested, "float32 alone works"
    assert set(found.next[name]) == blocked
    assert callers[good] - blocked - untested <= set(found.possible)
    assert 0 < found.unknown == len(untested - blocked) < len(callers[good])
    one_rank = next(iter(types_by_call("aten.mul")))
    assert types_of_others("aten.mul", ()) < types_of_others("aten.mul", [one_rank]), "other ranks may fail too"
    rows = csv.reader(io.StringIO(operators_text(replace(whole, results=(result,)), (), "csv")))
    has = {row[2].removeprefix("type=float32,"): row[4] for row in rows}
    assert {call: has[call.replace(", ", ",")] for call in result.calls} == {
        call: "0" if "int64" in call else "1" for call in result.calls
    }
    unjudged = replace(result, unjudged_calls=(good,))
    found = coverage_of(replace(whole, results=(*others, unjudged)), "float32")
    assert callers[good].isdisjoint(found.possible)


def test_csv_has_the_columns_of_llama_cpp() -> None:
    rows = list(csv.reader(io.StringIO(operators_text(report(["aten.mm", "aten.erf"], wrong="aten.mm"), (), "csv"))))
    assert tuple(rows[0]) == COLUMNS
    assert {len(row) for row in rows} == {len(COLUMNS)}
    by_name = {row[1]: row for row in rows[1:]}
    assert by_name["aten.erf"][4:6] == ["1", ""]
    assert by_name["aten.mm"][4] == "0"
    assert by_name["aten.mm"][5].startswith("wrong:")
    assert by_name["aten.mm"][2].startswith("type=float32,float32[")
    support = operators_text(support_report(Target(name="qnn"), ["aten.prod"], ["float32"]), (), "csv")
    assert {tuple(row[3:6]) for row in csv.reader(io.StringIO(support))} == {COLUMNS[3:6], ("support", "0", "no")}


@pytest.mark.parametrize("format_", ["table", "markdown", "html"])
def test_tables_show_each_outcome_with_its_reason(format_: str) -> None:
    found = report(["aten.mm", "aten.erf"], wrong="aten.mm")
    text = operators_text(found, [coverage_of(found, "float32")], format_)
    for part in ("aten.erf", "supported", "aten.mm float32: wrong", "Model types in float32"):
        assert part in text


def test_a_rendered_suite_is_the_same_text_each_time_and_names_what_it_blocks() -> None:
    calls, cell = operators_with_suites()["aten.mm"], operator_cell("aten.mm", CPU, "float32")
    first = render_operator(calls, cell, ("bert", "t5"), of_types=9)
    assert first == render_operator(calls, cell, ("bert", "t5"), of_types=9)
    assert "2 of 9 model types: bert, t5" in first
    assert "hwcompat ops cpu --operator aten.mm --precision float32" in first
    compile(first, "suite", "exec")


@pytest.mark.parametrize(("got", "is_right"), [(0.0, True), (1e-3, False)])
def test_a_result_below_the_smallest_number_of_a_precision_may_be_zero(got: float, is_right: bool) -> None:
    found = apart({"output": np.array([got])}, {"output": np.array([5e-15])}, "float16", "a product")
    assert (found.comparison.max_rel_error <= limit_of("aten.prod", "float16").limit) == is_right


def test_numbers_and_limits_follow_what_a_target_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_class("simulated"), "COMPUTES_IN", {"float32": "float16"})
    call = Call("default", (Tensor("float32", (4, 4)), Tensor("float32", (4, 4))))
    with OperatorTest(operator_cell("aten.mm", Target(name="simulated"), "float32").id) as case:
        assert case.call_error(call) < 1e-7, "this device computes in float32"
        assert case.tolerance == limit_of("aten.mm", "float16").limit
        for array in case._made(call).inputs.values():
            assert np.array_equal(array, array.astype(np.float16))


MM = [Call("default", (Tensor("float32", (rows, 4)), Tensor("float32", (4, 4)))) for rows in (2, 3, 5, 6)]


@pytest.mark.parametrize(
    ("gives", "raised", "failed", "unjudged"),
    [
        ((1e-7, 2e-7), 2e-7, (), ()),
        ((1e-7, 0.5, 0.25, NotApplicable("unproven")), 0.5, (1, 2), (3,)),
        ((float("nan"), 1e-7), float("nan"), (0,), ()),
        ((Unsupported("no kernel"), 0.5), 0.5, (0, 1), ()),
        ((NotApplicable("unproven"), Unsupported("no kernel"), 1e-7), "no kernel", (1,), (0,)),
        ((NotApplicable(REMOVED), NotApplicable("unproven"), 1e-7), "unproven", (), (1,)),
        ((1e-7, NotApplicable(REMOVED)), REMOVED, (), ()),
    ],
)
def test_all_calls_of_a_check_are_made_and_the_worst_stands_for_them(
    gives: tuple[Any, ...], raised: Any, failed: tuple[int, ...], unjudged: tuple[int, ...]
) -> None:
    stages = (Stage.COMPARE, Stage.LOAD, Stage.RUN, Stage.EXPORT)
    calls = MM[: len(gives)]

    def check(call: Call) -> float:
        place = calls.index(call)
        case.measured.stage = stages[place]
        if isinstance(gives[place], Exception):
            raise gives[place]
        return float(gives[place])

    with OperatorTest(operator_cell("aten.mm", CPU, "float32").id) as case:
        if isinstance(raised, str):
            with pytest.raises((NotApplicable, Unsupported), match=raised):
                case.worst(check, calls)
        else:
            assert case.worst(check, calls) == pytest.approx(raised, rel=1e-12, nan_ok=True)
        of = next(place for place, one in enumerate(gives) if raised in (str(one), one) or one != one)
        assert case.measured.stage is stages[of]
        case.take_measurement()
        named = case._conditions_of_check
    for name, places in ((FAILED_CALLS, failed), (UNJUDGED_CALLS, unjudged)):
        names = [name_of("aten.mm", calls[place]) for place in places]
        assert named.get(name, "") == "; ".join(names)


@pytest.mark.parametrize(
    "log", ["doesn't show where the nodes ran", "is incomplete: it doesn't show where Max (0) ran"]
)
def test_a_log_that_does_not_show_where_nodes_ran_judges_nothing(monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    def run(*_: object) -> None:
        raise Unsupported(f"the runtime's log {log}")

    with OperatorTest(operator_cell("aten.mm", CPU, "float32").id) as case:
        monkeypatch.setattr(case._passes, "run", run)
        with pytest.raises(NotApplicable, match=re.escape(log)):
            case.call_error(MM[0])


def test_a_call_that_leaves_work_to_the_host_is_named() -> None:
    def check(call: Call) -> float:
        case.measured.left_to_host = {"aten::mm": 1} if call is MM[1] else {}
        return 0.0

    with OperatorTest(operator_cell("aten.mm", CPU, "float32").id) as case:
        assert case.worst(check, MM, limit=0) == 0
        assert case.measured.left_to_host == {"aten::mm": 1}
        case.take_measurement()
        assert case._conditions_of_check[FAILED_CALLS] == name_of("aten.mm", MM[1])


def test_a_limit_is_wider_only_for_functions_that_a_standard_allows_to_be_coarse() -> None:
    assert limit_of("aten.sin", "float32", "webgpu", "sin, cos").limit == 6.5e-4
    in_half = limit_of("aten.sin", "float16", "webgpu", "sin, cos")
    assert (in_half.limit, in_half.is_coarse) == (limit_of("aten.sin", "float16").limit, True)
    assert limit_of("aten.acos", "float32", "webgpu").limit == 6.5e-4
    assert limit_of("aten.acos", "float32", "webnn").limit == limit_of("aten.acos", "float32").limit
    assert limit_of("aten.exp", "float32", "webgpu").limit == limit_of("aten.exp", "float32").limit
    assert limit_of("aten.softplus", "float16", "qnn").limit == 8 * limit_of("aten.softplus", "float16").limit
    assert limit_of("aten.mm", "float16", "qnn") == limit_of("aten.mm", "float16")


def test_special_numbers_are_those_whose_results_are_defined() -> None:
    calls, smallest = operators_with_suites()["aten.exp"].special, np.finfo(np.float32).smallest_normal

    def subnormals(target: str) -> int:
        (array,) = made("aten.exp", calls[0], "float32", subnormals=keeps_subnormals(target)).inputs.values()
        assert np.isnan(array).any()
        return int(np.count_nonzero((np.abs(array) < smallest) & (array != 0)))

    assert subnormals("cpu") > 0
    assert subnormals("webgpu") == 0


def test_boundaries_ascend() -> None:
    for name, place in (("aten.bucketize", 1), ("aten.searchsorted", 0)):
        known = operators_with_suites()[name]
        for call in (*known.seen, *known.odd, *known.large):
            array = [*made(name, call, "float32").inputs.values()][place]
            assert np.array_equal(array, np.sort(array)), (name, str(call))


def test_no_call_writes_to_a_position_twice() -> None:
    """Which of two numbers stays isn't defined, and differs between devices."""
    positions = [Tensor("int64", (8,), low=0, high=1), Tensor("int64", (8,), low=3, high=6)]
    call = Call("default", (Tensor("float32", (2, 7, 3)), positions, Tensor("float32", (8, 3))))
    _, first, second, _ = made("aten.index_put", call, "float32").inputs.values()
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == [(a, b) for a in (0, 1) for b in range(3, 7)]
    for name in ("aten.index_put", "aten.index_put_", "aten.index_copy_"):
        known = operators_with_suites()[name]
        for one in (*known.seen, *known.odd, *known.large, *known.empty, *known.samples):
            numbers = made(name, one, "float32").inputs.values()
            places = [array.ravel() for array in [*numbers][1:-1] if array.dtype.kind == "i"]
            assert not places or len(set(zip(*places, strict=True))) == places[0].size, (name, str(one))


def test_graphs_return_whole_numbers_in_float32_with_one_order() -> None:
    torch = pytest.importorskip("torch")
    call = Call("default", (Tensor("int64", (64,), low=2, high=3),))
    kept, real = (made("aten.sort", call, "float32", whole=whole) for whole in (True, False))
    for one, dtype in ((kept, torch.int64), (real, torch.float32)):
        results = one.build()(**{name: torch.as_tensor(array) for name, array in one.inputs.items()})
        assert {result.dtype for result in results} == {dtype}
    assert len(np.unique(kept.first)) == 2
    assert len(np.unique(real.first)) == 64


@pytest.mark.parametrize(
    ("got", "want", "precision", "is_right"),
    [
        (2.0**24 - 1, 2**24 - 1, "float32", True),
        (2.0**24 - 2, 2**24 - 1, "float32", False),
        (np.nan, 2**24 - 1, "float32", False),
        (4100.0, 4101, "float16", True),
        (4104.0, 4101, "float16", False),
    ],
)
def test_whole_numbers_of_graphs_are_exact_in_their_precision(got: float, want: int, precision: str, is_right: bool):
    found = apart({"output": np.array([got])}, {"output": np.array([want])}, precision, "a sum")
    assert (found.comparison.max_rel_error == 0) == is_right


@pytest.mark.parametrize("got", [1.5, -1.0, 3.0, np.nan])
def test_what_is_no_position_is_nan(got: float) -> None:
    call = Call("default", (Tensor("float32", (3,)),))
    found = by_position("aten.argmax", call, np.array([1.0, 2.0, 3.0]), {"output_0": np.array(got)})
    assert np.isnan(found["output_0"]).all()


@pytest.mark.parametrize(
    ("got", "is_right"),
    [(np.full((2, 3), -np.inf), True), (np.full((1,), -np.inf), False), (np.zeros((2, 3)), False), (None, False)],
)
def test_an_export_has_to_mask_all_that_torch_masks(got: np.ndarray | None, is_right: bool) -> None:
    want = {"output": np.full((2, 3), -np.inf)}
    found = verify_export.compared({} if got is None else {"output": got}, want, {})
    assert (found.max_rel_error == 0) == is_right


def test_an_exported_program_may_mask_all() -> None:
    masked = {"output": torch.full((2, 3), -torch.inf)}
    program._compare_with_module(masked, masked)
    with pytest.raises(Unsupported, match="different numbers"):
        program._compare_with_module({"output": torch.zeros(2, 3)}, masked)


@pytest.mark.parametrize(("said", "outcome"), [(REMOVED, "supported"), ("another reason", "unknown")])
def test_an_operator_that_the_compiler_removed_is_no_fault(said: str, outcome: str) -> None:
    skipped = {
        "outcome": Outcome.SKIPPED,
        "error_type": "not_applicable",
        "error_message": said,
        "max_rel_error": None,
    }
    lines = [replace(line(name), **skipped) for name in ("matches_reference", "runs_natively")]
    assert judged([line("matches_reference"), lines[1]], "aten.clone", "float32").outcome == outcome
    assert judged(lines, "aten.clone", "float32").outcome == outcome
    assert judged([replace(lines[0], max_rel_error=0.0)], "onnx.eyelike", "float32").outcome == outcome
    assert judged([], "onnx.eyelike", "float32").outcome == "unknown"


def test_another_layout_blocks_models_on_torch_devices_alone() -> None:
    def blocks(target: str) -> bool:
        failed = line("other_layouts", Outcome.FAILED, error_type="numerical_mismatch")
        return judged(
            [replace(one, requested_target=target) for one in (*PASSED, failed)], "aten.mm", "float32"
        ).blocks

    assert blocks("simulated")
    assert not blocks("openvino")


@pytest.mark.parametrize(
    ("got", "is_right"), [(np.inf, True), (131_008, True), (2e5, True), (-131_008, False), (6e4, False)]
)
def test_beyond_its_largest_number_a_precision_may_saturate(got: float, is_right: bool) -> None:
    found = apart({"output": np.array([got])}, {"output": np.array([2e5])}, "float16", "a product")
    assert (found.comparison.max_rel_error <= 1e-3) == is_right


def test_breadth_adds_operators_and_calls_of_torchs_own_tests() -> None:
    usual, all_ = chosen_operators(()), chosen_operators((), breadth=True)
    assert usual == called_by_models()
    assert set(usual) < set(all_)
    assert chosen_operators(["tan"]) == ("aten.tan",), "a named one needs no option"
    found = operators_with_suites()
    for name in ("aten.tan", "aten.mm"):
        text = render_operator(found[name], operator_cell(name, CPU, "float32"), (), of_types=9)
        compile(text, "suite", "exec")
        assert "op_db" in text
        assert ("--breadth" in text, "As models call it" in text) == (bool(found[name].seen),) * 2
    assert "no model type calls it" in text


def test_support_lists_what_tables_know_and_runs_nothing() -> None:
    done = invoke("ops", "qnn", "--mode", "support", "--operators-of", "bert", "--coverage", "--format", "json")
    assert done.code == 0
    found = done.document
    assert found["schema_version"] == 1
    outcomes = {(one["precision"], one["outcome"]) for one in found["results"]}
    assert outcomes >= {("float32", "supported"), ("bfloat16", "unsupported")}, "qnn doesn't compute in bfloat16"
    assert {one["types"] for one in found["coverage"]} == {520}
    one = invoke(
        "ops", "qnn", "--mode", "support", "--operator", "prod,mm", "--precision", "float32", "--format", "json"
    )
    assert {row["operator"]: row["outcome"] for row in one.document["results"]} == {
        "aten.prod": "unsupported",
        "aten.mm": "supported",
    }


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("nosuch", 4, "'nosuch' isn't a target. Known: cpu, "),
        (
            "cpu --operator aten.erff",
            4,
            "'aten.erff' has no suite: suites test 213 operators that models call, and with --breadth 192 more",
        ),
        ("qnn --mode support --operator erfinv --operators-of bert", 5, "no operator is left"),
        ("cpu --precision int8", 4, "int8"),
        ("cpu --mode fast", 4, "fast"),
        ("cuda --operator erf", 1, "cuda can't be used: "),
    ],
)
def test_what_cannot_be_tested_is_one_clear_line(words: str, code: int, said: str) -> None:
    done = invoke("ops", *words.split())
    assert done.code == code, done.err
    assert said in done.err
    assert done.out == ""


def test_a_fault_that_does_not_exist_or_had_no_effect_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "wrongly")
    done = invoke("ops", "simulated", "--operator", "aten.mm")
    assert (done.code, done.out) == (4, "")
    assert "the simulated device has no fault 'wrongly'. Did you mean 'wrong'?" in done.err
    fault = SimulatedFault.parse("wrong:aten.mmm")
    ran = [replace(one, requested_target="simulated", native_ops={"aten.mm": 1}) for one in PASSED]
    assert "had no effect: no cell of this run launched that operator" in fault.why_no_effect(ran)
    assert "no cell of this run is on simulated" in fault.why_no_effect(PASSED)
    assert not SimulatedFault.parse("wrong:aten.mm").why_no_effect(ran)
