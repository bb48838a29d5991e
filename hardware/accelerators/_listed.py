"""Vendors whose devices are found in several places and told in one list, each lacking figure with its reason."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from ..errors import UsageError, echo
from ..machine import Machine, Reading
from ._telling import TellingAccelerators
from .base import AcceleratorInfo, NoSuchIndex


class ListedAccelerators(TellingAccelerators):
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

    def utilization(self, device: AcceleratorInfo) -> Reading[dict[str, float | None]]:
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
