"""Which device a model is loaded onto, and how it gets there: a device that was asked for is the one, or an error."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hardware.backends.base import BaseBackend, Unsupported
from hardware.backends.factory import class_of, detect_best_backend, get_backend, resolve_target
from hardware.errors import BackendUnavailable, UsageError, did_you_mean, echo
from hardware.target import Target

PREFERENCES = ("device", "priority_list", "preferred_index", "precision")
_PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "half": "float16"}


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the pool calls devices: `device` is the one that is meant (`cuda:0`, `openvino:NPU`). `torch_type` is its
    type of torch devices, empty where there is none."""

    device: str
    torch_type: str

    def name_of(self, device: Any) -> str:
        """The pool's name of a torch device: `rocm:1` for torch's `cuda:1` where the one that is meant is ROCm's."""
        if device.type != self.torch_type:
            return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        name, numbered, _ = self.device.partition(":")
        return f"{name}:{device.index or 0}" if numbered else name


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a model goes. `argument` is what its runtime calls the device, which constructors are given."""

    names: Names
    argument: str
    backend: BaseBackend
    precision: str = ""

    @property
    def device(self) -> str:
        """The pool's name of the device."""
        return self.names.device


@functools.cache
def names_on(device: str) -> Names:
    """The names on a device that a user names. Raises `UsageError` where it isn't known."""
    return _names(resolve_target(device))


def _names(target: Target) -> Names:
    backend = class_of(target)
    torch_type = str(getattr(backend, "DEVICE_TYPE", ""))
    name = f"{target.name}:{target.index or 0}" if torch_type and backend.INDEXED else str(target)
    return Names(device=name, torch_type=torch_type)


def budget_name(device: str) -> str:
    """What a budget is kept under: a device, or all of a kind (`cuda`). Raises `UsageError` where it isn't known."""
    return str(resolve_target(device))


def place_for(device: str | Target | None, preferences: Mapping[str, Any] | None = None) -> Place:
    """The place that a caller means: `device`, else what the preferences say, else the best that is here.

    Preferences are `device`, `priority_list` (the first that can be used), `preferred_index` and `precision`. Raises
    `UsageError` for what isn't known, `BackendUnavailable` where the device that was named can't be used.
    """
    wishes = dict(preferences or {})
    for name in wishes:
        if name not in PREFERENCES:
            raise UsageError(
                f"{echo(str(name))} is no preference of the resource pool",
                fix=f"{did_you_mean(str(name), PREFERENCES)} Known: {', '.join(PREFERENCES)}.".strip(),
            )
    named = device if device is not None else wishes.get("device")
    if named is None and wishes.get("priority_list"):
        backend = _first_of(wishes["priority_list"], wishes.get("preferred_index"))
    else:
        index = wishes.get("preferred_index")
        backend = _usable("auto" if named is None else str(named), None if index is None else int(index))
    names = _names(backend.target)
    return Place(
        names=names,
        argument=str(backend.device) if names.torch_type else str(backend.target),
        backend=backend,
        precision=_precision(wishes.get("precision")),
    )


@functools.lru_cache(maxsize=64)
def _usable(named: str, index: int | None) -> BaseBackend:
    """The backend of a device that can be used. Asked once of each; one that can't is asked again each time."""
    backend = _backend(named, index)
    if reason := backend.unavailable():
        raise BackendUnavailable(f"{backend.target} can't be used", why=reason)
    return backend


def _backend(named: str, index: int | None) -> BaseBackend:
    target = resolve_target(detect_best_backend() if named.strip().lower() == "auto" else named)
    backend = get_backend(target)
    if index is not None and target.index is None and backend.INDEXED:
        backend = get_backend(replace(target, index=index))
    return backend


def _first_of(names: Iterable[str], index: Any) -> BaseBackend:
    reasons = []
    for name in names:
        try:
            return _usable(str(name), None if index is None else int(index))
        except BackendUnavailable as error:
            reasons.append(str(error))
    raise BackendUnavailable("none of the devices in priority_list can be used", why="; ".join(reasons))


def _precision(wish: Any) -> str:
    if not wish:
        return ""
    from hardware.model.calls import torch_dtype

    name = _PRECISIONS.get(str(wish), str(wish))
    try:
        torch_dtype(name)
    except Unsupported as error:
        raise UsageError(f"the pool doesn't load models in {echo(str(wish))}", why=str(error)) from error
    return name


def takes_device(constructor: Callable[..., Any]) -> bool:
    """Whether a constructor has a parameter called `device` that can be given by name."""
    try:
        parameter = inspect.signature(constructor).parameters.get("device")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def built_on(place: Place, constructor: Callable[..., Any]) -> Any:
    """What a constructor makes, on its place: it is given the device where it takes one, and a module is moved.

    Raises `UsageError` for what can't be brought to another device than the host.
    """
    given = takes_device(constructor)
    model = constructor(device=place.argument) if given else constructor()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _moved(place, model)
    if given or place.device == "cpu":
        return model
    move = getattr(model, "to", None)
    if not callable(move):
        raise UsageError(
            f"what the constructor made can't be brought to {place.device}",
            why=f"it takes no `device`, and a {type(model).__name__} has no `to`",
            fix=f"Give it a parameter `device`: it is called with {place.argument!r}.",
        )
    moved = move(place.argument)
    return model if moved is None else moved


def _moved(place: Place, model: Any) -> Any:
    if place.precision:
        from hardware.model.calls import in_dtype, torch_dtype

        model = in_dtype(model, torch_dtype(place.precision))
    if getattr(model, "hf_device_map", None):  # spread over devices by whoever made it
        return model
    return place.backend.to_device(model)
