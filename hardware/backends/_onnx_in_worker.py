"""What targets share whose worker runs ONNX files in ONNX Runtime, of whichever build."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..evidence.record import Stage
from ..workers import WorkerError
from ._in_worker import WorkerBackend
from .base import Unsupported

if TYPE_CHECKING:
    from .base import Array, Inputs


class OnnxWorkerBackend(WorkerBackend):
    """Base of such targets: a file is asked with named arrays, and with small files whose answers are known."""

    PROVIDER: ClassVar[str]
    """ONNX Runtime's name of the execution provider."""

    PACKAGE: ClassVar[str] = ""
    """What is said not to start, where that isn't what a person calls the runtime."""

    @abstractmethod
    def numbers(self, array: Array) -> Array:
        """A floating-point output as float64, with what is ruled out as minus infinity."""

    def belongs_to(self, subject: str) -> Mapping[str, str]:
        """What else the worker is told where it keeps models apart."""
        return {}

    def run_file(self, file: Path, arrays: Inputs, **told: str) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Outputs by name as they are, and the proof of where they were computed; `told` goes to the worker."""
        from ..export.onnx import output_name

        given = {"model": str(file.absolute()), **told}
        got, proof = self.exchange("run", {"inputs": arrays}, stage=Stage.COMPILE, **given)
        return {output_name(name): array for name, array in got.items()}, proof

    def compute(self, file: Path, arrays: Inputs, **told: str) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Floating-point outputs alone, as float64, and the same proof."""
        got, proof = self.run_file(file, arrays, **told)
        return {name: self.numbers(array) for name, array in got.items() if array.dtype.kind == "f"}, proof

    def answer_of(self, write: Callable[[Path], None], arrays: Inputs, subject: str) -> dict[str, Array]:
        """What a small file gives that `write` makes."""
        from ..export.exported import ONNX

        with tempfile.TemporaryDirectory(prefix="hwcompat-onnx-") as name:
            file = Path(name) / ONNX
            write(file)
            return self.compute(file, arrays, **self.belongs_to(subject))[0]

    def known_answer(self) -> tuple[float, float, float]:
        from ..known_answer import question
        from ._onnx_probe import write_question

        left, right = question()
        answer = self.answer_of(lambda file: write_question(file, right), {"left": left}, "question")["answer"]
        return float(answer[0]), float(answer[1]), float(answer[2])

    def missing(self) -> str:
        """What of the target's own isn't here, with what to do; nothing is started for it."""
        return self.environment.reason

    def refused(self) -> str:
        """Why a runtime that started offers no such target; empty where it does."""
        return str(self.described.get("reason") or "")

    def _check_availability(self) -> str:
        from ..export.onnx import missing_packages

        if reason := self.missing() or missing_packages():
            return reason
        try:
            return self.refused()
        except (WorkerError, Unsupported) as error:
            return f"{self.PACKAGE or self.RUNTIME} doesn't start: {error}"
