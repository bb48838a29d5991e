"""Target `openvino`: Intel's runtime on its CPU device, or on the device that the variant names (`openvino:NPU`)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..cell import GRAPH_TASK
from ..export import Exported, export_openvino, quiet_telemetry
from ..export.compressing import with_int8_weights
from ..export.verification import held_inputs
from ._openvino_calls import beside_graphs, inferences
from ._openvino_model import OpenedModel, open_model
from ._torch import listed, what_raises
from .base import (
    STEPS,
    BaseBackend,
    DeviceInfo,
    Execution,
    FileSubject,
    Generation,
    ModelSubject,
    Runnable,
    Unsupported,
    coarsest,
)

if TYPE_CHECKING:
    from ..target import Target
    from .base import Array, Inputs

OPENVINO_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # On processors with AMX the CPU plug-in computes in bfloat16, and keeps the key-value cache in 8 or 16 bits,
    # unless it is told not to. A float32 answer needs both settings.
    "float32": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
    "bfloat16": {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16"},
    "float16": {"INFERENCE_PRECISION_HINT": "f16", "KV_CACHE_PRECISION": "f16"},
    # Weights alone have 8 bits: what they are multiplied with isn't to be rounded as well.
    "int8": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}

CHOICES = ("AUTO", "HETERO", "MULTI", "BATCH")
"""OpenVINO's devices that stand for a choice between devices: evidence says which one it took (`executed_on`)."""

UNSEEN = (
    "what a plug-in does inside one node; transfers between host and device; what Python does around graphs, and "
    "whether it hands on what they gave, but for products of torch"
)

_LONGEST_REASON = 400
_COMPUTE_LAYERS = {"FullyConnected", "MatMul", "Convolution", "GroupConvolution", "ScaledDotProductAttention"}
_FACTS = {
    "capabilities": "OPTIMIZATION_CAPABILITIES",
    "architecture": "DEVICE_ARCHITECTURE",
    "memory": "GPU_DEVICE_TOTAL_MEM_SIZE",
    "driver": "NPU_DRIVER_VERSION",
}
"""What a device tells of itself, by OpenVINO's own names of properties; each plug-in has some of them."""
_PRECISION_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8", "u8": "int8"}


def _open_on_cpu(subject: ModelSubject) -> Callable[[Exported], OpenedModel]:
    """How an export is opened to be verified: on OpenVINO's own CPU device, in float32."""
    return lambda exported: open_model(exported, subject, "CPU", OPENVINO_OPTIONS["float32"])


def _made_for(inputs: Inputs) -> tuple[object, ...]:
    """What a static export is made for: shapes, and the values of inputs that may be constants in it."""
    numbers = held_inputs(inputs)
    return tuple(
        (name, array.shape, array.tobytes() if name in numbers else b"") for name, array in sorted(inputs.items())
    )


def _product_precision(facts: Mapping[str, str]) -> str:
    """What a node multiplies in, as the runtime calls it. Where weights alone have 8 bits, `runtimePrecision` is
    theirs, and the kernel's name ends with the products' (`brgemm_avx2_f32`)."""
    stated = facts["runtimePrecision"]
    kernel = facts.get("primitiveType", "").rpartition("_")[2].lower()
    return kernel if stated in ("i8", "u8") and kernel in _PRECISION_NAMES else stated


class OpenVINORunnable(Runnable):
    """A model compiled by OpenVINO. Without the exporter's cache it decodes by whole forward passes."""

    def __init__(self, backend: OpenVINOBackend, subject: ModelSubject, example: Inputs, precision: str) -> None:
        self.backend = backend
        self.subject = subject
        self.example = dict(example)
        self.precision = precision
        self.exported = self._of_precision(export_openvino(subject, example, _open_on_cpu(subject)))
        self._open(self.exported)
        self._by_shape = {_made_for(example): self.opened}

    def _of_precision(self, exported: Exported) -> Exported:
        return with_int8_weights(exported) if self.precision == "int8" else exported

    def _open(self, exported: Exported) -> None:
        self.opened = self._open_one(exported)
        self.can = frozenset({"save", "generate"} if self.opened.generates else {"save"})
        self._said = {**exported.conditions(), "optimisation": "O0"}
        placed = self._placement()
        if self.backend.target.variant in CHOICES:
            self._said["executed_on"] = placed.device
        self.conditions = self._said
        self.actual_dtype = placed.dtype

    def _open_one(self, exported: Exported) -> OpenedModel:
        return open_model(exported, self.subject, self.backend.device, OPENVINO_OPTIONS[self.precision])

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        if not self.exported.static and self.opened.takes(inputs):
            try:
                return self.opened(inputs)
            except RuntimeError as error:  # the plug-in's, which may fail at one length and not at another
                if self.exported.method != "convert_model":
                    raise
                self._said["why_static"] = " ".join(str(error).split())[:_LONGEST_REASON]
        self._said["shapes"] = "static"
        wanted = _made_for(inputs)
        if wanted not in self._by_shape:
            again = export_openvino(self.subject, inputs, _open_on_cpu(self.subject), traced_anew=True)
            self._by_shape[wanted] = self._open_one(self._of_precision(again))
        return self._by_shape[wanted](inputs)

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        if not self.opened.generates:
            raise Unsupported("this export doesn't decode", error_type="unsupported_format")
        return self.opened.generate(inputs, steps=steps)

    def save_and_reload(self, folder: Path) -> Runnable:
        self.opened.save(folder)
        again = object.__new__(type(self))
        again.backend, again.subject, again.precision = self.backend, self.subject, self.precision
        again.example = self.example
        again.exported = replace(self.exported, folder=folder)
        again._open(again.exported)
        again._by_shape = {_made_for(self.example): again.opened}
        return again

    def execution(self) -> Execution:
        """The graphs' nodes where the runtime has them, and the products that torch computes around the graphs, in a
        forward pass and in decoding. Graphs that nobody asked to run prove nothing."""
        placed = self._placement()
        asked, beside = beside_graphs(lambda: self(**self.example))
        unseen = placed.unseen
        if "generate" in self.can:
            said: list[str] = []
            tokens, decoding = beside_graphs(
                lambda: said.append(what_raises("decoding", lambda: self.generate(self.example, steps=STEPS)))
            )
            unseen = listed(unseen, *said)
            asked, beside = min(asked, tokens // STEPS) if not any(said) else asked, beside + decoding
        if not asked:
            return replace(placed, native={}, offloaded={**placed.native, **placed.offloaded, **beside})
        return replace(placed, offloaded={**placed.offloaded, **beside}, unseen=unseen)

    def left_to_host(self, inputs: Inputs) -> Mapping[str, int]:
        with inferences() as asked:
            self(**inputs)
        placed = self._placement(self._by_shape.get(_made_for(inputs), self.opened))
        return placed.offloaded if asked else {**placed.native, **placed.offloaded}

    def _placement(self, opened: OpenedModel | None = None) -> Execution:
        """Where and in which precision each node of the compiled graphs runs, from the runtime itself."""
        native: Counter[str] = Counter()
        offloaded: Counter[str] = Counter()
        precisions: Counter[str] = Counter()
        devices: list[str] = []
        for compiled in (opened or self.opened).compiled:
            used = [str(device) for device in compiled.get_property("EXECUTION_DEVICES")]
            devices += used
            # Graphs over several devices name none per node: the whole model counts as offloaded when any other
            # device than the one asked for took part.
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
        """The coarsest dtype of all products, and that of the key-value cache where it isn't the one asked for."""
        names = [_PRECISION_NAMES.get(name, name) for name in precisions]
        computed = coarsest(names) or next(iter(names), "unknown")
        kept_in = self.backend.COMPUTES_IN.get(self.precision, self.precision)
        asked = next(name for name, precision in _PRECISION_NAMES.items() if precision == kept_in)
        for compiled in self.opened.compiled if self.opened.generates else ():
            with contextlib.suppress(RuntimeError):  # a plug-in without this property keeps no cache of its own
                kept = compiled.get_property("KV_CACHE_PRECISION").get_type_name()
                if kept != asked:
                    return f"{computed}, its cache in {kept}"
        return computed


class OpenVINOBackend(BaseBackend):
    """OpenVINO's CPU plug-in unless a variant names a device. Precision hints are set and read back."""

    BACKEND_NAME = "openvino"
    EXPIRES_ON = ("openvino", "optimum-intel", "torch", "transformers")
    EXPIRES_ALSO_ON: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "int8": ("nncf",),
        GRAPH_TASK: ("onnx",),
        **dict.fromkeys(("GPU", "NPU", *CHOICES), ("intel_driver", "intel_firmware")),
    }
    CAN = frozenset({"generate", "save"})
    WARM_IMPORTS = ("openvino", "optimum.intel", "optimum.exporters.openvino")
    PRECISIONS = ("float32", "bfloat16", "float16", "int8")
    COMPUTES_IN: ClassVar[Mapping[str, str]] = {"int8": "float32"}
    VARIANTS = ("CPU", "GPU", "NPU", *CHOICES)
    DEADLINE_S = 600.0  # a model is exported, proven and compiled, for prompts and for tokens

    def _setup_environment(self) -> None:
        quiet_telemetry()

    @property
    def device(self) -> str:
        """OpenVINO's own name of the device: `CPU`, `GPU.1`, `HETERO:CPU`."""
        variant = self.target.variant or "CPU"
        if variant in CHOICES:
            import openvino

            seen = openvino.Core().available_devices
            return f"{variant}:{','.join(seen[:1] if variant == 'BATCH' else seen)}"
        return variant if self.target.index is None else f"{variant}.{self.target.index}"

    @classmethod
    def is_shared(cls, target: Target) -> bool:
        """The host's processor is; a GPU or NPU isn't."""
        return target.variant in ("", "CPU")

    def is_asked_device(self, name: str) -> bool:
        """Whether a name from `EXECUTION_DEVICES` is the device of this target; a choice stands for all of them."""
        if self.target.variant in CHOICES:
            return True
        return name.strip("()") == self.device or name.strip("()").split(".")[0] == self.device

    def _check_availability(self) -> str:
        try:
            import openvino
        except ImportError:
            return "openvino isn't installed (pip install -r requirements.txt)"
        devices = openvino.Core().available_devices
        if self.target.variant in CHOICES:
            return "" if devices else f"{self.target} chooses between devices, and OpenVINO sees none"
        if not any(name == self.device or name.split(".")[0] == self.device for name in devices):
            return f"OpenVINO sees no {self.device}; it sees {', '.join(devices) or 'nothing'}"
        return ""

    @property
    def device_count(self) -> int:
        import openvino

        kind = self.target.variant or "CPU"
        return sum(name.split(".")[0] == kind for name in openvino.Core().available_devices)

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        import openvino

        if self.target.variant in CHOICES:  # it is one of those that are there
            device = self.device.partition(":")[2].split(",")[0]
            full = openvino.Core().get_property(device, "FULL_DEVICE_NAME")
            return self.device_info(self.device, f"{self.device}, {str(full).strip()}", device_id=device_id)
        name = self.device if device_id == self.device_id else f"{self.target.variant}.{device_id}"
        core = openvino.Core()
        told = set(core.get_property(name, "SUPPORTED_PROPERTIES"))
        facts: dict[str, Any] = {k: core.get_property(name, asked) for k, asked in _FACTS.items() if asked in told}
        capable = facts.pop("capabilities", [])
        if name not in CHOICES:  # whoever chooses has no arithmetic
            facts["bf16"] = "BF16" in capable
        if "driver" in facts:
            facts["driver"] = str(facts["driver"])  # of an NPU a number
        return self.device_info(
            name,
            str(core.get_property(name, "FULL_DEVICE_NAME")).strip(),
            device_id=device_id,
            capabilities=", ".join(sorted(capable)),
            **facts,
        )

    def known_answer(self) -> tuple[float, float, float]:
        import openvino
        from openvino import opset13 as ops

        from ..known_answer import question

        left, right = question()
        parameter = ops.parameter(left.shape, np.float32)
        product = ops.tanh(ops.matmul(parameter, ops.constant(right), False, False))
        model = openvino.Model([ops.reduce_sum(product, np.array([0]), False)], [parameter], "known_answer")
        compiled = openvino.Core().compile_model(model, self.device, {"INFERENCE_PRECISION_HINT": "f32"})
        answer = compiled([left])[0]
        return float(answer[0]), float(answer[1]), float(answer[2])

    def load(self, subject: ModelSubject, example_inputs: Inputs, precision: str) -> Runnable:
        if precision not in self.PRECISIONS:
            raise Unsupported(f"{self.target} doesn't compute in {precision}", error_type="unsupported_dtype")
        return OpenVINORunnable(self, subject, example_inputs, precision)

    def load_file(self, subject: FileSubject, example_inputs: Inputs, precision: str) -> Runnable:
        if precision not in self.PRECISIONS:
            raise Unsupported(f"{self.target} doesn't compute in {precision}", error_type="unsupported_dtype")
        from ._openvino_graph import OpenVINOGraph

        return OpenVINOGraph(self, subject, example_inputs, precision)
