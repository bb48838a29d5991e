"""What a resource pool counts and keeps below a budget: sizes, shares, and memory that runs out."""

from __future__ import annotations

import weakref

import pytest
from pool_watch import SPARE, Thing, names_of, pool_of

from hardware.errors import OutOfMemory, UsageError
from hwcompat.plugins.placement.pool import ResourcePool
from hwcompat.plugins.placement.pool.device_memory import MemoryReading


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
    pool = pool_of(1000, memory=lambda device: MemoryReading(total_bytes=1000, free_bytes=readings["free"]))
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
    pool = ResourcePool(fraction=0.5, memory=lambda device: MemoryReading(total_bytes=1000, free_bytes=1000))
    pool.get_resource("kind", "a", Thing)
    device = pool.get_stats()["devices"]["cpu"]
    assert (device["budget_bytes"], device["budget_from"]) == (500, "0.5 of the device")
    untold = ResourcePool(memory=lambda device: MemoryReading(reason="nobody tells"))
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


def test_the_machine_is_asked_by_default():
    pool = ResourcePool()
    pool.get_resource("kind", "a", Thing)
    device = pool.get_stats()["devices"]["cpu"]
    assert device["device_total_bytes"] > 10**8
    assert device["budget_bytes"] == int(0.8 * device["device_total_bytes"])
    assert SPARE.used_share == 0
