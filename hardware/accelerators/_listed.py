"""Vendors whose devices are found in several places and told in one list, each lacking figure with its reason."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from ..errors import UsageError, echo
from ..machine import Machine, Reading
from .base import AcceleratorBackend, AcceleratorInfo, NoSuchIndex

FRESH_S = 0.5
"""Metrics that are read together come from one run of a program."""


class FreshCommand:
    """What a program prints, run again only when the last answer is older than `FRESH_S`."""

    def __init__(self, machine: Machine, *words: str, keep: bool = False) -> None:
        self._machine, self._words, self._keep = machine, words, keep
        self._told: Reading[str] | None = None
        self._at = 0.0
        self._lock = threading.Lock()

    def read(self) -> Reading[str]:
        """Its output, or why there is none."""
        with self._lock:
            old = not self._keep and time.monotonic() - self._at > FRESH_S
            if self._told is None or old:
                self._told, self._at = self._machine.run(*self._words), time.monotonic()
            return self._told


class ListedAccelerators(AcceleratorBackend):
    """A vendor that finds its devices once; those with an index are the driver's, numbered from 0."""

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        self._devices: tuple[AcceleratorInfo, ...] | None = None
        self._lock = threading.RLock()

    @abstractmethod
    def find(self) -> tuple[AcceleratorInfo, ...]:
        """Look for devices: those of a driver in the order of their index, then those that only the bus shows."""

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        with self._lock:
            if self._devices is None:
                self._devices = self.find()
            return self._devices

    def driven(self) -> tuple[AcceleratorInfo, ...]:
        """The devices that a driver lists."""
        return tuple(one for one in self.list_devices() if one.index is not None)

    def is_available(self) -> bool:
        return bool(self.driven())

    def get_device_count(self) -> int:
        return len(self.driven())

    def shutdown(self) -> None:
        with self._lock:
            self._devices = None

    def told(self, index: int, what: str) -> Reading[Any]:
        """One metric of device `index` by its name (`temperature`, `memory`, `utilization`, `power`, `throttle`), or
        the reason why there is none. Raises `NoSuchIndex` (an `IndexError`) beyond the range."""
        devices = self.driven()
        if not 0 <= index < len(devices):
            known = f"known are 0 to {len(devices) - 1}" if devices else "the driver lists none"
            raise NoSuchIndex(f"there is no {self.VENDOR_NAME} device {index}", why=known)
        method: Callable[[AcceleratorInfo], Reading[Any]] = getattr(self, what)
        return method(devices[index])

    def temperature(self, device: AcceleratorInfo) -> Reading[float]:
        """°C."""
        return self._silent(device, "its temperature")

    def memory(self, device: AcceleratorInfo) -> Reading[dict[str, int]]:
        """`total`, `used` and `free` in bytes."""
        return self._silent(device, "its used memory")

    def utilization(self, device: AcceleratorInfo) -> Reading[dict[str, float]]:
        """`compute` and `memory` in percent; one that isn't told is left out."""
        return self._silent(device, "its utilization")

    def power(self, device: AcceleratorInfo) -> Reading[float]:
        """W."""
        return self._silent(device, "its power")

    def throttle(self, device: AcceleratorInfo) -> Reading[tuple[str, ...]]:
        """Why the clocks are held down; empty if they aren't."""
        return self._silent(device, "why it throttles")

    def _silent(self, device: AcceleratorInfo, what: str) -> Reading[Any]:
        return Reading(value=None, reason=f"nothing known here tells {what} of {device.model}")

    def get_temperature(self, index: int) -> float | None:
        celsius: float | None = self.told(index, "temperature").value
        return celsius

    def get_memory_usage(self, index: int) -> dict[str, int] | None:
        memory: dict[str, int] | None = self.told(index, "memory").value
        return memory

    def get_utilization(self, index: int) -> dict[str, float | None] | None:
        rates: dict[str, float | None] | None = self.told(index, "utilization").value
        return rates

    def get_power_usage(self, index: int) -> float | None:
        watts: float | None = self.told(index, "power").value
        return watts

    def get_throttle_reasons(self, index: int) -> tuple[str, ...] | None:
        reasons: tuple[str, ...] | None = self.told(index, "throttle").value
        return reasons

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        if not self.DEVICE_STRINGS:
            raise UsageError(
                f"{echo(framework)} has no name for {self.VENDOR_NAME} devices",
                fix="No framework known here names one: whole models are compiled for them.",
            )
        return super().get_framework_device_string(device_id, framework)

    def no_name(self, framework: str, device: AcceleratorInfo, instead: str) -> UsageError:
        """The error for a device that no framework of the five names, with what drives it instead."""
        return UsageError(f"{framework} has no name for {device.model}", fix=instead)
