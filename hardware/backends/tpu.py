"""Target `tpu`: JAX on a PJRT device, in a worker with an environment of its own (`make setup-xla`).

A model goes there as a program of torch.export, whose operators torchax lowers to XLA's; one without a lowering is
refused. The variant `tpu:xla-cpu` is XLA's CPU client: the same lowering, compiled for the host's processor. It
stands for no TPU, and evidence says so.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..accelerators.google import CLOUD, GoogleAccelerators
from ..errors import BackendUnavailable
from ..evidence.record import Stage
from ..machine import LiveMachine, Machine
from ..workers import Worker, WorkerDied, WorkerError, WorkerTimeout, environment_of
from ..workers.process import SCRIPT
from ._xla_model import XLARunnable
from .base import BaseBackend, DeviceInfo, ModelSubject, Runnable, Unsupported

if TYPE_CHECKING:
    from ..target import Target
    from .base import Array, Inputs

XLA_CPU = "xla-cpu"
NOT_A_TPU = "XLA on the host's CPU, not a TPU"
LIBRARY_VARIABLE = "TPU_LIBRARY_PATH"
CALL_LIMIT_S = 240.0
XLA_SCRIPT = SCRIPT.with_name("xla_worker.py")

_KINDS = {"NotImplementedError": "unsupported_operator", "MemoryError": "out_of_memory"}


class TPUBackend(BaseBackend):
    """A TPU through PJRT, or XLA's CPU client where the variant asks for that."""

    BACKEND_NAME = "tpu"
    EXPIRES_ON = ("torchax", "jax (tpu)", "jaxlib (tpu)", "libtpu (tpu)", "torch", "transformers")
    CAN = XLARunnable.CAN
    PRECISIONS = ("float32", "bfloat16")
    VARIANTS = (XLA_CPU,)
    INDEXED = False
    WARM_IMPORTS: ClassVar[tuple[str, ...]] = ("torch._dynamo", "torch.export._trace")

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._worker: Worker | None = None

    @property
    def stands_in(self) -> bool:
        """Whether the host's processor computes, because it was asked for by name."""
        return self.target.variant == XLA_CPU

    @property
    def platform(self) -> str:
        """PJRT's name of the platform; the worker has no other."""
        return "cpu" if self.stands_in else "tpu"

    @classmethod
    def is_shared(cls, target: Target) -> bool:
        """The host's processor is; a TPU belongs to one process at a time."""
        return target.variant == XLA_CPU

    # The worker

    def call(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        """Have the worker do something. Raises `Unsupported` at `stage` with its reason."""
        try:
            return self._worker_here().call(do, platform=self.platform, **arguments)
        except WorkerTimeout as error:
            raise Unsupported(f"XLA: {error.message}", error_type="timeout", stage=stage) from error
        except WorkerDied as error:
            raise Unsupported(f"XLA: {_reason(error)}", error_type="crashed", stage=stage) from error
        except WorkerError as error:
            kind = _KINDS.get(error.error_type, "unknown")
            raise Unsupported(f"XLA doesn't run the model: {_reason(error)}", error_type=kind, stage=stage) from error

    def exchange(
        self, do: str, program: Path, arrays: Mapping[str, Inputs], *, stage: Stage = Stage.COMPILE
    ) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Have the worker compute with a program: arrays go and come as files; and the proof of where it was."""
        with tempfile.TemporaryDirectory(prefix="hwcompat-xla-") as name:
            files = {kind: Path(name) / f"{kind}.npz" for kind in arrays}
            for kind, file in files.items():
                given: dict[str, Any] = {key: np.ascontiguousarray(one) for key, one in arrays[kind].items()}
                np.savez(file, **given)
            got, proof = Path(name) / "outputs.npz", Path(name) / "execution.json"
            places = {kind: str(file) for kind, file in files.items()}
            where = {"outputs": str(got), "execution": str(proof)}
            self.call(do, stage=stage, program=str(program.absolute()), **places, **where)
            with np.load(got) as outputs:
                return {key: outputs[key] for key in outputs.files}, json.loads(proof.read_text(encoding="utf-8"))

    def _worker_here(self) -> Worker:
        if self._worker is None:
            environment = environment_of(self.BACKEND_NAME)
            if environment.python is None:
                raise BackendUnavailable("tpu isn't here", why=environment.reason)
            self._worker = Worker(environment.python, timeout_s=CALL_LIMIT_S, script=XLA_SCRIPT)
        return self._worker

    # The device

    def _check_availability(self) -> str:
        environment = environment_of(self.BACKEND_NAME)
        if environment.reason:
            return environment.reason
        if not self.stands_in and (missing := missing_tpu(environment.versions)):
            return f"{missing}; {self.BACKEND_NAME}:{XLA_CPU} is {NOT_A_TPU}"
        try:
            return self._why_not()
        except Unsupported as error:
            return f"PJRT offers no {self.platform}: {error}"

    def _why_not(self) -> str:
        here = self.described
        if here["torch"] != (own := metadata.version("torch")):
            return f"programs of torch {own} are read by torch {here['torch']} in its environment"
        wrong = sorted({one["platform"] for one in here["devices"]} - {self.platform})
        return f"PJRT gives {', '.join(wrong)} where {self.platform} was asked for" if wrong else ""

    @cached_property
    def described(self) -> Mapping[str, Any]:
        """Versions, machine and devices, from the worker."""
        return self.call("describe", stage=Stage.LOAD)

    def facts(self) -> dict[str, str]:
        """What evidence says of the runtime, and that the host's processor computed where it did."""
        here = self.described
        found = {"runtime": f"jax {here['jax']}, torchax {here['torchax']}", "matmul_precision": "highest"}
        if self.stands_in:
            found["label"] = XLA_CPU
            found["stands_in"] = NOT_A_TPU
        if here["flags"]:
            found["xla_flags"] = str(here["flags"])
        return found

    @property
    def device(self) -> str:
        """What PJRT calls the device; `xla-cpu` where it is none."""
        return XLA_CPU if self.stands_in else str(self.described["devices"][0]["name"])

    @property
    def device_count(self) -> int:
        return 0 if self.unavailable() else 1

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        here = self.described
        if self.stands_in:
            return self.device_info(XLA_CPU, f"{NOT_A_TPU} (jax {here['jax']}, {here['machine']})")
        return self.device_info("tpu", str(here["devices"][0]["kind"]), memory=here["memory"])

    def known_answer(self) -> tuple[float, float, float]:
        import torch

        from ..export.program import export_module
        from ..known_answer import question

        left, right = question()

        class Question(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
            def __init__(self) -> None:
                super().__init__()
                self.right = torch.nn.Parameter(torch.as_tensor(right))

            def forward(self, left: torch.Tensor) -> dict[str, torch.Tensor]:
                return {"answer": torch.tanh(left @ self.right).sum(dim=0)}

        with tempfile.TemporaryDirectory(prefix="hwcompat-xla-") as name:
            program = export_module(Question(), {"left": torch.as_tensor(left)}, Path(name) / "question.pt2")
            answer = self.exchange("run", program.file, {"inputs": {"left": left}})[0]["answer"]
        return float(answer[0]), float(answer[1]), float(answer[2])

    def load(self, subject: ModelSubject, example_inputs: Inputs, precision: str) -> Runnable:
        if precision not in self.PRECISIONS:
            raise Unsupported(f"{self.target} doesn't compute in {precision}", error_type="unsupported_dtype")
        return XLARunnable(self, subject, example_inputs, precision)

    def reset(self) -> bool:
        """A new worker."""
        self.close()
        return True

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()


def missing_tpu(versions: Mapping[str, str], machine: Machine | None = None) -> str:
    """What of a TPU isn't here: chip, device node, libtpu; the empty string where all of it is.

    `versions` are those of the packages in the target's environment.
    """
    machine = machine or LiveMachine()
    google = GoogleAccelerators(machine)
    chips = [one for one in google.list_devices() if one.extra_info["family"] == CLOUD]
    said = [] if chips else [google.facts().reason]
    said += [str(one.extra_info["reason"]) for one in chips[:1] if one.seen_by != "driver"]
    named = machine.variable(LIBRARY_VARIABLE)
    if "libtpu" not in versions and (named is None or machine.may_open(named) is None):
        said.append("no libtpu in its environment")
    return ", ".join(said)


def _reason(error: WorkerError) -> str:
    """What was raised, without the advice that follows it."""
    return " ".join(error.message.split())[:900]
