"""Suites of operators fail when a device computes an operator wrongly, and say what is wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from generators.operators.operator_variants import operators_with_suites
from generators.operators.render_operator import operator_cell, render_operator
from hardware.backends.simulated import FAULT_VARIABLE
from hardware.evidence.record import Outcome
from hardware.operators import OperatorTest
from hardware.target import Target
from hardware.testing.pytest_plugin import classify_error

NAMES = {"exp": "aten.exp", "mm": "aten.mm", "mul": "aten.mul", "clone": "aten.clone"}


def suite(tmp_path: Path, operator: str, target: str, precision: str) -> ModuleType:
    calls = operators_with_suites()[operator]
    text = render_operator(calls, operator_cell(operator, Target(name=target), precision), (), of_types=1)
    file = tmp_path / "test_operator.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("operator_suite", file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def results(tmp_path: Path, operator: str, target: str = "simulated", precision: str = "float32") -> dict[str, str]:
    """Run the checks of a suite as the plugin decides them: the error type of each that failed, by name."""
    found = suite(tmp_path, operator, target, precision)
    failed: dict[str, str] = {}
    with OperatorTest(found.CELL) as case:
        for name in [one for one in vars(found) if one.startswith("test_")]:
            check, error = name.removeprefix("test_"), None
            try:
                getattr(found, name)(case)
            except Exception as raised:
                error = raised
            measured = case.take_measurement()
            if error is not None and (outcome := classify_error(error, check, measured))[0] is Outcome.FAILED:
                failed[check] = outcome[1]
            elif error is None and measured.left_to_host:
                failed[check] = "silent_offload"
    return failed


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("operator", ["aten.exp", "aten.mm", "aten.clone", "aten.sort", "aten.arange", "aten.slice"])
def test_a_right_device_passes(tmp_path: Path, operator: str, precision: str) -> None:
    assert results(tmp_path, operator, precision=precision) == {}


@pytest.mark.parametrize(
    ("fault", "operator", "precision", "checks"),
    [
        ("strided:aten.exp", "aten.exp", "float32", {"other_layouts"}),
        ("large:aten.exp", "aten.exp", "float32", {"matches_reference"}),
        ("later:aten.exp", "aten.exp", "float32", {"later_calls", "matches_reference"}),
        ("half:aten.exp", "aten.exp", "bfloat16", {"matches_reference"}),
        ("half:aten.exp", "aten.exp", "float32", set()),
        ("host:aten.mm", "aten.mm", "float32", {"runs_natively", "matches_reference"}),
        ("swallow:aten.mul", "aten.mul", "float32", {"special_numbers"}),
        ("flush:aten.mul", "aten.mul", "float32", {"special_numbers"}),
        ("flaky:aten.mm", "aten.mm", "float32", {"repeats"}),
        ("tired:aten.gelu", "aten.gelu", "float32", {"repeats"}),
        ("single:aten.addmm", "aten.addmm", "float32", {"matches_reference"}),
        ("ids:aten.embedding", "aten.embedding", "float32", {"matches_reference"}),
        ("tail:aten.add", "aten.add", "float32", {"matches_reference"}),
        ("wrong:aten.sort", "aten.sort", "float32", {"matches_reference"}),
        ("nan:aten.mm", "aten.mm", "float16", {"matches_reference"}),
    ],
)
def test_a_fault_of_the_device_fails_the_checks_that_look_for_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    operator: str,
    precision: str,
    checks: set[str],
) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, fault)
    failed = results(tmp_path, operator, precision=precision)
    assert checks <= failed.keys()
    if not checks:
        assert failed == {}
    if fault.startswith("strided"):
        assert failed.keys() == checks, "contiguous tensors are computed right"
    if fault.startswith(("swallow", "flush")):
        assert failed.keys() == checks, "other numbers are computed right"
    if fault.startswith("host"):
        assert set(failed.values()) == {"silent_offload"}
