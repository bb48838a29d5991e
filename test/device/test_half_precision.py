"""Half precision: a clean model isn't red for a tie or for rounding, and a broken one still is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from suites_of_recipes import outcomes
from torch.utils._python_dispatch import TorchDispatchMode

from hardware.backends.factory import get_backend
from hardware.testing.half_precision import CHOICES, ROUNDING, Explained, HalfPrecision
from hardware.testing.rounded_operators import rounded_products

NUMBERS = ("matches_reference", "matches_recorded", "honours_mask")
DECODING = ("generates_like_reference", "cache_matches")


@pytest.mark.nightly
def test_rounding_is_a_condition_and_no_failure(tmp_path: Path) -> None:
    """Of a choice that it makes (CHOICES), and of what it does to numbers (ROUNDING)."""
    for model_type, checks, condition in (
        ("mixtral", NUMBERS, CHOICES),
        ("lw_detr", NUMBERS[:2], CHOICES),
        ("qwen2_moe", NUMBERS, CHOICES),
        ("mistral", DECODING, CHOICES),
        ("gemma3_text", DECODING, CHOICES),
        ("falcon_mamba", DECODING, ROUNDING),
        ("qwen3", NUMBERS, ROUNDING),
        ("m2m_100", ("backward",), ROUNDING),
        ("pp_doclayout_v3", ("backward",), ROUNDING),
    ):
        found, conditions = outcomes(model_type, "bfloat16", tmp_path, checks=checks)
        assert found == dict.fromkeys(checks, "passed"), model_type
        assert condition in conditions, model_type
    found, conditions = outcomes("mixtral", "float32", tmp_path, checks=NUMBERS)
    assert found == dict.fromkeys(NUMBERS, "passed")
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


def test_given_scales_hold_for_what_rounding_leaves_too() -> None:
    exact, moved = {"y": np.array([1.0, -1.0])}, {"y": np.array([1.5, -1.0])}
    rounded = Explained(exact=exact, narrow=exact, wide=exact, changed=False)
    half = HalfPrecision(precision="bfloat16", limit=0.01, exact=torch.nn.ReLU, build=torch.nn.ReLU, natural=dict)
    for scales, error in (({}, 0.5), ({"y": 10.0}, 0.05)):
        settled = half._settle_arrays([rounded], {"y": (moved["y"], exact["y"])}, {}, scales)
        assert settled is not None
        assert settled.comparison.max_rel_error == pytest.approx(error)


def test_in_float32_four_times_what_a_sensitive_model_costs_is_allowed() -> None:
    exact = {"y": np.array([1.0, -1.0])}
    for cost, error, left in (
        (6e-6, 2.3e-5, 1.9e-5),
        (6e-6, 2.5e-5, 2.1e-5),
        (4.9e-6, 2.1e-5, 2.1e-5),
        (1e-6, 1.0, 1.0),
    ):
        rounded = {"y": np.array([1.0 + cost, -1.0])}
        passes = Explained(exact=exact, narrow=rounded, wide=rounded, changed=False)
        half = HalfPrecision(precision="float32", limit=2e-5, exact=torch.nn.ReLU, build=torch.nn.ReLU, natural=dict)
        settled = half._settle_arrays([passes], {"y": (np.array([1.0 + error, -1.0]), exact["y"])}, {})
        assert settled is not None
        assert settled.comparison.max_rel_error == pytest.approx(left, rel=1e-3)
        half.adopt(settled)
        assert (ROUNDING in half.take_conditions()) == (left < error)
    rounded = {"y": np.array([1.0 + 1e-3, -1.0])}
    passes = Explained(exact=exact, narrow=rounded, wide=rounded, changed=False)
    assert half._settle_arrays([passes], {"y": (np.array([1.002, -1.0]), exact["y"])}, {}) is None


def test_a_wrong_kernel_fails(tmp_path: Path) -> None:
    for model_type, kernel, change in KERNELS:
        target = functools.partial(Kernel, kernel, change)
        found, _ = outcomes(model_type, "bfloat16", tmp_path, checks=("matches_reference",), target=target)
        assert found == {"matches_reference": "failed"}, (model_type, kernel)

    def eighth(func: Any, args: Any, kwargs: Any) -> Any:
        return args[0].topk(8, dim=-1).indices[..., 7]

    for model_type in ("mistral", "mixtral"):
        target = functools.partial(Kernel, "argmax", eighth)
        found, _ = outcomes(model_type, "bfloat16", tmp_path, checks=("generates_like_reference",), target=target)
        assert found == {"generates_like_reference": "failed"}, model_type


def other_padding(func: Any, args: Any, kwargs: Any) -> Any:
    """Attention that gives positions which may attend to nothing other numbers, as CUDA's kernels do."""
    result, *rest = func(*args, **kwargs)
    mask = kwargs.get("attn_mask")
    if mask is None:
        return result, *rest
    allowed = mask if mask.dtype is torch.bool else mask > torch.finfo(mask.dtype).min / 2
    return torch.where(allowed.any(-1, keepdim=True), result, result.roll(1, -2) + 1), *rest


def test_choices_for_padding_are_no_failure(tmp_path: Path) -> None:
    target = functools.partial(Kernel, ATTENTION, other_padding)
    found, _ = outcomes("mixtral", "bfloat16", tmp_path, checks=NUMBERS, target=target)
    assert found == dict.fromkeys(NUMBERS, "passed")


class BrokenInTF32:
    """A target that computes in TF32, one of whose kernels is wrong."""

    def __enter__(self) -> None:
        self.modes = rounded_products(), Kernel("softplus", scaled_result(1.5))
        for one in self.modes:
            one.__enter__()

    def __exit__(self, *error: object) -> None:
        for one in reversed(self.modes):
            one.__exit__(*error)


def test_rounding_of_tf32_is_no_failure_and_a_wrong_kernel_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(get_backend("cpu")), "PRECISIONS", ("float32", "tf32"))
    for target, outcome in ((rounded_products, "passed"), (BrokenInTF32, "failed")):
        found, conditions = outcomes("falcon_mamba", "tf32", tmp_path, checks=("matches_reference",), target=target)
        assert found == {"matches_reference": outcome}
        assert (ROUNDING in conditions) is (outcome == "passed")


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


def test_code_that_is_wrong_in_half_precision_alone_fails(tmp_path: Path) -> None:
    for model_type, spoil in (
        ("mixtral", wrong_expert),
        ("qwen2_moe", wrong_expert),
        ("mixtral", other_scale(1.5)),
        ("qwen3", other_scale(1.5)),
        ("mistral", other_scale(1.5)),
        ("gemma3_text", other_scale(2.0)),
    ):
        found, _ = outcomes(model_type, "bfloat16", tmp_path, checks=("matches_reference",), spoil=spoil)
        assert found == {"matches_reference": "failed"}, model_type
