"""Proof that a product runs on the device: a load that the host carries out says nothing of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backends._ledger import LedgerBackend
from ..backends._trace import host_calls_inside, operator_trace

_PRODUCTS = ("aten.mm", "aten._int_mm", "aten.addmm")


class RanElsewhere(Exception):
    """The host carried out what the device was asked for."""


def prove_placement(backend: Any, run: Callable[[int], None], device: Any) -> None:
    """Run once under the tracers of `hardware/backends`. Raises `RanElsewhere` where the host took part.

    A dispatch trace, the profiler's records of what kernels did inside themselves, and the driver's own ledger where
    the device has one.
    """
    if device.type == "cpu":
        return
    trace = operator_trace(device.type)
    if isinstance(backend, LedgerBackend):
        backend.ledger.clear()
    with trace:
        run(1)
    if isinstance(backend, LedgerBackend) and not any(backend.ledger[name] for name in _PRODUCTS):
        raise RanElsewhere("the device's driver launched no product")
    offloaded = trace.offloaded or host_calls_inside(lambda: run(1), device.type)
    if offloaded:
        raise RanElsewhere(f"{', '.join(sorted(offloaded))} ran on the host")
