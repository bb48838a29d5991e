"""`Skeleton`: a model without data, which can be run in several ways to see what would be allocated."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from generators.compatibility.memory.estimate import Anatomy, MemoryEstimate, MemoryRequest
from generators.derivation.building import build
from generators.models.inputs import Specs, make_inputs
from hardware.model.tensors import to_tensors

from .datafree import DataFree
from .ledger import Ledger
from .steps import dtype_of, run

if TYPE_CHECKING:
    import torch


def built(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """The model that `make` builds, with weights as they were allocated: their numbers don't matter."""
    with _without_init():
        model = make()
    tie = getattr(model, "tie_weights", None)  # left out with the initialisation
    if tie is not None:
        tie()
    return model


@contextlib.contextmanager
def _without_init() -> Iterator[None]:
    for name in ("transformers.initialization", "transformers.modeling_utils"):
        found = getattr(importlib.import_module(name), "no_init_weights", None)
        if found is not None:
            with found():
                yield
            return
    yield


class Skeleton:
    """A model without data, of any size. `make` builds the model as it would be built with data."""

    def __init__(self, make: Callable[[], torch.nn.Module]) -> None:
        self._mode = DataFree(Ledger())
        with warnings.catch_warnings(), self._mode.mode():
            warnings.simplefilter("ignore")
            self.model = built(make)
        _strip(self.model, dtype_of("float32"), self._mode)

    @contextlib.contextmanager
    def asked(self) -> Iterator[torch.nn.Module]:
        """The model, to be asked how it takes its inputs, which may run it."""
        with self._mode.mode():
            yield self.model

    def estimate(self, request: MemoryRequest, specs: Specs, lengths: Sequence[int]) -> MemoryEstimate:
        """What `request` takes at its peak, with the inputs of `specs` for rows of `lengths`.

        Raises whatever the modelling code raises, and `NeedsData` where it asks for what only computing gives.
        """
        mode = self._mode
        mode.ledger = ledger = Ledger()
        model = self.model.train(request.mode == "training")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _strip(model, dtype_of(request.precision), mode)
            tensors = to_tensors(make_inputs(specs, 0, lengths), "cpu", dtype_of(request.precision))
            tensors = {n: mode.without_data(t) if t.is_floating_point() else t for n, t in tensors.items()}
            ledger.track([*model.parameters(), *model.buffers()], "weights")
            ledger.track(tensors.values(), "inputs")
            with mode.mode():
                kept = run(model, tensors, request.mode, ledger.track)
        found = ledger.at_peak()
        del kept
        model.zero_grad(set_to_none=True)
        return MemoryEstimate(request=request, **found)

    def anatomy(self) -> Anatomy:
        """Of how many parameters the model is made up, by what changes to it are reckoned with."""
        import torch

        model = self.model
        every = {id(one): one.numel() for one in model.parameters()}
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        head_weight = getattr(head, "weight", None)
        tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
        matrices = [
            one.numel()
            for name, one in model.named_parameters()
            if one.dim() in (2, 3) and one is not head_weight and id(one) not in tables and _is_linear(model, name)
        ]
        stacks = [list(m) for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) > 1]
        outer = _outermost(stacks)
        blocks = [sum(p.numel() for p in layer.parameters()) for stack in outer for layer in stack]
        total = sum(every.values())
        return Anatomy(
            parameters=total,
            linear=sum(matrices),
            largest=max(matrices, default=0),
            block=max(blocks, default=total),
            beside=max(total - sum(blocks), 0) if blocks else 0,
        )


def _is_linear(model: torch.nn.Module, name: str) -> bool:
    """Whether a parameter is the matrix of a linear layer, or those of experts side by side."""
    import torch

    owner = model.get_submodule(name.rpartition(".")[0])
    experts = "expert" in name or "Expert" in type(owner).__name__
    return isinstance(owner, torch.nn.Linear) or type(owner).__name__ == "Conv1D" or experts


def _outermost(stacks: list[list[torch.nn.Module]]) -> list[list[torch.nn.Module]]:
    """Lists of layers that lie in no layer of another list."""
    inside = {id(m) for stack in stacks for layer in stack for m in layer.modules() if m is not layer}
    return [stack for stack in stacks if not any(id(layer) in inside for layer in stack)]


def _strip(model: torch.nn.Module, dtype: torch.dtype, mode: DataFree) -> None:
    """Give parameters their precision and take what data they have, in place. Buffers keep what little they have,
    since code makes whole numbers of some."""
    import torch

    known: dict[int, Any] = {}
    with mode.sizes:
        for module in model.modules():
            for name, one in module._parameters.items():
                if one is not None and id(one) not in known:
                    wanted = dtype if one.is_floating_point() else one.dtype
                    bare = torch.empty_strided(one.shape, one.stride(), dtype=wanted)
                    known[id(one)] = (torch.nn.Parameter(bare, requires_grad=one.requires_grad), one)
                module._parameters[name] = known[id(one)][0] if one is not None else None
    for module in model.modules():
        for name, one in module._buffers.items():
            if one is not None and one.is_floating_point():
                module._buffers[name] = one.to(dtype)


def skeleton_of(config_class: str, model_class: str, config: Mapping[str, Any]) -> Skeleton:
    """The skeleton of a model that is built from its class and plain arguments. Raises `ModelError`."""
    return Skeleton(lambda: build(config_class, model_class, config))
