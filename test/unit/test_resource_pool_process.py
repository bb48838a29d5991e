"""The resource pool of a process, and of a child that was forked from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hwcompat.plugins.placement.pool import get_global_resource_pool

ROOT = Path(__file__).parents[2]


def test_the_global_pool_is_one_and_importing_starts_nothing():
    assert get_global_resource_pool() is get_global_resource_pool()
    code = (
        "import sys, threading, hwcompat.plugins.placement.pool as r\n"
        "from hwcompat.plugins.placement.pool import pool\n"
        "heavy = [name for name in ('torch', 'transformers', 'numpy') if name in sys.modules]\n"
        "print(heavy, threading.active_count(), pool._global)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "1", "[]"]


FORKING = """
import os, signal, sys, threading
from hwcompat.plugins.placement.pool import ResourcePool
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
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
