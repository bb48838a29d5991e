"""`ModelTest`: each check says how far it came, and a model that can't be loaded fails alike in all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.backends import cpu
from hardware.backends._torch import TorchRunnable
from hardware.backends.base import Unsupported
from hardware.evidence.record import Stage
from hardware.testing.model_test import ModelTest

INPUTS = {"input": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}

CHECKS: dict[str, Callable[[ModelTest], Any]] = {
    "run": lambda case: case.run(INPUTS),
    "execution": lambda case: case.execution(),
    "gradients": lambda case: case.gradient_error(),
    "generate": lambda case: case.generate(),
    "save": lambda case: case.save_and_reload(Path(), INPUTS),
}


def linear() -> Any:
    import torch

    return torch.nn.Linear(3, 3)


def case_of(make_model: Callable[[], Any] = linear) -> ModelTest:
    return ModelTest("bert/fill-mask/cpu/float32", make_model, INPUTS, gain=1.0, outputs=("output",))


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise error

    return call


def failing_load(monkeypatch: pytest.MonkeyPatch, error: Exception) -> ModelTest:
    monkeypatch.setattr(cpu.CPUBackend, "load", raising(error))
    return case_of()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (Unsupported("no export", stage=Stage.EXPORT), Stage.EXPORT),
        (Unsupported("other numbers", stage=Stage.CONVERT), Stage.CONVERT),
        (Unsupported("no kernel", stage=Stage.COMPILE), Stage.COMPILE),
        (Unsupported("no such dtype"), Stage.LOAD),
        (RuntimeError("no memory"), Stage.LOAD),
    ],
)
def test_a_load_that_fails_is_recorded_where_it_failed(
    monkeypatch: pytest.MonkeyPatch, check: str, error: Exception, stage: Stage
) -> None:
    case = failing_load(monkeypatch, error)
    with pytest.raises(type(error)):
        CHECKS[check](case)
    assert case.take_measurement().stage is stage


def test_later_checks_of_the_cell_fail_alike_at_the_same_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    case = failing_load(monkeypatch, Unsupported("no export", stage=Stage.EXPORT))
    for call in (CHECKS["run"], CHECKS["execution"], CHECKS["gradients"]):
        case.parameter_count()  # a check in between comes as far as building
        assert case.take_measurement().stage is Stage.BUILD
        with pytest.raises(Unsupported, match="no export"):
            call(case)
        assert case.take_measurement().stage is Stage.EXPORT


def test_a_model_that_cannot_be_built_fails_at_building_in_every_check() -> None:
    case = case_of(raising(ValueError("no such layer")))
    for call in CHECKS.values():
        with pytest.raises(ValueError, match="no such layer"):
            call(case)
        assert case.take_measurement().stage is Stage.BUILD


@pytest.mark.parametrize(
    ("check", "method"), [("run", "__call__"), ("execution", "execution"), ("gradients", "gradients")]
)
def test_what_fails_on_the_loaded_model_failed_at_running(
    monkeypatch: pytest.MonkeyPatch, check: str, method: str
) -> None:
    monkeypatch.setattr(TorchRunnable, method, raising(RuntimeError("lost")))
    case = case_of()
    with pytest.raises(RuntimeError, match="lost"):
        CHECKS[check](case)
    assert case.take_measurement().stage is Stage.RUN


def test_a_run_that_exports_anew_for_its_shapes_fails_where_the_export_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TorchRunnable, "__call__", raising(Unsupported("no export", stage=Stage.EXPORT)))
    case = case_of()
    with pytest.raises(Unsupported):
        case.run(INPUTS)
    assert case.take_measurement().stage is Stage.EXPORT


def test_a_model_that_is_saved_and_not_loaded_again_failed_at_loading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TorchRunnable, "save_and_reload", raising(OSError("truncated")))
    case = case_of()
    case.run(INPUTS)
    with pytest.raises(OSError, match="truncated"):
        case.save_and_reload(tmp_path, INPUTS)
    assert case.take_measurement().stage is Stage.LOAD
