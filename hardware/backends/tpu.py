"""Target `tpu`: JAX on a PJRT device, in a worker with a separate environment (`make setup-xla`).

A model is exported as a program of torch.export, whose operators torchax lowers to XLA's; one without a lowering is
refused. The variant `tpu:xla-cpu` is XLA's CPU client: the same lowering, compiled for the host's processor. It is no
TPU, and evidence says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..command_names import as_runnable
from ..evidence.record import Stage
from ..inventory.target_status import TargetStatus, device_names
from ..inventory.vendors.google import GoogleAccelerators
from ..machine import LiveMachine, Machine
from ..workers import WorkerError
from ..workers.worker import SCRIPTS
from ._worker_backend import WorkerBackend, reason_of
from .base import DeviceInfo, ModelInput, Runnable, Unsupported

if TYPE_CHECKING:
    from ..inventory.hardware_info import HardwareInfo
    from ..target import Target
    from .base import Array, Inputs

XLA_CPU = "xla-cpu"
NOT_A_TPU = "XLA on the host's CPU, not a TPU"
LIBRARY_VARIABLE = "TPU_LIBRARY_PATH"

_KINDS = {"NotImplementedError": "unsupported_operator", "MemoryError": "out_of_memory"}


class TPUBackend(WorkerBackend):
    """A TPU through PJRT, or XLA's CPU client for the variant `xla-cpu`."""

    EXTRA = "tpu"
    BACKEND_NAME = "tpu"
    VENDOR = "Google"
    VENDOR_DEVICES = ("tpu",)
    ALIASES = ("google",)
    AUTO_ORDER = 3
    EXPIRES_ON = ("torchax", "jax (tpu)", "jaxlib (tpu)", "libtpu (tpu)", "torch", "transformers")
    CAN = frozenset({"generate", "backward", "save"})
    PRECISIONS = ("float32", "bfloat16")
    VARIANTS = (XLA_CPU,)
    VARIANTS_NEED: ClassVar[Mapping[str, tuple[str, str]]] = {XLA_CPU: ("torchax", "make setup-xla")}
    RUNTIME = "XLA"
    SCRIPT = SCRIPTS / "xla_worker.py"
    CALL_LIMIT_S = 240.0
    WARM_IMPORTS: ClassVar[tuple[str, ...]] = ("torch._dynamo", "torch.export._trace")

    @property
    def stands_in(self) -> bool:
        """Whether the host's processor computes, because the variant names it."""
        return self.target.variant == XLA_CPU

    @property
    def platform(self) -> str:
        """PJRT's name of the platform; the worker uses no other."""
        return "cpu" if self.stands_in else "tpu"

    @classmethod
    def is_shared(cls, target: Target) -> bool:
        """Return True for the host's processor only: a TPU belongs to one process at a time."""
        return target.variant == XLA_CPU

    @classmethod
    def expected(cls, inventory: HardwareInfo) -> TargetStatus:
        version = inventory.packages.get("torchax")
        facts = next((one for one in inventory.vendors if one.vendor == cls.VENDOR), None)
        devices = [one for one in inventory.accelerators if one.vendor == cls.VENDOR]
        here = f"; {cls.BACKEND_NAME}:{XLA_CPU} (torchax {version}) is {NOT_A_TPU}" if version else ""
        if version is None:
            reason = as_runnable("torchax isn't set up: make setup-xla")
        else:
            reason = facts.reason if facts is not None else "can't tell whether this machine has a TPU"
        return TargetStatus(
            target=cls.BACKEND_NAME,
            expected=not reason,
            reason=f"{reason}{here}",
            device_name=device_names(devices),
        )

    # The worker

    def call(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        return super().call(do, stage=stage, platform=self.platform, **arguments)

    def ask(self, do: str, *, stage: Stage, **arguments: Any) -> Mapping[str, Any]:
        try:
            return self.call(do, stage=stage, **arguments)
        except WorkerError as error:
            kind = _KINDS.get(error.error_type, "unknown")
            reason = f"XLA doesn't run the model: {reason_of(error)}"
            raise Unsupported(reason, error_type=kind, stage=stage) from error

    def compute(
        self, do: str, program: Path, arrays: Mapping[str, Inputs]
    ) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Return the outputs of a program by name, and the proof of where they were computed."""
        return self.exchange(do, arrays, stage=Stage.COMPILE, program=str(program.absolute()))

    # The device

    def _check_availability(self) -> str:
        environment = self.environment
        if environment.reason:
            return environment.reason
        if not self.stands_in and (missing := missing_tpu(environment.versions)):
            return f"{missing}; {self.BACKEND_NAME}:{XLA_CPU} is {NOT_A_TPU}"
        try:
            return self._why_not()
        except Unsupported as error:
            return f"PJRT has no {self.platform} client: {error}"

    def _why_not(self) -> str:
        from importlib import metadata

        here = self.described
        if here["torch"] != (own := metadata.version("torch")):
            return f"its environment has torch {here['torch']}, but programs are exported with torch {own}"
        wrong = sorted({one["platform"] for one in here["devices"]} - {self.platform})
        return f"PJRT returned {', '.join(wrong)} instead of {self.platform}" if wrong else ""

    def describe(self) -> Mapping[str, Any]:
        return self.ask("describe", stage=Stage.LOAD)

    def facts(self) -> dict[str, str]:
        """Conditions for evidence: the runtime, and whether the host's processor computed."""
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
        """PJRT's name of the device, or `xla-cpu`."""
        return XLA_CPU if self.stands_in else str(self.described["devices"][0]["name"])

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        here = self.described
        devices = here["devices"]
        places = [one["coords"] for one in devices if one.get("coords")]
        topology = "x".join(str(max(axis) + 1) for axis in zip(*places, strict=True)) or f"{len(devices)} device(s)"
        if self.stands_in:
            name = f"{NOT_A_TPU} (jax {here['jax']}, {here['machine']})"
            return self.device_info(XLA_CPU, name, version=None, topology=topology)
        kind = str(devices[0]["kind"])  # "TPU v5 lite"
        version = kind.removeprefix("TPU ")
        return self.device_info("tpu", kind, memory=here["memory"], version=version, topology=topology)

    def known_answer(self) -> tuple[float, float, float]:
        import torch

        from ..export.program import export_function
        from ..known_answer import question

        left, right = question()

        class Question(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
            def __init__(self) -> None:
                super().__init__()
                self.right = torch.nn.Parameter(torch.as_tensor(right))

            def forward(self, left: torch.Tensor) -> dict[str, torch.Tensor]:
                return {"answer": torch.tanh(left @ self.right).sum(dim=0)}

        with tempfile.TemporaryDirectory(prefix="hwcompat-xla-") as name:
            module, asked = Question(), {"left": torch.as_tensor(left)}
            file = Path(name) / "question.pt2"
            program = export_function(module, lambda values: dict(module(**values)), asked, file)
            answer = self.compute("run", program.file, {"inputs": {"left": left}})[0]["answer"]
        return float(answer[0]), float(answer[1]), float(answer[2])

    def load(self, model_input: ModelInput, example_inputs: Inputs, precision: str) -> Runnable:
        self.require(precision)
        from ._xla_model import XLARunnable

        return XLARunnable(self, model_input, example_inputs, precision)


def missing_tpu(versions: Mapping[str, str], machine: Machine | None = None) -> str:
    """Return which part of a TPU is missing (chip, device node, libtpu), or an empty string.

    `versions` are those of the packages in the target's environment.
    """
    machine = machine or LiveMachine()
    google = GoogleAccelerators(machine)
    chips = google.list_devices()
    reasons = [] if chips else [google.facts().reason]
    reasons += [str(one.extra_info["reason"]) for one in chips[:1] if one.seen_by != "driver"]
    named = machine.variable(LIBRARY_VARIABLE)
    if "libtpu" not in versions and (named is None or machine.may_open(named) is None):
        reasons.append("libtpu isn't installed in its environment")
    return ", ".join(reasons)
