"""The pieces of a model that doesn't fit into memory as a whole: its layers, and what lies between them.

A piece is a module that is called by the rest of the model: an entry of a list of layers, or the largest module that
has parameters or tables of its own. Weights exist for one piece at a time. They are the seeded test weights, drawn by
the names of the parameters in the model.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from ..errors import ModelError
from .seeded_weights import fill

if TYPE_CHECKING:
    import torch

_SLICE = re.compile(r"(.+)\[(\d+):(\d+)\]")


@contextmanager
def without_weights() -> Iterator[None]:
    """Make the parameters of new modules without memory, on torch's meta device. Buffers are computed as ever."""
    import torch
    from transformers.initialization import no_init_weights

    register, empty = torch.nn.Module.register_parameter, torch.empty

    def on_meta(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = torch.nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    def unallocated(*sizes: Any, **named: Any) -> torch.Tensor:
        return empty(*sizes, **{**named, "device": "meta"})

    layers = mock.patch.object(torch, "empty", unallocated)  # of parameters, which may be larger than the memory
    with no_init_weights(), layers, mock.patch.object(torch.nn.Module, "register_parameter", on_meta):
        yield


def pieces_of(model: torch.nn.Module, most: int) -> dict[str, int]:
    """Return the names of the pieces of a model in their order, with their numbers of parameters, at most `most`.

    The rows of a larger linear layer or embedding are divided, and the experts of a larger mixture:
    `lm_head[0:65536]`, `model.layers.0.mlp.experts[0:4]`. Parameters of a larger module beside its parts belong to no
    piece. Raises `ModelError` if these alone are more than `most`.
    """
    return dict(_pieces("", model, most, in_layer=False))


def _pieces(name: str, module: torch.nn.Module, most: int, *, in_layer: bool) -> Iterator[tuple[str, int]]:
    import torch

    size = sum(parameter.numel() for parameter in module.parameters())
    parts = dict(module.named_children())
    has_own = any(True for _ in module.parameters(recurse=False)) or any(
        buffer.is_floating_point() for buffer in module.buffers(recurse=False)
    )
    if name and size <= most and (in_layer or has_own):
        if size or has_own:
            yield name, size
        return
    own = sum(parameter.numel() for parameter in module.parameters(recurse=False))
    if own > most or (not parts and size):
        yield from _slices(name, module, most)
        return
    of_list = isinstance(module, torch.nn.ModuleList)
    for part, child in parts.items():
        yield from _pieces(f"{name}.{part}" if name else part, child, most, in_layer=in_layer or of_list)


def _slices(name: str, module: torch.nn.Module, most: int) -> Iterator[tuple[str, int]]:
    own = list(module.parameters(recurse=False)) if _is_divisible(module) else []
    row = sum(parameter[0].numel() for parameter in own)
    if not 0 < row <= most:
        size = sum(parameter.numel() for parameter in module.parameters())
        raise ModelError(
            f"{name or 'the model'} doesn't fit into memory",
            why=f"it can't be divided; it has {size:,} parameters, and {most:,} fit",
        )
    rows, step = len(own[0]), most // row
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield f"{name}[{start}:{stop}]", (stop - start) * row


def _is_divisible(module: torch.nn.Module) -> bool:
    import torch

    return isinstance(module, torch.nn.Linear | torch.nn.Embedding) or are_experts(module)


def are_experts(module: torch.nn.Module) -> bool:
    """Whether a module has the stacked weights of experts and is called as transformers 5 does it
    (`integrations/moe.py`): with states, the experts chosen for each, and the weights of their results."""
    own = {parameter.shape[:1] for parameter in module.parameters(recurse=False)}
    has_parts = any(True for part in module.children() for _ in part.parameters())
    return hasattr(module, "is_transposed") and own == {(module.num_experts,)} and not has_parts


def module_of(piece: str) -> str:
    """Return the name of the module of a piece: `lm_head` for `lm_head[0:65536]`."""
    found = _SLICE.fullmatch(piece)
    return found[1] if found else piece


def rows_of(piece: str) -> tuple[int, int] | None:
    """Return the first row, or expert, of a slice and that after its last one; None for a whole module."""
    found = _SLICE.fullmatch(piece)
    return (int(found[2]), int(found[3])) if found else None


def filled_piece(model: torch.nn.Module, piece: str, **weights: Any) -> torch.nn.Module:
    """Return a copy of a piece of a model without weights, in float32 with its seeded test weights; `weights` are the
    arguments of `fill`."""
    module = _rows(copy.deepcopy(model.get_submodule(module_of(piece))), piece)
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = _allocated(parameter)
    first_row, _ = rows_of(piece) or (0, 0)
    fill(_below(module_of(piece), module), seed=f"{first_row}", **weights)
    return module.eval()


def _rows(module: torch.nn.Module, piece: str) -> torch.nn.Module:
    import torch

    if (rows := rows_of(piece)) is None:
        return module
    start, stop = rows
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = torch.nn.Parameter(parameter.detach()[start:stop])
    if isinstance(module, torch.nn.Embedding):
        module.num_embeddings, module.padding_idx = stop - start, None
    elif isinstance(module, torch.nn.Linear):
        module.out_features = stop - start
    else:
        module.num_experts = stop - start
    return module


def fill_between(model: torch.nn.Module, pieces: Mapping[str, int], **weights: Any) -> None:
    """Give the parameters of a model outside its pieces their seeded test weights, in place, and make these and the
    buffers there float64."""
    for name, module in _between(model, pieces):
        bare = copy.copy(module)
        bare._modules = {}
        bare._parameters = {key: None if one is None else _allocated(one) for key, one in module._parameters.items()}
        fill(_below(name, bare), **weights)
        module._parameters = {
            key: None if one is None else _parameter(one.double()) for key, one in bare._parameters.items()
        }
        for key, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[key] = buffer.double()


def outside_pieces(model: torch.nn.Module, pieces: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names of the parameters that belong to no piece, which only the reference has."""
    return tuple(
        f"{owner}.{name}" if owner else name
        for owner, module in _between(model, pieces)
        for name, _ in module.named_parameters(recurse=False)
    )


def _between(model: torch.nn.Module, pieces: Mapping[str, int]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that are neither a piece nor a part of one, by name."""
    modules = {module_of(piece) for piece in pieces}
    for name, module in model.named_modules():
        parts = name.split(".")
        if modules.isdisjoint(".".join(parts[:length]) for length in range(1, len(parts) + 1)):
            yield name, module


def _allocated(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    import torch

    return _parameter(torch.empty(parameter.shape, dtype=torch.float32))


def _parameter(tensor: torch.Tensor) -> torch.nn.Parameter:
    import torch

    return torch.nn.Parameter(tensor.detach(), requires_grad=tensor.is_floating_point())


def _below(name: str, module: torch.nn.Module) -> torch.nn.Module:
    """Return a module in which `module` has its name in the model: weights are drawn by qualified names."""
    import torch

    for part in reversed(name.split(".") if name else ()):
        outer = torch.nn.Module()
        outer.add_module(part, module)
        module = outer
    return module
