"""Whose fault a failure is: the model's, the route's, the device's or the set-up's, and open until the CPU ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from current_runs import CELL, CHECKS, inventory, line, passed, run

from generators.compatibility.fault import needs_reference, references_of
from generators.compatibility.judge import judge
from generators.compatibility.verdict import Fault, Level, Verdict
from hardware.cell import Cell
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, Stage
from hardware.evidence.store import Evidence
from hardware.target import Target

CPU = replace(CELL, target=Target(name="cpu"))


def on_cpu(check: str, outcome: Outcome = Outcome.PASSED, /, **changes: object) -> CheckLine:
    cell = replace(CPU, precision=str(changes.get("precision", "float32")))
    where = {"cell_id": cell.id, "requested_target": "cpu", "actual_target": "cpu", "run_id": "cpu"}
    return line(check, outcome, **{**where, "accelerator": "EPYC", **changes})


def verdict(*lines: CheckLine, cpu: list[CheckLine] | None = None, cell: Cell = CELL) -> Verdict:
    cells = {one.cell_id for one in cpu or ()}
    plans = tuple(
        PlannedCell(cell_id=id_, checks=CHECKS, suite="c.py", suite_hash="h", subject="tiny") for id_ in cells
    )
    runs = (run(), run("cpu", plan=plans)) if cpu else (run(),)
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


def test_only_a_failed_check_without_a_result_on_the_cpu_asks_for_one():
    assert needs_reference(CELL, wrong(), ())
    there = references_of([on_cpu("matches_reference")])["bert", "fill-mask"]
    assert not needs_reference(CELL, wrong(), there)
    assert needs_reference(CELL, wrong(), references_of([on_cpu("builds")])["bert", "fill-mask"])
    assert not needs_reference(CELL, passed(), ())
    assert not needs_reference(CPU, [on_cpu("builds", Outcome.FAILED)], ())
    assert not needs_reference(CELL, [line("builds", Outcome.FAILED, error_type="missing_dependency")], ())
