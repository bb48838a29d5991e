"""Learns from one pass how a model runs: which of its modules are the layers, and what runs before and behind them.

The pass is of the library's own random weights, before the loud ones are set: nothing of it can be an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hardware.model.calls import forward

if TYPE_CHECKING:
    import torch


class NoPipeline(ValueError):
    """The model's layers are no chain: a stage can't be made of some of them."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """`layers` is the name of the list of layers, `count` how many they are. `before` and `after` are the largest
    modules with parameters that run wholly in front of the first layer and behind the last, `unused` those that
    don't run. `hidden` is the shape of what one layer hands the next, of the whole batch; `as_tuple` says that it is
    handed as the first of a tuple.
    `blanks` are the shapes of what the modules before give."""

    layers: str
    count: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    unused: tuple[str, ...]
    hidden: tuple[int, ...]
    as_tuple: bool
    blanks: Mapping[str, tuple[int, ...]]


def outline_of(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Outline:
    """How `model` runs on these inputs. Raises `NoPipeline` with the reason."""
    import torch

    calls: list[tuple[str, Any, Any]] = []
    started: dict[str, list[int]] = {}
    clock = [0]

    def tick() -> int:
        clock[0] += 1
        return clock[0]

    def before(name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            started.setdefault(name, []).append(tick())

        return hook

    def after(name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            calls.append((name, _hidden_of(args, kwargs), output))

        return hook

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
        handles.append(module.register_forward_hook(after(name), with_kwargs=True))
    try:
        with torch.no_grad():
            forward(model, tensors)
    finally:
        for handle in handles:
            handle.remove()
    return _outline(model, calls, started)


def _hidden_of(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs.get("hidden_states")


def _outline(model: torch.nn.Module, calls: list[tuple[str, Any, Any]], started: dict[str, list[int]]) -> Outline:
    import torch

    reasons = []
    for layers, places in _lists_of_layers(model):
        if any(len(started.get(f"{layers}.{place}", ())) != 1 for place in range(places)):
            reasons.append(f"not each layer of {layers} runs once")
            continue
        own = [one for one in calls if one[0].rpartition(".")[0] == layers and one[0].rpartition(".")[2].isdigit()]
        outputs = [one[2] for one in own]
        as_tuple = isinstance(outputs[0], tuple | list)
        firsts = [one[0] if as_tuple else one for one in outputs]
        if as_tuple and any(isinstance(one, torch.Tensor) for output in outputs for one in output[1:]):
            reasons.append(f"the layers of {layers} pass more than one tensor to the next")
            continue
        if any(one[1] is not handed for one, handed in zip(own[1:], firsts, strict=False)):
            reasons.append(f"what a layer of {layers} gives isn't what the next one takes")
            continue
        phases = _phases(model, layers, started)
        if phases["between"]:
            reasons.append(
                f"{phases['between'][0]} has parameters of its own beside the layers of {layers}, and isn't run once"
            )
            continue
        given = {name: output for name, _, output in calls if name in phases["before"]}
        if several := [name for name, one in given.items() if not isinstance(one, torch.Tensor)]:
            reasons.append(f"{several[0]} gives more than one tensor")
            continue
        return Outline(
            layers=layers,
            count=places,
            before=tuple(phases["before"]),
            after=tuple(phases["after"]),
            unused=tuple(phases["unused"]),
            hidden=tuple(firsts[0].shape),
            as_tuple=as_tuple,
            blanks={name: tuple(one.shape) for name, one in given.items()},
        )
    raise NoPipeline(reasons[0] if reasons else "it has no list of layers")


def _lists_of_layers(model: torch.nn.Module) -> list[tuple[str, int]]:
    """Names and lengths of the lists of modules, the one with most parameters first."""
    import torch

    found = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) > 1:
            found.append((sum(one.numel() for one in module.parameters()), name, len(module)))
    return [(name, length) for _, name, length in sorted(found, key=lambda one: -one[0])]


def _phases(model: torch.nn.Module, layers: str, started: Mapping[str, list[int]]) -> dict[str, list[str]]:
    """The largest modules with parameters beside the layers, by when they run."""
    found: dict[str, list[str]] = {"before": [], "after": [], "between": [], "unused": []}
    begin = started[f"{layers}.0"][0]
    last_of_layers = max(ticks[-1] for name, ticks in started.items() if name.startswith(f"{layers}."))

    def look(name: str, module: Any) -> None:
        for own, child in module.named_children():
            path = f"{name}.{own}" if name else own
            if path == layers:
                continue
            inside = any(one.startswith(f"{path}.") for one in started)
            if layers.startswith(f"{path}.") or (path not in started and inside):
                look(path, child)
            elif any(True for _ in child.parameters()):
                found[_when(path, begin, last_of_layers, started)].append(path)

    look("", model)
    units = tuple(f"{one}." for names in found.values() for one in names)
    for name, _ in model.named_parameters():
        if not name.startswith((f"{layers}.", *units)):
            found["between"].append(name.rpartition(".")[0] or "the model itself")
    return found


def _when(path: str, begin: int, last: int, started: Mapping[str, list[int]]) -> str:
    ticks = [
        one for name, all_ticks in started.items() if name == path or name.startswith(f"{path}.") for one in all_ticks
    ]
    if not ticks:
        return "unused"
    if max(ticks) < begin:
        return "before"
    return "after" if min(ticks) > last else "between"
