"""Tensors inside what modules take and give: tuples, lists, mappings and dataclasses, however deep."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Change = Callable[[str, "torch.Tensor"], "torch.Tensor"]
_DEEPEST = 8


def tensors_given(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors that a module is called with, by the argument's name, whether it came by position or by name."""
    found: dict[str, torch.Tensor] = {}
    changed_arguments(module, args, kwargs, lambda name, one: found.setdefault(name, one))
    return found


def tensors_given_back(output: Any) -> dict[str, torch.Tensor]:
    """The tensors in what a module gave: `output`, `output.0`, `output.last_hidden_state`."""
    found: dict[str, torch.Tensor] = {}
    changed_output(output, lambda name, one: found.setdefault(name, one))
    return found


def changed_arguments(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], change: Change
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with every tensor as `change` gives it, from its name and itself."""
    names = _argument_names(module)
    labels = [names[place] if place < len(names) else f"argument {place}" for place in range(len(args))]
    return (
        tuple(_changed(one, label, change) for label, one in zip(labels, args, strict=True)),
        {name: _changed(one, name, change) for name, one in kwargs.items()},
    )


def changed_output(output: Any, change: Change) -> Any:
    """What a module gave with every tensor as `change` gives it."""
    return _changed(output, "output", change)


def _argument_names(module: Any) -> list[str]:
    try:
        return list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):  # of native code
        return []


def _changed(value: Any, name: str, change: Change, depth: int = 0) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        plain = not value.is_sparse and not value.is_nested and not value.is_complex()
        return change(name, value) if plain else value
    if depth >= _DEEPEST:
        return value
    parts = _parts(value)
    new = {key: _changed(one, f"{name}.{key}", change, depth + 1) for key, one in parts.items()}
    if all(new[key] is one for key, one in parts.items()):
        return value
    return _rebuilt(value, new)


def _parts(value: Any) -> dict[Any, Any]:
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value) if field.init}
    return {}


def _rebuilt(value: Any, parts: dict[Any, Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*parts.values())
    if isinstance(value, tuple | list):
        return type(value)(parts.values())
    if dataclasses.is_dataclass(value) and not isinstance(
        value, type
    ):  # outputs of transformers are mappings and dataclasses at once
        return dataclasses.replace(value, **parts)
    return type(value)(parts)
