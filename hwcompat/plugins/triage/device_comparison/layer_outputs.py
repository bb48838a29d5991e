"""Let a torch module return the results of its layers beside its own outputs, on any target that takes the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwcompat.hardware.model.outputs import results

if TYPE_CHECKING:
    import torch

LAYER = "layer:"
"""Prefix of outputs that are a layer's result; the rest is its path, with slashes, as ONNX allows in names."""


def return_layers(model: torch.nn.Module) -> torch.nn.Module:
    """Let a model return what its layers give on their first call, by hooks, and return the model.

    Layers are the entries of module lists and sequences, and modules up to two levels below the model. Exporters
    trace hooks, so that the layers become outputs of the graph. That can keep a runtime from fusing across them.
    """
    kept: dict[str, torch.Tensor] = {}

    def keep_as(name: str) -> Any:
        def keep(module: Any, args: Any, output: Any) -> None:
            found = next((one for one in results(output).values() if one.is_floating_point()), None)
            if found is not None:
                kept.setdefault(name, found)

        return keep

    def give_all(module: Any, args: Any, output: Any) -> dict[str, torch.Tensor]:
        # A sum is a new tensor: one that is an output twice, or an input, can't be exported.
        layers = {f"{LAYER}{name.replace('.', '/')}": one + 0 for name, one in kept.items()}
        kept.clear()
        return {**results(output), **layers}

    modules = dict(model.named_modules())
    for name in layer_names(model):
        modules[name].register_forward_hook(keep_as(name))
    model.register_forward_hook(give_all)
    return model


def layer_names(model: torch.nn.Module) -> list[str]:
    """Return the paths of a model's layers, in the order in which the model names its modules."""
    from torch.nn import ModuleDict, ModuleList, Sequential

    lists = (ModuleList, ModuleDict, Sequential)
    modules = dict(model.named_modules())
    return [
        name
        for name, module in modules.items()
        if name
        and not isinstance(module, ModuleList | ModuleDict)
        and (name.count(".") < 2 or isinstance(modules[name.rpartition(".")[0]], lists))
    ]
