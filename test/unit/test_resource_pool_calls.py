"""Calls that a resource pool runs at once, which may ask it and run further calls."""

from __future__ import annotations

import threading

import pytest
from pool_watch import Thing, pool_of, together

from hardware.errors import UsageError, WouldDeadlock


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
