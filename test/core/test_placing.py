"""Placement of workloads on devices: optimal for small problems, with bounds, durations and reasons."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_machines import machine

from generators.compatibility.memory_fit import MemoryEstimate, MemoryRequest
from hardware.detection import detect
from hardware.errors import BrokenInput, UsageError
from hardware.inventory_file import read_inventory
from hwcompat.plugins.placement.place import place
from hwcompat.plugins.placement.place_command import at_best, read_prices
from hwcompat.plugins.placement.placement_device import Device, Estimate, Figure
from hwcompat.plugins.placement.solve import _without_output
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
@settings(max_examples=40, deadline=None)
def test_small_problems_are_solved_exactly_and_the_heuristic_breaks_no_limit(
    question: tuple[list[Workload], list[Device], WorkloadMode],
) -> None:
    workloads, devices, mode = question
    best = best_of_all(workloads, devices, mode)
    found = place(workloads, devices, mode=mode)
    assert worth(found, workloads)[:2] == best[:2]
    assert found.makespan_s == pytest.approx(best[2], rel=1e-5)
    assert found.bound_s <= best[2] * (1 + 1e-5)
    check(found, workloads, devices)

    quick = place(workloads, devices, mode=mode, small=0)
    assert quick.method == "greedy"
    check(quick, workloads, devices)
    assert worth(quick, workloads) >= best or quick.makespan_s == pytest.approx(best[2])
    assert place(workloads, devices, mode=mode, small=0) == quick, "the same problem, another answer"


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
    assert misfit.reasons["gpu"] == "4 GiB missing: 1 other(s) leave 6 GiB"
    in_turn = place(both, [device("gpu", 16)], mode=WorkloadMode.IN_TURN)
    assert (len(in_turn.assignments), in_turn.makespan_s) == (2, 2)
    half = (8 * GIB) // 2  # a byte too much is too much
    tight = [workload("a", half / GIB, {"d": 1}), workload("b", (half + 1) / GIB, {"d": 1})]
    found = place(tight, [device("d", 8)])
    assert len(found.misfits) == 1
    check(found, tight, [device("d", 8)])


def test_a_misfit_lists_the_reason_on_each_device() -> None:
    large = workload("large", 20, forbidden={"npu": "rules say none: no kernel"})
    found = place([large], [device("gpu", 16), device("npu", 64), device("dark", None)])
    assert found.misfits[0].reasons == {
        "gpu": "4 GiB missing: it needs 20 GiB of 16 GiB",
        "npu": "rules say none: no kernel",
        "dark": "device memory of dark unknown",
    }
    assert place([workload("odd", None)], [device("gpu")]).misfits[0].reasons == {"gpu": "memory need unknown"}
    full = device("gpu", 16, memory_free=Figure(value=2 * GIB, source="the driver"))
    assert place([workload("a", 4)], [full]).misfits, "free memory counts before all of it"
    assert place([workload("w")], []).misfits[0].reasons == {}
    nothing = place([], [device("a")])
    assert (nothing.assignments, nothing.misfits, nothing.makespan_s, nothing.gap) == ((), (), 0.0, None)


def test_unknown_speed_doubts_and_preferences_decide_in_this_order() -> None:
    devices = [device("a"), device("b")]
    known = workload("known", 1, {"a": 5.0, "b": None})
    found = place([known, workload("strange", 1, {"a": None, "b": None})], devices)
    assert where(found)["known"] == "a"
    assert (found.unknown_speeds, found.makespan_s) == (1, 5.0)
    assert any("Duration unknown for" in one for one in found.remarks)

    unsure = {"b": "no rule and no evidence"}
    assert where(place([workload("w", 1, {"a": 9.0, "b": 1.0}, doubtful=unsure)], devices)) == {"w": "a"}
    only = workload("w", 1, {"b": 1.0}, doubtful=unsure, forbidden={"a": "no"})
    assert where(place([only], devices)) == {"w": "b"}

    for first, other in (("a", "b"), ("b", "a")):
        one = workload("w", 1, {"a": 1.0, "b": 1.0}, rank={first: 0, other: 1})
        for small in (0, 400):
            assert where(place([one], devices, small=small)) == {"w": first}


def test_an_estimated_speed_is_in_doubt_and_decides_among_doubts() -> None:
    devices = [device("cpu"), device("gpu")]
    guessed = Workload(
        name="w", memory_bytes=1, seconds={"cpu": Estimate(value=1.0), "gpu": Figure(value=5.0)}, rank={"cpu": 0}
    )
    found = place([guessed], devices)
    assert (where(found), found.assignments[0].reason.partition(":")[0]) == ({"w": "gpu"}, "the surest")
    both = replace(guessed, doubtful={"gpu": "it was never tried"})
    for small in (0, 400):
        assert where(place([both], devices, small=small)) == {"w": "cpu"}


def test_with_prices_the_lowest_cost_comes_before_the_shortest_time(tmp_path: Path) -> None:
    devices = [device("fast", 2), replace(device("slow", 9), device_name="Old GPU 7")]
    work = [workload(name, 2, {"fast": 1.0, "slow": 3.0}) for name in ("v", "w")]
    path = tmp_path / "costs.toml"
    path.write_text('currency = "EUR"\n[per_hour]\n"fast" = 36\n"old gpu*" = 3.6\n')
    prices, currency = read_prices(path, devices)
    assert (prices, currency) == ({"fast": 36.0, "slow": 3.6}, "EUR")
    assert where(place(work, devices)) == {"v": "slow", "w": "fast"}
    for small in (0, 400):
        found = place(work, devices, prices=prices, small=small)
        assert where(found) == {"v": "slow", "w": "slow"}
        assert (found.cost, found.makespan_s) == (pytest.approx(0.006), 6.0)
        assert {one.reason for one in found.assignments} == {"lowest cost"}
        assert found.bound_s < found.makespan_s, "the bound is that of all placements"
    for text, reason in (
        ('[per_hour]\n"fast" = 1\n', "no cost for slow"),
        ('[per_hour]\n"fast" = -1\n', "isn't a cost: -1"),
        ("per_hour = 3\n", "isn't a file of costs"),
        ("[", "isn't a file of costs"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=reason):
            read_prices(path, devices)


def test_pins_hold_and_contradictions_are_refused() -> None:
    devices = [device("a"), device("b", 1)]
    one = workload("w", 2, {"a": 1.0, "b": 1.0})
    assert where(place([one], devices, pinned={"w": "a"})) == {"w": "a"}
    assert place([one], devices, pinned={"w": "b"}).misfits[0].reasons == {
        "a": "pinned to b",
        "b": "1 GiB missing: it needs 2 GiB of 1 GiB",
    }
    assert place([one], devices, forbidden=[("w", "a")]).misfits[0].reasons["a"] == "forbidden by --forbid"
    ruled = workload("w", 2, forbidden={"a": "rules say none"})
    for workloads, options, reason in (
        ([one], {"pinned": {"w": "a"}, "forbidden": [("w", "a")]}, "pinned to 'a': it is forbidden there"),
        ([ruled], {"pinned": {"w": "a"}}, "rules say none"),
        ([one], {"pinned": {"w": "aa"}}, "there is no device"),
        ([one], {"forbidden": [("v", "a")]}, "there is no workload"),
        ([one, one], {}, "two workloads have the name"),
    ):
        with pytest.raises(UsageError, match=reason):
            place(workloads, devices, **options)


def test_many_workloads_come_near_the_bound() -> None:
    draw = random.Random(3)
    devices = [device(f"d{n}") for n in range(20)]
    speeds = {one.name: draw.uniform(0.5, 2) for one in devices}

    def seconds() -> dict[str, float | None]:
        return {name: draw.lognormvariate(0, 1) / speed * draw.uniform(0.8, 1.2) for name, speed in speeds.items()}

    workloads = [workload(f"w{n}", 1, seconds()) for n in range(600)]
    found = place(workloads, devices, mode=WorkloadMode.IN_TURN)
    assert found.method == "greedy"
    assert found.gap is not None
    assert found.gap < 0.1
    check(found, workloads, devices)


def test_a_placement_is_plain_json_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
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
    with _without_output():  # as the solver's library writes, past Python
        os.write(1, b"HighsMipSolverData::")
    os.write(1, b"ours")
    assert capfd.readouterr().out == "ours"


def test_without_the_solver_a_heuristic_places_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwcompat.plugins.placement.place.is_installed", lambda name: name != "scipy")
    found = place([workload("w", 1, {"a": 2.0})], [device("a")])
    assert (found.method, where(found)) == ("greedy", {"w": "a"})
    assert any("pip install scipy" in one for one in found.remarks)


def test_the_duration_at_best_is_that_of_the_roofline() -> None:
    request = MemoryRequest(mode="inference", precision="float32", batch=2, context=100)
    estimate = MemoryEstimate(
        request=request, weights=4 * 10**9, gradients=0, optimiser=0, inputs=0, cache=0, activations=0, workspace=0
    )
    tflops = {"float32": Figure(value=10.0, source="a table")}
    fast, slow = (
        Device(name="cuda:0", target="cuda", tflops=tflops, bandwidth_gbps=Figure(value=rate, source="a driver"))
        for rate in (1000.0, 10.0)
    )
    found = at_best(estimate, 10**9, fast, "text_generation")
    assert found.value == pytest.approx(2 * 10**9 * 200 / 10e12)
    assert "lower bound: 0.4 10^12 operations at 10 TFLOPS (a table)" in found.source
    assert at_best(estimate, 10**9, slow, "text_generation").value == pytest.approx(0.4)
    assert at_best(estimate, 10**9, fast, "vision").value is None
    for name, fix in (
        ("d", "stress d --keep"),
        ("lab1/cuda:0", "on lab1: hwcompat devices stress cuda:0 --keep, then export its inventory"),
    ):
        unknown = at_best(estimate, 10**9, Device(name=name, target="cuda"), "text_generation")
        assert unknown.value is None
        assert fix in unknown.reason


def test_an_inventory_file_gives_back_what_was_written(tmp_path: Path) -> None:
    before, path = detect(machine("nvidia/h100-x8")), tmp_path / "lab1.json"
    build = {"version": "2.13.0", "cuda": "12.8", "hip": None, "xpu": None, "reason": ""}
    data = before.to_dict() | {"torch": build}
    path.write_text(json.dumps(data))
    after = read_inventory(path)
    for part in ("accelerators", "memory", "vendors"):
        assert getattr(after, part) == getattr(before, part)
    for part in ("model", "cores", "instruction_sets"):
        assert getattr(after.cpu, part) == getattr(before.cpu, part)
    assert after.torch.kind == "cuda"

    gpu = {"vendor": "NVIDIA", "device_type": "gpu", "model": "x"}
    for change in (
        {"accelerators": [{"vendor": "NVIDIA"}]},
        {"accelerators": [gpu | {"memory_bytes": -1}]},
        {"accelerators": [gpu | {"model": 7}]},
        {"vendors": [{"vendor": "NVIDIA", "hardware": "perhaps", "driver": "ok", "library": "ok"}]},
        {"cpu": {"model": ["x"]}},
        {"cpu": {"instruction_sets": "AVX"}},
        {"memory": {"total_bytes": 1e300}},
        {"memory": {}},
        {"host": []},
        {"torch": {"version": 3}},
    ):
        path.write_text(json.dumps(data | change))
        with pytest.raises(BrokenInput, match="not an inventory"):
            read_inventory(path)
