"""Seeded test weights that make faults detectable.

A library's own initialization hides faults: in a default tiny BERT, doubling the attention scale moves the output by
less than bfloat16's noise. `fill` sets every parameter from its qualified name alone, so that a model has the same
numbers on every machine, and large enough that a wrong operator shows.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch

GAINS = (1.5, 1.0, 0.7, 0.5)
"""The gains from which a recipe may choose, largest first."""
BETWEEN = (1.2, 0.85, 2.0)
"""Gains to try if none of `GAINS` is accepted: between them, and larger."""

_JITTER = 0.3
_AT_A_TIME = 2**24
"""Numbers of a parameter that are drawn together."""
_OBJECT_QUERIES = frozenset({"query_position_embeddings", "queries_embedder"})
"""Learned rows that each query one object (DETR, Mask2Former and similar models)."""
_PERIODS = ("snake1.alpha", "snake2.alpha")
"""The period of a periodic activation by channel. It divides by this, so that numbers around 0 would explode."""
_CODE_TABLES = frozenset({"embed", "embed_sum"})
"""Buffers with the codes of a codec, one in a row, learned as averages and not by gradients."""
_DRAWN_TABLES = frozenset({"positional_embedding"})
"""Buffers that a constructor draws anew each time: the frequencies of positions in SAM 2."""
ROUTING_BIASES = frozenset({"e_score_correction_bias", "expert_bias"})
"""Vectors that, added to a token's scores, decide which experts it gets, and that a library initializes to 0: buffers
in some models (DeepSeek-V3, LFM2), parameters in others (ERNIE 4.5)."""

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_BRANCH_SCALE = re.compile(r"lambda_?\d|(ffn_)?gamma(_\d)?|layer_scale(_\d|_parameter)?|scale")
"""Names of vectors that scale what a layer or a part of it adds to the stream."""


def _generator(seed: str, name: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))


def _fan_in(name: str, shape: tuple[int, ...], of_experts: bool) -> float:
    """Return the number of inputs that one output sums: the row of an embedding, else all but the first axis, as for
    the stem of a convolutional network, which is called its embedder.

    The matrices of all experts are one parameter, (experts, out, in) or (experts, in, out) by model; a value between
    the two is close enough for both, while out times in would make experts undetectable. Object queries are as large
    as the normalized stream that they are added to: nothing else distinguishes them, and attention between equal
    queries has no visible effect.
    """
    if any(part in _OBJECT_QUERIES for part in name.split(".")):
        return 1
    if of_experts and len(shape) == 3:
        return math.sqrt(shape[1] * shape[2])
    of_stem = len(shape) == 4 and "embedder" in name.split(".")
    return shape[-1] if "embed" in name and not of_stem else math.prod(shape[1:])


def _is_scale(name: str, of_norm: bool) -> bool:
    """Whether a parameter multiplies values: a normalization weight, or the scale of a branch (layer scale), which a
    library initializes so near 0 that the branch would be undetectable."""
    lowered = name.lower()
    own = lowered.rpartition(".")[2]
    if own.endswith("weight") and (of_norm or "norm" in lowered or "ln_" in lowered):
        return True
    return _BRANCH_SCALE.fullmatch(own) is not None or lowered.endswith(_PERIODS)


def without_numbers(name: str) -> str:
    """Return the name of a parameter with `*` for the number of each layer: `layers.*.norm.weight`."""
    return _NUMBER.sub("*", name)


def _modules_of_experts(model: torch.nn.Module) -> frozenset[str]:
    """Return the names of modules that hold parameters of experts, by their own name or their class's."""
    return frozenset(
        name
        for name, module in model.named_modules()
        if "experts" in f"{name.rpartition('.')[2]} {type(module).__name__}".lower()
    )


def _batch_statistics(owner: str, module: torch.nn.Module, seed: str) -> dict[str, npt.NDArray[np.float64]]:
    """Return values for the statistics of a batch normalization, and for its weight and bias if they are frozen."""
    buffers = {name: buffer for name, buffer in module.named_buffers(recurse=False) if buffer.is_floating_point()}
    if "running_var" not in buffers:
        return {}
    values = {}
    for name, buffer in buffers.items():
        noise = _JITTER * _generator(seed, f"{owner}.{name}").standard_normal(tuple(buffer.shape))
        around = {"running_var": np.exp(noise), "weight": 1.0 + noise}
        values[name] = around.get(name, noise)
    return values


def _tables(owner: str, module: torch.nn.Module, gain: float, seed: str) -> dict[str, npt.NDArray[np.float64]]:
    """Return values for tables that are buffers. Codes, which a library leaves at 0, are drawn as in a matrix; tables
    that a constructor draws are standard normal as there. A table that isn't saved is computed by the model and
    stays."""
    values = {}
    for name, buffer in module.named_buffers(recurse=False):
        if name in _CODE_TABLES | _DRAWN_TABLES and buffer.ndim == 2 and buffer.is_floating_point():
            if name not in module.state_dict(keep_vars=True):
                continue
            noise = _generator(seed, f"{owner}.{name}").standard_normal(tuple(buffer.shape))
            values[name] = noise if name in _DRAWN_TABLES else noise * gain / math.sqrt(buffer.shape[1])
    return values


def _routing_biases(owner: str, module: torch.nn.Module, seed: str) -> dict[str, npt.NDArray[np.float64]]:
    """Return values for a router's biases that are buffers, the same as for parameters."""
    return {
        name: _JITTER * _generator(seed, f"{owner}.{name}").standard_normal(tuple(buffer.shape))
        for name, buffer in module.named_buffers(recurse=False)
        if name in ROUTING_BIASES
    }


def has_codes(model: torch.nn.Module) -> bool:
    """Whether a model contains the codes of a codec, after which only changes of a code are detectable."""
    return any(name.rpartition(".")[2] in _CODE_TABLES for name, buffer in model.named_buffers() if buffer.ndim == 2)


def fill(
    model: torch.nn.Module, *, gain: float = 1.0, seed: str = "0", zero_centered: Collection[str] = ()
) -> torch.nn.Module:
    """Set every parameter of `model` in place by its qualified name, and return it in evaluation mode.

    Matrices are N(0, gain / sqrt(fan_in)); vectors are jittered around 0, normalization weights around 1. Those that
    are `zero_centered` are jittered around 0, since the code adds 1: around 1 they would double every stream. Their
    names, with `*` for a layer's number, come from the recipe and not from the code, or a model that lost its 1 would
    get weights that compensate for it. Tied parameters are set once, under the first of their names. Numbers come
    from NumPy's Philox generator in float64 and are rounded to the parameter's dtype. A table that the model computes
    and never saves stays. The statistics of batch normalization are set too, since a mean of 0 and a variance of 1
    hide faults, and so are tables in buffers, such as the codes of a codec, and the biases of routers. The variance
    is jittered around 1, not around the value that follows from the gain: an activation leaves about half of it, and
    without a gain nothing of the image would pass through thirty layers without skip connections. Parameters that a
    library makes in half precision whatever the model is in (the activation of Apertus in transformers 4.57) keep
    their numbers and are widened to the dtype of the rest.
    """
    import torch

    zero_centered = frozenset(zero_centered)
    computed = getattr(model, "_keys_to_ignore_on_save", None) or ()
    experts = _modules_of_experts(model)
    norms = {owner for owner, module in model.named_modules() if "norm" in type(module).__name__.lower()}
    done: set[int] = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if id(parameter) in done or name in computed:
                continue
            done.add(id(parameter))
            if parameter.ndim >= 2 and not name.endswith(_PERIODS):
                fan_in = _fan_in(name, tuple(parameter.shape), name.rpartition(".")[0] in experts)
                mean, deviation = 0.0, gain / math.sqrt(max(1, fan_in))
            else:
                of_norm = name.rpartition(".")[0] in norms
                scales = _is_scale(name, of_norm) and zero_centered.isdisjoint((name, without_numbers(name)))
                mean, deviation = 1.0 if scales else 0.0, _JITTER
            _draw(parameter, _generator(seed, name), mean, deviation)
        for owner, module in model.named_modules():
            buffers = _batch_statistics(owner, module, seed) | _tables(owner, module, gain, seed)
            buffers |= _routing_biases(owner, module, seed)
            for name, value in buffers.items():
                getattr(module, name).copy_(torch.as_tensor(value))
        _widen_narrow_parameters(model)
    return model.eval()


def _draw(parameter: torch.Tensor, random: np.random.Generator, mean: float, deviation: float) -> None:
    """Set a parameter to normal numbers, a part at a time: in float64 they would take twice its memory."""
    import torch

    drawn = parameter.detach() if parameter.is_contiguous() else torch.empty_like(parameter).contiguous()
    for part in drawn.view(-1).split(_AT_A_TIME):
        part.copy_(torch.as_tensor(mean + deviation * random.standard_normal(part.numel())))
    if not parameter.is_contiguous():
        parameter.copy_(drawn)


def _widen_narrow_parameters(model: torch.nn.Module) -> None:
    dtypes = {one.dtype for one in model.parameters() if one.is_floating_point()}
    if len(dtypes) > 1:
        widest = max(dtypes, key=lambda dtype: dtype.itemsize)
        model._apply(lambda one: one.to(widest) if one.dtype in dtypes - {widest} else one)
