"""`PieceTest`, the base of suites of models at real widths in pieces: each piece runs on the target by itself, with
the inputs that it gets in the reference."""

from __future__ import annotations

import functools
import hashlib
import inspect
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends._torch import listed
from ..backends.base import Execution, ModelInput, Runnable
from ..cell import GRAPH_TASK
from ..compare import Array, Comparison
from ..evidence.record import Stage
from ..model.calls import to_arrays
from ..model.outputs import results
from ..plain_text import size_text
from . import reference
from .measurement import Ambiguous, Outputs
from .model_pieces import are_experts, fill_between, filled_piece, module_of, outside_pieces, rows_of, without_weights
from .model_test import ModelTest
from .speed_measurement import peak_memory

if TYPE_CHECKING:
    import torch

_UNSEEN = "the code between the pieces, which ran in the reference alone"


@dataclass(frozen=True, kw_only=True)
class _Slot:
    """The place of an input among the arguments of a call."""

    name: str


@dataclass(frozen=True, kw_only=True)
class PieceCall:
    """The first call of a piece in the reference: its inputs by name, the arguments with their places, and its
    outputs."""

    inputs: Mapping[str, Array]
    leaves: tuple[Any, ...]
    structure: Any
    outputs: Mapping[str, Array]


class PieceTest(ModelTest):
    """A `ModelTest` of a model with the seeded weights of `pieces`, which are in memory one at a time.

    The reference calls the whole model in float64. Each piece gets the inputs that it has there, in float32, on both
    sides. Outputs are named `PIECE.NAME`, and each is compared relative to its own scale.
    """

    def __init__(self, *arguments: Any, pieces: Mapping[str, int], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.pieces = dict(pieces)
        self._calls: dict[str, dict[str, PieceCall]] = {}
        self._proofs: dict[str, Execution] = {}
        self._of_pieces: dict[str, str] = {}

    @functools.cached_property
    def _skeleton(self) -> torch.nn.Module:
        """The model without weights."""
        self.measured.stage = Stage.BUILD
        with without_weights():
            return self.make_model().eval()

    def parameter_count(self) -> int:
        """Return the number of parameters of the model, tied ones counted once; nothing is allocated."""
        return sum(parameter.numel() for parameter in self._skeleton.parameters())

    def run(self, inputs: Mapping[str, Array]) -> Outputs:
        """Run each piece on the target, one after the other, and return the outputs of all."""
        arrays: dict[str, Array] = {}
        watched: dict[str, Array] = {}
        for piece, call in self._calls_of(inputs).items():
            runnable = self._loaded(piece, call)
            with self._at(Stage.RUN):
                done = self._passes.run(runnable, call.inputs)
                self._proofs[piece] = runnable.execution()
            self._of_pieces |= runnable.conditions
            self.measured.left_to_host |= done.left
            arrays |= _named(piece, done.outputs)
            watched |= _named(piece, done.outputs if done.watched is None else done.watched)
        return Outputs(arrays=arrays, masks={}, inputs=inputs, watched=watched)

    def reference(self, inputs: Mapping[str, Array]) -> Outputs:
        """Return the outputs of each piece in the model on the CPU in float64."""
        found = [_named(piece, call.outputs) for piece, call in self._calls_of(inputs).items()]
        return Outputs(
            arrays={name: one for of_piece in found for name, one in of_piece.items()}, masks={}, inputs=inputs
        )

    def execution(self) -> Execution:
        """Return the target's own record of where the pieces ran, all of them together."""
        if self._proofs.keys() != self._calls_of(self.inputs).keys():
            self.run(self.inputs)
        native, offloaded = Counter[str](), Counter[str]()
        for proof in self._proofs.values():
            native.update(proof.native)
            offloaded.update(proof.offloaded)
        left = ", ".join(outside_pieces(self._skeleton, self.pieces))
        unseen = listed(proof.unseen, _UNSEEN, left and f"weights outside the pieces: {left}")
        self.measured.execution = replace(proof, native=dict(native), offloaded=dict(offloaded), unseen=unseen)
        return self.measured.execution

    def _loaded(self, piece: str, call: PieceCall) -> Runnable:
        if "runnable" in self.__dict__:
            self.__dict__.pop("runnable").close()
        module = _with_arguments(self._filled(piece), call)
        made = ModelInput(model=module, task=GRAPH_TASK, identity=f"{self._identity}-{piece}")
        self.backend.separates_models = False  # they are one model
        with self._at(Stage.LOAD):
            self.__dict__["runnable"] = self.backend.load(made, call.inputs, self.cell.precision)
        return self.runnable

    def _filled(self, piece: str) -> torch.nn.Module:
        import torch

        with torch._C.DisableTorchFunction():  # while the reference computes, new tensors would be float64
            return filled_piece(self._skeleton, piece, gain=self.gain, zero_centered=self.zero_centered)

    @functools.cached_property
    def _identity(self) -> str:
        config = self._skeleton.config.to_json_string(use_diff=False)
        return hashlib.sha256(f"{config}{self.gain}".encode() + reference.sources_of(self._skeleton)).hexdigest()

    # The reference

    def _calls_of(self, inputs: Mapping[str, Array]) -> Mapping[str, PieceCall]:
        """Return the calls of the pieces while the reference computes `inputs`."""
        key = reference.digest_of(inputs)
        if key not in self._calls:
            self.measured.stage = Stage.BUILD
            found: dict[str, PieceCall] = {}
            with without_weights():
                model = self.make_model().eval()
            fill_between(model, self.pieces, gain=self.gain, zero_centered=self.zero_centered)
            by_module: dict[str, list[str]] = {}
            for piece in self.pieces:
                by_module.setdefault(module_of(piece), []).append(piece)
            for name, pieces in by_module.items():
                module = model.get_submodule(name)
                module.forward = self._observed_forward(module, pieces, found)
            reference.float64_outputs(model, inputs)
            self._calls[key] = found
        return self._calls[key]

    def _observed_forward(
        self, module: torch.nn.Module, pieces: list[str], found: dict[str, PieceCall]
    ) -> Callable[..., Any]:
        """Return a forward of the module that `pieces` are, or are slices of."""
        import torch

        def forward(*arguments: Any, **named: Any) -> Any:
            arguments, named = _rounded((arguments, named))
            if rows_of(pieces[0]) is None:
                return self._compute(pieces[0], arguments, named, found)
            if isinstance(module, torch.nn.Embedding):
                return self._looked_up(pieces, arguments[0], found)
            if are_experts(module):
                call = inspect.signature(type(module).forward).bind(module, *arguments, **named)
                _, states, chosen, weights = call.args
                return self._mixed(pieces, states, chosen, weights, found)
            return torch.cat([self._compute(piece, arguments, named, found) for piece in pieces], dim=-1)

        return forward

    def _looked_up(self, pieces: list[str], ids: torch.Tensor, found: dict[str, PieceCall]) -> torch.Tensor:
        """Return the rows of an embedding in slices; an id outside of a slice reads its first row there."""
        slices = _in_slices(pieces, ids)
        parts = (self._compute(piece, (places,), {}, found) * inside[..., None] for piece, places, inside in slices)
        return functools.reduce(operator.add, parts)

    def _mixed(
        self,
        pieces: list[str],
        states: torch.Tensor,
        chosen: torch.Tensor,
        weights: torch.Tensor,
        found: dict[str, PieceCall],
    ) -> torch.Tensor:
        """Return the sum over experts in slices. A choice outside of a slice weighs nothing there; further rows of
        the call choose each of its experts, so that all of them compute."""
        import torch

        def part(piece: str, places: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
            start, stop = rows_of(piece) or (0, 0)
            each = torch.arange(stop - start)
            others = (each[:, None] + torch.arange(places.shape[-1])) % len(each)
            arguments = (
                torch.cat([states, states[each % len(states)]]),
                torch.cat([places, others]),
                torch.cat([weights * inside, torch.full(others.shape, 1 / places.shape[-1], dtype=weights.dtype)]),
            )
            return self._compute(piece, arguments, {}, found)[: len(states)]

        return functools.reduce(operator.add, (part(*one) for one in _in_slices(pieces, chosen)))

    def _compute(
        self, piece: str, arguments: tuple[Any, ...], named: Mapping[str, Any], found: dict[str, PieceCall]
    ) -> Any:
        import torch
        from torch.utils._pytree import tree_flatten

        returned = reference.as_reference(self._filled(piece))(*arguments, **named)
        if piece not in found:
            flat, structure = tree_flatten((arguments, dict(named)))
            tensors = {f"input_{place}": one for place, one in enumerate(flat) if isinstance(one, torch.Tensor)}
            found[piece] = PieceCall(
                inputs={name: _float32(one.numpy()) for name, one in tensors.items()},
                leaves=tuple(
                    _Slot(name=f"input_{place}") if isinstance(one, torch.Tensor) else one
                    for place, one in enumerate(flat)
                ),
                structure=structure,
                outputs=_outputs_of(returned),
            )
        return returned

    # What differs from a model in memory

    def _required(self, want: Outputs) -> tuple[str, ...]:
        return tuple(want.arrays)

    def _settled(self, natural: Comparison, settle: Callable[[], Any]) -> Comparison:
        """Return `natural`. Raises `Ambiguous` in half precision beyond the tolerance: a router may choose other
        experts there, which is explained with a whole model only."""
        if self._is_coarse and not natural.max_rel_error <= self.tolerance:
            raise Ambiguous(f"{natural}: rounding in {self.cell.precision} may be why; float32 decides")
        return natural

    @property
    def _conditions_of_graph(self) -> Mapping[str, str]:
        return self._of_pieces

    def _conditions(self, loaded: Runnable | None) -> dict[str, str]:
        peak = peak_memory()
        known = {"peak_memory": size_text(peak)} if peak and self._proofs else {}
        return super()._conditions(loaded) | self._of_pieces | known


def _in_slices(pieces: Sequence[str], ids: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield each slice with the positions of `ids` in it, and which of these lie in it; others have position 0."""
    import torch

    for piece in pieces:
        start, stop = rows_of(piece) or (0, 0)
        inside = (ids >= start) & (ids < stop)
        yield piece, torch.where(inside, ids - start, 0), inside


def _float32(array: Array) -> Array:
    """Return an array rounded to float32, its finite numbers to finite ones: masks have the smallest of float64."""
    if array.dtype.kind != "f":
        return array
    most = np.finfo(np.float32).max
    return np.where(np.isfinite(array), np.clip(array, -most, most), array).astype(np.float32)


def _outputs_of(returned: Any) -> dict[str, Array]:
    """Return outputs of the reference by position, with minus infinity for float32's smallest number: a mask."""
    arrays = to_arrays({f"output_{place}": one for place, one in enumerate(results(returned).values())})
    least = np.finfo(np.float32).min
    return {
        name: np.where(one <= least, -np.inf, one) if one.dtype.kind == "f" else one for name, one in arrays.items()
    }


def _rounded(arguments: Any) -> Any:
    """Return nested arguments whose tensors are rounded to float32 and stay float64."""
    import torch
    from torch.utils._pytree import tree_map

    def rounded(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return torch.as_tensor(_float32(value.numpy()).astype(np.float64))

    return tree_map(rounded, arguments)


def _with_arguments(piece: torch.nn.Module, call: PieceCall) -> torch.nn.Module:
    """Return a module that takes the inputs of a call by name, and returns the outputs of a piece as a tuple."""
    import torch
    from torch.utils._pytree import tree_unflatten

    class PieceModule(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.piece = piece

        def forward(self, **tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            leaves = [tensors[one.name] if isinstance(one, _Slot) else one for one in call.leaves]
            arguments, named = tree_unflatten(leaves, call.structure)
            return tuple(results(self.piece(*arguments, **named)).values())

    return PieceModule().eval()


def _named(piece: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{piece}.{name}": one for name, one in arrays.items()}
