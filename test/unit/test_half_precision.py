"""Half precision: a clean model isn't red for a tie or for rounding, and a broken one still is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from suites_of_recipes import outcomes
from torch.utils._python_dispatch import TorchDispatchMode

from hardware.backends._trace import operator_trace
from hardware.backends.factory import get_backend
from hardware.testing.half_precision import CHOICES, ROUNDING, exact_operators, rounded_results
from hardware.testing.router_choices import (
    OtherChoices,
    RouterChoice,
    choices_of_whole_passes,
    hold_choices,
    observe_choices,
    undecided,
)
from hardware.testing.tolerances import rounding

NUMBERS = ("matches_reference", "matches_recorded", "honours_mask")
DECODING = ("generates_like_reference", "cache_matches")
TIES = (("mixtral", NUMBERS), ("qwen2_moe", NUMBERS), ("mistral", DECODING), ("gemma3_text", DECODING))
ROUNDED = (("falcon_mamba", DECODING), ("qwen3", NUMBERS), ("m2m_100", ("backward",)))


@pytest.mark.parametrize(("model_type", "checks"), TIES)
def test_a_choice_that_rounding_makes_is_a_condition_and_no_failure(
    model_type: str, checks: tuple[str, ...], tmp_path: Path
) -> None:
    found, conditions = outcomes(model_type, "bfloat16", tmp_path, checks=checks)
    assert set(found.values()) == {"passed"}, found
    assert CHOICES in conditions


@pytest.mark.parametrize(("model_type", "checks"), ROUNDED)
def test_what_rounding_alone_makes_is_a_condition_and_no_failure(
    model_type: str, checks: tuple[str, ...], tmp_path: Path
) -> None:
    found, conditions = outcomes(model_type, "bfloat16", tmp_path, checks=checks)
    assert set(found.values()) == {"passed"}, found
    assert ROUNDING in conditions


def test_float32_has_no_such_conditions(tmp_path: Path) -> None:
    found, conditions = outcomes("mixtral", "float32", tmp_path, checks=NUMBERS)
    assert set(found.values()) == {"passed"}
    assert conditions.keys().isdisjoint({CHOICES, ROUNDING})


# What is broken still fails: the target's kernels first, then the model's own code for half precision.


class Kernel(TorchDispatchMode):
    """A target one of whose kernels is wrong."""

    def __init__(self, name: str, change: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.change = name, change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.name == func.overloadpacket.__name__:
            return self.change(func, args, kwargs)
        return func(*args, **kwargs)


def next_best(func: Any, args: Any, kwargs: Any) -> Any:
    """The second to the next after the last, without the best."""
    scores, count, *rest = args
    values, indices = func(scores, min(count + 1, scores.shape[-1]), *rest, **kwargs)
    return values[..., -count:], indices[..., -count:]


def of_the_row_above(func: Any, args: Any, kwargs: Any) -> Any:
    values, indices = func(*args, **kwargs)
    return values, indices.roll(1, 0)


def scaled_attention(factor: float) -> Callable[..., Any]:
    def change(func: Any, args: Any, kwargs: Any) -> Any:
        return func(args[0] * factor, *args[1:], **kwargs)

    return change


def scaled_result(factor: float) -> Callable[..., Any]:
    return lambda func, args, kwargs: func(*args, **kwargs) * factor


ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
KERNELS = [
    ("mixtral", "topk", next_best),
    ("mixtral", "topk", of_the_row_above),
    ("deepseek_v3", "topk", of_the_row_above),
    ("qwen3_moe", "topk", next_best),
    ("mixtral", ATTENTION, scaled_attention(1.5)),
    ("qwen3", ATTENTION, scaled_attention(1.5)),
    ("mistral", ATTENTION, scaled_attention(1.5)),
    ("falcon_mamba", "softplus", scaled_result(1.5)),
    ("falcon_mamba", "exp", scaled_result(0.5)),
    ("detr", ATTENTION, scaled_attention(2.0)),
]


@pytest.mark.parametrize(("model_type", "kernel", "change"), KERNELS)
def test_a_wrong_kernel_fails(model_type: str, kernel: str, change: Callable[..., Any], tmp_path: Path) -> None:
    found, _ = outcomes(
        model_type,
        "bfloat16",
        tmp_path,
        checks=("matches_reference",),
        target=lambda: Kernel(kernel, change),
    )
    assert found["matches_reference"] == "failed"


@pytest.mark.parametrize("model_type", ["mistral", "mixtral"])
def test_a_wrong_token_fails(model_type: str, tmp_path: Path) -> None:
    def eighth(func: Any, args: Any, kwargs: Any) -> Any:
        return args[0].topk(8, dim=-1).indices[..., 7]

    found, _ = outcomes(
        model_type,
        "bfloat16",
        tmp_path,
        checks=("generates_like_reference",),
        target=lambda: Kernel("argmax", eighth),
    )
    assert found == {"generates_like_reference": "failed"}


def wrong_expert(model: Any) -> None:
    def choose(router: Any, _: Any, result: Any) -> Any:
        *rest, indices = result
        return (*rest, (indices + 1) % len(router.weight)) if router.weight.dtype is torch.bfloat16 else result

    for module in model.modules():
        if type(module).__name__.endswith("Router"):
            module.register_forward_hook(choose)


def other_scale(factor: float) -> Callable[[Any], None]:
    """A softmax whose scale is wrong in bfloat16 alone."""

    def spoil(model: Any) -> None:
        for module in model.modules():
            if hasattr(module, "scaling") and hasattr(module, "q_proj"):
                right = module.scaling

                def choose(attention: Any, *_: object, right: float = right) -> None:
                    narrow = attention.q_proj.weight.dtype is torch.bfloat16
                    attention.scaling = right * factor if narrow else right

                module.register_forward_pre_hook(choose)

    return spoil


@pytest.mark.parametrize(
    ("model_type", "spoil"),
    [
        ("mixtral", wrong_expert),
        ("qwen2_moe", wrong_expert),
        ("mixtral", other_scale(1.5)),
        ("qwen3", other_scale(1.5)),
        ("mistral", other_scale(1.5)),
        ("gemma3_text", other_scale(2.0)),
    ],
)
def test_code_that_is_wrong_in_half_precision_alone_fails(
    model_type: str, spoil: Callable[[Any], None], tmp_path: Path
) -> None:
    found, _ = outcomes(model_type, "bfloat16", tmp_path, checks=("matches_reference",), spoil=spoil)
    assert found["matches_reference"] == "failed"


# Choices


SCORES = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])


def held(indices: list[list[int]], scores: torch.Tensor = SCORES) -> Any:
    with hold_choices([RouterChoice(function="topk", indices=np.array(indices))]) as found:
        values, taken = scores.topk(2)
    assert taken.tolist() == indices
    assert torch.equal(values, scores.gather(1, taken))
    return found


def test_given_choices_are_taken_with_the_scores_of_the_pass() -> None:
    assert held([[0, 1], [3, 2]]).gaps == [0.0]
    assert held([[1, 0], [3, 2]]).gaps == [0.0]  # the same experts
    assert held([[0, 2], [3, 2]]).gaps == [1.0]
    assert held([[0, 0], [3, 2]]).gaps == [np.inf]  # one expert twice


@pytest.mark.parametrize(("moved", "explains"), [(0.6, True), (0.4, False)])
def test_a_choice_is_open_up_to_twice_what_rounding_does_to_a_score(moved: float, explains: bool) -> None:
    exact = held([[0, 2], [3, 2]])
    near, far = held([[0, 2], [3, 2]], SCORES + moved), held([[0, 2], [3, 2]], SCORES - 9)
    assert undecided(exact, (near,)) is explains
    assert undecided(exact, (near, far)) is explains  # each pass has to explain it


def test_a_number_that_stands_for_a_mask_is_no_measure_of_rounding() -> None:
    masked = SCORES.clone()
    masked[0, 3] = torch.finfo(torch.float32).min
    exact, near = held([[0, 2], [3, 2]], masked), held([[0, 2], [3, 2]], torch.where(masked < -9, -9.0, masked))
    assert not undecided(exact, (near,))


def test_a_pass_that_makes_other_choices_takes_none() -> None:
    with pytest.raises(OtherChoices), hold_choices([RouterChoice(function="argmax", indices=np.array([0]))]):
        SCORES.topk(2)
    with pytest.raises(OtherChoices), hold_choices([RouterChoice(function="topk", indices=np.zeros((2, 2), int))]):
        SCORES.topk(3)
    with pytest.raises(OtherChoices), hold_choices([RouterChoice(function="topk", indices=np.zeros((2, 2), int))]):
        pass


def test_choices_are_observed_of_floating_scores_and_of_so_many_passes() -> None:
    class Chooses(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.argmax(x, dim=-1), x.topk(k=2, dim=-1), x.long().argmax(dim=-1), x.max()

    model = Chooses()
    with observe_choices(model, passes=1) as found:
        model(SCORES)
        model(SCORES)
    assert [(one.function, one.indices.shape) for one in found] == [("argmax", (2,)), ("topk", (2, 2))]


def test_choices_that_are_observed_are_no_work_of_the_host() -> None:
    class Chooses(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.topk(k=2, dim=-1)

    scores, model = SCORES.to(get_backend("simulated").device), Chooses()
    with observe_choices(model) as found, operator_trace("simulated") as trace:
        model(scores)
    assert len(found) == 1
    assert not trace.offloaded


@pytest.mark.parametrize("in_two_axes", [False, True])
def test_choices_of_single_steps_are_put_behind_those_of_the_prompt(in_two_axes: bool) -> None:
    def router(tokens: list[list[int]]) -> RouterChoice:
        array = np.array(tokens)[..., None]
        return RouterChoice(function="topk", indices=array if in_two_axes else array.reshape(-1, 1))

    def token(*indices: int) -> RouterChoice:
        return RouterChoice(function="argmax", indices=np.array(indices))

    given = [router([[1, 2], [3, 4]]), token(0, 0), router([[5], [6]]), token(1, 1), router([[7], [8]]), token(2, 2)]
    found = choices_of_whole_passes(given, rows=2, steps=3)
    assert found is not None
    assert [one.function for one in found] == ["topk", "argmax"] * 3
    assert found[2].indices.ravel().tolist() == [1, 2, 5, 3, 4, 6]
    assert found[4].indices.ravel().tolist() == [1, 2, 5, 7, 3, 4, 6, 8]
    assert choices_of_whole_passes(given[:-1], rows=2, steps=3) is None
    assert choices_of_whole_passes(given, rows=2, steps=2) is None


# Rounding


def test_exact_operators_round_once() -> None:
    terms = torch.full((1, 4096), 1.0, dtype=torch.bfloat16)
    weights = torch.full((4096, 1), 1 + 2**-7, dtype=torch.bfloat16)
    with exact_operators():
        product = terms @ weights
    assert product.dtype is torch.bfloat16
    assert float(product) == float(torch.tensor(4096 * (1 + 2**-7), dtype=torch.float64).bfloat16())


def test_rounded_results_leave_the_numbers_of_masks() -> None:
    smallest = torch.finfo(torch.float64).min
    with rounded_results(torch.bfloat16):
        result = torch.tensor([1.001, smallest], dtype=torch.float64) * 1.0
        whole = torch.arange(3) + 1
    assert result.tolist() == [1.0, smallest]
    assert whole.dtype is torch.int64


def test_what_is_allowed_for_rounding_has_its_reason() -> None:
    allowed = rounding()
    assert 0 < allowed.least < 1 < allowed.spread < allowed.most
    assert allowed.reason
