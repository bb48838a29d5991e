"""Who is responsible for a failure: the model, the route, the device or the set-up, decided by the CPU's results."""

from __future__ import annotations

from dataclasses import replace

from current_runs import CELL, CHECKS, evidence, judged, line, passed, run
from evidence_lines import planned_cell

from generators.compatibility.fault import fault_of
from generators.compatibility.verdict import Basis, Fault, Level
from hardware.cell import GRAPH_TASK, Cell
from hardware.evidence.record import EDITED, CheckLine, Outcome, Stage
from hardware.evidence.store import Evidence
from hardware.target import Target

CPU = replace(CELL, target=Target(name="cpu"))
OLDER = {**run().versions, "torch": "2.12.0"}
FAILED = Outcome.FAILED


def on_cpu(check: str, outcome: Outcome = Outcome.PASSED, /, **changes: object) -> CheckLine:
    cell = replace(CPU, precision=str(changes.get("precision", "float32")))
    where = {"cell_id": cell.id, "requested_target": "cpu", "actual_target": "cpu", "run_id": "cpu"}
    return line(check, outcome, **{**where, "accelerator": "EPYC", **changes})


def results(*lines: CheckLine, cpu=(), versions=None, cpu_versions=None) -> Evidence:
    """Results of the device, and those of the CPU in a run of their own."""
    plans = tuple(planned_cell(cell, CHECKS) for cell in {one.cell_id for one in cpu})
    of_cpu = [run("cpu", plan=plans, versions=cpu_versions or run().versions)] if cpu else []
    return evidence(run(versions=versions or run().versions), *of_cpu, lines=[*lines, *cpu])


def wrong(error: float = 0.5, **changes: object) -> list[CheckLine]:
    broken = line("matches_reference", FAILED, max_rel_error=error, stage=Stage.COMPARE, **changes)
    return [broken, *(one for one in passed() if one.check_name != "matches_reference")]


def failing(outcome: Outcome = FAILED, **changes: object) -> CheckLine:
    return line("matches_reference", outcome, stage=Stage.RUN, max_rel_error=None, **changes)


NOT_CAUSAL = line("causality", FAILED, max_rel_error=0.5, stage=Stage.COMPARE, error_type="relation_broken")
WRONG_ON_CPU = on_cpu("matches_reference", FAILED, max_rel_error=0.5, stage=Stage.COMPARE)
SLOW_ON_CPU = on_cpu("matches_reference", Outcome.TIMEOUT, max_rel_error=None, stage=Stage.RUN)
IN_BFLOAT16 = on_cpu("matches_reference", precision="bfloat16", actual_dtype="bfloat16")


def on_cpu_with(error_type: str) -> CheckLine:
    return on_cpu("matches_reference", FAILED, stage=Stage.RUN, error_type=error_type)


def test_a_failure_is_compared_with_what_the_cpu_showed():
    crashed = line("backward", Outcome.CRASHED, max_rel_error=None)
    no_operator = failing(error_type="unsupported_operator")
    scenarios = {
        "passed": (results(*passed()), None),
        "the CPU has no result": (results(*wrong()), None),
        "float64 itself disagrees": (results(NOT_CAUSAL), Fault.MODEL),
        "an upgrade changed the numbers": (results(*wrong(error_type="upgrade_changed_numbers")), Fault.MODEL),
        "the CPU has no result of the check": (results(*wrong(), cpu=[on_cpu("builds")]), None),
        "passes on the CPU": (results(*wrong(), cpu=[on_cpu(check) for check in CHECKS]), Fault.DEVICE),
        "as wrong on the CPU": (results(*wrong(0.5), cpu=[WRONG_ON_CPU]), Fault.MODEL),
        "less than twice as wrong": (results(*wrong(0.9), cpu=[WRONG_ON_CPU]), Fault.MODEL),
        "over twice as wrong": (results(*wrong(1.1), cpu=[WRONG_ON_CPU]), Fault.DEVICE),
        "right in another precision": (results(*wrong(), cpu=[WRONG_ON_CPU, IN_BFLOAT16]), Fault.DEVICE),
        "a package is missing": (
            results(line("builds", FAILED, error_type="missing_dependency", stage=Stage.IMPORT)),
            Fault.HARNESS,
        ),
        "slow on both": (results(failing(Outcome.TIMEOUT), cpu=[SLOW_ON_CPU]), Fault.HARNESS),
        "slow on the device": (
            results(failing(Outcome.TIMEOUT), cpu=[on_cpu("matches_reference")]),
            Fault.DEVICE,
        ),
        "one failure of several is the device's": (
            results(*wrong(), crashed, cpu=[WRONG_ON_CPU, on_cpu("backward")]),
            Fault.DEVICE,
        ),
        "the CPU's result has expired": (results(*wrong(), cpu=[WRONG_ON_CPU], cpu_versions=OLDER), None),
        "the CPU's suite was edited": (
            results(*wrong(), cpu=[replace(WRONG_ON_CPU, conditions={EDITED: "yes"})]),
            None,
        ),
        "both have expired": (
            results(*wrong(), cpu=[WRONG_ON_CPU], versions=OLDER, cpu_versions=OLDER),
            Fault.MODEL,
        ),
        "the CPU lacks a package": (results(no_operator, cpu=[on_cpu_with("missing_dependency")]), None),
        "the CPU fails otherwise": (results(no_operator, cpu=[on_cpu_with("unsupported_shape")]), Fault.DEVICE),
    }
    verdicts = judged({name: found for name, (found, _) in scenarios.items()})
    faults = {name: verdict.fault for name, verdict in verdicts.items()}
    assert faults == {name: fault for name, (_, fault) in scenarios.items()}
    assert verdicts["the CPU has no result"].level is Level.UNSUPPORTED
    assert verdicts["a package is missing"].level is Level.UNKNOWN
    assert verdicts["both have expired"].basis is Basis.EXPIRED


def test_an_export_that_failed_is_the_routes_fault():
    webgpu = Cell.parse("bert/fill-mask/webgpu/float32")
    where = {"cell_id": webgpu.id, "requested_target": "webgpu", "actual_target": "webgpu"}
    broken = line("builds", FAILED, stage=Stage.EXPORT, **where)
    found = evidence(run(cell_id=webgpu.id), lines=[broken])
    assert judged({"export": found}, cell=webgpu)["export"].fault is Fault.ROUTE


def test_what_breaks_down_on_the_cpu_too_is_no_fault_of_the_device_or_the_route():
    """Whatever the stage: torch on the CPU exports and compiles nothing."""
    webgpu = Cell.parse("bert/fill-mask/webgpu/float32")
    where = {"cell_id": webgpu.id, "requested_target": "webgpu", "actual_target": "webgpu", "max_rel_error": None}
    alone = {Stage.EXPORT: Fault.ROUTE, Stage.COMPILE: Fault.DEVICE, Stage.RUN: Fault.DEVICE}
    for outcome, shared in ((Outcome.CRASHED, Fault.MODEL), (Outcome.TIMEOUT, Fault.HARNESS)):
        as_well = on_cpu("matches_reference", outcome, max_rel_error=None, stage=Stage.RUN)
        for stage, fault in alone.items():
            broken = [line("matches_reference", outcome, stage=stage, error_type=str(outcome), **where)]
            assert fault_of(webgpu, Level.LOW, broken, [on_cpu("matches_reference")]) is fault
            assert fault_of(webgpu, Level.LOW, broken, [as_well]) is shared


def test_a_failure_of_the_cpu_is_the_models_unless_another_precision_works_there():
    def own(outcome: Outcome = FAILED, **changes: object) -> Evidence:
        lines = [on_cpu(check, precision="bfloat16", actual_dtype="bfloat16") for check in CHECKS]
        lines[0] = on_cpu(CHECKS[0], outcome, precision="bfloat16", stage=Stage.RUN, **changes)
        return results(cpu=[*lines, *([on_cpu(check) for check in CHECKS] if changes else [])])

    scenarios = {
        "slow": own(Outcome.TIMEOUT),
        "no memory": own(Outcome.OUT_OF_MEMORY),
        "no operator in bfloat16": own(error_type="unsupported_operator"),
        "fails": own(),
    }
    found = judged(scenarios, cell=replace(CPU, precision="bfloat16"))
    assert {name: verdict.fault for name, verdict in found.items()} == {
        "slow": Fault.HARNESS,
        "no memory": Fault.DEVICE,
        "no operator in bfloat16": Fault.DEVICE,
        "fails": Fault.MODEL,
    }


def test_a_failure_of_a_graph_file_on_the_cpu_is_its_runtimes():
    cell = replace(CPU, model="net.onnx", task=GRAPH_TASK)
    assert fault_of(cell, Level.UNSUPPORTED, [line(CHECKS[0], FAILED, cell_id=cell.id)], []) is Fault.DEVICE
    assert fault_of(CPU, Level.UNSUPPORTED, [line(CHECKS[0], FAILED, cell_id=CPU.id)], []) is Fault.MODEL


def test_a_precision_that_the_cpu_does_not_compute_is_compared_with_those_that_it_computes():
    cell = replace(CELL, precision="int8")
    failed = line("matches_reference", FAILED, stage=Stage.RUN, precision="int8", cell_id=cell.id)
    cpu = [on_cpu(check) for check in CHECKS]
    assert fault_of(cell, Level.UNSUPPORTED, [failed], cpu) is Fault.DEVICE
    assert fault_of(replace(CELL, precision="float16"), Level.UNSUPPORTED, [failed], cpu) is None
