"""What targets share that compute in a worker: a process of their own environment, to which arrays go as files."""

from __future__ import annotations

import json
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import BackendUnavailable
from ..evidence.record import Stage
from ..workers import Environment, Worker, WorkerDied, WorkerError, WorkerTimeout, environment_of
from .base import BaseBackend, Unsupported

if TYPE_CHECKING:
    from ..target import Target
    from .base import Array, Inputs

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def shapes_of(inputs: Inputs) -> Shapes:
    """What a graph of fixed shapes is made for."""
    return tuple((name, tuple(array.shape)) for name, array in sorted(inputs.items()))


def write_arrays(file: Path, arrays: Inputs) -> None:
    """Named arrays as the worker reads them."""
    import numpy as np

    named: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    np.savez(file, **named)


class WorkerBackend(BaseBackend):
    """Base of such targets. Nothing is started before the first question."""

    RUNTIME: ClassVar[str]
    """What a person calls the runtime in the worker."""

    ENVIRONMENT: ClassVar[str] = ""
    """Its name in `environments.toml`, where it isn't the target's."""

    OWN_ENVIRONMENT = True
    SCRIPT: ClassVar[Path]
    CALL_LIMIT_S: ClassVar[float]
    INDEXED = False

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._worker: Worker | None = None

    @property
    def environment(self) -> Environment:
        """Where the worker's Python is, or why there is none."""
        return environment_of(self.ENVIRONMENT or self.BACKEND_NAME)

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Versions, machine and devices, from the worker."""

    @cached_property
    def described(self) -> Mapping[str, Any]:
        """The same, asked once."""
        return self.describe()

    def call(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        """Have the worker do something. Raises `WorkerError` with what it raised, and `Unsupported` at `stage` where
        it ended: its error type tells a hang, a crash and want of memory apart."""
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
        """Have the worker compute: arrays go and come as files, with the proof of where it computed."""
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
        """`call` for a model: what the worker raises becomes `Unsupported`, with its kind and what stands in the
        way."""

    def _worker_here(self) -> Worker:
        if self._worker is None:
            environment = self.environment
            if environment.python is None:
                raise BackendUnavailable(f"{self.target} isn't here", why=environment.reason)
            self._worker = self.new_worker(environment.python)
        return self._worker

    def new_worker(self, python: Path) -> Worker:
        """A process that does the work."""
        return Worker(python, timeout_s=self.CALL_LIMIT_S, script=self.SCRIPT)

    @property
    def device_count(self) -> int:
        return 0 if self.unavailable() else 1

    def reset(self) -> bool:
        """A new worker."""
        self.close()
        return True

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()


def reason_of(error: WorkerError) -> str:
    """What was raised, and the first of what native code said of an error meanwhile."""
    said = [line.split("]", 1)[-1].strip() for line in error.log.splitlines() if "[E:" in line]
    return " ".join("; ".join([error.message, *said[:2]]).split())[:900]
