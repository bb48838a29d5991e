"""`ModelTest`: the stage at which each check failed, and the error of outputs that are wrong in some way.

At which token two ways of decoding part, or that it is undecided because float64 doesn't choose either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hardware.backends import cpu
from hardware.backends._torch import TorchRunnable
from hardware.backends.base import Generation, Unsupported
from hardware.compare import ReferenceNotFinite
from hardware.evidence.error_types import facts_of_error_types
from hardware.evidence.record import Stage
from hardware.model.calls import to_arrays
from hardware.model.outputs import floating_outputs, replaced_outputs, results
from hardware.testing.capability_checks import different_tokens
from hardware.testing.measurement import Ambiguous, NotApplicable
from hardware.testing.model_test import ModelTest
from hardware.testing.pytest_plugin import _message, classify_error

INPUTS = {"input": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}

CHECKS: dict[str, Callable[[ModelTest], Any]] = {
    "run": lambda case: case.run(INPUTS),
    "execution": lambda case: case.execution(),
    "gradients": lambda case: case.gradient_error(),
    "generate": lambda case: case.generate(),
    "save": lambda case: case.save_and_reload(Path(), INPUTS),
}


def case_of(make_model: Callable[[], Any] = lambda: torch.nn.Linear(3, 3)) -> ModelTest:
    return ModelTest("bert/fill-mask/cpu/float32", make_model, INPUTS, gain=1.0, outputs=("output",))


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise error

    return call


def stage_of(case: ModelTest, check: str, error: Exception) -> Stage | None:
    """The stage at which a check fails, with such an error."""
    with pytest.raises(type(error), match=str(error)):
        CHECKS[check](case)
    return case.take_measurement().stage


def test_a_load_that_fails_is_recorded_at_its_stage_in_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, stage in (
        (Unsupported("no export", stage=Stage.EXPORT), Stage.EXPORT),
        (Unsupported("other numbers", stage=Stage.CONVERT), Stage.CONVERT),
        (Unsupported("no kernel", stage=Stage.COMPILE), Stage.COMPILE),
        (Unsupported("no such dtype"), Stage.LOAD),
        (RuntimeError("no memory"), Stage.LOAD),
    ):
        monkeypatch.setattr(cpu.CPUBackend, "load", raising(error))
        for check in CHECKS:
            assert stage_of(case_of(), check, error) is stage
        case = case_of()
        for check in ("run", "execution", "gradients"):
            case.parameter_count()  # a check in between comes as far as building
            assert case.take_measurement().stage is Stage.BUILD
            assert stage_of(case, check, error) is stage, "later checks fail alike"
    error = ValueError("no such layer")
    case = case_of(raising(error))
    assert {stage_of(case, check, error) for check in CHECKS} == {Stage.BUILD}


def test_a_failure_of_a_loaded_model_is_recorded_at_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, export = RuntimeError("lost"), Unsupported("no export", stage=Stage.EXPORT)
    for check, method, error, stage in (
        ("run", "__call__", lost, Stage.RUN),
        ("execution", "execution", lost, Stage.RUN),
        ("gradients", "gradients", lost, Stage.RUN),
        ("run", "__call__", export, Stage.EXPORT),  # it exports anew for its shapes
        ("save", "save_and_reload", OSError("truncated"), Stage.LOAD),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(TorchRunnable, method, raising(error))
            assert stage_of(case_of(), check, error) is stage


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1)
    return GPT2LMHeadModel(config)


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModelTest]:
    """A case whose device computes logits that `spoil` changed, alike in decoding and in a whole pass."""
    original = cpu.CPUBackend.load

    def make(spoil: Callable[[Any], Any]) -> ModelTest:
        def load(*args: Any, **kwargs: Any) -> Any:
            runnable: Any = original(*args, **kwargs)
            runnable.model.lm_head.register_forward_hook(lambda _module, _inputs, output: spoil(output))
            return runnable

        monkeypatch.setattr(cpu.CPUBackend, "load", load)
        tokens = np.arange(12, dtype=np.int64).reshape(2, 6) + 4
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        cell = "gpt2/text-generation/cpu/float32"
        return ModelTest(cell, gpt2, inputs, gain=1.0, outputs=("logits",), generates="causal")

    return make


def test_decoding_is_compared_with_float64_and_not_with_the_device_itself(decoding: Any) -> None:
    case = decoding(lambda logits: logits)
    assert case.replay_error(case.generate()) <= case.tolerance
    wrong = decoding(lambda logits: 1.5 * logits)
    assert wrong.replay_error(wrong.generate()) > 0.1

    def broken() -> Any:
        made = gpt2()
        torch.nn.init.constant_(made.lm_head.weight, float("inf"))
        return made

    case = decoding(lambda logits: logits)
    case.make_model, case.gain = broken, None
    with pytest.raises(ReferenceNotFinite, match="the float64 reference is not finite"):
        case.error(case.run(case.inputs), case.reference(case.inputs))


def test_numbers_of_the_device_that_are_not_finite_are_the_devices(decoding: Any) -> None:
    case = decoding(lambda logits: logits * float("nan"))
    for check in (
        lambda: case.error(case.run(case.inputs), case.reference(case.inputs)),
        lambda: case.recorded_error("logits", {(0, 0, 0): 0.5}, 1.0),
        lambda: case.replay_error(case.generate()),
        lambda: case.different_tokens(case.generate(), case.reference_generate()) and float("inf"),
        lambda: case.gradient_error(),
    ):
        assert not check() <= case.tolerance
        measured = case.take_measurement()
        assert classify_error(AssertionError("inf <= 2e-05"), "cache_matches", measured)[1] == "non_finite"
        assert "the device returned NaN or infinity" in _message(AssertionError(), measured)


def test_a_failed_export_of_decoding_is_a_failure_of_the_route_and_no_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchRunnable, "can", frozenset())
    monkeypatch.setattr(TorchRunnable, "__init__", lambda self, *_, **__: setattr(self, "conditions", {}))
    for error_type, raised in (
        ("export_failed", Unsupported),
        ("conversion_wrong", Unsupported),
        ("not_applicable", NotApplicable),
    ):
        error = Unsupported("decodes in another way", error_type=error_type)
        monkeypatch.setattr(TorchRunnable, "failed", {"generate": error}, raising=False)
        case = case_of()
        with pytest.raises(raised) as caught:
            case.generate()
        measured = case.take_measurement()
        outcome, found = classify_error(caught.value, "generates_like_reference", measured)
        assert found == error_type
        assert outcome.is_failure == (raised is Unsupported)
        if raised is Unsupported:
            assert facts_of_error_types()[error_type]["fault"] == "route"
            assert measured.stage is Stage.CONVERT


# Outputs of whole numbers


VALUES = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)}


class Codes(torch.nn.Module):
    """Gives its input and rounds it to codes; `spoil` changes what it gives in float32."""

    def __init__(self, spoil: Callable[[dict[str, Any]], object]) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.spoil = spoil

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        result: dict[str, Any] = {"values": x * self.scale, "codes": (4 * x).round().to(torch.int64)}
        if x.dtype == torch.float32:
            self.spoil(result)
        return result


def codes_of(spoil: Callable[[dict[str, Any]], object], values: dict[str, Any] = VALUES) -> ModelTest:
    return ModelTest("bert/fill-mask/cpu/float32", lambda: Codes(spoil), values, gain=None, outputs=("values",))


def error_of(spoil: Callable[[dict[str, Any]], object], values: dict[str, Any] = VALUES) -> float:
    with codes_of(spoil, values) as case:
        return case.error(case.run(values), case.reference(values))


def test_another_code_or_a_missing_output_is_an_infinite_error() -> None:
    assert error_of(lambda _: None) < 1e-6
    assert error_of(lambda result: result["values"].mul_(1.5)) > 0.1
    assert error_of(lambda result: result["codes"].zero_()) == math.inf
    assert error_of(lambda result: result["codes"][0, :1].add_(1)) == math.inf, "however near it is"
    assert error_of(lambda result: result.pop("codes")) == math.inf, "the target gives every output"
    between = {"x": np.array([[0.125, 0.9, -0.6, 0.3]], dtype=np.float32)}
    with pytest.raises(Ambiguous, match="codes"):  # it hangs on the last digit
        error_of(lambda result: result["codes"][0, :1].fill_(1), between)
    assert error_of(lambda result: result["codes"].add_(1), between) == math.inf


def test_recorded_numbers_are_measured_against_the_recorded_scale() -> None:
    with codes_of(lambda result: result["values"].mul_(1000)) as case:
        assert case.recorded_error("values", {(0, 0): -1.0}, 2.0) == pytest.approx(999 / 2)
        kept = case.take_measurement().comparison
    assert kept is not None
    assert kept.max_rel_error == pytest.approx(999 / 2)


def test_results_are_named_in_whatever_a_model_returns_them_and_replaced_where_they_were() -> None:
    maps, other = tuple(torch.full((2, 3), float(number)) for number in range(3)), torch.ones(2, 3)
    found = floating_outputs({"feature_maps": maps, "hidden_states": maps, "attentions": maps, "places": None})
    assert list(found) == ["feature_maps_0", "feature_maps_1", "feature_maps_2"], "states of layers are no results"
    assert all(torch.equal(one, map_) for one, map_ in zip(found.values(), maps, strict=True))
    single = {"encoder_hidden_states": maps[0], "ids": torch.arange(3)}
    assert list(floating_outputs(single)) == ["encoder_hidden_states"]
    assert list(floating_outputs(maps[0])) == ["output"]
    assert list(floating_outputs((maps[0], torch.arange(3), maps[1]))) == ["output_0", "output_2"]
    whole = results({"codes": torch.arange(3), "kept": torch.ones(2, dtype=torch.bool), "logits": maps[0]})
    arrays = to_arrays(whole)
    assert {name: arrays[name].dtype.kind for name in whole} == {"codes": "i", "kept": "b", "logits": "f"}
    changed = replaced_outputs({"feature_maps": maps, "logits": maps[0]}, {"feature_maps_1": other})
    assert torch.equal(changed["feature_maps"][1], other)
    assert torch.equal(changed["feature_maps"][2], maps[2])
    assert torch.equal(changed["logits"], maps[0])
    assert replaced_outputs(maps, {"output_2": other})[2] is other
    assert replaced_outputs(maps[0], {"output": other}) is other


LOGITS = np.random.default_rng(0).standard_normal((2, 3, 8))
UNDECIDED = LOGITS.copy()
UNDECIDED[0, 0] = 0.0
UNDECIDED[0, 0, [3, 5]] = 4.0


def generation(logits: np.ndarray = LOGITS, tokens: np.ndarray | None = None) -> Generation:
    chosen = logits.argmax(axis=-1) if tokens is None else tokens
    return Generation(tokens=chosen, logits=logits, start=np.zeros((2, 1), dtype=np.int64))


def differences(wrong: dict[tuple[int, int], int], logits: np.ndarray) -> list[str]:
    """Compare a generation with float64's after some of its tokens, by row and step, were replaced."""
    tokens = logits.argmax(axis=-1)
    for place, token in wrong.items():
        tokens[place] = token
    return different_tokens(generation(logits, tokens), generation(logits), 1e-5)


def test_the_first_other_token_of_a_row_is_named() -> None:
    assert differences({}, LOGITS) == []
    right = LOGITS.argmax(axis=-1)[1, 1:]
    found = differences({(1, 1): (right[0] + 1) % 8, (1, 2): (right[1] + 1) % 8}, LOGITS)
    assert found == [f"row 1, step 1: token {(right[0] + 1) % 8}, float64's {right[0]}"]


def test_other_lengths_and_logits_that_are_no_numbers_are_different() -> None:
    short = generation(tokens=np.array([[1, 2, 3]]))
    assert "shape (1, 3)" in different_tokens(short, generation(), 1e-5)[0]
    nan = generation(np.full_like(LOGITS, np.nan), LOGITS.argmax(axis=-1))
    assert different_tokens(nan, generation(), 1e-5)


def test_a_choice_that_float64_does_not_make_is_undecided_unless_another_is_wrong() -> None:
    with pytest.raises(Ambiguous, match="logits of both"):
        differences({(0, 0): 5}, UNDECIDED)
    assert len(differences({(0, 0): 5, (1, 2): (UNDECIDED.argmax(axis=-1)[1, 2] + 1) % 8}, UNDECIDED)) == 1
    assert differences({(0, 0): 1}, UNDECIDED) == ["row 0, step 0: token 1, float64's 3"]
