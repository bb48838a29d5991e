"""Sixty-four threads ask a resource pool for more than fits: an observer outside of it sees what it promises, and
sees each thing that is taken out of it.

1,500 requests here; `python benchmarks/resource_pool.py` makes 10,000 of several kinds.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pool_watch import SPARE, Thing, pool_of

from benchmarks.resource_pool import MIB, Found, Load, budget_of, run
from hwcompat.plugins.placement.pool import ResourcePool
from hwcompat.plugins.placement.pool.account import Account, Entry
from hwcompat.plugins.placement.pool.pool_state import PoolState

LOAD = Load(requests=1500, seconds=0.0002, patience_s=30.0)


def pool_for(load: Load) -> ResourcePool:
    return ResourcePool(budgets={"cpu": budget_of(load)}, memory=lambda device: SPARE, wait_s=30.0)


def what_broke(found: Found, load: Load) -> set[str]:
    """Which promises the observer saw broken."""
    seen = found.observer
    told = {
        "stuck": found.is_stuck,
        "an error of the pool's": bool(found.others),
        "not all served": found.served + found.refused != load.requests,
        "two loads of one": seen.most_builds_of_one > 1,
        "one beside itself": seen.most_alive_of_one > 1,
        "more than one beyond the budget": seen.beyond > 0,
        "gone while in use": seen.released_in_use > 0 and load.leases == 1.0,
    }
    return {name for name, broken in told.items() if broken}


@pytest.mark.parametrize(
    "load",
    [
        LOAD,
        Load(**{**vars(LOAD), "leases": 0.0, "seed": 2}),
        Load(**{**vars(LOAD), "leases": 0.5, "seed": 3, "budget_share": 0.15}),
        Load(**{**vars(LOAD), "kind": "torch", "requests": 600, "seed": 4, "unit": MIB // 16}),
    ],
    ids=["leases", "references", "half of each and little room", "modules of torch"],
)
def test_no_double_load_no_deadlock_and_one_model_beyond_the_budget_at_most(load):
    found = run(load)
    assert what_broke(found, load) == set()
    seen, told = found.observer, found.stats
    assert seen.peak <= seen.budget + max(seen.sizes.values())
    # The load is one: more than fits was asked for, things went, failed and were waited for.
    assert seen.builds > len(seen.sizes)
    assert min(told["evictions"], told["waits"], told["failures"], found.refused) > 0
    # And the pool's own account is that of the observer.
    assert told["devices"]["cpu"]["held_bytes"] == seen.bytes
    assert told["devices"]["cpu"]["peak_bytes"] <= seen.budget + max(seen.sizes.values())
    assert told["loads"] + told["failures"] == seen.builds == told["misses"]


class Forgetful(dict[Any, Any]):
    """Loads under way that nobody finds."""

    def get(self, key: Any, default: Any = None) -> Any:
        return default


def without_one_load_for_each(monkeypatch: pytest.MonkeyPatch, one: ResourcePool) -> None:
    one._state.loads = Forgetful()


def without_admission(monkeypatch: pytest.MonkeyPatch, one: ResourcePool) -> None:
    monkeypatch.setattr(Account, "may_start", lambda self, load: True)


def without_reservation(monkeypatch: pytest.MonkeyPatch, one: ResourcePool) -> None:
    monkeypatch.setattr(Account, "reserved", 0)


def without_turns(monkeypatch: pytest.MonkeyPatch, one: ResourcePool) -> None:
    monkeypatch.setattr(Account, "unknown_beside", lambda self, load: [])


def without_eviction(monkeypatch: pytest.MonkeyPatch, one: ResourcePool) -> None:
    monkeypatch.setattr(Account, "excess", lambda self, coming=0: 0)
    monkeypatch.setattr(Account, "may_start", lambda self, load: True)


def without_looking_whether_it_is_used(monkeypatch: pytest.MonkeyPatch, one: ResourcePool) -> None:
    true = PoolState.release
    monkeypatch.setattr(PoolState, "release", lambda self, entries, **_: true(self, entries, forced=True))
    without_leases(monkeypatch)


def without_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that don't keep their resources from going."""
    monkeypatch.setattr(Entry, "is_idle", True)


@pytest.mark.parametrize(
    ("broken", "seen"),
    [
        (without_one_load_for_each, {"two loads of one", "an error of the pool's"}),  # the second may find no room
        (without_admission, {"more than one beyond the budget"}),
        (without_reservation, {"more than one beyond the budget"}),
        (without_turns, {"more than one beyond the budget"}),
        (without_eviction, {"more than one beyond the budget"}),
        (without_looking_whether_it_is_used, {"gone while in use"}),
    ],
)
def test_what_is_taken_out_of_the_pool_is_seen(monkeypatch, broken, seen):
    load = Load(**{**vars(LOAD), "seconds": 0.001})
    if broken is without_turns:  # modules whose sizes nobody says beforehand
        load = Load(**{**vars(load), "kind": "torch", "requests": 128, "unit": MIB // 16})
    if broken is without_looking_whether_it_is_used:
        load = Load(**{**vars(load), "holds": 0.003, "budget_share": 0.1})
    one = pool_for(load)
    broken(monkeypatch, one)
    assert seen & what_broke(run(load, one), load)


def test_an_endless_wait_is_seen():
    load = Load(**{**vars(LOAD), "requests": 64, "patience_s": 1.0})
    one = pool_for(load)
    go_on = threading.Event()
    one._lease = lambda wanted: go_on.wait(60)  # type: ignore[assignment,method-assign,return-value]
    assert "stuck" in what_broke(run(load, one), load)
    go_on.set()


def test_a_lease_alone_keeps_what_cannot_be_referred_to_weakly(monkeypatch):
    without_leases(monkeypatch)
    one = pool_of(100)
    with one.lease("kind", "plain", lambda: {"a": 1}, expected_bytes=60) as plain:
        one.get_resource("kind", "b", Thing, expected_bytes=50)
        again = one.get_resource("kind", "plain", lambda: {"a": 1}, expected_bytes=60)
        assert (
            again is not plain
        )  # without the look at leases it went, and test_resource_pool.py says that it may not
