"""The reporter computes on targets in children, and grades what did not compute."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from hardware.expected_targets import TargetStatus
from reports import reporter
from reports.finding import Severity
from reports.reporter import HardwareCompatibilityReporter
from reports.stack import StackResult, run_stack


def status(target: str, expected: bool = True, reason: str = "") -> TargetStatus:
    return TargetStatus(target=target, expected=expected, reason=reason)


def child(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_device_that_is_there_and_unusable_is_an_error():
    one = HardwareCompatibilityReporter()
    inventory = one.inventory()
    (nvidia,) = [facts for facts in inventory.vendors if facts.vendor == "NVIDIA"]
    facts = replace(nvidia, hardware="present", driver="missing", library="ok", reason="no driver", simulated=False)
    one._inventory = replace(inventory, vendors=(replace(facts, hardware=type(nvidia.hardware)("present")),))
    (finding,) = one.collect_hardware_detection_errors()
    assert (finding.hardware_type, finding.error_type) == ("cuda", "driver_missing")
    assert finding.severity is Severity.ERROR


def test_cpu_really_computes_in_a_child():
    (result,) = run_stack([status("cpu")])
    assert (result.state, result.reason) == ("computed", "")
    assert result.device_name
    assert "torch" not in sys.modules or result.duration_s is not None


@pytest.mark.parametrize(
    ("code", "recorded", "said"),
    [
        ("import os; os.abort()", "crash", "SIGABRT"),
        ("import sys; sys.exit(7)", "crash", "exit code 7"),
        ("import time; time.sleep(60)", "timeout", "no answer in 1 s"),
    ],
)
def test_child_that_dies_or_hangs_is_a_result(code, recorded, said):
    results = run_stack([status("cuda"), status("mps", False, "needs macOS")], timeout_s=1, command=child(code))
    assert (results[0].state, results[0].recorded) == ("failed", recorded)
    assert said in results[0].reason
    assert (results[1].state, results[1].reason) == ("absent", "needs macOS")


def stack_of(monkeypatch: pytest.MonkeyPatch, *results: StackResult) -> HardwareCompatibilityReporter:
    monkeypatch.setattr(reporter, "run_stack", lambda statuses, **_options: results)
    one = HardwareCompatibilityReporter()
    one.test_full_hardware_stack()
    return one


@pytest.mark.parametrize(
    ("result", "error_type", "severity"),
    [
        (StackResult(target="cuda", state="absent", reason="no NVIDIA GPU is on the bus"), "device_absent", "info"),
        (
            StackResult(target="webgpu", state="absent", reason="needs a browser: no Chromium is installed"),
            "browser_required",
            "info",
        ),
        (
            StackResult(
                target="cuda",
                state="absent",
                reason="no NVIDIA GPU is seen by a driver (present but unusable): Driver Not Loaded",
            ),
            "device_unusable",
            "error",
        ),
        (
            StackResult(target="cuda", state="absent", reason="torch 2.13.0+cpu is built for cpu, not for cuda"),
            "wrong_build",
            "warning",
        ),
        (
            StackResult(target="openvino", state="absent", reason="openvino isn't installed: pip install openvino"),
            "missing_dependency",
            "warning",
        ),
        (
            StackResult(target="cpu", state="absent", reason="torch isn't installed: pip install torch"),
            "missing_dependency",
            "error",
        ),
        (
            StackResult(target="cuda", state="failed", reason="ended by SIGSEGV", recorded="crashed"),
            "crash",
            "critical",
        ),
        (
            StackResult(target="mps", state="failed", reason="it computed something else (got [0.0])"),
            "numerical_mismatch",
            "error",
        ),
    ],
)
def test_each_target_that_did_not_compute_is_graded(monkeypatch, result, error_type, severity):
    (finding,) = stack_of(monkeypatch, result).findings
    assert (finding.hardware_type, finding.error_type) == (result.target, error_type)
    assert finding.severity == severity
    assert finding.recommendations


def test_measuring_is_advised_with_a_command_that_can_be_pasted():
    one = HardwareCompatibilityReporter()
    (finding,) = one.collect_compatibility_test_errors(["gpt2"])
    assert finding.recommendations == (
        "Measure it: `python run_test_generation.py --model gpt2 --device auto --run`",
    )
    for text in (*one.get_recommendations("cpu", "not_measured"), *one.get_recommendations("cpu", "suite_edited")):
        assert "{" not in text
        assert "NAME" not in text


def test_every_known_target_is_in_the_stack(monkeypatch):
    seen: dict[str, object] = {}

    def remember(statuses, **_options):
        seen.update({one.target: one for one in statuses})
        return ()

    monkeypatch.setattr(reporter, "run_stack", remember)
    HardwareCompatibilityReporter().test_full_hardware_stack()
    named = {"cpu", "cuda", "rocm", "mps", "xpu", "tpu", "openvino", "qnn", "webnn", "webgpu", "simulated"}
    assert named <= set(seen)
