"""Inputs and outputs of a torch module as named tensors, from single tensors, lists and mappings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .model_types import Array

_OF_LAYERS = ("hidden_states", "attentions", "past_key_values", "router_logits", "mems")
"""Suffixes of tuples with an entry for each layer, which aren't results."""


def results(output: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that a module returned, by name: floating-point ones, and integers such as matches or codes.

    The tensors of a tuple get its name and their position: `feature_maps_0`. A bare tensor is named `output`, the
    entries of a bare tuple `output_0` and so on. Caches, and the hidden states and attentions of all layers, are left
    out.
    """
    return dict(_tensors(output))


def floating_outputs(output: Any) -> dict[str, torch.Tensor]:
    """Return the floating-point tensors of `results`."""
    return {name: one for name, one in _tensors(output) if one.is_floating_point()}


def _tensors(output: Any) -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    if isinstance(output, torch.Tensor | tuple | list):
        named: dict[str, Any] = {"output": output}
    else:
        named = {n: v for n, v in dict(output).items() if isinstance(v, torch.Tensor) or not n.endswith(_OF_LAYERS)}
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            entries = {name: value}
        elif isinstance(value, tuple | list):
            entries = {f"{name}_{place}": one for place, one in enumerate(value) if isinstance(one, torch.Tensor)}
        else:
            continue
        yield from ((name, one) for name, one in entries.items() if not one.is_complex())


COMPLEX_PARTS = ("_real", "_imag")
"""Suffixes of the two outputs that a complex one becomes."""


def named_outputs(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor and number of nested outputs by name: `output` or the key, and below it `boxes_0`. Unlike in
    `results`, nothing is left out."""
    import torch

    if isinstance(value, float):
        value = torch.as_tensor(value, dtype=torch.get_default_dtype())
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            yield name + COMPLEX_PARTS[0], value.real
            yield name + COMPLEX_PARTS[1], value.imag
        else:
            yield name or "output", value
    elif is_nest(value):
        prefix = name or ("output" if isinstance(value, list | tuple) and not hasattr(value, "_fields") else "")
        for key, part in parts_of(value):
            yield from named_outputs(part, f"{prefix}_{key}" if prefix else str(key))


def is_nest(value: Any) -> bool:
    """Return whether a value is a dict, list, tuple or dataclass, whose parts are values."""
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return isinstance(value, Mapping | tuple | list) or is_record


def parts_of(value: Any) -> list[tuple[Any, Any]]:
    """Return the keys and parts of a dict, list, tuple or dataclass."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple | list):
        return list(zip(getattr(value, "_fields", range(len(value))), value, strict=True))
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]


def replaced_outputs(output: Any, changed: Mapping[str, torch.Tensor]) -> Any:
    """Return a module's output, with those of its `floating_outputs` replaced that `changed` names."""
    if isinstance(output, Mapping):
        for name, value in output.items():
            output[name] = _replaced(name, value, changed)  # type: ignore[index] # a ModelOutput or a dict
        return output
    return _replaced("output", output, changed)


def _replaced(name: str, value: Any, changed: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, tuple | list):
        return type(value)([changed.get(f"{name}_{place}", one) for place, one in enumerate(value)])
    return changed.get(name, value)


def nested(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the arguments of a forward pass: `whole.part` is an entry of the mapping `whole`; `whole.0` and
    `whole.1` are parts of the list `whole`; `whole.*` is a list of its rows; `whole.list` is a list of numbers."""
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        whole, _, part = name.partition(".")
        if not part:
            found[whole] = tensor
        elif part == "*":
            found[whole] = list(tensor)
        elif part == "list":
            found[whole] = tensor.tolist()
        elif part.isdigit():
            found.setdefault(whole, []).append(tensor)
        else:
            found.setdefault(whole, {})[part] = tensor
    return found


def numbers_of(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of numbers: floating-point ones as float64, integers and booleans as they are."""
    import numpy as np

    found = {name: np.asarray(one) for name, one in arrays.items()}
    floats = {name: one.astype(np.float64) for name, one in found.items() if one.dtype.kind == "f"}
    return {**floats, **whole_numbers(found)}


def whole_numbers(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of integers and booleans."""
    return {name: one for name, one in arrays.items() if one.dtype.kind in "iub"}


def ruled_out(array: Array) -> Array:
    """Return minus infinity for entries that are the smallest number of their dtype, as `to_arrays` does."""
    import numpy as np

    return np.where(array == np.finfo(array.dtype).min, -np.inf, array) if array.dtype.kind == "f" else array
