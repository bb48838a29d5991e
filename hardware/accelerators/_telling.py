"""What every way of reading a vendor shares: metrics with their reasons, and commands that are run once for many."""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from typing import Any

from ..machine import Machine, Reading
from .base import AcceleratorBackend

_FRESH_S = 0.5
"""Metrics that are read together come from one run of a program."""


class TellingAccelerators(AcceleratorBackend):
    """A vendor that has a reason for each figure that isn't there: `told` has both, the getters of the contract the
    figure alone."""

    @abstractmethod
    def told(self, index: int, what: str) -> Reading[Any]:
        """One metric of device `index` by its name (`temperature`, `memory`, `utilization`, `power`, `throttle`), or
        the reason why there is none. Raises `NoSuchIndex` (an `IndexError`) beyond the range."""

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


class Tool:
    """What a command prints, run again only when the last answer is older than half a second."""

    def __init__(self, machine: Machine, *words: str, keep: bool = False) -> None:
        self._machine, self._words, self._keep = machine, words, keep
        self._told: Reading[str] | None = None
        self._at = 0.0
        self._lock = threading.Lock()

    def text(self) -> Reading[str]:
        """Its output, or why there is none."""
        with self._lock:
            old = time.monotonic() - self._at > _FRESH_S and not self._keep
            if self._told is None or old:
                self._told, self._at = self._machine.run(*self._words), time.monotonic()
            return self._told

    def json(self) -> Reading[Any]:
        """Its output as JSON. Lines before the first bracket, such as warnings, are left out."""
        told = self.text()
        if told.value is None:
            return told
        start = min((at for at in (told.value.find("{"), told.value.find("[")) if at >= 0), default=-1)
        try:
            value, _ = json.JSONDecoder().raw_decode(told.value, max(start, 0))
        except (ValueError, RecursionError) as error:
            return Reading(value=None, reason=f"{self._words[0]} printed no JSON: {error}")
        return Reading(value=value)

    def forget(self) -> None:
        """Run it anew next time."""
        with self._lock:
            self._told = None
