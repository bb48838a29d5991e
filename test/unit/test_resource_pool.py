"""The resource pool loads once, keeps what is in use, and lets the rest go; it waits for nothing that never comes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
from pool_watch import SPARE, Thing, names_of, pool_of, together

from hardware.errors import OutOfMemory, UsageError, WouldDeadlock
from hardware.resource_pool import ResourcePool, get_global_resource_pool, loading
from hardware.resource_pool.memory import Reading

ROOT = Path(__file__).parents[2]


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


def test_what_was_waited_for_is_kept_for_all_who_waited(monkeypatch):
    pool, users = pool_of(100), []
    true = loading._arrived

    def arrived(state, load, built):
        entry = true(state, load, built)
        with state.lock:  # each has it by now, or is promised it
            users.append(entry.promised + sum(entry.leases.values()))
        return entry

    def build() -> dict[str, int]:
        (load,) = pool._state.loads.values()
        while load.waiting < 3:
            time.sleep(0.001)
        return {"a": 1}

    monkeypatch.setattr(loading, "_arrived", arrived)
    leases = together(*[lambda: pool.lease("kind", "one", build, expected_bytes=90) for _ in range(4)])
    assert [one.resource for one in leases] == [{"a": 1}] * 4
    assert users == [4]


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


def test_a_size_that_was_understated_is_measured_and_the_budget_holds_again():
    import numpy

    pool = pool_of(100_000)
    for name in "abcdef":
        pool.get_resource("kind", name, lambda: numpy.zeros(40_000, dtype=numpy.uint8), expected_bytes=1)
    told = pool.get_stats()
    assert told["underestimated"] == 6
    assert told["devices"]["cpu"]["peak_bytes"] <= 100_000 + 40_000
    assert told["devices"]["cpu"]["held_bytes"] == 40_000


def test_where_memory_runs_out_idle_resources_go_and_it_is_tried_once_more():
    pool, tries = pool_of(100), []
    halfway: list[weakref.ref[Thing]] = []
    idle = weakref.ref(pool.get_resource("kind", "idle", Thing, expected_bytes=10))

    def build() -> Thing:
        tries.append(idle() is not None)
        part = Thing()
        halfway.append(weakref.ref(part))
        if len(tries) == 1:
            raise RuntimeError("CUDA error: out of memory")
        return Thing()

    assert isinstance(pool.get_resource("kind", "large", build), Thing)
    assert tries == [True, False]
    assert halfway[0]() is None
    assert pool.get_stats()["out_of_memory"] == 1


def test_where_it_runs_out_again_the_reason_is_told_and_kept():
    pool, tries = pool_of(100), []

    def build() -> Thing:
        part = Thing()
        tries.append(weakref.ref(part))
        raise MemoryError("12 GB were asked for")

    with pytest.raises(OutOfMemory, match="12 GB were asked for") as caught:
        pool.get_resource("kind", "large", build)
    assert "half precision" in caught.value.fix
    assert [halfway() for halfway in tries] == [None, None]  # also while the error is kept
    (incident,) = pool.incidents()
    assert (incident.kind, incident.error_type, incident.device) == ("failed_load", "out_of_memory", "cpu")
    assert "12 GB were asked for" in incident.text


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


def test_unused_resources_go_by_their_age():
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


def test_a_machine_whose_memory_is_four_fifths_full_gets_idle_resources_back():
    readings = {"free": 500}
    pool = pool_of(1000, memory=lambda device: Reading(total_bytes=1000, free_bytes=readings["free"]))
    pool.get_resource("kind", "a", Thing, expected_bytes=100)
    pool.get_resource("kind", "b", Thing, expected_bytes=100)
    pool.check_memory()
    assert names_of(pool) == {"a", "b"}
    assert not pool.get_stats()["low_memory_mode"]
    readings["free"] = 150
    pool.check_memory()
    assert names_of(pool) == {"b"}  # 51 bytes are too many, and `a` was the least recently used
    told = pool.get_stats()
    assert told["low_memory_mode"]
    assert not told["memory_pressure"]
    assert [one.kind for one in pool.incidents()] == ["low_memory"]
    readings["free"] = 90
    pool.check_memory()
    assert [one.kind for one in pool.incidents()] == ["low_memory", "memory_pressure"]
    assert "91 % of the 0.0 MB of the device" in pool.incidents()[1].text


def test_shares_begin_exactly_where_they_are_said_to():
    for held, low, pressed in ((79, False, False), (80, True, False), (89, True, False), (90, True, True)):
        pool = pool_of(100)
        with pool.lease("kind", "a", dict, expected_bytes=held):
            told = pool.get_stats()
            assert (told["low_memory_mode"], told["memory_pressure"]) == (low, pressed), held


def test_a_budget_is_a_share_of_what_the_device_has():
    pool = ResourcePool(fraction=0.5, memory=lambda device: Reading(total_bytes=1000, free_bytes=1000))
    pool.get_resource("kind", "a", Thing)
    device = pool.get_stats()["devices"]["cpu"]
    assert (device["budget_bytes"], device["budget_from"]) == (500, "0.5 of the device")
    untold = ResourcePool(memory=lambda device: Reading(reason="nobody tells"))
    untold.get_resource("kind", "a", Thing, expected_bytes=10**15)
    device = untold.get_stats()["devices"]["cpu"]
    assert (device["budget_bytes"], device["budget_from"]) == (None, "none: nobody tells")


@pytest.mark.parametrize(
    "options",
    [
        {"budgets": {"cpu": 0}},
        {"budgets": {"cpu": True}},
        {"budgets": {"cpuu": 10}},
        {"fraction": 0},
        {"low_memory": 0.95},
        {"wait_s": float("nan")},
    ],
)
def test_settings_that_cannot_be_are_refused(options):
    with pytest.raises(UsageError):
        ResourcePool(**options)


def test_a_size_that_cannot_be_is_refused():
    for ask in (pool_of().get_resource, pool_of().get_model):
        with pytest.raises(UsageError, match="expected_bytes is -1"):
            ask("kind", "a", Thing, device="cpu", expected_bytes=-1)


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


def test_calls_run_at_once_and_each_has_its_own_outcome_in_its_place():
    pool = pool_of(100)
    met = threading.Barrier(3)

    def work(number: int) -> int:
        met.wait(10)
        if number == 1:
            raise ValueError("one")
        return number

    outcomes = pool.execute_concurrent([lambda number=number: work(number) for number in range(3)])
    assert [one.value for one in outcomes] == [0, None, 2]
    assert [str(one.error or "") for one in outcomes] == ["", "one", ""]
    assert [one.ok for one in outcomes] == [True, False, True]
    assert pool.execute_concurrent([]) == []
    with pytest.raises(UsageError):
        pool.execute_concurrent([dict], max_workers=0)


def test_calls_may_ask_the_pool_and_run_further_calls_also_within_a_constructor():
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


def test_what_calls_still_referred_to_goes_when_they_have_ended():
    pool = pool_of(100)

    def use(name: str) -> str:
        with pool.lease("kind", name, Thing, expected_bytes=60) as thing:
            pass
        return type(thing).__name__  # the name is bound until here

    assert [one.value for one in pool.execute_concurrent([lambda: use("a"), lambda: use("b")])] == ["Thing"] * 2
    assert pool.get_stats()["devices"]["cpu"]["held_bytes"] == 60


def test_calls_of_a_constructor_that_ask_for_what_it_makes_end_in_an_error():
    pool = pool_of(100)

    def itself() -> list[object]:
        return pool.execute_concurrent([lambda: pool.get_resource("kind", "itself", Thing)])

    (found,) = together(lambda: pool.get_resource("kind", "itself", itself))
    assert isinstance(found[0].error, WouldDeadlock)


def test_the_global_pool_is_one_and_importing_starts_nothing():
    assert get_global_resource_pool() is get_global_resource_pool()
    code = (
        "import sys, threading, hardware.resource_pool as r\n"
        "from hardware.resource_pool import pool\n"
        "heavy = [name for name in ('torch', 'transformers', 'numpy') if name in sys.modules]\n"
        "print(heavy, threading.active_count(), pool._global)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "1", "[]"]


FORKING = """
import os, signal, sys, threading
from hardware.resource_pool import ResourcePool
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


def test_the_machine_is_asked_by_default():
    pool = ResourcePool()
    pool.get_resource("kind", "a", Thing)
    device = pool.get_stats()["devices"]["cpu"]
    assert device["device_total_bytes"] > 10**8
    assert device["budget_bytes"] == int(0.8 * device["device_total_bytes"])
    assert SPARE.used_share == 0
