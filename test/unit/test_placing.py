"""Workloads onto devices: the best placement where it can be had, a bound that nothing is under, and reasons."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.errors import UsageError
from hwcompat.plugins.placement.place import place
from hwcompat.plugins.placement.placement_device import Device, Figure
from hwcompat.plugins.placement.workloads import Placement, Workload, WorkloadMode

GIB = 2**30


def device(name: str, gib: float | None = 16, **more: object) -> Device:
    memory = Figure(reason="it doesn't tell") if gib is None else Figure(value=gib * GIB, source="made up")
    return Device(name=name, target=name.partition(":")[0], memory_total=memory, **more)  # type: ignore[arg-type]


def workload(
    name: str, gib: float | None = 1, seconds: dict[str, float | None] | None = None, **more: object
) -> Workload:
    figures = {
        where: Figure(reason="nobody measured it") if value is None else Figure(value=value, source="made up")
        for where, value in (seconds or {}).items()
    }
    memory = None if gib is None else int(gib * GIB)
    return Workload(name=name, memory_bytes=memory, seconds=figures, **more)  # type: ignore[arg-type]


def where(placement: Placement) -> dict[str, str]:
    return {one.workload: one.device for one in placement.assignments}


def best_of_all(
    workloads: Sequence[Workload], devices: Sequence[Device], mode: WorkloadMode
) -> tuple[int, int, float]:
    """Every placement tried: the fewest that are nowhere, the fewest in doubt, the shortest makespan."""
    best = (len(workloads) + 1, 0, math.inf)
    for chosen in itertools.product([None, *devices], repeat=len(workloads)):
        seconds = {one.name: 0.0 for one in devices}
        memory = {one.name: 0 for one in devices}
        nowhere = doubts = 0
        for one, there in zip(workloads, chosen, strict=True):
            if there is None:
                nowhere += 1
                continue
            if there.name in one.forbidden or one.memory_bytes is None:
                break
            value = one.seconds[there.name].value if there.name in one.seconds else None
            doubts += (value is None) + (there.name in one.doubtful)
            seconds[there.name] += value or 0.0
            used = memory[there.name] + one.memory_bytes if mode is WorkloadMode.TOGETHER else one.memory_bytes
            memory[there.name] = max(memory[there.name], used)
            if memory[there.name] > (there.memory_total.value or 0):
                break
        else:
            best = min(best, (nowhere, doubts, max(seconds.values())))
    return best


def worth(placement: Placement, workloads: Sequence[Workload]) -> tuple[int, int, float]:
    by_name = {one.name: one for one in workloads}
    doubts = sum(
        (one.seconds.value is None) + (one.device in by_name[one.workload].doubtful) for one in placement.assignments
    )
    return len(placement.misfits), doubts, placement.makespan_s


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[Workload], list[Device], WorkloadMode]:
    devices = [device(f"d{n}", draw(st.integers(1, 8))) for n in range(draw(st.integers(1, 3)))]
    names = [one.name for one in devices]
    workloads = [
        workload(
            f"w{number}",
            draw(st.integers(1, 5)),
            {name: draw(st.one_of(st.none(), st.integers(1, 9).map(float))) for name in names},
            forbidden={name: "a rule" for name in names if draw(st.integers(0, 4)) == 0},
            doubtful={name: "nothing is known" for name in names if draw(st.integers(0, 5)) == 0},
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return workloads, devices, draw(st.sampled_from(WorkloadMode))


@given(questions())
@settings(max_examples=60, deadline=None)
def test_a_small_question_gets_the_best_of_all_placements(
    question: tuple[list[Workload], list[Device], WorkloadMode],
) -> None:
    workloads, devices, mode = question
    found = place(workloads, devices, mode=mode)
    nowhere, doubts, makespan = best_of_all(workloads, devices, mode)
    assert worth(found, workloads)[:2] == (nowhere, doubts)
    assert found.makespan_s == pytest.approx(makespan, rel=1e-5)
    assert found.bound_s <= makespan * (1 + 1e-5)
    check(found, workloads, devices)


@given(questions())
@settings(max_examples=60, deadline=None)
def test_the_heuristic_breaks_no_limit_and_is_never_under_the_bound(
    question: tuple[list[Workload], list[Device], WorkloadMode],
) -> None:
    workloads, devices, mode = question
    found = place(workloads, devices, mode=mode, small=0)
    assert found.method == "greedy"
    check(found, workloads, devices)
    assert worth(found, workloads) >= best_of_all(workloads, devices, mode) or found.makespan_s == pytest.approx(
        best_of_all(workloads, devices, mode)[2]
    )
    assert place(workloads, devices, mode=mode, small=0) == found, "the same question, another answer"


def check(found: Placement, workloads: Sequence[Workload], devices: Sequence[Device]) -> None:
    """Nothing is lost, doubled, forbidden or too large, and the loads are what the assignments come to."""
    by_name = {one.name: one for one in workloads}
    names = [one.workload for one in found.assignments] + [one.workload for one in found.misfits]
    assert sorted(names) == sorted(by_name)
    for one in found.assignments:
        assert one.device not in by_name[one.workload].forbidden
    for load, there in zip(found.loads, devices, strict=True):
        own = [one for one in found.assignments if one.device == load.device]
        memory = [one.memory_bytes for one in own]
        assert load.memory_used == (sum(memory) if found.mode is WorkloadMode.TOGETHER else max(memory, default=0))
        assert load.memory_used <= (there.memory_total.value or 0)
        assert load.seconds == pytest.approx(sum(one.seconds.value or 0.0 for one in own))
        assert load.unknown == sum(one.seconds.value is None for one in own)
    assert found.makespan_s == max(one.seconds for one in found.loads)
    assert found.bound_s <= found.makespan_s
    for misfit in found.misfits:
        assert set(misfit.reasons) == {one.name for one in devices}
        assert all(misfit.reasons.values())


def test_memory_adds_up_together_and_not_in_turn() -> None:
    both = [workload("a", 10, {"gpu": 1}), workload("b", 10, {"gpu": 1})]
    together = place(both, [device("gpu", 16)])
    assert len(together.assignments) == 1
    (misfit,) = together.misfits
    assert misfit.reasons["gpu"] == "4 GiB missing beside 1 other(s): 6 GiB are left"
    in_turn = place(both, [device("gpu", 16)], mode=WorkloadMode.IN_TURN)
    assert len(in_turn.assignments) == 2
    assert in_turn.makespan_s == 2


def test_a_misfit_says_how_much_is_missing_where_and_which_rule_forbids() -> None:
    large = workload("large", 20, forbidden={"npu": "rules say none: no kernel"})
    found = place([large], [device("gpu", 16), device("npu", 64), device("dark", None)])
    assert found.misfits[0].reasons == {
        "gpu": "4 GiB missing: it takes 20 GiB of 16 GiB",
        "npu": "rules say none: no kernel",
        "dark": "device memory of dark unknown",
    }
    unknown = place([workload("odd", None)], [device("gpu")])
    assert unknown.misfits[0].reasons == {"gpu": "memory need unknown"}


def test_free_memory_counts_before_all_of_it() -> None:
    full = device("gpu", 16, memory_free=Figure(value=2 * GIB, source="the driver"))
    assert place([workload("a", 4)], [full]).misfits


def test_a_speed_that_nobody_knows_is_never_invented() -> None:
    known = workload("known", 1, {"a": 5.0, "b": None})
    strange = workload("strange", 1, {"a": None, "b": None})
    found = place([known, strange], [device("a"), device("b")])
    assert where(found)["known"] == "a"
    assert found.unknown_speeds == 1
    assert found.makespan_s == 5.0
    assert any("Duration unknown for" in one for one in found.remarks)


def test_what_is_in_doubt_is_taken_only_where_nothing_else_is() -> None:
    unsure = {"b": "no rule and no evidence"}
    found = place([workload("w", 1, {"a": 9.0, "b": 1.0}, doubtful=unsure)], [device("a"), device("b")])
    assert where(found) == {"w": "a"}
    found = place([workload("w", 1, {"b": 1.0}, doubtful=unsure, forbidden={"a": "no"})], [device("a"), device("b")])
    assert where(found) == {"w": "b"}


def test_of_two_that_are_as_fast_the_preferred_one_is_taken() -> None:
    same = {"a": 1.0, "b": 1.0}
    for first, other in (("a", "b"), ("b", "a")):
        one = workload("w", 1, same, rank={first: 0, other: 1})
        for small in (0, 400):
            assert where(place([one], [device("a"), device("b")], small=small)) == {"w": first}


def test_pins_and_what_is_forbidden_hold_and_contradictions_are_refused() -> None:
    devices = [device("a"), device("b", 1)]
    one = workload("w", 2, {"a": 1.0, "b": 1.0})
    assert where(place([one], devices, pinned={"w": "a"})) == {"w": "a"}
    assert place([one], devices, pinned={"w": "b"}).misfits[0].reasons == {
        "a": "it is pinned to b",
        "b": "1 GiB missing: it takes 2 GiB of 1 GiB",
    }
    assert place([one], devices, forbidden=[("w", "a")]).misfits[0].reasons["a"] == "you forbid it there"
    with pytest.raises(UsageError, match="pinned to 'a': it is forbidden there"):
        place([one], devices, pinned={"w": "a"}, forbidden=[("w", "a")])
    ruled = workload("w", 2, forbidden={"a": "rules say none"})
    with pytest.raises(UsageError, match="rules say none"):
        place([ruled], devices, pinned={"w": "a"})
    with pytest.raises(UsageError, match="no device here"):
        place([one], devices, pinned={"w": "aa"})
    with pytest.raises(UsageError, match="no workload here"):
        place([one], devices, forbidden=[("v", "a")])
    with pytest.raises(UsageError, match="the name of two workloads"):
        place([one, one], devices)


def test_many_cells_come_near_the_bound() -> None:
    draw = random.Random(3)
    devices = [device(f"d{n}") for n in range(20)]
    speeds = {one.name: draw.uniform(0.5, 2) for one in devices}
    workloads = [
        workload(
            f"w{n}",
            1,
            {name: draw.lognormvariate(0, 1) / speed * draw.uniform(0.8, 1.2) for name, speed in speeds.items()},
        )
        for n in range(600)
    ]
    found = place(workloads, devices, mode=WorkloadMode.IN_TURN)
    assert found.method == "greedy"
    assert found.gap is not None
    assert found.gap < 0.1
    check(found, workloads, devices)


def test_nothing_to_place_is_an_answer() -> None:
    found = place([], [device("a")])
    assert (found.assignments, found.misfits, found.makespan_s, found.gap) == ((), (), 0.0, None)
    assert place([workload("w")], []).misfits[0].reasons == {}


def test_an_answer_is_plain_json() -> None:
    import json

    found = place([workload("w", 1, {"a": 2.0})], [device("a")])
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["assignments"][0] == {
        "workload": "w",
        "device": "a",
        "memory_bytes": GIB,
        "seconds": 2.0,
        "seconds_source": "made up",
        "reason": "no other device is eligible",
    }
    assert plain["gap"] == 0.0


def test_what_the_solver_prints_of_itself_is_unheard(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    from hwcompat.plugins.placement.solve import _unheard

    with _unheard():
        os.write(1, b"HighsMipSolverData::")
    os.write(1, b"ours")
    assert capfd.readouterr().out == "ours"


def test_memory_is_kept_to_the_byte() -> None:
    half = (8 * GIB) // 2
    tight = [workload("a", half / GIB, {"d": 1}), workload("b", (half + 1) / GIB, {"d": 1})]
    found = place(tight, [device("d", 8)])
    assert len(found.misfits) == 1
    check(found, tight, [device("d", 8)])


def test_without_the_solver_a_heuristic_places_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwcompat.plugins.placement.place.is_installed", lambda name: name != "scipy")
    found = place([workload("w", 1, {"a": 2.0})], [device("a")])
    assert found.method == "greedy"
    assert where(found) == {"w": "a"}
    assert any("pip install scipy" in one for one in found.remarks)
