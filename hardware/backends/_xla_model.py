"""A torch module on a PJRT device: a program of torch.export for each shape, lowered and compiled in the worker."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evidence.record import Stage
from ..export.decoding_graphs import Graph, decode
from ..export.program import INNER, Program, export_decoding, export_forward
from ..model.calls import in_dtype, to_tensors, torch_dtype
from ..model.outputs import ruled_out
from ..model.positions import host_positions
from ..output_masks import masks_of
from ._torch import listed, what_raises
from ._torch_checks import loss_weights
from ._trace import host_products
from ._worker_backend import Shapes, shapes_of
from .base import Execution, Generation, ModelInput, Runnable, Unsupported, coarsest

if TYPE_CHECKING:
    import torch

    from .base import Array, Inputs

UNSEEN = (
    "computation inside one XLA instruction; constants folded by torch.export and the lowering; copies between "
    "device and host around each call, including the cache's while decoding"
)

ON_DEVICE = frozenset({"TopK", "Sharding", "tpu_custom_call"})
"""Custom calls that XLA itself compiles for the device: its top-k sort, sharding marks, and kernels of Mosaic. Any
other counts as offloaded, including Python callbacks."""

_TRANSFERS = ("infeed", "outfeed")
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}

Proof = Mapping[str, Any]


class XLARunnable(Runnable):
    """One program for each shape. Models are saved as StableHLO, lowered for a TPU as well."""

    gives_all = True

    def __init__(
        self, backend: Any, model_input: ModelInput, example: Inputs, precision: str, saved: Path | None = None
    ) -> None:
        self.backend, self.model_input, self.precision, self.saved = backend, model_input, precision, saved
        self.example = dict(example)
        self.dtype = torch_dtype(precision)
        self.model: Any = in_dtype(model_input.model, self.dtype).eval()
        self._folder = Path(tempfile.mkdtemp(prefix="hwcompat-xla-"))
        self._clean = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._programs: dict[Shapes, Path] = {}
        self._proofs: dict[str, Proof] = {}
        self._left: dict[Shapes, Mapping[str, int]] = {}
        self._graphs: dict[str, Graph] = {}
        self.conditions: Mapping[str, str] = {
            "optimisation": "O0",
            "export": "torch.export",
            "shapes": "static",
            **backend.facts(),
        }
        self._run(self.example)
        self.actual_dtype = self._computed_in()
        self.can = frozenset() if saved else self._abilities()

    def _abilities(self) -> frozenset[str]:
        found = {"save"} if self.model_input.trains_only else {"save", "backward"}
        if self.model_input.generates != "none":
            try:
                self._open_decoding()
                found.add("generate")
            except Unsupported as error:
                self.conditions = {**self.conditions, "why_no_cache": str(error)}
                self.failed = {"generate": error}
        return frozenset(found)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return {name: _numbers(array) for name, array in self._run(inputs).items()}

    def _run(self, inputs: Inputs) -> dict[str, Array]:
        program = self.saved or self._program(inputs)
        got: dict[str, Array]
        got, proof = self.backend.compute("run", program, {"inputs": self._given(inputs)})
        self._proofs["forward"] = proof
        self._left[shapes_of(inputs)] = _placed(proof, self.backend.platform)[1]
        return got

    def prepare(self, inputs: Inputs) -> None:
        if not self.saved:
            self._program(inputs)

    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        """Run a pass: every exchange with the worker returns a proof."""
        return self(**inputs), self._left[shapes_of(inputs)]

    def _given(self, inputs: Inputs) -> dict[str, Array]:
        return {name: tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
                for name, tensor in self._tensors(inputs).items()}  # fmt: skip

    def _tensors(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        tensors = to_tensors(inputs, "cpu", self.dtype)
        return {**tensors, **host_positions(self.model, tensors)}

    def _program(self, inputs: Inputs) -> Path:
        shapes = shapes_of(inputs)
        if shapes not in self._programs:
            file = self._folder / f"{len(self._programs)}.pt2"
            self._programs[shapes] = export_forward(self.model, self._tensors(inputs), file).file
        return self._programs[shapes]

    # Decoding

    def _open_decoding(self) -> None:
        programs = export_decoding(self.model, self._tensors(self.example), self._folder)
        in_torch = {name: _in_torch(program) for name, program in programs.items()}
        self._verify_decoding(in_torch)
        self._graphs = {name: self._on_device(name, program) for name, program in programs.items()}

    def _verify_decoding(self, graphs: Mapping[str, Graph]) -> None:
        """Raise `Unsupported` if the programs, computed by torch, decode other tokens than the module."""
        import torch

        from ..model.greedy_decoding import greedy

        steps = 4
        try:
            got = decode(self.model, graphs, self.example, steps=steps)
        except Exception as error:  # whatever the library raises, these programs don't decode
            reason = f"decoding with the exported programs failed: {type(error).__name__}: {str(error)[:400]}"
            raise Unsupported(reason, error_type="export_failed", stage=Stage.CONVERT) from error
        want = greedy(self.model, to_tensors(self.example, "cpu", self.dtype), steps=steps, use_cache=True)
        if not np.array_equal(got.tokens, want.tokens) and self.dtype == torch.float32:
            raise Unsupported(
                "the exported programs decode different tokens than torch",
                error_type="conversion_wrong",
                stage=Stage.CONVERT,
            )

    def _on_device(self, name: str, program: Program) -> Graph:
        def graph(arrays: Mapping[str, Any]) -> dict[str, Array]:
            given = {key: np.asarray(one) for key, one in arrays.items()}
            got: dict[str, Array]
            got, self._proofs[name] = self.backend.compute("run", program.file, {"inputs": given})
            return got

        return graph

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        if "generate" not in self.can:
            raise Unsupported("this program doesn't support decoding", error_type="unsupported_format")
        return decode(self.model, self._graphs, inputs, steps=steps)

    # Gradients

    def gradients(self, inputs: Inputs) -> dict[str, Array]:
        """Return gradients by reverse differentiation of the lowered program; the loss uses `loss_weights`."""
        if "backward" not in self.can:
            raise Unsupported("this program doesn't compute gradients", error_type="unsupported_format")
        outputs = self._run(inputs)
        masks = masks_of(self.model_input.masked_by, inputs)
        floating = {name: one for name, one in outputs.items() if one.dtype.kind == "f"}
        weights = {name: loss_weights(one.shape, masks.get(name)) for name, one in floating.items()}
        given = {"inputs": self._given(inputs), "cotangents": weights}
        got, self._proofs["gradients"] = self.backend.compute("gradients", self._program(inputs), given)
        return self._by_parameter(got)

    def _by_parameter(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """Return gradients by the first name of each parameter, added up over the names of a tied one."""
        first: dict[int, str] = {}
        found: dict[str, Array] = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            own = first.setdefault(id(parameter), name)
            if INNER + name in gradients and parameter.requires_grad:
                array = gradients[INNER + name].astype(np.float64)
                found[own] = found[own] + array if own in found else array
        return found

    # Proof

    def execution(self) -> Execution:
        """Return the compiled module's instructions by place, with decoding and gradients if they are possible."""
        beside = host_products(lambda: self._run(self.example))
        native = _placed(self._proofs["forward"], self.backend.platform)[0]
        unseen = "" if self.saved else self._beyond_forward()
        offloaded = {**self._left[shapes_of(self.example)], **beside}
        for proof in self._proofs.values():
            more = _placed(proof, self.backend.platform)[1]
            offloaded |= {one: n for one, n in more.items() if one not in offloaded}
        return Execution(
            native=dict(native),
            offloaded=dict(offloaded),
            dtype=self._computed_in(),
            device=", ".join(self._proofs["forward"]["devices"]),
            unseen=listed(UNSEEN, unseen),
            host_allowed=self.backend.HOST_ALLOWED,
        )

    def _beyond_forward(self) -> str:
        """Decode and differentiate, so that there are proofs of both. Return which of them raised."""
        said = []
        if "generate" in self.can:
            said.append(what_raises("decoding", lambda: self.generate(self.example, steps=2)))
        if "backward" in self.can:
            said.append(what_raises("gradients", lambda: self.gradients(self.example)))
        return listed(*said)

    def _computed_in(self) -> str:
        """Return the coarsest dtype of the inputs or results of products in the compiled module.

        XLA's CPU client computes bfloat16 products in float32: they are no less exact.
        """
        names = [name for part in ("lowered", "products") for name in self._proofs["forward"][part]]
        return coarsest(_DTYPES.get(name, name) for name in names) or self.precision

    def save_and_reload(self, folder: Path) -> Runnable:
        """Save StableHLO, as jax.export writes it for this platform and for a TPU, with the weights beside it."""
        platforms = sorted({self.backend.platform, "tpu"})
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            inputs = Path(name) / "inputs.npz"
            given: dict[str, Any] = self._given(self.example)
            np.savez(inputs, **given)
            places = {"inputs": str(inputs), "folder": str(folder.absolute())}
            program = str(self._program(self.example).absolute())
            self.backend.ask("save", stage=Stage.CONVERT, program=program, lower_for=platforms, **places)
        return type(self)(self.backend, self.model_input, self.example, self.precision, folder)

    def close(self) -> None:
        self._clean()


def _placed(proof: Proof, platform: str) -> tuple[Counter[str], Counter[str]]:
    """Return the instructions of a compiled module on the device, and off it."""
    native: Counter[str] = Counter()
    offloaded: Counter[str] = Counter(proof["torch"])
    on_device = proof["platforms"] == [platform]
    for one, count in proof["instructions"].items():
        (native if on_device and not _leaves_device(one) else offloaded)[f"hlo.{one}"] += count
    return native, offloaded


def _leaves_device(instruction: str) -> bool:
    kind, _, target = instruction.partition(":")
    if kind == "custom-call":
        return target not in ON_DEVICE
    return kind.startswith(_TRANSFERS) or target == "host"


def _in_torch(program: Program) -> Graph:
    import torch

    def graph(arrays: Mapping[str, Any]) -> dict[str, Array]:
        got = program.graph({name: torch.as_tensor(np.asarray(one)) for name, one in arrays.items()})
        return {name: (one.float() if one.is_floating_point() else one).numpy() for name, one in got.items()}

    return graph


def _numbers(array: Array) -> Array:
    """Return float64 with masked entries as minus infinity; integers as they are."""
    return ruled_out(array).astype(np.float64) if array.dtype.kind == "f" else array
