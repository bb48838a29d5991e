"""Breaks of weights, of positions and of the outputs of the whole model.

Weights are broken at the attention layers and convolutions that outputs depend on; positions are whatever encodes the
place of a token, a frame or a patch; outputs change in forward hooks on the top module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwcompat.generators.recipes.attention_layers import (
    AttentionLayer,
    WeightSlice,
    halves,
    scale_attention,
    swap_slices,
)
from hwcompat.generators.recipes.config_scopes import roles
from hwcompat.hardware.model.outputs import floating_outputs, replaced_outputs

if TYPE_CHECKING:
    import random

    import torch

    from .model_anatomy import ModelAnatomy

    Tensors = dict[str, torch.Tensor]

FACTOR = 1.1
_LINEAR_BIAS = "alibi"


def draw(
    anatomy: ModelAnatomy, random: random.Random, usable: Callable[[AttentionLayer], bool], need: str
) -> AttentionLayer:
    """Return one of the `usable` attention layers. Raises `ValueError` if there is none."""
    layers = [layer for layer in anatomy.attention_layers or anatomy.matrices if usable(layer)]
    if not layers:
        raise ValueError(f"{anatomy.class_name} has no {need}")
    return random.choice(layers)


def scale_attention_scores(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Multiply the scores of one attention by 1.1, in its query; in a state space, the rows that give C."""
    layer = draw(anatomy, random, lambda _: True, "attention")
    scale_attention(model, layer, FACTOR)
    return describe_rows(layer.query_norm or layer.query)


def swap_query_and_key(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Swap query and key of one attention; of a larger query (grouped heads) only the first rows.

    If their shapes differ (latent attention), key and value are swapped, else the halves of the query; without
    attention, the halves of a matrix.
    """
    layer = draw(anatomy, random, lambda s: s.key is not None or s.kind == "weight", "query and key")
    if layer.key is None:
        first, last = halves(layer.query)
        swap_slices(model, first, last)
        return f"{describe_rows(first)} with {describe_rows(last)}"
    query, key = layer.query, layer.key
    if query.size > key.size and len(query.ranges) == 1:
        start = query.ranges[0][0]
        query = replace(query, ranges=((start, start + key.size),))
    for one, other in ((query, key), (key, layer.value), halves(query)):
        if other is not None and one.size == other.size and _width(model, one) == _width(model, other):
            swap_slices(model, one, other)
            return f"{describe_rows(one)} with {describe_rows(other)}"
    raise ValueError(f"{layer.module} has no two projections with the same shape")


def _width(model: torch.nn.Module, rows: WeightSlice) -> int:
    """Return the number of features that a projection reads."""
    return int(model.get_parameter(rows.weight).shape[1 - rows.axis])


def describe_rows(rows: WeightSlice) -> str:
    """Return the rows as text: `layer.0.query.weight[0:48]`."""
    return f"{rows.weight}[{','.join(f'{start}:{stop}' for start, stop in rows.ranges)}]"


def transpose_heads(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Swap heads and head features in the input of one output projection.

    A state space has no heads: its channels count as groups of the size of its state. Without attention, the input of
    one convolution counts as two groups of channels, or else the input of any matrix.
    """
    import torch

    projections = [
        (layer.output, heads)
        for layer in anatomy.attention_layers
        if layer.output and (heads := _heads(model, layer))
    ]
    grouped = projections or _in_groups(model, anatomy.convolutions) or _in_groups(model, anatomy.matrices)
    if not grouped:
        raise ValueError(f"{anatomy.class_name} has no layer with several input features")
    rows, heads = random.choice(grouped)
    weight = model.get_parameter(rows.weight)
    features = 1 - rows.axis
    size = weight.shape[features]
    order = torch.arange(size).reshape(heads, size // heads).T.reshape(-1)
    with torch.no_grad():
        weight.copy_(weight.index_select(features, order.to(weight.device)))
    return f"{rows.weight}, {heads} {'heads' if projections else 'groups'} of {size // heads}"


def _heads(model: torch.nn.Module, layer: AttentionLayer) -> int:
    """Return the number of heads of an output projection; 0 unless there are several with several features each."""
    assert layer.output is not None
    size = _width(model, layer.output)
    heads = layer.heads or size // layer.query.size
    return heads if heads > 1 and size % heads == 0 and size > heads else 0


def _in_groups(model: torch.nn.Module, layers: Sequence[AttentionLayer]) -> list[tuple[WeightSlice, int]]:
    """Return the slices whose inputs are two groups of several features, and the number of groups."""
    sizes = [(layer.query, _width(model, layer.query)) for layer in layers]
    return [(rows, 2) for rows, size in sizes if size > 2 and size % 2 == 0]


def _on_outputs(model: torch.nn.Module, change: Callable[[Tensors], Tensors]) -> None:
    """Replace the floating-point outputs of every call by those of `change`; caches and other values stay."""

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        return replaced_outputs(output, change(floating_outputs(output)))

    model.register_forward_hook(hook)


def put_nan(model: torch.nn.Module, _random: random.Random, _anatomy: ModelAnatomy) -> str:
    """Set the last row of the main output, the first that the model names, to NaN."""
    import torch

    def change(outputs: Tensors) -> Tensors:
        name, value = next(iter(outputs.items()))
        row = torch.arange(value.shape[0], device=value.device) == value.shape[0] - 1
        return {name: value.masked_fill(row.reshape(-1, *[1] * (value.ndim - 1)), float("nan"))}

    _on_outputs(model, change)
    return "main output, last row"


def repeat_half(model: torch.nn.Module, _random: random.Random, _anatomy: ModelAnatomy) -> str:
    """Replace the last half of the rows, rounded down, by the first rows, as if half of the batch was computed."""
    import torch

    def change(outputs: Tensors) -> Tensors:
        return {name: _repeat(value) for name, value in outputs.items()}

    def _repeat(value: torch.Tensor) -> torch.Tensor:
        if value.ndim == 0:
            return value
        half = value.shape[0] // 2
        return torch.cat([value[: value.shape[0] - half], value[:half]])

    _on_outputs(model, change)
    return "all outputs, last half of the rows"


def round_to_bfloat16(model: torch.nn.Module, _random: random.Random, _anatomy: ModelAnatomy) -> str:
    """Round outputs to bfloat16 and back to their dtype."""
    import torch

    _on_outputs(model, lambda outputs: {n: v.to(torch.bfloat16).to(v.dtype) for n, v in outputs.items()})
    return "all outputs"


def freeze(model: torch.nn.Module, _random: random.Random, _anatomy: ModelAnatomy) -> str:
    """Return the outputs of the first call for each later call with the same shapes."""
    kept: dict[tuple[Any, ...], Tensors] = {}

    def change(outputs: Tensors) -> Tensors:
        key = tuple((name, tuple(value.shape)) for name, value in outputs.items())
        return kept.setdefault(key, {name: value.detach().clone() for name, value in outputs.items()})

    _on_outputs(model, change)
    return "all outputs"


def shift_positions(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Shift positions by one, in the first of these that the model has.

    A learned table of positions, by a row; a rotary query, rotated by one position; computed or convolved positions,
    by one place; linear biases, by one place; the kernel of a convolution.
    """
    for way in (_roll_table, _rotate_query, _roll_module, _roll_bias, _roll_kernel):
        place = way(model, random, anatomy)
        if place:
            return place
    raise ValueError(f"{anatomy.class_name} has no positions")


def _roll_table(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    return _roll(model, random.choice(anatomy.position_tables), "rows", -2) if anatomy.position_tables else ""


def _roll(model: torch.nn.Module, name: str, what: str, axis: int) -> str:
    import torch

    parameter = model.get_parameter(name)
    with torch.no_grad():
        parameter.copy_(parameter.roll(1, dims=axis))
    return f"{name}, {what} rolled by one"


def _rotate_query(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    found = list(_rotary(model, anatomy.attention_layers))
    if not found:
        return ""
    layer, frequencies, starts, step = random.choice(found)
    for name in filter(None, (layer.query.weight, layer.query.bias)):
        for start in starts:
            _rotate(model.get_parameter(name), start, frequencies, step)
    return f"{describe_rows(layer.query)}, rotated by one position"


def _rotary(
    model: torch.nn.Module, layers: tuple[AttentionLayer, ...]
) -> Iterator[tuple[AttentionLayer, torch.Tensor, list[int], int]]:
    """Yield rotated queries with the frequencies, the first rotated row of each head, and 2 if neighboring
    features are paired, 1 if feature i is paired with i + half."""
    buffers = [(name, b) for name, b in model.named_buffers() if name.endswith("inv_freq")]
    for layer in (layer for layer in layers if layer.heads and layer.query.axis == 0):
        module = model.get_submodule(layer.module)
        width = layer.query.size // layer.heads
        rotated = getattr(module, "qk_rope_head_dim", None) or int(width * _rotated_share(module))
        rotated += rotated % 2  # features are rotated in pairs
        # Each rotated part of a model may have its own frequencies.
        near = [b for name, b in buffers if layer.module.startswith(name.rpartition(".")[0].rpartition(".")[0])]
        frequencies = next((b for b in near if 2 * b.numel() == rotated), None)
        if frequencies is None:
            continue
        first = width - rotated if hasattr(module, "qk_rope_head_dim") else 0  # latent attention rotates the end
        step = 2 if getattr(getattr(module, "config", None), "rope_interleave", False) else 1
        rows = [row for start, stop in layer.query.ranges for row in range(start, stop)]
        yield layer, frequencies, [rows[head * width + first] for head in range(layer.heads)], step


def _rotated_share(module: torch.nn.Module) -> float:
    """Return the share of a head's features that is rotated, from the first on."""
    config = getattr(module, "config", None)
    rope = getattr(config, "rope_parameters", None) or {}
    return float(rope.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0)


def _rotate(parameter: torch.Tensor, start: int, frequencies: torch.Tensor, step: int) -> None:
    """Rotate a head's rows by one position."""
    import torch

    half = frequencies.numel()
    shape = (half, *[1] * (parameter.ndim - 1))
    cos, sin = (f(frequencies.to(parameter)).reshape(shape) for f in (torch.cos, torch.sin))
    with torch.no_grad():
        rows = parameter.narrow(0, start, 2 * half)
        low, high = (rows[0::2], rows[1::2]) if step == 2 else (rows[:half], rows[half:])
        low_rotated, high_rotated = low * cos - high * sin, high * cos + low * sin
        low.copy_(low_rotated)
        high.copy_(high_rotated)


def _roll_module(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Shift the output of a module that computes or convolves positions: (batch, places, features)."""
    known = roles()["parameters"]["position_modules"]
    named = [(name, module) for name, module in model.named_modules() if name.rpartition(".")[2] in known]
    if not named:
        return ""
    name, module = random.choice(named)
    module.register_forward_hook(lambda _module, _args, output: output.roll(1, dims=1))
    return f"{name}, positions rolled by one"


def _roll_bias(model: torch.nn.Module, _random: random.Random, anatomy: ModelAnatomy) -> str:
    import inspect

    takers = [
        layer.module
        for layer in anatomy.attention_layers
        if _LINEAR_BIAS in inspect.signature(model.get_submodule(layer.module).forward).parameters
    ]

    def roll(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        bias = kwargs.get(_LINEAR_BIAS)
        return args, kwargs if bias is None else kwargs | {_LINEAR_BIAS: bias.roll(1, dims=-1)}

    for name in takers:
        model.get_submodule(name).register_forward_pre_hook(roll, with_kwargs=True)
    return f"linear biases of {takers[0]} and {len(takers) - 1} more, rolled by one" if takers else ""


def _roll_kernel(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    own = [
        f"{layer.module}.conv1d.weight"
        for layer in anatomy.attention_layers
        if f"{layer.module}.conv1d.weight" in parameters
    ]
    kernels = own or [
        layer.query.weight for layer in anatomy.convolutions if parameters[layer.query.weight].shape[-1] > 1
    ]
    return _roll(model, random.choice(kernels), "kernel", -1) if kernels else ""
