"""A stress test of one device as a call: `AcceleratorMatMulTest("cuda", device_id=0).run(60)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwcompat.hardware.errors import UsageError, echo

if TYPE_CHECKING:
    from hwcompat.hardware.backends.base import BaseBackend
    from hwcompat.hardware.inventory.vendors.vendor import AcceleratorBackend

    from .stress_result import DeviceResult


class AcceleratorMatMulTest:
    """Matrix products on one device, whose results are checked.

    `backend` is a target or a vendor (`cuda`, `nvidia`), a backend, or an object of the inventory. `burnin_seconds`
    is the warm-up before the measurement. `precision` is one of those of `hwcompat devices stress`.
    """

    def __init__(
        self,
        backend: str | BaseBackend | AcceleratorBackend,
        device_id: int = 0,
        burnin_seconds: float = 30.0,
        *,
        precision: str = "float32",
    ) -> None:
        from .loads import PRECISIONS

        name = getattr(backend, "BACKEND_NAME", None) or getattr(backend, "VENDOR_NAME", backend)
        if not isinstance(name, str):
            raise UsageError(f"{echo(type(backend).__name__)} names no device", fix="Give a target: cuda.")
        if burnin_seconds < 0 or device_id < 0 or precision not in PRECISIONS:
            raise UsageError(
                f"no test with device_id={device_id}, burnin_seconds={burnin_seconds}, precision={echo(precision)}",
                why=f"numbers must not be negative, and precisions are {', '.join(PRECISIONS)}",
            )
        self.backend, self.device_id = name.lower(), device_id
        self.burnin_seconds, self.precision = burnin_seconds, precision

    def run(self, duration: float = 60.0) -> DeviceResult:
        """Load the device for `duration` seconds after the warm-up, in a process of its own, and return what was
        measured: `device_name`, `tflops`, `duration_s`, the profile and the ending, which is `measured` only if every
        checked product was right.

        An absent device, and a vendor without a load, is `skipped` with its reason. Raises `UsageError` for an
        unknown name.
        """
        from hwcompat.hardware.detection import detect
        from hwcompat.hardware.inventory.telemetry import Sampler

        from .stress_child import StressOptions
        from .stress_run import run_stress
        from .stress_targets import chosen_devices, is_on_host

        if not duration > 0:
            raise UsageError(f"duration is {duration}", why="it must be more than 0 seconds")
        inventory = detect()
        one_device = is_on_host(self.backend) or ":" in self.backend
        chosen = chosen_devices([self.backend], inventory)
        if not one_device and not chosen[0].reason:
            chosen = chosen_devices([f"{self.backend}:{self.device_id}"], inventory)
        elif self.device_id:
            raise UsageError(f"{self.backend} has no device {self.device_id}", why="it is one device")
        options = StressOptions(warmup_s=self.burnin_seconds, duration_s=duration, precisions=(self.precision,))
        sampler = Sampler()
        try:
            return run_stress(chosen[:1], inventory, options, sampler=sampler, note=lambda _: None).results[0]
        finally:
            sampler.close()
