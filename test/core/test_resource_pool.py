"""The resource pool: one load for each resource, eviction, leases, budgets, waits that can't end, statistics."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable

import pytest
from pool_watch import Thing, names_of, pool_of, together

from hardware.errors import OutOfMemory, UsageError, WouldDeadlock
from hwcompat.plugins.placement.pool import ResourcePool, get_global_resource_pool
from hwcompat.plugins.placement.pool.device_memory import MemoryReading
from hwcompat.plugins.placement.pool.pool_state import Waits


def host(pool: ResourcePool) -> dict[str, object]:
    return pool.get_stats()["devices"]["cpu"]


# Loads


def test_a_resource_that_many_threads_want_is_built_once_and_kept_for_all():
    pool, built = pool_of(100), []

    def build() -> dict[str, int]:
        built.append(1)
        while pool.get_stats()["waits"] < 7:
            threading.Event().wait(0.001)
        return {"a": 1}

    leases = together(*[lambda: pool.lease("kind", "one", build, expected_bytes=90) for _ in range(8)])
    assert len(built) == 1
    assert len({id(one.resource) for one in leases}) == 1
    stats = pool.get_stats()
    assert (stats["requests"], stats["misses"], stats["loads"], stats["hits"], stats["waits"]) == (8, 1, 1, 0, 7)
    (one,) = stats["resources"]
    assert (one["leases"], one["uses"]) == (8, 8)


def test_a_load_that_fails_raises_for_all_who_wait_and_is_tried_again():
    pool, tries = pool_of(), []

    def fail() -> Thing:
        tries.append(1)
        while pool.get_stats()["waits"] < 3:
            threading.Event().wait(0.001)
        raise ValueError("no such file")

    found = together(*[lambda: pool.get_resource("kind", "one", fail) for _ in range(4)])
    assert {str(one) for one in found} == {"no such file"}
    assert len(tries) == pool.get_stats()["failures"] == 1
    assert isinstance(pool.get_resource("kind", "one", Thing), Thing)
    with pytest.raises(UsageError, match="there is no constructor"):
        pool.get_resource("kind", "absent")


def test_loads_of_unknown_size_run_one_after_another_and_measured_ones_side_by_side():
    pool, lock, now = pool_of(100), threading.Lock(), [0]
    most: list[int] = []
    both = threading.Event()

    def build() -> Thing:
        with lock:
            now[0] += 1
            most.append(now[0])
            if now[0] > 1:
                both.set()
        both.wait(0.05)
        with lock:
            now[0] -= 1
        return Thing()

    def load_all() -> int:
        most.clear()
        calls: list[Callable[[], object]] = [
            lambda name=name: pool.get_resource("kind", name, build, expected_bytes=10)  # type: ignore[misc]
            for name in "abcd"
        ]
        together(*calls)
        return max(most)

    assert load_all() == 1  # whatever the caller expects, no size was measured yet
    pool.clear()
    assert load_all() > 1


# Eviction and leases


def test_the_least_recently_used_is_evicted_and_what_is_in_use_is_not():
    pool = pool_of(100)
    watched = {name: weakref.ref(pool.get_resource("kind", name, Thing, expected_bytes=30)) for name in "ab"}
    pool.get_resource("kind", "a", Thing)
    pool.get_resource("kind", "c", Thing, expected_bytes=30)
    assert names_of(pool) == {"a", "c"}
    assert (watched["a"]() is None, watched["b"]() is None) == (False, True)
    assert host(pool)["held_bytes"] == 60

    pool = pool_of(100)
    mine = pool.get_resource("kind", "mine", Thing, expected_bytes=60)
    pool.get_resource("kind", "b", Thing, expected_bytes=60)
    assert pool.get_resource("kind", "mine") is mine
    pool.check_memory()
    assert names_of(pool) == {"mine"}
    del mine
    pool.get_resource("kind", "c", Thing, expected_bytes=60)
    assert names_of(pool) == {"c"}


def test_a_reference_circle_is_evicted():
    def circle() -> Thing:
        one = Thing()
        one.other = one
        return one

    pool = pool_of(100)
    watched = [weakref.ref(pool.get_resource("kind", name, circle, expected_bytes=60)) for name in "abc"]
    pool.check_memory()
    assert [one() is None for one in watched] == [True, True, False]


def test_a_lease_keeps_what_has_no_weak_reference_until_it_ends():
    pool, built = pool_of(100), []

    def build() -> dict[str, int]:
        built.append(1)
        return {"a": 1}

    lease = pool.lease("kind", "plain", build, expected_bytes=60)
    with lease as plain:
        pool.get_resource("kind", "b", Thing, expected_bytes=50)
        pool.get_resource("kind", "c", Thing, expected_bytes=50)
        assert pool.get_resource("kind", "plain") is plain
        assert "plain" in names_of(pool)
    assert built == [1]
    pool.get_resource("kind", "d", Thing, expected_bytes=50)
    assert "plain" not in names_of(pool)
    with pytest.raises(UsageError, match="lease has ended"):
        _ = lease.resource
    dropped = pool.lease("kind", "a", dict)
    assert [one["leases"] for one in pool.get_stats()["resources"] if one["id"] == "a"] == [1]
    del dropped  # without its end
    assert [one["leases"] for one in pool.get_stats()["resources"] if one["id"] == "a"] == [0]


def test_clear_forgets_all_and_counts_what_is_in_use_until_it_is_gone():
    pool = pool_of(200)
    gone = weakref.ref(pool.get_resource("kind", "idle", Thing))
    mine = pool.get_resource("kind", "mine", Thing, expected_bytes=40)
    with pool.lease("kind", "leased", dict, expected_bytes=30) as leased:
        pool.clear()
        assert gone() is None
        assert (host(pool)["held_bytes"], host(pool)["lingering_bytes"]) == (30, 40)
        assert pool.get_resource("kind", "leased", dict, expected_bytes=30) is not leased
        assert pool.get_resource("kind", "mine", Thing, expected_bytes=10) is not mine
    del mine
    stats = pool.get_stats()
    assert {(one["id"], one["dismissed"]) for one in stats["resources"]} == {("leased", False), ("mine", False)}
    assert (host(pool)["held_bytes"], host(pool)["lingering_bytes"]) == (40, 0)


def test_a_resource_under_construction_when_the_pool_is_cleared_is_given_and_not_kept():
    pool, started, cleared = pool_of(100), threading.Event(), threading.Event()

    def build() -> Thing:
        started.set()
        cleared.wait(10)
        return Thing()

    def clear() -> None:
        started.wait(10)
        pool.clear()
        cleared.set()

    made, _ = together(lambda: pool.get_resource("kind", "slow", build, expected_bytes=10), clear)
    assert isinstance(made, Thing)
    assert names_of(pool) == set()


def test_unused_resources_are_removed_by_their_age():
    now = [0.0]
    pool = pool_of(100, clock=lambda: now[0])
    pool.get_resource("kind", "old", Thing)
    now[0] = 20 * 60.0
    pool.get_resource("kind", "young", Thing)
    with pool.lease("kind", "leased", Thing):
        now[0] = 31 * 60.0
        assert pool.cleanup_unused_resources(max_age_minutes=30) == 1
        assert names_of(pool) == {"young", "leased"}
        assert pool.cleanup_unused_resources(max_age_minutes=0) == 1
        assert names_of(pool) == {"leased"}
    with pytest.raises(UsageError, match="max_age_minutes is 'nan'"):
        pool.cleanup_unused_resources(max_age_minutes=float("nan"))


# Waits


def test_a_constructor_may_use_the_pool_but_not_for_what_it_makes():
    pool = pool_of(1000)

    def outer() -> Thing:
        one = Thing()
        one.other = pool.get_resource("kind", "inner", Thing, expected_bytes=60)
        return one

    made = pool.get_resource("kind", "outer", outer, expected_bytes=90)
    assert made.other is pool.get_resource("kind", "inner")

    def itself() -> Thing:
        return pool.get_resource("kind", "itself", Thing)

    with pytest.raises(WouldDeadlock, match="its own constructor requests it"):
        pool.get_resource("kind", "itself", itself)

    pool, both = pool_of(100), threading.Barrier(2)

    def load(mine: str, other: str) -> object:
        def build() -> object:
            both.wait(10)
            return pool.get_resource("kind", other, Thing)

        return pool.get_resource("kind", mine, build)

    pool.get_resource("kind", "a", Thing)
    pool.get_resource("kind", "b", Thing)
    pool.clear()  # both sizes are known now, so that the two are loaded side by side
    found = together(lambda: load("a", "b"), lambda: load("b", "a"))
    assert any(isinstance(one, WouldDeadlock) for one in found)


def test_threads_that_hold_what_the_other_needs_get_an_error():
    pool, both = pool_of(100, wait_s=25.0), threading.Barrier(2)

    def take(first: str, second: str) -> str:
        with pool.lease("kind", first, dict, expected_bytes=60):
            both.wait(10)
            try:
                with pool.lease("kind", second, dict, expected_bytes=60):
                    return "took it"
            except OutOfMemory as error:
                return str(error)

    found = together(lambda: take("a", "b"), lambda: take("c", "d"))
    assert "took it" in found
    (refused,) = [one for one in found if one != "took it"]
    assert "not enough memory for resource kind/" in refused
    assert "ResourcePool(budgets={'cpu': BYTES})" in refused


def test_a_thread_alone_that_wants_too_much_gets_an_error_at_once():
    pool = pool_of(100, wait_s=10_000)

    def load() -> str:
        leases = [pool.lease("kind", name, dict, expected_bytes=60) for name in "ab"]
        with pytest.raises(OutOfMemory) as caught:  # one may be beyond the budget, and now there is one
            pool.get_resource("kind", "c", dict, expected_bytes=10)
        for one in leases:
            one.release()
        return str(caught.value)

    assert "2 of 2 resources have leases" in together(load)[0]
    assert pool.get_stats()["refused"] == 1
    assert pool.get_resource("kind", "c", dict, expected_bytes=10) == {}


def test_a_load_waits_until_another_thread_releases():
    pool, held = pool_of(100), threading.Event()

    def hold() -> None:
        with pool.lease("kind", "a", dict, expected_bytes=60), pool.lease("kind", "b", dict, expected_bytes=60):
            held.set()
            while not pool.get_stats()["waits_for_room"]:
                threading.Event().wait(0.001)

    def want() -> object:
        held.wait(10)
        return pool.get_resource("kind", "c", dict, expected_bytes=50)

    assert together(hold, want) == [None, {}]


def test_a_wait_can_end_if_a_running_thread_is_reached():
    waits = Waits(threading.RLock())
    with waits.waiting(1, lambda: {2}):
        assert waits.can_end(3, {1})  # 2 runs
        assert not waits.can_end(2, {1})  # 1 waits for 2 itself
        assert not waits.can_end(2, {2})
        assert not waits.can_end(2, set())
        with waits.waiting(2, lambda: {3, 1}):
            assert not waits.can_end(3, {1})
            assert waits.can_end(3, {1, 4})
        with waits.waiting(2, set):  # for no thread in particular
            assert waits.can_end(3, {1})
    assert waits.can_end(2, {1})


# Memory


def test_a_size_that_was_understated_is_measured_and_the_budget_holds_again():
    import numpy

    pool = pool_of(100_000)
    for name in "abcdef":
        pool.get_resource("kind", name, lambda: numpy.zeros(40_000, dtype=numpy.uint8), expected_bytes=1)
    assert pool.get_stats()["underestimated"] == 6
    assert host(pool)["peak_bytes"] <= 100_000 + 40_000
    assert host(pool)["held_bytes"] == 40_000


def test_out_of_memory_evicts_idle_resources_and_loads_once_more():
    pool, tries = pool_of(100), []
    halfway: list[weakref.ref[Thing]] = []
    idle = weakref.ref(pool.get_resource("kind", "idle", Thing, expected_bytes=10))

    def second_time() -> Thing:
        tries.append(idle() is not None)
        part = Thing()
        halfway.append(weakref.ref(part))
        if len(tries) == 1:
            raise RuntimeError("CUDA error: out of memory")
        return Thing()

    assert isinstance(pool.get_resource("kind", "large", second_time), Thing)
    assert tries == [True, False]
    assert halfway[0]() is None
    assert pool.get_stats()["out_of_memory"] == 1

    pool = pool_of(100)
    halfway.clear()

    def never() -> Thing:
        part = Thing()
        halfway.append(weakref.ref(part))
        raise MemoryError("12 GB were asked for")

    with pytest.raises(OutOfMemory, match="12 GB were asked for") as caught:
        pool.get_resource("kind", "large", never)
    assert "half precision" in caught.value.fix
    assert [one() for one in halfway] == [None, None]  # also while the error is kept
    (incident,) = pool.incidents()
    assert (incident.kind, incident.error_type, incident.device) == ("failed_load", "out_of_memory", "cpu")
    assert "12 GB were asked for" in incident.text


def test_idle_resources_are_evicted_if_four_fifths_of_the_machine_are_used():
    free = [500]
    pool = pool_of(1000, memory=lambda device: MemoryReading(total_bytes=1000, free_bytes=free[0]))
    for name in "ab":
        pool.get_resource("kind", name, Thing, expected_bytes=100)
    pool.check_memory()
    assert names_of(pool) == {"a", "b"}
    assert not pool.get_stats()["low_memory_mode"]
    free[0] = 150
    pool.check_memory()
    assert names_of(pool) == {"b"}  # 51 bytes are too many, and `a` was the least recently used
    stats = pool.get_stats()
    assert (stats["low_memory_mode"], stats["memory_pressure"]) == (True, False)
    assert [one.kind for one in pool.incidents()] == ["low_memory"]
    free[0] = 90
    pool.check_memory()
    assert [one.kind for one in pool.incidents()] == ["low_memory", "memory_pressure"]
    assert "91 % of the 0.0 MB of the device" in pool.incidents()[1].text
    for held, low, pressed in ((79, False, False), (80, True, False), (89, True, False), (90, True, True)):
        pool = pool_of(100)
        with pool.lease("kind", "a", dict, expected_bytes=held):
            stats = pool.get_stats()
            assert (stats["low_memory_mode"], stats["memory_pressure"]) == (low, pressed), held


def test_a_budget_is_a_share_of_the_memory_of_the_device():
    for options, reading, budget in (
        ({"fraction": 0.5}, MemoryReading(total_bytes=1000, free_bytes=1000), (500, "0.5 of the device")),
        ({}, MemoryReading(reason="no driver"), (None, "none: no driver")),
    ):
        pool = ResourcePool(memory=lambda device, reading=reading: reading, **options)
        pool.get_resource("kind", "a", Thing, expected_bytes=10**15 if budget[0] is None else None)
        assert (host(pool)["budget_bytes"], host(pool)["budget_from"]) == budget
    pool = ResourcePool()
    pool.get_resource("kind", "a", Thing)
    assert host(pool)["device_total_bytes"] > 10**8
    assert host(pool)["budget_bytes"] == int(0.8 * host(pool)["device_total_bytes"])
    assert get_global_resource_pool() is get_global_resource_pool()


def test_impossible_settings_and_sizes_are_refused():
    for options in (
        {"budgets": {"cpu": 0}},
        {"budgets": {"cpu": True}},
        {"budgets": {"cpuu": 10}},
        {"fraction": 0},
        {"low_memory": 0.95},
        {"wait_s": float("nan")},
    ):
        with pytest.raises(UsageError):
            ResourcePool(**options)
    with pytest.raises(UsageError, match="expected_bytes is -1"):
        pool_of().get_resource("kind", "a", Thing, expected_bytes=-1)


def test_statistics_are_json_and_every_request_counts_once():
    pool = pool_of(100)
    for name in ("a", "b", "a", "a"):
        pool.get_resource("kind", name, Thing, expected_bytes=10)
    stats = json.loads(json.dumps(pool.get_stats()))
    assert (stats["requests"], stats["hits"], stats["misses"], stats["waits"]) == (4, 2, 2, 0)
    assert [(one["id"], one["uses"], one["measured_by"]) for one in stats["resources"]] == [
        ("b", 1, "declared"),
        ("a", 3, "declared"),
    ]
    assert all(one["age_s"] >= one["idle_s"] >= 0 for one in stats["resources"])


# Calls that run at once


def test_calls_run_at_once_and_each_has_its_own_outcome():
    pool, met = pool_of(100), threading.Barrier(3)

    def work(number: int) -> int:
        met.wait(10)
        if number == 1:
            raise ValueError("one")
        return number

    outcomes = pool.execute_concurrent([lambda number=number: work(number) for number in range(3)])
    assert [(one.ok, one.value, str(one.error or "")) for one in outcomes] == [
        (True, 0, ""),
        (False, None, "one"),
        (True, 2, ""),
    ]
    assert pool.execute_concurrent([]) == []
    with pytest.raises(UsageError):
        pool.execute_concurrent([dict], max_workers=0)

    def use(name: str) -> str:
        with pool.lease("kind", name, Thing, expected_bytes=60) as thing:
            pass
        return type(thing).__name__  # the name is bound until here

    assert [one.value for one in pool.execute_concurrent([lambda: use("a"), lambda: use("b")])] == ["Thing"] * 2
    assert host(pool)["held_bytes"] == 60


def test_calls_may_use_the_pool_and_run_more_calls_within_a_constructor():
    pool = pool_of(100)

    def inner(name: str) -> object:
        return pool.get_resource("kind", name, Thing, expected_bytes=10)

    def outer() -> Thing:
        one = Thing()
        one.other = pool.execute_concurrent([lambda: inner("x"), lambda: inner("y")], max_workers=1)
        return one

    def run() -> list[object]:
        calls = [lambda: pool.get_resource("kind", "outer", outer).other] * 3
        return [one.value for one in pool.execute_concurrent(calls, max_workers=2)]

    ((first, *others),) = together(run)
    assert [one.ok for one in first] == [True, True]
    assert all(one is first for one in others)

    def itself() -> list[object]:
        return pool.execute_concurrent([lambda: pool.get_resource("kind", "itself", Thing)])

    (found,) = together(lambda: pool.get_resource("kind", "itself", itself))
    assert isinstance(found[0].error, WouldDeadlock)
