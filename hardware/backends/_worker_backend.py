"""Base of targets that compute in a worker: a process of their own environment, which gets arrays as files and may
run ONNX files in any build of ONNX Runtime."""

from __future__ import annotations

import json
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import BackendUnavailable
from ..evidence.record import Stage
from ..file_formats import format_name
from ..workers import Environment, Worker, WorkerDied, WorkerError, WorkerTimeout, environment_of
from .base import BaseBackend, FileInput, ModelInput, Runnable, Unsupported

if TYPE_CHECKING:
    from ..target import Target
    from .base import Array, Inputs

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def shapes_of(inputs: Inputs) -> Shapes:
    """Return the key of a graph with fixed shapes: the shape of each input."""
    return tuple((name, tuple(array.shape)) for name, array in sorted(inputs.items()))


def write_arrays(file: Path, arrays: Inputs) -> None:
    """Write named arrays as the worker reads them."""
    import numpy as np

    named: dict[str, Any] = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    np.savez(file, **named)


class WorkerBackend(BaseBackend):
    """Base of such targets. The worker starts with the first call."""

    RUNTIME: ClassVar[str]
    """Name of the worker's runtime for users."""

    ENVIRONMENT: ClassVar[str] = ""
    """Name in `environments.toml`, if it isn't the target's."""

    OWN_ENVIRONMENT = True
    SCRIPT: ClassVar[Path]
    CALL_LIMIT_S: ClassVar[float]
    INDEXED = False

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._worker: Worker | None = None

    @property
    def environment(self) -> Environment:
        """The worker's Python, or the reason why there is none."""
        return environment_of(self.ENVIRONMENT or self.BACKEND_NAME)

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return versions, machine and devices, from the worker."""

    @cached_property
    def described(self) -> Mapping[str, Any]:
        """The cached result of `describe`."""
        return self.describe()

    def call(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        """Call the worker. Raises `WorkerError` with the error of the call, and `Unsupported` at `stage` if the
        worker ended: its error type distinguishes a hang, a crash and lack of memory."""
        try:
            return self._worker_here().call(do, **arguments)
        except WorkerTimeout as error:
            raise Unsupported(f"{self.RUNTIME}: {error.message}", error_type="timeout", stage=stage) from error
        except WorkerDied as error:
            kind = "out_of_memory" if "bad_alloc" in error.log else "crash"
            raise Unsupported(f"{self.RUNTIME}: {reason_of(error)}", error_type=kind, stage=stage) from error

    def exchange(
        self, do: str, arrays: Mapping[str, Inputs], *, stage: Stage, **arguments: Any
    ) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Let the worker compute on arrays, passed as files. Return the outputs and the proof of their place."""
        import numpy as np

        with tempfile.TemporaryDirectory(prefix="hwcompat-worker-") as name:
            places = {kind: str(Path(name) / f"{kind}.npz") for kind in (*arrays, "outputs")}
            for kind, named in arrays.items():
                write_arrays(Path(places[kind]), named)
            proof = Path(name) / "execution.json"
            self.ask(do, stage=stage, execution=str(proof), **places, **arguments)
            with np.load(places["outputs"]) as outputs:
                return {key: outputs[key] for key in outputs.files}, json.loads(proof.read_text(encoding="utf-8"))

    @abstractmethod
    def ask(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        """Call the worker for a model: an error of the call becomes `Unsupported`, with its type and reason."""

    def _worker_here(self) -> Worker:
        if self._worker is None:
            environment = self.environment
            if environment.python is None:
                raise BackendUnavailable(f"{self.target} not found", why=environment.reason)
            self._worker = self.new_worker(environment.python)
        return self._worker

    def new_worker(self, python: Path) -> Worker:
        """Return a process for this target."""
        return Worker(python, timeout_s=self.CALL_LIMIT_S, script=self.SCRIPT)

    @property
    def device_count(self) -> int:
        return 0 if self.unavailable() else 1

    def reset(self) -> bool:
        """Replace the worker; always possible."""
        self.close()
        return True

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()


class OnnxWorkerBackend(WorkerBackend):
    """Base of such targets that run ONNX files, including small files with known answers."""

    READS = ("onnx",)
    WARM_IMPORTS = ("transformers.masking_utils", "optimum.exporters.openvino.patching_utils", "onnxruntime")
    PROVIDER: ClassVar[str]
    """ONNX Runtime's name of the execution provider."""

    PACKAGE: ClassVar[str] = ""
    """Name of what doesn't start, if it isn't `RUNTIME`."""

    @abstractmethod
    def numbers(self, array: Array) -> Array:
        """Return a floating-point output as float64, with masked entries as minus infinity."""

    def belongs_to(self, weights: str) -> Mapping[str, str]:
        """Return further arguments for a worker that separates models."""
        return {}

    def run_file(self, file: Path, arrays: Inputs, **options: str) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Return all outputs by name, and the proof of their place; `options` are passed to the worker."""
        from ..export.onnx_export import output_name

        given = {"model": str(file.absolute()), **options}
        got, proof = self.exchange("run", {"inputs": arrays}, stage=Stage.COMPILE, **given)
        return {output_name(name): array for name, array in got.items()}, proof

    def compute(self, file: Path, arrays: Inputs, **options: str) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Return the floating-point outputs as float64, and the same proof."""
        got, proof = self.run_file(file, arrays, **options)
        return {name: self.numbers(array) for name, array in got.items() if array.dtype.kind == "f"}, proof

    def coarse_in(self, file: Path) -> dict[str, str]:
        """Return the condition that names the functions of a file that may be coarse here; empty without any."""
        return {}

    def load_file(self, file_input: FileInput, example_inputs: Inputs, precision: str) -> Runnable:
        if format_name(file_input.file) not in self.READS:
            return super().load_file(file_input, example_inputs, precision)
        self.require(precision)
        return self.runnable_of(file_input, example_inputs, precision)

    @abstractmethod
    def runnable_of(self, source: ModelInput | FileInput, example: Inputs, precision: str) -> Runnable:
        """Return a model or a file, loaded on the target."""

    def load(self, model_input: ModelInput, example_inputs: Inputs, precision: str) -> Runnable:
        self.require(precision)
        return self.runnable_of(model_input, example_inputs, precision)

    def answer_of(self, write: Callable[[Path], None], arrays: Inputs, weights: str) -> dict[str, Array]:
        """Return the outputs of the small file that `write` makes."""
        with tempfile.TemporaryDirectory(prefix="hwcompat-onnx-") as name:
            file = Path(name) / "asked.onnx"
            write(file)
            return self.compute(file, arrays, **self.belongs_to(weights))[0]

    def known_answer(self) -> tuple[float, float, float]:
        from ..known_answer import question
        from ._onnx_probe import write_question

        left, right = question()
        answer = self.answer_of(lambda file: write_question(file, right), {"left": left}, "question")["answer"]
        return float(answer[0]), float(answer[1]), float(answer[2])

    def missing(self) -> str:
        """Return the part of the environment that is missing, with the command to install it. Starts nothing."""
        return self.environment.reason

    def refused(self) -> str:
        """Return why a runtime that started offers no such target, or an empty string."""
        return str(self.described.get("reason") or "")

    def _check_availability(self) -> str:
        from ..export.onnx_export import missing_packages

        if reason := self.missing() or missing_packages():
            return reason
        try:
            return self.refused()
        except (WorkerError, Unsupported) as error:
            return f"{self.PACKAGE or self.RUNTIME} failed to start: {error}"


def reason_of(error: WorkerError) -> str:
    """Return the error's message, and the first errors that native code logged meanwhile."""
    said = [line.split("]", 1)[-1].strip() for line in error.log.splitlines() if "[E:" in line]
    return " ".join("; ".join([error.message, *said[:2]]).split())[:900]
