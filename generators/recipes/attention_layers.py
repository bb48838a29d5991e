"""Find a model's attention layers (or their replacements) with their projections, and its tables of positions; scale
or swap features of a projection.

Names are understood by the roles in roles.toml.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.testing.seeded_weights import has_codes

from .config_scopes import roles

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class AttentionLayer:
    """One attention module. `kind`: `attention`, `state-space` (query is C, key is B), `convolution` (query and key
    are the lower and the upper half of its channels, because a normalization would undo a factor in all; the channels
    are those of the input if the weights are normalized) or `weight`.

    `query_norm` comes after the query's projection if a normalization undoes a factor in that: the normalization
    itself, the projection to the time step of a state space that normalizes B and C without weights, or an input
    gate; half of each head's query if its normalization has no weights. A layer of kind `weight` is used if a model
    has none of these: its largest matrix, as `query`. Missing parts are None; `heads` is 0 if it is unknown.
    """

    module: str
    kind: str
    query: WeightSlice
    query_norm: WeightSlice | None = None
    key: WeightSlice | None = None
    value: WeightSlice | None = None
    output: WeightSlice | None = None
    heads: int = 0


def attention_layers(model: torch.nn.Module) -> list[AttentionLayer]:
    """Return the attention layers of a model in the order of its modules; at least one if it has a matrix."""
    modules = dict(model.named_modules())
    found = []
    for name, module in modules.items():
        makers = (_separate, _latent, _fused, _state_space)
        layer = next(filter(None, (make(name, module) for make in makers)), None)
        if layer is not None:
            found.append(replace(layer, output=_output(name, modules)))
    if not found or has_codes(model):
        found += convolution_layers(model)  # what comes before codes has an effect only if it gives another code
    if found:
        return found
    matrices = [(p.numel(), name) for name, p in model.named_parameters() if p.ndim >= 2]
    if not matrices:
        return []
    size = max(matrices)[0]
    name = next(name for numel, name in matrices if numel == size)
    owner = name.rpartition(".")[0]
    whole = _whole(owner, modules[owner])
    return [AttentionLayer(module=owner, kind="weight", query=whole)] if whole else []


def convolution_layers(model: torch.nn.Module) -> list[AttentionLayer]:
    """Return the convolutions that mix places, as attention does: those with a kernel wider than one."""
    found = []
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, module in model.named_modules():
        kernel = getattr(module, "kernel_size", ())
        if isinstance(kernel, tuple) and max(kernel, default=1) > 1:
            whole = _whole(name, module)
            if whole is not None and "Standardized" in type(module).__name__:
                # Each output's sum is normalized, which undoes a factor in all inputs, but not in some.
                whole = replace(whole, bias="", ranges=((0, module.weight.shape[1]),), axis=1)
            if whole is not None and whole.weight in parameters and whole.size > 1:
                query, key = halves(whole)
                found.append(AttentionLayer(module=name, kind="convolution", query=query, key=key))
    return found


def matrix_layers(model: torch.nn.Module) -> list[AttentionLayer]:
    """Return all layers with a weight of at least two axes and with several inputs and outputs."""
    found = []
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, module in model.named_modules():
        whole = _whole(name, module)
        if whole is not None and whole.weight in parameters and type(module).__name__ != "Embedding":
            found.append(AttentionLayer(module=name, kind="weight", query=whole))
    return found


def position_tables(model: torch.nn.Module) -> list[str]:
    """Return the qualified names of parameters with learned positions: (positions or buckets, features)."""
    known = roles()["parameters"]["position_tables"]
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and any(part in known for part in name.split("."))
    ]


def scale_attention(model: torch.nn.Module, layer: AttentionLayer, factor: float) -> None:
    """Multiply a layer's attention scores in place: by the query's normalization if it has one, else by its rows."""
    scale_slice(model, layer.query_norm or layer.query, factor)


def swap_two(model: torch.nn.Module, layer: AttentionLayer) -> str:
    """Make the fault "two weights swapped" in a layer and return which: the first pair of equal shapes.

    Query and key; key and value (grouped heads); else the two halves of the query.
    """
    for names in (("query", "key"), ("key", "value")):
        one, other = (getattr(layer, name) for name in names)
        if one and other and shapes_of(model, one) == shapes_of(model, other):
            swap_slices(model, one, other)
            return " and ".join(names)
    first, last = halves(layer.query)
    swap_slices(model, first, last)
    return "halves of the query"


def half_of_heads(layer: AttentionLayer) -> AttentionLayer:
    """Return the same layer with the lower half of each head's query: if queries are normalized without weights, a
    factor in all features of a head is undone."""
    size = layer.query.size // max(1, layer.heads)
    starts = range(layer.query.ranges[0][0], layer.query.ranges[-1][1], size)
    rows = replace(layer.query, ranges=tuple((start, start + size // 2) for start in starts))
    return replace(layer, query=rows, query_norm=None)


def _whole(name: str, module: Any) -> WeightSlice | None:
    """Return all output features of a module with a weight of at least two axes.

    For a normalized weight, return the lengths of its rows, since a factor in the rows is undone.
    """
    weight = getattr(module, "weight", None)
    if weight is None and "linear" in module._modules:
        return _whole(f"{name}.linear", module._modules["linear"])  # a projection inside another module
    if weight is None or getattr(weight, "ndim", 0) < 2:
        return None
    bias = f"{name}.bias" if getattr(module, "bias", None) is not None else ""
    kind = type(module).__name__
    if hasattr(module, "parametrizations"):
        lengths = getattr(module.parametrizations.weight, "original0", None)
        if lengths is None or lengths.shape[0] != lengths.numel():
            return None
        owner, axis = f"{name}.parametrizations.weight.original0", 0
        bias = "" if "Transpose" in kind else bias  # its rows are inputs
    else:
        owner, axis = f"{name}.weight", 1 if kind in ("Conv1D", "Embedding") or "ConvTranspose" in kind else 0
    return WeightSlice(weight=owner, bias=bias, ranges=((0, weight.shape[axis]),), axis=axis)


def _child(name: str, module: Any, names: list[str]) -> tuple[str, WeightSlice | None]:
    for child in names:
        if child in module._modules:
            full = f"{name}.{child}" if name else child
            return child, _whole(full, module._modules[child]) or _wrapped(full, module._modules[child])
    return "", None


def _wrapped(name: str, module: Any) -> WeightSlice | None:
    """Return the projection inside a module that only clips or normalizes it: its only matrix."""
    found = [_whole(f"{name}.{inner}", one) for inner, one in module._modules.items() if one is not None]
    matrices = [rows for rows in found if rows is not None]
    return matrices[0] if len(matrices) == 1 else None


def _number(module: Any, *names: str) -> int:
    """Return the first of these attributes of the module, or of its configuration, that is a whole number; else 0."""
    for owner in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(owner, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return 0


def _heads(module: Any) -> int:
    return _number(
        module, "num_attention_heads", "num_heads", "n_heads", "n_head", "heads", "encoder_attention_heads"
    )


def _separate(name: str, module: Any) -> AttentionLayer | None:
    known = roles()["parameters"]
    query, key, value = (_child(name, module, known[part])[1] for part in ("query", "key", "value"))
    if query is None or key is None:
        return None
    return AttentionLayer(
        module=name,
        kind="attention",
        query=query,
        query_norm=_norm(name, module) or _child(name, module, known["input_gate"])[1] or _undone(module, query),
        key=key,
        value=value,
        heads=_heads(module),
    )


def _norm(name: str, module: Any) -> WeightSlice | None:
    """Return the weights of the query's normalization if it has some; the temperature if query and key are
    compared only by their angle."""
    temperature = next((n for n in roles()["parameters"]["temperature"] if n in module._parameters), "")
    if temperature:
        count = module._parameters[temperature].shape[0]
        return WeightSlice(weight=f"{name}.{temperature}", bias="", ranges=((0, count),), axis=0)
    child = next((n for n in roles()["parameters"]["query_norm"] if n in module._modules), "")
    norm = module._modules.get(child)
    weight = norm._parameters.get("weight") if norm is not None else None
    if weight is None:
        return None
    bias = f"{name}.{child}.bias" if getattr(norm, "bias", None) is not None else ""
    return WeightSlice(weight=f"{name}.{child}.weight", bias=bias, ranges=((0, weight.shape[0]),), axis=0)


def _undone(module: Any, query: WeightSlice) -> WeightSlice | None:
    """Return the lower half of each head's query if a normalization without weights undoes a factor in all of it."""
    heads = _heads(module)
    if not heads or query.size % (2 * heads) or not set(roles()["parameters"]["query_norm"]) & set(module._modules):
        return None
    width = query.size // heads
    return replace(query, ranges=tuple((head * width, head * width + width // 2) for head in range(heads)))


def _latent(name: str, module: Any) -> AttentionLayer | None:
    """Multi-head latent attention: one projection gives the key, then the value of the first head, and so on.

    The rotated part of the key is shared by all heads and comes from another projection.
    """
    known = roles()["parameters"]
    query, both = (_child(name, module, known[part])[1] for part in ("query", "latent_key_value"))
    heads, key, value = _heads(module), _number(module, "qk_nope_head_dim"), _number(module, "v_head_dim")
    if query is None or both is None or not heads or both.size != heads * (key + value):
        return None
    starts = [head * (key + value) for head in range(heads)]
    return AttentionLayer(
        module=name,
        kind="attention",
        query=query,
        key=replace(both, ranges=tuple((start, start + key) for start in starts)),
        value=replace(both, ranges=tuple((start + key, start + key + value) for start in starts)),
        heads=heads,
    )


def _fused(name: str, module: Any) -> AttentionLayer | None:
    known = roles()["parameters"]
    child, whole = _child(name, module, known["fused_blocks"] + known["fused_by_head"])
    heads = _heads(module)
    if whole is None or not heads:
        return None
    size = whole.ranges[0][1]
    groups = _number(module, "num_key_value_heads") or heads
    width = _number(module, "head_dim") or size // (heads + 2 * groups)
    groups = (size // width - heads) // 2  # Falcon's heads share one key and one value; only the size shows that.
    if groups < 1 or size != width * (heads + 2 * groups):
        return None
    if child in known["fused_by_head"] and groups == heads:
        parts = [
            tuple((3 * width * head + width * part, 3 * width * head + width * (part + 1)) for head in range(heads))
            for part in range(3)
        ]
    else:
        ends = (0, heads * width, (heads + groups) * width, size)
        parts = [((ends[i], ends[i + 1]),) for i in range(3)]
    query, key, value = (replace(whole, ranges=part) for part in parts)
    norm = _norm(name, module)
    return AttentionLayer(
        module=name, kind="attention", query=query, query_norm=norm, key=key, value=value, heads=heads
    )


def _state_space(name: str, module: Any) -> AttentionLayer | None:
    """Return the projection of a selective state space: time step, then B, then C, each of `state` features."""
    known = roles()["parameters"]
    _, whole = _child(name, module, known["state_space"])
    state = _number(module, "ssm_state_size", "state_size")
    if whole is None or not state or whole.ranges[0][1] <= 2 * state:
        return None
    size = whole.ranges[0][1]
    norm = _norm(name, module)
    if norm is None and set(known["state_space_norm"]) & {*module._buffers, *module._modules}:
        norm = _child(name, module, known["time_step"])[1]
    return AttentionLayer(
        module=name,
        kind="state-space",
        query=replace(whole, ranges=((size - state, size),)),
        query_norm=norm,
        key=replace(whole, ranges=((size - 2 * state, size - state),)),
    )


def _output(name: str, modules: dict[str, Any]) -> WeightSlice | None:
    """Return the output projection inside the attention module, else in the module around it."""
    for scope in (name, name.rpartition(".")[0]):
        for child in roles()["parameters"]["output"]:
            full = f"{scope}.{child}" if scope else child
            if full in modules and (rows := _whole(full, modules[full])) is not None:
                return rows
    return None


@dataclass(frozen=True, kw_only=True)
class WeightSlice:
    """Some output features of one projection.

    `weight` and `bias` are qualified parameter names (`bias` may be empty), `ranges` half-open ranges of
    features, and `axis` is the axis of the weight that they lie on: 0 for Linear and convolutions, 1 for the
    transposed projections of GPT-2. An embedding's features lie on axis 1.
    """

    weight: str
    bias: str
    ranges: tuple[tuple[int, int], ...]
    axis: int

    @property
    def size(self) -> int:
        """The number of features."""
        return sum(stop - start for start, stop in self.ranges)


def scale_slice(model: torch.nn.Module, rows: WeightSlice, factor: float) -> None:
    """Multiply these features of a projection in place, weight and bias."""
    import torch

    with torch.no_grad():
        for view in _views(model, rows):
            view.mul_(factor)


def swap_slices(model: torch.nn.Module, one: WeightSlice, other: WeightSlice) -> None:
    """Swap two projections' features in place, and their biases if both have one.

    Raises `ValueError` if their shapes differ.
    """
    import torch

    if not (one.bias and other.bias):
        one, other = replace(one, bias=""), replace(other, bias="")
    left, right = list(_views(model, one)), list(_views(model, other))
    if [v.shape for v in left] != [v.shape for v in right]:
        raise ValueError(f"{one.weight} and {other.weight} can't be swapped, because their shapes differ")
    with torch.no_grad():
        for a, b in zip(left, right, strict=True):
            kept = a.clone()
            a.copy_(b)
            b.copy_(kept)


def shapes_of(model: torch.nn.Module, rows: WeightSlice) -> list[tuple[int, ...]]:
    """Return the shape of each range of these features in the weight."""
    return [tuple(view.shape) for view in _views(model, replace(rows, bias=""))]


def halves(rows: WeightSlice) -> tuple[WeightSlice, WeightSlice]:
    """Return the lower and the upper half of the first range."""
    start, stop = rows.ranges[0]
    middle = (stop - start) // 2
    return (
        replace(rows, ranges=((start, start + middle),)),
        replace(rows, ranges=((stop - middle, stop),)),
    )


def _views(model: torch.nn.Module, rows: WeightSlice) -> Iterator[torch.Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for start, stop in rows.ranges:
        yield parameters[rows.weight].narrow(rows.axis, start, stop - start)
        if rows.bias:
            yield parameters[rows.bias].narrow(0, start, stop - start)
