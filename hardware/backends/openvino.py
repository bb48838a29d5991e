"""Target `openvino`: Intel's runtime on its CPU device, or on the device that the variant names (`openvino:NPU`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evidence.record import Stage
from ..export import Exported, export_openvino, quiet_telemetry
from .base import BaseBackend, DeviceInfo, Execution, Generation, ModelSubject, Runnable, Unsupported

if TYPE_CHECKING:
    from .base import Array, Inputs

OPENVINO_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # On processors with AMX the CPU plug-in computes in bfloat16, and keeps the key-value cache in 8 or 16 bits,
    # unless it is told not to. A float32 answer needs both settings.
    "float32": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
    "bfloat16": {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16"},
    "float16": {"INFERENCE_PRECISION_HINT": "f16", "KV_CACHE_PRECISION": "f16"},
}

CHOICES = ("AUTO", "HETERO", "MULTI", "BATCH")
"""OpenVINO's devices that stand for a choice between devices: what ran there would say nothing about any of them."""

_CLASSES = {
    "fill-mask": "OVModelForMaskedLM",
    "text-generation": "OVModelForCausalLM",
    "text2text-generation": "OVModelForSeq2SeqLM",
    "image-classification": "OVModelForImageClassification",
    "zero-shot-image-classification": "OVModelForZeroShotImageClassification",
    "automatic-speech-recognition": "OVModelForSpeechSeq2Seq",
    "feature-extraction": "OVModelForFeatureExtraction",
}
"""optimum-intel's class for a task, as its own documentation pairs them."""

_COMPUTE_LAYERS = {"FullyConnected", "MatMul", "Convolution", "GroupConvolution", "ScaledDotProductAttention"}
_PRECISION_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8", "u8": "int8"}


class _Opened:
    """An exported model compiled on a device: through optimum-intel's class, or bare.

    Raises `Unsupported` at the stage `compile` where the runtime refuses it.
    """

    def __init__(self, exported: Exported, task: str, device: str, options: Mapping[str, str]) -> None:
        self.bare = exported.method == "convert_model"
        model_class = None if self.bare else _class_for(task)
        try:
            self._compile(exported, model_class, device, options)
        except RuntimeError as error:
            raise Unsupported(
                f"OpenVINO doesn't compile the model for {device}: {str(error)[:2000]}",
                error_type="unknown",
                stage=Stage.COMPILE,
            ) from error

    def _compile(self, exported: Exported, model_class: Any, device: str, options: Mapping[str, str]) -> None:
        if model_class is None:
            import openvino

            core = openvino.Core()
            self.compiled = [core.compile_model(exported.folder / "openvino_model.xml", device, dict(options))]
            return
        self.model: Any = model_class.from_pretrained(
            exported.folder, device=device, ov_config=dict(options), local_files_only=True, compile=True
        )
        self.compiled = list(_compiled_models(self.model))

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self.bare:
            result = self.compiled[0]({name: np.ascontiguousarray(value) for name, value in inputs.items()})
            return {port.get_any_name(): np.asarray(value, dtype=np.float64) for port, value in result.items()}
        import torch

        from ._torch import floating_outputs, to_arrays

        with torch.no_grad():
            output = self.model(**{n: torch.as_tensor(np.ascontiguousarray(v)) for n, v in inputs.items()})
        tensors = {n: torch.as_tensor(v) for n, v in output.items() if isinstance(v, np.ndarray)}
        return to_arrays(floating_outputs({**dict(output.items()), **tensors}))


def _class_for(task: str) -> Any:
    import optimum.intel

    return getattr(optimum.intel, _CLASSES[task])


def _open_on_cpu(task: str) -> Callable[[Exported], _Opened]:
    """How an export is opened to be verified: on OpenVINO's own CPU device, in float32."""
    return lambda exported: _Opened(exported, task, "CPU", OPENVINO_OPTIONS["float32"])


def _compiled_models(model: Any) -> list[Any]:
    """Every compiled model inside an optimum-intel object."""
    import openvino

    kinds = (openvino.CompiledModel,)
    found: dict[int, Any] = {}
    parts = [model, *(getattr(model, name, None) for name in ("encoder", "decoder", "decoder_with_past"))]
    for part in filter(None, parts):
        for name in ("compiled_model", "request"):
            value = getattr(part, name, None)
            if value is not None and hasattr(value, "get_compiled_model"):
                value = value.get_compiled_model()
            if isinstance(value, kinds):
                found[id(value)] = value
    return list(found.values())


def _shapes(inputs: Inputs) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(array.shape)) for name, array in sorted(inputs.items()))


class OpenVINORunnable(Runnable):
    """A model compiled by OpenVINO. Without the exporter's cache it decodes by whole forward passes."""

    def __init__(self, backend: OpenVINOBackend, subject: ModelSubject, example: Inputs, precision: str) -> None:
        self.backend = backend
        self.subject = subject
        self.example = dict(example)
        self.precision = precision
        self.exported = export_openvino(subject, example, _open_on_cpu(subject.task))
        self._open(self.exported)
        self._by_shape = {_shapes(example): self.opened}

    def _open(self, exported: Exported) -> None:
        options = OPENVINO_OPTIONS[self.precision]
        self.opened = _Opened(exported, self.subject.task, self.backend.device, options)
        self.can = frozenset({"save"} if self.opened.bare else {"save", "generate"})
        self.conditions = {"export": exported.method, "optimisation": "O0"}
        if exported.why_not_exporter:
            self.conditions["why_not_exporter"] = exported.why_not_exporter
        if exported.static:
            self.conditions["shapes"] = "static"  # exported anew for each shape
        self.actual_dtype = self.execution().dtype

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        if not self.exported.static:
            return self.opened(inputs)
        shapes = _shapes(inputs)
        if shapes not in self._by_shape:
            exported = export_openvino(self.subject, inputs, _open_on_cpu(self.subject.task))
            options = OPENVINO_OPTIONS[self.precision]
            self._by_shape[shapes] = _Opened(exported, self.subject.task, self.backend.device, options)
        return self._by_shape[shapes](inputs)

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        import torch

        from ._torch import greedy, to_tensors

        return greedy(self.opened.model, to_tensors(inputs, "cpu", torch.float32), steps=steps, use_cache=True)

    def save_and_reload(self, folder: Path) -> Runnable:
        import openvino

        if self.opened.bare:
            core = openvino.Core()
            model = core.read_model(self.exported.folder / "openvino_model.xml")
            openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
        else:
            self.opened.model.save_pretrained(folder)
        again = object.__new__(type(self))
        again.backend, again.subject, again.precision = self.backend, self.subject, self.precision
        again.example = self.example
        again.exported = Exported(
            folder=folder,
            method=self.exported.method,
            why_not_exporter=self.exported.why_not_exporter,
            static=self.exported.static,
        )
        again._open(again.exported)
        again._by_shape = {_shapes(self.example): again.opened}
        return again

    def execution(self) -> Execution:
        """Where and in which precision each node of the compiled graphs runs, from the runtime itself."""
        native: Counter[str] = Counter()
        offloaded: Counter[str] = Counter()
        precisions: Counter[str] = Counter()
        devices: list[str] = []
        for compiled in self.opened.compiled:
            used = [str(device) for device in compiled.get_property("EXECUTION_DEVICES")]
            devices += used
            # HETERO's and AUTO's graphs name no device per node: the whole model counts as offloaded when
            # any other device than the one asked for took part.
            on_target = bool(used) and all(self.backend.is_asked_device(device) for device in used)
            for node in compiled.get_runtime_model().get_ordered_ops():
                facts = node.get_rt_info()
                layer = str(facts["layerType"].astype(str)) if "layerType" in facts else node.get_type_name()
                if layer in ("Input", "Output", "Const", "Parameter", "Result"):
                    continue
                (native if on_target else offloaded)[f"openvino.{layer}"] += 1
                if layer in _COMPUTE_LAYERS and "runtimePrecision" in facts:
                    precisions[str(facts["runtimePrecision"].astype(str))] += 1
        computed = precisions.most_common(1)
        name = computed[0][0] if computed else "unknown"
        return Execution(
            native=dict(native),
            offloaded=dict(offloaded),
            dtype=_PRECISION_NAMES.get(name, name),
            device=",".join(sorted(set(devices))) or "unknown",
            unseen="what a plug-in does inside one node; transfers between host and device",
            host_allowed=self.backend.HOST_ALLOWED,
        )


class OpenVINOBackend(BaseBackend):
    """OpenVINO's CPU plug-in unless a variant names a device. Precision hints are set and read back."""

    BACKEND_NAME = "openvino"
    EXPIRES_ON = ("openvino", "optimum-intel", "torch", "transformers")
    CAN = frozenset({"generate", "save"})
    WARM_IMPORTS = ("openvino", "optimum.intel", "optimum.exporters.openvino")
    PRECISIONS = ("float32", "bfloat16", "float16")
    VARIANTS = ("CPU", "GPU", "NPU", *CHOICES)

    def _setup_environment(self) -> None:
        quiet_telemetry()

    @property
    def device(self) -> str:
        """OpenVINO's own name of the device: `CPU`, `GPU.1`, `AUTO`."""
        variant = self.target.variant or "CPU"
        return variant if self.target.index is None else f"{variant}.{self.target.index}"

    def is_asked_device(self, name: str) -> bool:
        """Whether a name from `EXECUTION_DEVICES` is the device that this target stands for."""
        return name.strip("()") == self.device or name.strip("()").split(".")[0] == self.device

    def _check_availability(self) -> str:
        try:
            import openvino
        except ImportError:
            return "openvino isn't installed (pip install -r requirements.txt)"
        devices = openvino.Core().available_devices
        if self.target.variant in CHOICES:
            return f"{self.target} is a choice between devices, not a device; name one of {', '.join(devices)}"
        if not any(name == self.device or name.split(".")[0] == self.device for name in devices):
            return f"OpenVINO sees no {self.device}; it sees {', '.join(devices) or 'nothing'}"
        return ""

    def get_device_info(self) -> DeviceInfo:
        import openvino

        name = openvino.Core().get_property(self.device, "FULL_DEVICE_NAME")
        return self.device_info(self.device, str(name).strip())

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
