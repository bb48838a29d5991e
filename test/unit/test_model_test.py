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
from hardware.compare import ReferenceNotFinite
from hardware.evidence.error_types import facts_of_error_types
from hardware.evidence.record import Stage
from hardware.testing.measurement import NotApplicable
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


def gpt2() -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1)
    return GPT2LMHeadModel(config)


def decoding(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Any], Any]) -> ModelTest:
    """A case whose device computes logits that `spoil` changed, alike in decoding and in a whole pass."""

    def changed(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(*args: Any, **kwargs: Any) -> Any:
            runnable = original(*args, **kwargs)
            head = runnable.model.lm_head
            head.register_forward_hook(lambda _module, _inputs, output: spoil(output))
            return runnable

        return load

    monkeypatch.setattr(cpu.CPUBackend, "load", changed(cpu.CPUBackend.load))
    tokens = np.arange(12, dtype=np.int64).reshape(2, 6) + 4
    inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    return ModelTest(
        "gpt2/text-generation/cpu/float32", gpt2, inputs, gain=1.0, outputs=("logits",), generates="causal"
    )


def test_decoding_is_held_against_float64_and_not_against_the_device_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    case = decoding(monkeypatch, lambda logits: logits)
    assert case.replay_error(case.generate()) <= case.tolerance
    wrong = decoding(monkeypatch, lambda logits: 1.5 * logits)
    assert wrong.replay_error(wrong.generate()) > 0.1


@pytest.mark.parametrize(
    "check",
    [
        lambda case: case.error(case.run(case.inputs), case.reference(case.inputs)),
        lambda case: case.recorded_error("logits", {(0, 0, 0): 0.5}, 1.0),
        lambda case: case.replay_error(case.generate()),
        lambda case: case.different_tokens(case.generate(), case.reference_generate()) and float("inf"),
        lambda case: case.gradient_error(),
    ],
    ids=["matches_reference", "matches_recorded", "cache_matches", "generates_like_reference", "backward"],
)
def test_numbers_of_the_device_that_are_not_finite_are_the_devices(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[ModelTest], float]
) -> None:
    from hardware.testing.pytest_plugin import _message, classify_error

    case = decoding(monkeypatch, lambda logits: logits * float("nan"))
    assert not check(case) <= case.tolerance
    measured = case.take_measurement()
    error_type = classify_error(AssertionError("inf <= 2e-05"), "cache_matches", measured)[1]
    assert error_type == "non_finite"
    assert "the device gave NaN or infinity" in _message(AssertionError(), measured)


def test_a_reference_that_is_not_finite_is_said_of_float64_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def broken() -> Any:
        made = gpt2()
        torch.nn.init.constant_(made.lm_head.weight, float("inf"))
        return made

    case = decoding(monkeypatch, lambda logits: logits)
    case.make_model, case.gain = broken, None
    with pytest.raises(ReferenceNotFinite, match="the float64 reference is not finite"):
        case.error(case.run(case.inputs), case.reference(case.inputs))


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Unsupported("ZeroDivisionError: division by zero", error_type="export_failed"), Unsupported),
        (Unsupported("other numbers than torch", error_type="conversion_wrong"), Unsupported),
        (Unsupported("decodes in a way of its own", error_type="not_applicable"), NotApplicable),
    ],
)
def test_an_export_of_decoding_that_failed_is_a_failure_of_the_route_and_no_skip(
    monkeypatch: pytest.MonkeyPatch, error: Unsupported, raised: type[Exception]
) -> None:
    from hardware.testing.pytest_plugin import classify_error

    monkeypatch.setattr(TorchRunnable, "can", frozenset())
    monkeypatch.setattr(TorchRunnable, "failed", {"generate": error}, raising=False)
    monkeypatch.setattr(TorchRunnable, "__init__", lambda self, *_, **__: setattr(self, "conditions", {}))
    case = case_of()
    with pytest.raises(raised) as caught:
        case.generate()
    measured = case.take_measurement()
    outcome, error_type = classify_error(caught.value, "generates_like_reference", measured)
    assert error_type == error.error_type
    assert outcome.is_failure == (raised is Unsupported)
    if raised is Unsupported:
        assert facts_of_error_types()[error_type]["fault"] == "route"
        assert measured.stage is Stage.CONVERT
