"""The resource pool under load: many threads as an outside observer sees them, and children forked meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.resource_pool import MIB, Load, run

pytestmark = pytest.mark.forks

ROOT = Path(__file__).parents[2]
LOAD = Load(requests=800, seconds=0.0002, patience_s=30.0)


@pytest.mark.parametrize(
    "load",
    [
        LOAD,
        Load(**{**vars(LOAD), "leases": 0.0, "seed": 2}),
        Load(**{**vars(LOAD), "leases": 0.5, "seed": 3, "budget_share": 0.15}),
        Load(**{**vars(LOAD), "kind": "torch", "requests": 400, "seed": 4, "unit": MIB // 16}),
    ],
    ids=["leases", "references", "leases and references, a small budget", "modules of torch"],
)
def test_no_double_load_no_deadlock_and_one_model_beyond_the_budget_at_most(load):
    found = run(load)
    seen, stats = found.observer, found.stats
    assert not found.is_stuck
    assert not found.others
    assert found.served + found.refused == load.requests
    assert max(seen.most_builds_of_one, seen.most_alive_of_one) <= 1
    assert seen.beyond == 0
    assert seen.peak <= seen.budget + max(seen.sizes.values())
    assert load.leases < 1.0 or seen.released_in_use == 0
    # More than fits was requested, resources were evicted, loads failed and were waited for.
    assert seen.builds > len(seen.sizes)
    assert min(stats["evictions"], stats["waits"], stats["failures"], found.refused) > 0
    # The pool counts what the observer counts.
    assert stats["devices"]["cpu"]["held_bytes"] == seen.bytes
    assert stats["devices"]["cpu"]["peak_bytes"] <= seen.budget + max(seen.sizes.values())
    assert stats["loads"] + stats["failures"] == seen.builds == stats["misses"]


FORKING = """
import os, signal, sys, threading
import hwcompat.plugins.placement.pool.pool as module
from hwcompat.plugins.placement.pool import ResourcePool
assert not {'torch', 'transformers', 'numpy'} & set(sys.modules), "importing loads nothing"
assert (threading.active_count(), module._global) == (1, []), "and starts nothing"
pool = ResourcePool(budgets={"cpu": 1000})
kept = pool.get_resource("kind", "kept", lambda: {"a": 1}, expected_bytes=10)
building, end = threading.Event(), threading.Event()

def slow():
    building.set()
    end.wait(30)
    return {}

def ask():
    number = 0
    while not end.is_set():
        number += 1
        pool.get_resource("kind", str(number % 7), dict, expected_bytes=300)

def child():
    signal.alarm(20)
    assert pool.get_resource("kind", "kept") is kept
    assert pool.get_resource("kind", "slow", lambda: "mine") == "mine"
    for name in ("0", "1", "new"):
        pool.get_resource("kind", name, dict, expected_bytes=300)
    device = pool.get_stats()["devices"]["cpu"]
    assert device["loading_bytes"] == 0
    assert device["held_bytes"] <= 1000, device
    os._exit(0)

threads = [threading.Thread(target=ask) for _ in range(4)]
threads.append(threading.Thread(target=lambda: pool.get_resource("kind", "slow", slow)))
with pool.lease("kind", "kept"):
    for one in threads: one.start()
    building.wait(30)
    for _ in range(30):
        number = os.fork()
        if not number: child()
        _, status = os.waitpid(number, 0)
        if status: end.set(); sys.exit(f"a child ended with {status}")
end.set()
for one in threads: one.join(30)
print("fine")
"""


@pytest.mark.skipif(not hasattr(sys, "getrefcount") or sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_can_use_the_pool_whatever_threads_did_at_that_moment():
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
