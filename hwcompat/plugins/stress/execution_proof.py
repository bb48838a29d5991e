"""Proof that a product runs on the device: a load that the host carries out says nothing of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hardware.backends._ledger import LedgerBackend
from hardware.backends._trace import host_calls_inside, operator_trace

_PRODUCTS = ("aten.mm", "aten._int_mm", "aten.addmm")


class RanElsewhere(Exception):
    """The host carried out what the device was asked for."""


def prove_placement(backend: Any, run: Callable[[int], None], device: Any) -> None:
    """Run once under the tracers of `hardware/backends`. Raises `RanElsewhere` where the host took part.

    A dispatch trace, and the profiler's records of what kernels did inside themselves, or the driver's own ledger
    where the device has one.
    """
    if device.type == "cpu":
        return
    trace = operator_trace(device.type)
    has_ledger = isinstance(backend, LedgerBackend)
    if has_ledger:
        backend.ledger.clear()
    with trace:
        run(1)
    if has_ledger and not any(backend.ledger[name] for name in _PRODUCTS):
        raise RanElsewhere("the device's driver launched no product")
    offloaded = trace.offloaded
    if not has_ledger:  # the profiler takes what such a driver does for the host's work
        offloaded = offloaded or host_calls_inside(lambda: run(1), device.type)
    if offloaded:
        raise RanElsewhere(f"{', '.join(sorted(offloaded))} ran on the host")
