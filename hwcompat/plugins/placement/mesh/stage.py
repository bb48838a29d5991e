"""Makes one stage of a pipeline out of a model: its own layers stay, and nothing else that has parameters.

The model's own code runs, so that masks and positions are made as ever. Layers of earlier stages hand on what they
are given, the first own layer takes what the stage before sent, and behind the last own layer the pass ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hardware.model.calls import without_cache
from hardware.model.outputs import nested, results

from .outline import Outline

if TYPE_CHECKING:
    import torch


class StageEnd(Exception):
    """Behind a stage's last layer; `hidden` is what the next stage takes."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__("the stage ends here")
        self.hidden = hidden


class Stage:
    """Layers [first, stop) of a model, and what runs in front of the first or behind the last.

    `module` is what torch's pipelining runs: it takes the hidden states (batch, ...) of the stage before, on the
    first stage anything, and the model's inputs by name; the last gives the outputs in the order of `outputs`.
    `device` is where it computes; with `by_host` what is sent and received lies in memory of the host.
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
                _give_up(own[place], _passing(outline.as_tuple))
            elif place >= stop:
                _give_up(own[place], _elsewhere(name))
        if not self.is_first:
            for name in outline.before:
                _give_up(model.get_submodule(name), self._blank(outline.blanks[name]))
            own[first].register_forward_pre_hook(self._take, with_kwargs=True, prepend=True)
        if not self.is_last:
            for name in (*outline.after, *outline.unused):
                _give_up(model.get_submodule(name), _elsewhere(name))
            own[stop - 1].register_forward_hook(_end)
        self.model = model._apply(lambda one: one if one.is_meta else one.to(device))
        self.module = module_of(self._run, self.model)

    def _blank(self, shape: tuple[int, ...]) -> Callable[..., Any]:
        """In place of embeddings on a later stage: zeros of their shape with the batch at hand; nothing comes of
        them."""

        def blank(*_: Any, **__: Any) -> torch.Tensor:
            assert self.received is not None
            whole, batch = self._outline.hidden[0], self.received.shape[0]
            sizes = [batch if place == 0 and size == whole else size for place, size in enumerate(shape)]
            return self.received.detach().new_zeros(sizes)

        return blank

    def _take(self, _module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The first own layer gets what the stage before sent, instead of what is left of the model's beginning."""
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


def module_of(call: Callable[..., Any], model: torch.nn.Module) -> torch.nn.Module:
    """A module whose forward is `call`, with the parameters of a model."""
    import torch

    class Calling(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

    made = Calling()
    made.add_module("model", model)
    return made


def _give_up(module: torch.nn.Module, instead: Callable[..., Any]) -> None:
    """Let go of a module's tensors, and do something else where it runs. What code reads of it besides (a dtype, the
    kind of an attention) is still there: its tensors have a shape and no data."""
    module.to("meta")
    module._forward_hooks.clear()
    module._forward_pre_hooks.clear()
    module.forward = instead


def _elsewhere(name: str) -> Callable[..., Any]:
    """For a module that another stage holds, and this one must never run."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{name} is held by another stage, and this one ran it")

    return refuse


def _passing(as_tuple: bool) -> Callable[..., Any]:
    """For a layer of an earlier stage: hands on what it is given, as the layer would."""

    def hand_on(*args: Any, **kwargs: Any) -> Any:
        hidden = args[0] if args else kwargs["hidden_states"]
        return (hidden,) if as_tuple else hidden

    return hand_on


def _end(_module: torch.nn.Module, _args: Any, output: Any) -> None:
    raise StageEnd(output[0] if isinstance(output, tuple | list) else output)
