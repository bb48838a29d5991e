"""The resource pool loads once, keeps what is in use, and lets the rest go; it waits for nothing that never comes."""

from __future__ import annotations

import json
import threading
import time
import weakref

import pytest
from pool_watch import Thing, names_of, pool_of, together

from hardware.errors import OutOfMemory, UsageError, WouldDeadlock


def test_what_many_threads_ask_for_at_once_is_built_once():
    pool, built = pool_of(), []
    entered = threading.Event()

    def build() -> Thing:
        built.append(1)
        entered.wait(0.1)
        return Thing()

    found = together(*[lambda: pool.get_resource("kind", "one", build) for _ in range(16)])
    assert len(built) == 1
    assert len({id(one) for one in found}) == 1
    told = pool.get_stats()
    assert (told["requests"], told["misses"], told["loads"]) == (16, 1, 1)
    assert told["hits"] + told["waits"] == 15


def test_what_was_waited_for_is_kept_for_all_who_waited():
    pool = pool_of(100)

    def build() -> dict[str, int]:
        while pool.get_stats()["waits"] < 3:
            time.sleep(0.001)
        return {"a": 1}

    leases = together(*[lambda: pool.lease("kind", "one", build, expected_bytes=90) for _ in range(4)])
    assert [one.resource for one in leases] == [{"a": 1}] * 4
    (told,) = pool.get_stats()["resources"]
    assert (told["leases"], told["uses"]) == (4, 4)


def test_a_load_that_fails_raises_for_all_who_waited_and_the_next_one_tries_again():
    pool, tries = pool_of(), []
    waiting = threading.Event()

    def fail() -> Thing:
        tries.append(1)
        waiting.wait(0.2)
        raise ValueError("no such file")

    found = together(*[lambda: pool.get_resource("kind", "one", fail) for _ in range(8)])
    assert {str(one) for one in found} == {"no such file"}
    assert len(tries) < 8
    assert isinstance(pool.get_resource("kind", "one", Thing), Thing)
    assert pool.get_stats()["failures"] == len(tries)


def test_the_least_recently_used_goes_first_and_is_gone():
    pool = pool_of(100)
    watched = {}
    for name in ("a", "b"):
        watched[name] = weakref.ref(pool.get_resource("kind", name, Thing, expected_bytes=30))
    pool.get_resource("kind", "a", Thing)
    pool.get_resource("kind", "c", Thing, expected_bytes=30)
    assert names_of(pool) == {"a", "c"}
    assert watched["b"]() is None
    assert watched["a"]() is not None
    assert pool.get_stats()["devices"]["cpu"]["held_bytes"] == 60


def test_what_a_caller_still_refers_to_stays_and_goes_when_he_does_not():
    pool = pool_of(100)
    mine = pool.get_resource("kind", "mine", Thing, expected_bytes=60)
    pool.get_resource("kind", "b", Thing, expected_bytes=60)
    assert pool.get_resource("kind", "mine") is mine
    pool.check_memory()
    assert names_of(pool) == {"mine"}
    del mine
    pool.get_resource("kind", "c", Thing, expected_bytes=60)
    assert names_of(pool) == {"c"}


def test_what_refers_to_itself_in_a_circle_goes_when_room_is_needed():
    def circle() -> Thing:
        one = Thing()
        one.other = one
        return one

    pool = pool_of(100)
    watched = [weakref.ref(pool.get_resource("kind", name, circle, expected_bytes=60)) for name in "abc"]
    pool.check_memory()
    assert [one() is None for one in watched] == [True, True, False]


def test_what_has_a_lease_stays_even_where_no_reference_could_tell():
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


def test_a_lease_that_was_dropped_without_its_end_is_taken_up():
    pool = pool_of()
    lease = pool.lease("kind", "a", dict)
    assert pool.get_stats()["resources"][0]["leases"] == 1
    del lease
    assert pool.get_stats()["resources"][0]["leases"] == 0


def test_a_constructor_may_ask_the_pool_and_not_for_itself():
    pool = pool_of(1000)

    def outer() -> Thing:
        one = Thing()
        one.other = pool.get_resource("kind", "inner", Thing, expected_bytes=60)
        return one

    made = pool.get_resource("kind", "outer", outer, expected_bytes=90)
    assert made.other is pool.get_resource("kind", "inner")

    def itself() -> Thing:
        return pool.get_resource("kind", "itself", Thing)

    with pytest.raises(WouldDeadlock, match="by its own constructor"):
        pool.get_resource("kind", "itself", itself)


def test_two_constructors_that_ask_for_each_other_end_in_an_error():
    pool = pool_of(100)
    both = threading.Barrier(2)

    def ask_for(mine: str, theirs: str) -> object:
        def build() -> object:
            both.wait(10)
            return pool.get_resource("kind", theirs, Thing)

        return pool.get_resource("kind", mine, build)

    pool.get_resource("kind", "a", Thing)
    pool.get_resource("kind", "b", Thing)
    pool.clear()  # both sizes are known now, so that the two are loaded side by side
    found = together(lambda: ask_for("a", "b"), lambda: ask_for("b", "a"))
    assert any(isinstance(one, WouldDeadlock) for one in found)


def test_threads_that_hold_what_the_other_needs_end_in_an_error_and_not_in_a_hang():
    pool = pool_of(100, wait_s=25.0)
    both = threading.Barrier(2)

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
    assert "there is no room for resource kind/" in refused
    assert "ResourcePool(budgets={'cpu': BYTES})" in refused


def test_one_thread_alone_that_asks_for_too_much_is_told_at_once():
    pool = pool_of(100, wait_s=10_000)

    def ask() -> str:
        leases = [pool.lease("kind", name, dict, expected_bytes=60) for name in "ab"]
        # One beyond the budget is what there may be, and now there is one.
        with pytest.raises(OutOfMemory) as caught:
            pool.get_resource("kind", "c", dict, expected_bytes=10)
        for one in leases:
            one.release()
        return str(caught.value)

    assert "2 of 2 resources have leases" in together(ask)[0]
    assert pool.get_stats()["refused"] == 1
    assert pool.get_resource("kind", "c", dict, expected_bytes=10) == {}


def test_a_load_waits_until_another_thread_lets_go():
    pool = pool_of(100)
    held, wanted = threading.Event(), threading.Event()

    def hold() -> None:
        with pool.lease("kind", "a", dict, expected_bytes=60), pool.lease("kind", "b", dict, expected_bytes=60):
            held.set()
            wanted.wait(10)

    def want() -> object:
        held.wait(10)
        threading.Timer(0.1, wanted.set).start()
        return pool.get_resource("kind", "c", dict, expected_bytes=50)

    assert together(hold, want) == [None, {}]
    assert pool.get_stats()["waits_for_room"] >= 1


def test_loads_of_unknown_size_come_one_after_another_and_measured_ones_side_by_side():
    pool = pool_of(100)
    lock, now, most = threading.Lock(), [0], []
    pause = threading.Event()

    def build() -> Thing:
        with lock:
            now[0] += 1
            most.append(now[0])
        pause.wait(0.05)
        with lock:
            now[0] -= 1
        return Thing()

    def ask(name: str) -> object:
        return pool.get_resource("kind", name, build, expected_bytes=10)

    together(*[lambda name=name: ask(name) for name in "abcd"])
    assert max(most) == 1  # whatever a caller says of their sizes: it was measured of none yet
    pool.clear()
    most.clear()
    together(*[lambda name=name: ask(name) for name in "abcd"])
    assert max(most) > 1


def test_clear_forgets_all_and_what_has_a_lease_stays_for_who_has_it():
    pool = pool_of(100)
    gone = weakref.ref(pool.get_resource("kind", "idle", Thing))
    with pool.lease("kind", "leased", dict, expected_bytes=30) as leased:
        pool.clear()
        assert gone() is None
        assert pool.get_stats()["devices"]["cpu"]["held_bytes"] == 30
        assert pool.get_resource("kind", "leased", dict, expected_bytes=30) is not leased
    told = pool.get_stats()
    assert [(one["id"], one["dismissed"]) for one in told["resources"]] == [("leased", False)]
    assert told["devices"]["cpu"]["held_bytes"] == 30


def test_what_is_still_referred_to_after_clear_counts_until_it_is_gone():
    pool = pool_of(100)
    mine = pool.get_resource("kind", "mine", Thing, expected_bytes=40)
    pool.clear()
    assert pool.get_stats()["devices"]["cpu"]["lingering_bytes"] == 40
    assert pool.get_resource("kind", "mine", Thing, expected_bytes=40) is not mine
    del mine
    assert pool.get_stats()["devices"]["cpu"]["lingering_bytes"] == 0


def test_what_is_being_loaded_when_the_pool_is_cleared_is_given_and_not_kept():
    pool = pool_of(100)
    started, cleared = threading.Event(), threading.Event()

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


def test_a_resource_that_nobody_makes_is_an_error_and_not_nothing():
    with pytest.raises(UsageError, match="no constructor was given"):
        pool_of().get_resource("kind", "absent")


def test_statistics_are_json_and_every_request_counts_once():
    pool = pool_of(100)
    for name in ("a", "b", "a", "a"):
        pool.get_resource("kind", name, Thing, expected_bytes=10)
    told = json.loads(json.dumps(pool.get_stats()))
    assert (told["requests"], told["hits"], told["misses"], told["waits"]) == (4, 2, 2, 0)
    assert [(one["id"], one["uses"], one["measured_by"]) for one in told["resources"]] == [
        ("b", 1, "declared"),
        ("a", 3, "declared"),
    ]
    assert all(one["age_s"] >= one["idle_s"] >= 0 for one in told["resources"])
