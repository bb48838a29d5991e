"""Whose fault a failure is: the model's, the route's, the device's or the set-up's, and open until the CPU ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from current_runs import CELL, CHECKS, inventory, line, passed, run

from generators.compatibility.fault import fault_of
from generators.compatibility.judge import judge
from generators.compatibility.verdict import Basis, Fault, Level, Verdict
from hardware.cell import Cell
from hardware.evidence.latest import read_latest
from hardware.evidence.record import EDITED, CheckLine, Outcome, PlannedCell, Stage
from hardware.evidence.store import Evidence
from hardware.target import Target

CPU = replace(CELL, target=Target(name="cpu"))


def on_cpu(check: str, outcome: Outcome = Outcome.PASSED, /, **changes: object) -> CheckLine:
    cell = replace(CPU, precision=str(changes.get("precision", "float32")))
    where = {"cell_id": cell.id, "requested_target": "cpu", "actual_target": "cpu", "run_id": "cpu"}
    return line(check, outcome, **{**where, "accelerator": "EPYC", **changes})


def verdict(
    *lines: CheckLine,
    cpu: list[CheckLine] | None = None,
    cell: Cell = CELL,
    versions: dict[str, str] | None = None,
    cpu_versions: dict[str, str] | None = None,
) -> Verdict:
    cells = {one.cell_id for one in cpu or ()}
    plans = tuple(
        PlannedCell(cell_id=id_, checks=CHECKS, suite="c.py", suite_hash="h", subject="tiny") for id_ in cells
    )
    of_cpu = run("cpu", plan=plans, versions=cpu_versions or run().versions)
    of_device = run(versions=versions or run().versions)
    runs = (of_device, of_cpu) if cpu else (of_device,)
    found = Evidence(runs=runs, checks=(*lines, *(cpu or ())))
    return judge(read_latest(found), inventory(), cells=[cell.id])[0]


def wrong(error: float = 0.5, **changes: object) -> list[CheckLine]:
    broken = line("matches_reference", Outcome.FAILED, max_rel_error=error, stage=Stage.COMPARE, **changes)
    return [broken, *(one for one in passed() if one.check_name != "matches_reference")]


def test_nothing_is_blamed_before_the_cpu_was_asked():
    found = verdict(*wrong())
    assert (found.level, found.fault) == (Level.UNSUPPORTED, None)


def test_what_passes_on_the_cpu_and_fails_on_the_device_is_the_devices_fault():
    assert verdict(*wrong(), cpu=[on_cpu(check) for check in CHECKS]).fault is Fault.DEVICE


@pytest.mark.parametrize(("error", "fault"), [(0.5, Fault.MODEL), (0.9, Fault.MODEL), (1.1, Fault.DEVICE)])
def test_a_failure_of_the_cpu_too_is_the_models_up_to_twice_its_error(error, fault):
    cpu = [on_cpu("matches_reference", Outcome.FAILED, max_rel_error=0.5, stage=Stage.COMPARE)]
    assert verdict(*wrong(error), cpu=cpu).fault is fault


def test_a_model_that_computes_on_the_cpu_in_another_precision_is_not_at_fault():
    cpu = [
        on_cpu("matches_reference", Outcome.FAILED, max_rel_error=0.5, stage=Stage.COMPARE),
        on_cpu("matches_reference", precision="bfloat16", actual_dtype="bfloat16", run_id="cpu"),
    ]
    assert verdict(*wrong(), cpu=cpu).fault is Fault.DEVICE


def test_an_export_that_failed_never_asked_the_device():
    webgpu = Cell.parse("bert/fill-mask/webgpu/float32")
    where = {"cell_id": webgpu.id, "requested_target": "webgpu", "actual_target": "webgpu"}
    broken = line("builds", Outcome.FAILED, stage=Stage.EXPORT, **where)
    found = judge(read_latest(Evidence(runs=(run(cell_id=webgpu.id),), checks=(broken,))), inventory())
    assert [one.fault for one in found] == [Fault.ROUTE]


def test_a_missing_package_is_the_set_ups_fault_and_lowers_nothing():
    broken = line("builds", Outcome.FAILED, error_type="missing_dependency", stage=Stage.IMPORT)
    found = verdict(broken)
    assert (found.level, found.fault) == (Level.UNKNOWN, Fault.HARNESS)


def test_a_time_limit_that_the_cpu_exceeds_too_is_the_set_ups_fault():
    hangs = line("matches_reference", Outcome.TIMEOUT, max_rel_error=None, stage=Stage.RUN)
    slow = on_cpu("matches_reference", Outcome.TIMEOUT, max_rel_error=None, stage=Stage.RUN)
    assert verdict(hangs, cpu=[slow]).fault is Fault.HARNESS
    assert verdict(hangs, cpu=[on_cpu("matches_reference")]).fault is Fault.DEVICE


def test_one_failure_of_the_device_outweighs_those_of_the_model():
    cpu = [
        on_cpu("matches_reference", Outcome.FAILED, max_rel_error=0.5, stage=Stage.COMPARE),
        on_cpu("backward"),
    ]
    lines = [*wrong(), line("backward", Outcome.CRASHED, max_rel_error=None)]
    assert verdict(*lines, cpu=cpu).fault is Fault.DEVICE


def test_what_is_high_is_nobodys_fault():
    assert verdict(*passed()).fault is None


def test_a_result_of_the_cpu_that_doesnt_count_any_more_decides_nothing():
    failed = on_cpu("matches_reference", Outcome.FAILED, max_rel_error=0.5, stage=Stage.COMPARE)
    assert verdict(*wrong(), cpu=[failed]).fault is Fault.MODEL
    older = {**run().versions, "torch": "2.12.0"}
    assert verdict(*wrong(), cpu=[failed], cpu_versions=older).fault is None
    edited = replace(failed, conditions={EDITED: "yes"})
    assert verdict(*wrong(), cpu=[edited]).fault is None


def test_an_expired_failure_is_compared_with_what_the_cpu_showed_then():
    failed = on_cpu("matches_reference", Outcome.FAILED, max_rel_error=0.5, stage=Stage.COMPARE)
    older = {**run().versions, "torch": "2.12.0"}
    found = verdict(*wrong(), cpu=[failed], cpu_versions=older, versions=older)
    assert (found.basis, found.fault) == (Basis.EXPIRED, Fault.MODEL)


def test_without_the_cpus_result_of_the_failed_check_nothing_is_decided():
    assert verdict(*wrong(), cpu=[on_cpu("builds")]).fault is None
    assert verdict(*wrong(), cpu=[on_cpu("matches_reference")]).fault is Fault.DEVICE


def own_failure(outcome: Outcome = Outcome.FAILED, **changes: object) -> Verdict:
    """The verdict of the CPU's own cell in bfloat16, with one check that failed there."""
    cell = replace(CPU, precision="bfloat16")
    lines = [on_cpu(check, precision="bfloat16", actual_dtype="bfloat16") for check in CHECKS]
    lines[0] = on_cpu(CHECKS[0], outcome, precision="bfloat16", stage=Stage.RUN, **changes)
    float32 = [on_cpu(check) for check in CHECKS] if changes.get("error_type") else []
    return verdict(cpu=[*lines, *float32], cell=cell)


def test_a_time_limit_on_the_cpu_is_the_set_ups_and_memory_is_not_the_models():
    assert own_failure(Outcome.TIMEOUT).fault is Fault.HARNESS
    assert own_failure(Outcome.OUT_OF_MEMORY).fault is Fault.DEVICE


def test_an_operator_that_the_cpu_lacks_in_one_precision_alone_is_not_the_models_fault():
    assert own_failure(error_type="unsupported_operator").fault is Fault.DEVICE
    assert own_failure().fault is Fault.MODEL


def test_a_cpu_without_a_package_says_nothing_of_the_model():
    cpu = [on_cpu("matches_reference", Outcome.FAILED, stage=Stage.RUN, error_type="missing_dependency")]
    failing = line("matches_reference", Outcome.FAILED, stage=Stage.RUN, error_type="unsupported_operator")
    assert verdict(failing, cpu=cpu).fault is None


def test_the_cpu_failing_for_another_reason_does_not_blame_the_model():
    cpu = [on_cpu("matches_reference", Outcome.FAILED, stage=Stage.RUN, error_type="unsupported_shape")]
    failing = line("matches_reference", Outcome.FAILED, stage=Stage.RUN, error_type="unsupported_operator")
    assert verdict(failing, cpu=cpu).fault is Fault.DEVICE


def test_a_precision_that_the_cpu_does_not_compute_is_compared_with_those_that_it_computes():
    cell = replace(CELL, precision="int8")
    failing = line("matches_reference", Outcome.FAILED, stage=Stage.RUN, precision="int8", cell_id=cell.id)
    cpu = [on_cpu(check) for check in CHECKS]
    assert fault_of(cell, Level.UNSUPPORTED, [failing], cpu) is Fault.DEVICE
    assert fault_of(replace(CELL, precision="float16"), Level.UNSUPPORTED, [failing], cpu) is None
