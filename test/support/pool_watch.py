"""What tests of the resource pool share: pools on a machine with memory to spare, and a deadline for threads."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hwcompat.plugins.placement.pool import ResourcePool
from hwcompat.plugins.placement.pool.device_memory import MemoryReading

SPARE = MemoryReading(total_bytes=10**12, free_bytes=10**12)
DEADLINE_S = 30.0


class Thing:
    """Something that can be referred to weakly, and to other things."""

    other: Any = None


def pool_of(budget: int = 100, **options: Any) -> ResourcePool:
    """A pool with so many bytes for the host."""
    options = {"memory": lambda device: SPARE, "wait_s": 5.0, **options}
    return ResourcePool(budgets={"cpu": budget}, **options)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What calls give or raise that run at the same time. Fails with the stack of each thread where they hang."""
    found: list[Any] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(number: int, call: Callable[[], Any]) -> None:
        try:
            start.wait(DEADLINE_S)
            found[number] = call()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=one, daemon=True) for one in enumerate(calls)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(DEADLINE_S)
    if any(one.is_alive() for one in threads):
        faulthandler.dump_traceback(all_threads=True)
        pytest.fail(f"{sum(one.is_alive() for one in threads)} of {len(threads)} threads hang")
    return found


def names_of(pool: ResourcePool) -> set[str]:
    """Ids of the resources that are there."""
    return {one["id"] for one in pool.get_stats()["resources"]}
