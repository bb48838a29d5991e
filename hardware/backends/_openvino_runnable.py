"""A model that OpenVINO compiled, and the proof of where its nodes ran."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..export.exported import EXPORTER, FORWARD, Exported
from ..export.openvino_export import export_openvino
from ..export.verify_export import made_for
from ..export.weight_compression import with_int8_weights
from ..model.positions import steps_within
from ._openvino_model import (
    OPENVINO_OPTIONS,
    FileModel,
    OpenedModel,
    beside_graphs,
    inferences,
    open_file,
    open_model,
)
from ._torch import listed, what_raises
from .base import STEPS, Execution, FileInput, Generation, ModelInput, Runnable, Unsupported, coarsest

if TYPE_CHECKING:
    from .base import Array, Inputs

UNSEEN = "computation inside one node; host–device copies; Python code around the graph, except products of torch"

_LONGEST_REASON = 400
_COMPUTE_LAYERS = {"FullyConnected", "MatMul", "Convolution", "GroupConvolution", "ScaledDotProductAttention"}
_PRECISION_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8", "u8": "int8"}


def _open_on_cpu(model_input: ModelInput) -> Callable[[Exported], OpenedModel]:
    """Return the function that opens an export for verification: on OpenVINO's own CPU device, in float32."""
    return lambda exported: open_model(exported, model_input, "CPU", OPENVINO_OPTIONS["float32"])


def _product_precision(facts: Mapping[str, str]) -> str:
    """Return what a node multiplies in, as the runtime names it. If only weights have 8 or 16 bits,
    `runtimePrecision` is theirs, and the kernel's name ends with that of the products (`brgemm_avx2_f32`)."""
    stated = facts["runtimePrecision"]
    kernel = facts.get("primitiveType", "").rpartition("_")[2].lower()
    return kernel if stated in ("i8", "u8", "f16") and kernel in _PRECISION_NAMES else stated


class OpenVINORunnable(Runnable):
    """A model compiled by OpenVINO. Without the exporter's cache it decodes by whole forward passes."""

    def __init__(self, backend: Any, model_input: ModelInput, example: Inputs, precision: str) -> None:
        self.backend = backend
        self.model_input = model_input
        self.example = dict(example)
        self.precision = precision
        self.exported = self._of_precision(export_openvino(model_input, example, _open_on_cpu(model_input)))
        self._open(self.exported)
        self._by_shape = {made_for(example): self.opened}

    def _of_precision(self, exported: Exported) -> Exported:
        return with_int8_weights(exported) if self.precision == "int8" else exported

    def _open(self, exported: Exported) -> None:
        self.opened = self._open_one(exported)
        self.can = frozenset({"save", "generate"} if self.opened.generates else {"save"})
        if exported.why_no_cache:
            self.failed = {"generate": Unsupported(exported.why_no_cache, error_type=exported.no_cache_error)}
        self._conditions = {**exported.conditions(), "optimisation": "O0"}
        placed = self._placement()
        if self.backend.is_choice:
            self._conditions["executed_on"] = placed.device
        self.conditions = self._conditions
        self.actual_dtype = placed.dtype

    def _open_one(self, exported: Exported) -> OpenedModel:
        return open_model(exported, self.model_input, self.backend.device, OPENVINO_OPTIONS[self.precision])

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        if not self.exported.static and self.opened.takes(inputs):
            try:
                return self.opened(inputs)
            except RuntimeError as error:  # the plugin's, which may fail at one length and not at another
                if self.exported.method == EXPORTER:
                    raise
                self._conditions["why_static"] = " ".join(str(error).split())[:_LONGEST_REASON]
        self._conditions["shapes"] = "static"
        wanted = made_for(inputs)
        if wanted not in self._by_shape:
            again = export_openvino(self.model_input, inputs, _open_on_cpu(self.model_input), traced_anew=True)
            self._by_shape[wanted] = self._open_one(self._of_precision(again))
        return self._by_shape[wanted](inputs)

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        if not self.opened.generates:
            raise Unsupported("this export doesn't support decoding", error_type="unsupported_format")
        return self.opened.generate(inputs, steps=steps)

    def save_and_reload(self, folder: Path) -> Runnable:
        self.opened.save(folder)
        again = object.__new__(type(self))
        again.backend, again.model_input, again.precision = self.backend, self.model_input, self.precision
        again.example = self.example
        again.exported = replace(self.exported, folder=folder)
        again._open(again.exported)
        again._by_shape = {made_for(self.example): again.opened}
        return again

    def execution(self) -> Execution:
        """Return the graphs' nodes by place, and the products that torch computes around the graphs, in a forward
        pass and in decoding. Graphs that were never run prove nothing."""
        placed = self._placement()
        asked, beside = beside_graphs(lambda: self(**self.example))
        unseen = placed.unseen
        if "generate" in self.can:
            said: list[str] = []
            tokens, decoding = beside_graphs(
                lambda: said.append(what_raises("decoding", lambda: self.generate(self.example, steps=STEPS)))
            )
            unseen = listed(unseen, *said)
            steps = steps_within(self.model_input.model, self.example, STEPS)
            asked, beside = min(asked, tokens // steps) if not any(said) else asked, beside + decoding
        if not asked:
            return replace(placed, native={}, offloaded={**placed.native, **placed.offloaded, **beside})
        return replace(placed, offloaded={**placed.offloaded, **beside}, unseen=unseen)

    def prepare(self, inputs: Inputs) -> None:
        """Run a pass: only that shows whether the graph accepts a length."""
        self(**inputs)

    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        with inferences() as asked:
            found = self(**inputs)
        placed = self._placement(self._by_shape.get(made_for(inputs), self.opened))
        return found, placed.offloaded if asked else {**placed.native, **placed.offloaded}

    def _placement(self, opened: OpenedModel | None = None) -> Execution:
        """Return where and in which precision each node of the compiled graphs runs, from the runtime itself."""
        native: Counter[str] = Counter()
        offloaded: Counter[str] = Counter()
        precisions: Counter[str] = Counter()
        devices: list[str] = []
        for compiled in (opened or self.opened).compiled:
            used = [str(device) for device in compiled.get_property("EXECUTION_DEVICES")]
            devices += used
            # Graphs over several devices name none per node: the whole model counts as offloaded if any device other
            # than the requested one took part.
            on_target = bool(used) and all(self.backend.is_asked_device(device) for device in used)
            for node in compiled.get_runtime_model().get_ordered_ops():
                facts = node.get_rt_info()
                layer = str(facts["layerType"].astype(str)) if "layerType" in facts else node.get_type_name()
                if layer in ("Input", "Output", "Const", "Parameter", "Result"):
                    continue
                (native if on_target else offloaded)[f"openvino.{layer}"] += 1
                if layer in _COMPUTE_LAYERS and "runtimePrecision" in facts:
                    precisions[_product_precision({name: str(fact.astype(str)) for name, fact in facts.items()})] += 1
        return Execution(
            native=dict(native),
            offloaded=dict(offloaded),
            dtype=self._computed_in(precisions),
            device=",".join(sorted(set(devices))) or "unknown",
            unseen=UNSEEN,
            host_allowed=self.backend.HOST_ALLOWED,
        )

    def _computed_in(self, precisions: Counter[str]) -> str:
        """Return the coarsest dtype of products, and that of the key-value cache if it isn't the requested one."""
        names = [_PRECISION_NAMES.get(name, name) for name in precisions]
        computed = coarsest(names) or next(iter(names), "unknown")
        kept_in = self.backend.COMPUTES_IN.get(self.precision, self.precision)
        asked = next(name for name, precision in _PRECISION_NAMES.items() if precision == kept_in)
        for compiled in self.opened.compiled if self.opened.generates else ():
            with contextlib.suppress(RuntimeError):  # a plugin without this property keeps no cache of its own
                kept = compiled.get_property("KV_CACHE_PRECISION").get_type_name()
                if kept != asked:
                    return f"{computed}, its cache in {kept}"
        return computed


def _of_file(precision: str, device: str) -> str:
    """Return the precision to request: float32 for a float16 file on a device without float16, where the CPU plugin
    would compute in bfloat16, which has fewer digits than the file."""
    import openvino

    if precision != "float16" or "FP16" in openvino.Core().get_property(device, "OPTIMIZATION_CAPABILITIES"):
        return precision
    return "float32"


class OpenVINOGraph(OpenVINORunnable):
    """A graph file on OpenVINO, with the same proof as a model."""

    can = frozenset({"save"})
    opened: FileModel

    def __init__(self, backend: Any, file_input: FileInput, example: Inputs, precision: str) -> None:
        self.backend = backend
        self.example = dict(example)
        self.precision = precision
        options = OPENVINO_OPTIONS[_of_file(precision, backend.device)]
        self.opened = open_file(file_input.file, backend.device, options)
        self._by_shape = {}
        self.opened(self.example)  # with fixed sizes it is compiled now
        held = {"held": self.opened.sizes} if self.opened.sizes else {}
        self.conditions = {"runtime": "openvino", "optimisation": "O0", **held}
        self.actual_dtype = self.execution().dtype

    def execution(self) -> Execution:
        found = super().execution()
        return found if found.dtype != "unknown" else replace(found, dtype=self.opened.dtype or found.dtype)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self.opened(inputs)

    def save_and_reload(self, folder: Path) -> Runnable:
        self.opened.save(folder)
        again = FileInput(file=folder / FORWARD)
        return type(self)(self.backend, again, self.example, self.precision)
