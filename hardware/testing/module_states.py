"""What the modules of a float64 model return in a pass, and what its layers get: the values of `hidden_states`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..compare import Array
from ..model.calls import forward, to_arrays, to_tensors
from .reference import default_float64, float64_outputs

if TYPE_CHECKING:
    import torch


def _stack(model: torch.nn.Module) -> tuple[torch.nn.Module | None, list[torch.nn.Module]]:
    """Return the module that runs the layers whose inputs are the hidden states, and these layers: the longest list
    of modules of one class, else of several; the last of lists of one length (a decoder's); None if there is none."""
    import torch

    lists = [
        (module, list(child))
        for module in model.modules()
        for child in module.children()
        if isinstance(child, torch.nn.ModuleList) and len(child) > 1
    ]
    alike = [(module, layers) for module, layers in lists if len(set(map(type, layers))) == 1]
    found: tuple[torch.nn.Module | None, list[torch.nn.Module]] = (None, [])
    for module, layers in alike or lists:
        if len(layers) >= len(found[1]):
            found = module, layers
    return found


def layer_states(model: torch.nn.Module, inputs: Mapping[str, Array]) -> list[Array]:
    """Return what each layer of a float64 model gets in a plain pass, in order, and what its stack returns."""
    import torch

    found: list[Any] = []

    def note(_: Any, args: Any, kwargs: Any) -> None:
        given = args[0] if args else kwargs.get("hidden_states")
        if isinstance(given, torch.Tensor):
            found.append(given.detach().clone())

    def note_result(_: Any, __: Any, output: Any) -> None:
        one = output[0] if isinstance(output, tuple) else output.get("last_hidden_state")
        found.append(one.detach().clone())

    stack, layers = _stack(model)
    handles = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    handles += [stack.register_forward_hook(note_result)] if stack is not None else []
    try:
        with torch.no_grad(), default_float64():
            forward(model, to_tensors(inputs, "cpu", torch.float64))
    finally:
        for handle in handles:
            handle.remove()
    return list(to_arrays({str(place): one for place, one in enumerate(found)}).values())


def observed_pass(model: torch.nn.Module, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the outputs of a float64 model, and those of its modules in the order in which they end."""
    import torch

    seen: dict[str, Array] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(_: Any, __: Any, output: Any) -> None:
            one = output[0] if isinstance(output, tuple | list) and output else output
            if isinstance(one, torch.Tensor) and one.is_floating_point():
                seen.setdefault(name, one.detach().double().numpy().copy())

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in model.named_modules() if name]
    try:
        return float64_outputs(model, inputs), seen
    finally:
        for handle in handles:
            handle.remove()
