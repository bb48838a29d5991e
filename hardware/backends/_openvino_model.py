"""An exported model, compiled by OpenVINO: with optimum-intel's class for its task, or directly."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evidence.record import Stage
from ..export import Exported
from ..export.decoding_graphs import decode
from ..export.exported import ENCODER, EXPORTER, FORWARD, PROMPT, RESULT, STEP
from ..export.optimum_exporter import openvino_names
from ..model.outputs import numbers_of, ruled_out
from ..model.positions import host_positions
from ..step_times import timed_step
from ._trace import host_products
from .base import Generation, ModelInput, Unsupported

if TYPE_CHECKING:
    from .base import Array, Inputs

Options = Mapping[str, str]


def open_model(exported: Exported, model_input: ModelInput, device: str, options: Options) -> OpenedModel:
    """Compile an export for a device. Raises `Unsupported` at the stage `compile` if the runtime refuses it."""
    name = class_name(model_input) if exported.method == EXPORTER else ""
    with _compile_errors("the model", device):
        if name:
            return ClassModel(exported, name, device, options)
        if exported.decodes:
            return DecodingModel(exported, model_input, device, options)
        return BareModel(exported, model_input, device, options)


def open_file(file: Path, device: str, options: Options) -> FileModel:
    """Compile an `.onnx` or `.xml` file for a device. Raises `Unsupported` as `open_model` does."""
    with _compile_errors(file.name, device):
        return FileModel(file, device, options)


@contextlib.contextmanager
def _compile_errors(what: str, device: str) -> Iterator[None]:
    try:
        with timed_step("compile"):
            yield
    except RuntimeError as error:
        reason = f"OpenVINO can't compile {what} for {device}: {str(error)[:2000]}"
        raise Unsupported(reason, error_type="unknown", stage=Stage.COMPILE) from error


def class_name(model_input: ModelInput) -> str:
    """Return optimum-intel's class for a model's task, or an empty string."""
    splits = bool(getattr(getattr(model_input.model, "config", None), "is_encoder_decoder", False))
    names = openvino_names()
    found = names["encoder_decoder_classes"].get(model_input.task) if splits else None
    return str(found or names["classes"].get(model_input.task, ""))


class OpenedModel(ABC):
    """Every graph of an export, compiled: `compiled` has one for each file."""

    compiled: list[Any]
    generates = False

    @abstractmethod
    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the floating-point outputs of one forward pass, by name, as float64."""

    def takes(self, inputs: Mapping[str, Array]) -> bool:
        """Return whether the graph accepts inputs of these shapes."""
        return True

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the graphs in OpenVINO's own format."""

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        """Decode greedily with a cache."""
        raise NotImplementedError


class Graph:
    """One compiled file, called with arrays by name."""

    def __init__(self, core: Any, file: Path, device: str, options: Options) -> None:
        model = core.read_model(file)
        # A compiled model may have lost names of its ports, and inputs that it doesn't depend on.
        names, self.outputs = _names(model)
        self.compiled = core.compile_model(model, device, dict(options))
        self.inputs = [names[port.get_node().get_friendly_name()] for port in self.compiled.inputs]

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs in the graph's own dtypes."""
        result = self.compiled([np.asarray(inputs[name], order="C") for name in self.inputs])
        return {name: np.array(result[number]) for number, name in enumerate(self.outputs)}


def _names(model: Any) -> tuple[dict[str, str], list[str]]:
    """Return the names of a graph's inputs, by node, and of its outputs. In our own graphs the nodes have these
    names: an input that is returned unchanged is one tensor, with one name for both."""
    nodes = [str(port.get_node().get_friendly_name()) for port in model.outputs]
    inputs = {str(port.get_node().get_friendly_name()): str(port.get_any_name()) for port in model.inputs}
    if not all(node.startswith(RESULT) for node in nodes):
        return inputs, [str(port.get_any_name()) for port in model.outputs]
    return {node: node for node in inputs}, [node.removeprefix(RESULT) for node in nodes]


class FileModel(OpenedModel):
    """A graph file with its own names. If it can't be compiled with axes of any size, it is compiled for each size;
    `sizes` says so."""

    def __init__(self, file: Path, device: str, options: Options) -> None:
        import openvino

        core = openvino.Core()
        self.model: Any = core.read_model(str(file))
        self.outputs = _output_names(file, self.model)
        self._file, self._device = file, device
        self._compile: Callable[[Any], Any] = partial(core.compile_model, device_name=device, config=dict(options))
        self._by_shape: dict[Any, Any] = {}
        self.compiled, self.sizes = [], ""
        try:
            self.compiled = [self._compile(self.model)]
        except RuntimeError:
            if not self.model.is_dynamic():
                raise
            self.sizes = "sizes as constants"

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: np.asarray(value, order="C") for name, value in inputs.items()}
        result = (self._of_shapes(given) if self.sizes else self.compiled[0])(given)
        return numbers_of({name: result[number] for number, name in enumerate(self.outputs)})

    def _of_shapes(self, inputs: Mapping[str, Array]) -> Any:
        shapes = tuple((name, one.shape) for name, one in inputs.items())
        if shapes not in self._by_shape:
            fixed = self.model.clone()
            fixed.reshape({name: list(shape) for name, shape in shapes})
            with _compile_errors(self._file.name, self._device):
                self._by_shape[shapes] = self._compile(fixed)
        self.compiled = [self._by_shape[shapes]]
        return self._by_shape[shapes]

    @property
    def dtype(self) -> str:
        """The dtype of the first floating-point output, for a graph without products; empty if it has none."""
        kinds = [np.dtype(port.get_element_type().to_dtype()) for port in self.model.outputs]
        return next((one.name for one in kinds if one.kind == "f"), "")

    def save(self, folder: Path) -> None:
        import openvino

        openvino.save_model(self.model, folder / FORWARD, compress_to_fp16=False)


def _output_names(file: Path, model: Any) -> list[str]:
    """Return the names of a graph's outputs in its order. A tensor may have several: an `.onnx` says which it is."""
    if file.suffix.lower() == ".onnx":
        import onnx

        return [one.name for one in onnx.load(str(file), load_external_data=False).graph.output]
    ports = enumerate(model.outputs)
    return [port.get_any_name() if port.get_names() else f"output_{number}" for number, port in ports]


class BareModel(OpenedModel):
    """A graph in OpenVINO's own runtime."""

    def __init__(self, exported: Exported, model_input: ModelInput, device: str, options: Options) -> None:
        import openvino

        self.model: Any = model_input.model
        self.folder = exported.folder
        self.core = openvino.Core()
        self.forward = Graph(self.core, exported.folder / FORWARD, device, options)
        self.compiled = [self.forward.compiled]

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        missing = set(self.forward.inputs) - set(inputs)
        given = {**inputs, **self._positions(inputs)} if missing else inputs
        return {name: ruled_out(np.asarray(value)).astype(np.float64) for name, value in self.forward(given).items()}

    def takes(self, inputs: Mapping[str, Array]) -> bool:
        import openvino

        shapes = zip(self.forward.inputs, self.forward.compiled.inputs, strict=True)
        return all(
            port.get_partial_shape().compatible(openvino.PartialShape(list(inputs[name].shape)))
            for name, port in shapes
            if name in inputs
        )

    def _positions(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        from ..model.calls import to_tensors

        positions = host_positions(self.model, to_tensors(inputs, "cpu", torch.float32))
        return {name: tensor.numpy() for name, tensor in positions.items()}

    def save(self, folder: Path) -> None:
        import openvino

        for file in sorted(self.folder.glob("*.xml")):
            openvino.save_model(self.core.read_model(file), folder / file.name, compress_to_fp16=False)


class DecodingModel(BareModel):
    """Graphs of our own for a forward pass, a prompt and a token, called by the library's decoding loop.

    The torch module only prepares the arguments of each call; the graphs replace its `forward`.
    """

    generates = True

    def __init__(self, exported: Exported, model_input: ModelInput, device: str, options: Options) -> None:
        super().__init__(exported, model_input, device, options)
        self.graphs = {
            file: Graph(self.core, exported.folder / file, device, options)
            for file in (ENCODER, PROMPT, STEP)
            if (exported.folder / file).is_file()
        }
        self.compiled += [graph.compiled for graph in self.graphs.values()]

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        return decode(self.model, self.graphs, inputs, steps=steps)


class ClassModel(OpenedModel):
    """The graphs of an export in the class of optimum-intel that a user would load them with."""

    def __init__(self, exported: Exported, name: str, device: str, options: Options) -> None:
        import optimum.intel

        self.generates = exported.decodes
        self.model: Any = getattr(optimum.intel, name).from_pretrained(
            exported.folder, device=device, ov_config=dict(options), local_files_only=True, compile=True
        )
        self.compiled = compiled_models(self.model)
        missing = len(list(exported.folder.glob("*.xml"))) - len(self.compiled)
        if missing > 0:
            raise Unsupported(
                f"{missing} graphs inside {name} can't be inspected, so the device that runs them is unknown",
                error_type="unknown",
                stage=Stage.COMPILE,
            )

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        from ..model.calls import to_arrays
        from ..model.outputs import floating_outputs

        with torch.no_grad():
            output = self.model(**{n: torch.as_tensor(np.ascontiguousarray(v)) for n, v in inputs.items()})
        tensors = {n: torch.as_tensor(v) for n, v in output.items() if isinstance(v, np.ndarray)}
        return to_arrays(floating_outputs({**dict(output.items()), **tensors}))

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        import torch

        from ..model.calls import to_tensors
        from ..model.greedy_decoding import greedy

        return greedy(self.model, to_tensors(inputs, "cpu", torch.float32), steps=steps, use_cache=True)

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)


def compiled_models(model: Any) -> list[Any]:
    """Return every compiled graph inside an optimum-intel object, at any depth of its parts."""
    import openvino

    found: dict[int, Any] = {}
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        part = waiting.pop()
        seen.add(id(part))
        for value in vars(part).values():
            if isinstance(value, openvino.InferRequest):
                value = value.get_compiled_model()
            if isinstance(value, openvino.CompiledModel):
                found[id(value)] = value
            elif type(value).__module__.startswith("optimum.intel") and id(value) not in seen:
                waiting.append(value)
    return list(found.values())


OPENVINO_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # On processors with AMX the CPU plugin computes in bfloat16, and keeps the key-value cache in 8 or 16 bits, by
    # default. A float32 answer needs both settings.
    "float32": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
    "bfloat16": {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16"},
    "float16": {"INFERENCE_PRECISION_HINT": "f16", "KV_CACHE_PRECISION": "f16"},
    # Only weights have 8 bits: activations aren't rounded too.
    "int8": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}


def beside_graphs(work: Callable[[], object]) -> tuple[int, Counter[str]]:
    """Return how many inferences `work` starts, and the products that torch computes meanwhile in any thread."""
    with inferences() as asked:
        beside = host_products(work)
    return sum(asked.values()), beside


@contextlib.contextmanager
def inferences() -> Iterator[Counter[str]]:
    """Count the calls that start an inference; every Python API that runs a compiled graph ends in one of them."""
    import openvino

    asked: Counter[str] = Counter()
    before = {name: vars(openvino.InferRequest)[name] for name in ("infer", "start_async")}

    def counted(name: str) -> Callable[..., Any]:
        def start(request: Any, *arguments: Any, **named: Any) -> Any:
            asked[name] += 1
            return before[name](request, *arguments, **named)

        return start

    for name in before:
        setattr(openvino.InferRequest, name, counted(name))
    try:
        yield asked
    finally:
        for name, method in before.items():
            setattr(openvino.InferRequest, name, method)
