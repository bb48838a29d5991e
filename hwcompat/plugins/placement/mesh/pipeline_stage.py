"""Stages of a pipeline: find the layers of a model by one pass, and make a stage of some of them.

The pass uses the library's random weights, before the seeded ones are set. The model's own code runs on a stage, so
that masks and positions are computed as usual. Layers of earlier stages return their input, the stage's first layer
gets the hidden states of the stage before, and the pass ends after the stage's last layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.model.calls import forward, without_cache
from hwcompat.hardware.model.outputs import nested, results

if TYPE_CHECKING:
    import torch


class NoPipeline(ValueError):
    """The model's layers aren't a chain, so they can't be divided into stages."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """`layers` is the name of the list of layers, `count` its length. `before` and `after` are the largest modules
    with parameters that run wholly before the first layer and after the last, `unused` those that don't run. `hidden`
    is the shape of the hidden states of the whole batch; `as_tuple`: they are the first of a tuple. `blanks` are the
    shapes of the outputs of the modules before."""

    layers: str
    count: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    unused: tuple[str, ...]
    hidden: tuple[int, ...]
    as_tuple: bool
    blanks: Mapping[str, tuple[int, ...]]


def outline_of(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Outline:
    """Return how `model` runs on these inputs. Raises `NoPipeline` with the reason."""
    import torch

    calls: list[tuple[str, Any, Any]] = []
    started: dict[str, list[int]] = {}
    clock = itertools.count()

    def before(name: str, *_: Any) -> None:
        started.setdefault(name, []).append(next(clock))

    def after(name: str, _: Any, args: Any, kwargs: Any, output: Any) -> None:
        calls.append((name, _hidden_of(args, kwargs), output))

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(partial(before, name), with_kwargs=True))
        handles.append(module.register_forward_hook(partial(after, name), with_kwargs=True))
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
            reasons.append(f"the output of a layer of {layers} isn't the input of the next one")
            continue
        phases = _phases(model, layers, started)
        if phases["between"]:
            reasons.append(
                f"{phases['between'][0]} has parameters outside of the layers of {layers} and doesn't run once"
            )
            continue
        given = {name: output for name, _, output in calls if name in phases["before"]}
        if several := [name for name, one in given.items() if not isinstance(one, torch.Tensor)]:
            reasons.append(f"{several[0]} returns more than one tensor")
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
    """Return names and lengths of the lists of modules, the one with the most parameters first."""
    import torch

    found = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) > 1:
            found.append((sum(one.numel() for one in module.parameters()), name, len(module)))
    return [(name, length) for _, name, length in sorted(found, key=lambda one: -one[0])]


def _phases(model: torch.nn.Module, layers: str, started: Mapping[str, list[int]]) -> dict[str, list[str]]:
    """Return the largest modules with parameters besides the layers, by when they run."""
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


class StageEnd(Exception):
    """Raised after a stage's last layer; `hidden` is the input of the next stage."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__("the stage ends here")
        self.hidden = hidden


class PipelineStage:
    """Layers [first, stop) of a model, with the modules before its first layer or after its last one.

    `module` is what torch's pipelining runs: it takes the hidden states (batch, ...) of the stage before (the first
    stage ignores them) and the model's inputs by name; the last returns the outputs in the order of `outputs`.
    `device` is where it computes; with `by_host` tensors are sent and received in host memory.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        outline: Outline,
        layers: tuple[int, int],
        device: torch.device,
        *,
        by_host: bool,
    ) -> None:
        import torch

        first, stop = layers
        self.is_first, self.is_last = first == 0, stop == outline.count
        self.device, self.by_host = device, by_host
        self.outputs: tuple[str, ...] = ()
        self.received: torch.Tensor | None = None
        self._outline = outline
        own = model.get_submodule(outline.layers)
        for place in range(outline.count):
            name = f"{outline.layers}.{place}"
            if place < first:
                _give_up(own[place], partial(_pass_on, outline.as_tuple))
            elif place >= stop:
                _give_up(own[place], partial(_refuse, name))
        if not self.is_first:
            for name in outline.before:
                _give_up(model.get_submodule(name), partial(self._blank, outline.blanks[name]))
            own[first].register_forward_pre_hook(self._replace_input, with_kwargs=True, prepend=True)
        if not self.is_last:
            for name in (*outline.after, *outline.unused):
                _give_up(model.get_submodule(name), partial(_refuse, name))
            own[stop - 1].register_forward_hook(_end)
        self.model = model._apply(lambda one: one if one.is_meta else one.to(device))
        self.module = torch.nn.Module()  # called by torch's pipelining, with the parameters of the model
        self.module.add_module("model", self.model)
        self.module.forward = self._run

    def _blank(self, shape: tuple[int, ...], *_: Any, **__: Any) -> torch.Tensor:
        """Return zeros of the shape of the embeddings for the current batch, on a later stage, which doesn't use
        them."""
        assert self.received is not None
        whole, batch = self._outline.hidden[0], self.received.shape[0]
        sizes = [batch if place == 0 and size == whole else size for place, size in enumerate(shape)]
        return self.received.detach().new_zeros(sizes)

    def _replace_input(self, _module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Give the first own layer what the stage before sent, instead of its usual input."""
        if args:
            return (self.received, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self.received}

    def _run(self, *hidden: torch.Tensor, **inputs: torch.Tensor) -> Any:
        if not self.is_first:
            self.received = hidden[0].to(self.device)
        here = {name: one.to(self.device) for name, one in inputs.items()}
        try:
            found = results(self.model(**nested(here), **without_cache(self.model)))
        except StageEnd as end:
            return self._sent(end.hidden)
        if not self.is_last:
            raise RuntimeError("the model ended before the stage's last layer ran")
        self.outputs = tuple(sorted(found))
        return tuple(self._sent(found[name]) for name in self.outputs)

    def _sent(self, tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.to("cpu") if self.by_host else tensor).contiguous()  # nothing else can be sent


def _give_up(module: torch.nn.Module, instead: Callable[..., Any]) -> None:
    """Free a module's tensors, and call `instead` when it runs. Attributes that code reads stay, such as a dtype: its
    tensors have a shape and no data."""
    module.to("meta")
    module._forward_hooks.clear()
    module._forward_pre_hooks.clear()
    module.forward = instead


def _refuse(name: str, *_: Any, **__: Any) -> Any:
    """Return a forward for a module of another stage, which must never run here."""
    raise RuntimeError(f"this stage ran {name}, which another stage holds")


def _pass_on(as_tuple: bool, *args: Any, **kwargs: Any) -> Any:
    """Return a forward for a layer of an earlier stage: it returns its input as the layer would."""
    hidden = _hidden_of(args, kwargs)
    return (hidden,) if as_tuple else hidden


def _end(_module: torch.nn.Module, _args: Any, output: Any) -> None:
    raise StageEnd(output[0] if isinstance(output, tuple | list) else output)
