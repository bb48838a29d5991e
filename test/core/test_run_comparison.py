"""What changed between runs and why: nothing is called green, flaky, slower or a cause that isn't."""

from __future__ import annotations

from dataclasses import replace

from made_runs import BERT, CHECKS, CUDA, a_run, lines_of, shown

from generators.compatibility.run_summary import RunState, RunSummary, summarize_run
from hardware.evidence.record import EDITED, Outcome
from reports.comparison.causes import Hardware, cause_of
from reports.comparison.cell_changes import compare_last_green, compare_sides
from reports.comparison.comparison_result import CellChange, ChangeKind, RunComparison, Side

BROKEN = ("matches_reference", "backward")
INVENTORY = {
    "host": {"system": "Linux"},
    "cpu": {"model": "EPYC"},
    "memory": {"total_bytes": 2**34},
    "accelerators": [],
    "vendors": [],
    "packages": {},
}


def side(*summaries: RunSummary) -> Side:
    runs = {one.run.run_id: one.run for one in summaries}
    return Side(name="a side", runs=tuple(runs.values()), showings={one.cell.id: one for one in summaries})


def compared(before: RunSummary, now: RunSummary, *others: RunSummary) -> RunComparison:
    return compare_sides(side(before), side(now), {before.cell.id: [before, now, *others]})


def the_change(before: RunSummary, now: RunSummary, *others: RunSummary) -> CellChange:
    (found,) = compared(before, now, *others).changes
    return found


def since_green(*history: RunSummary) -> CellChange | None:
    return next(iter(compare_last_green(side(history[-1]), {history[-1].cell.id: list(history)}).changes), None)


GREEN, RED = shown(a_run("r1", 1)), shown(a_run("r2", 2), BROKEN)


def first(*broken: str, plan: dict[str, object] | None = None, **of_all: object) -> RunSummary:
    return shown(a_run("r1", 1, plan=plan or {}), broken, **of_all)


def second(*broken: str, run: dict[str, object] | None = None, **of_all: object) -> RunSummary:
    return shown(a_run("r2", 2, **(run or {})), broken, **of_all)


def test_a_run_is_green_only_if_every_planned_check_passed_on_the_requested_device():
    device, away = a_run("r1", 1, CUDA), {"substitution_reason": "not here", "actual_target": "cpu"}
    edited = {"conditions": {EDITED: "yes"}}
    states = {
        RunState.GREEN: [GREEN, shown(device), first(tolerance=1e-2, max_rel_error=5e-3)],
        RunState.FAILED: [RED, shown(device, CHECKS, actual_target=None)],
        RunState.UNKNOWN: [
            shown(device, **away),
            shown(device, BROKEN, **away),
            shown(device, outcome=Outcome.PASSED_ON_FALLBACK),
            first(**edited),
            first(*BROKEN, **edited),
            first(outcome=Outcome.SKIPPED),
            first(outcome=Outcome.AMBIGUOUS),
            first(max_rel_error=None),
            first(suite_hash="another"),
            first(started_at="2999-01-01T00:00:00+00:00"),
            first(offloaded_ops={"aten.mm": 1}),
        ],
    }
    assert {state: [one.state for one in shown_] for state, shown_ in states.items()} == {
        state: [state] * len(shown_) for state, shown_ in states.items()
    }


def test_what_was_cut_off_is_unknown_and_a_failure_that_came_before_stays_one():
    run = a_run("r1", 1)
    cut = summarize_run(run, lines_of(run)[:2])[BERT]
    assert (cut.state, cut.is_whole) == (RunState.UNKNOWN, False)
    failed = summarize_run(run, lines_of(run, BROKEN)[:2])[BERT]
    assert (failed.state, failed.is_whole, failed.failing) == (RunState.FAILED, True, ("matches_reference",))
    twice = summarize_run(run, [*lines_of(run), *lines_of(run), lines_of(run, ("backward",))[2]])[BERT]
    assert twice.failing == ("backward",)  # of two lines of one check the worse one counts
    more = [replace(line, check_name="unplanned") for line in lines_of(run, ("builds",))]
    assert summarize_run(run, [*lines_of(run), more[0]])[BERT].failing == ("unplanned",)
    assert (
        summarize_run(run, [*lines_of(run)[:3], more[3]])[BERT].state is RunState.UNKNOWN
    )  # no pass stands for another


def test_how_a_change_is_called():
    thin = {"plan": {"checks": (*CHECKS[:2], CHECKS[3])}}
    for before, now, kind in (
        (GREEN, second(), None),
        (GREEN, RED, ChangeKind.WORSE),
        (RED, replace(GREEN, run=a_run("r3", 3)), ChangeKind.BETTER),
        (GREEN, second(outcome=Outcome.SKIPPED), ChangeKind.WORSE),
        (first("backward"), RED, ChangeKind.WORSE),
        (RED, shown(a_run("r3", 3), ("backward",)), ChangeKind.BETTER),
        (first("builds"), second("backward"), ChangeKind.WORSE),
        (RED, shown(a_run("r3", 3), BROKEN, error_type="numerical_mismatch"), ChangeKind.CHANGED),
        (GREEN, second(run=thin), ChangeKind.CHANGED),
        (GREEN, second(tolerance=1e-3), ChangeKind.CHANGED),
        (first(plan={"subject": "checkpoint"}), second(), ChangeKind.CHANGED),
        (GREEN, second(actual_dtype="bfloat16"), ChangeKind.CHANGED),
    ):
        found = compared(before, now)
        assert [change.kind for change in found.changes] == ([kind] if kind else [])
        assert sum(found.same.values()) == (0 if kind else 1)
        assert found.met("error") == (kind is ChangeKind.WORSE)
    found = compare_sides(side(GREEN), side(shown(a_run("r2", 2, CUDA))), {})  # no cell in common
    assert [(change.cell, change.kind) for change in found.changes] == [
        (CUDA, ChangeKind.NEW),
        (BERT, ChangeKind.GONE),
    ]
    assert found.met("error") == 0


def causes(before: RunSummary, now: RunSummary) -> list[str]:
    return [one.name for one in cause_of(before, now, Hardware()).candidates]


def test_the_one_version_that_differs_is_named_if_the_target_depends_on_it():
    def cause(**versions: str):
        return the_change(GREEN, second(*BROKEN, run={"versions": versions})).cause

    one = cause(torch="2.14.0", numpy="2.5.0")
    assert str(one) == "only this differs: torch 2.13.0, now 2.14.0"
    assert [other.name for other in one.others] == ["numpy"]
    two = cause(torch="2.14.0", transformers="5.6.0")
    assert two.single is None
    assert [one.name for one in two.candidates] == ["torch", "transformers"]
    none = cause(numpy="2.5.0")
    assert none.single is None
    assert "nothing that the target depends on differs" in str(none)
    assert "no recorded difference" in str(the_change(GREEN, RED).cause)
    without = {name: text for name, text in GREEN.run.versions.items() if name != "transformers"}
    gone = shown(replace(a_run("r2", 2), versions=without), BROKEN)
    assert str(cause_of(GREEN, gone, Hardware())) == "only this differs: transformers 5.5.4, now absent"


def test_a_suite_a_tolerance_a_device_or_a_machine_is_a_candidate_too():
    other_suite = {"plan": {"suite_hash": "other"}}
    for now, names in (
        (second(*BROKEN, run=other_suite), ["suite"]),
        (second(*BROKEN, run=other_suite, config_hash="beef"), ["suite"]),
        (second(*BROKEN, model_revision="sha256:2"), []),  # the other side doesn't record it
        (second(*BROKEN, tolerance=1e-6), ["tolerance"]),
        (second(*BROKEN, run={"versions": {"hwcompat": "0.1.0+b"}}, tolerance=1e-6), ["hwcompat"]),
        (second(*BROKEN, accelerator="another device"), ["accelerator"]),
        (second(*BROKEN, accelerator=None), []),
        (second(*BROKEN, run={"machine": "lab"}), ["machine"]),
        (second(*BROKEN, run={"plan": {"subject": "config"}}), ["kind of weights"]),
        (second(*BROKEN, run={"isolation": "none"}), ["isolation"]),
    ):
        assert causes(GREEN, now) == names
    old, new = (shown(a_run(f"r{n}", n), model_revision=f"sha256:{n}") for n in (1, 2))
    assert causes(old, new) == ["weights"]
    assert compared(old, new).suites == {"weights": (BERT,)}
    # A condition that repeats a version is no second candidate.
    old = shown(a_run("r1", 1, versions={"torch": "a"}), conditions={"build": "a", "attention": "sdpa"})
    new = second(*BROKEN, run={"versions": {"torch": "b"}}, conditions={"build": "b", "attention": "sdpa"})
    assert causes(old, new) == ["torch"]


def test_two_machines_of_one_name_are_distinguished_by_their_inventory():
    other = {**INVENTORY, "cpu": {"model": "Xeon"}}
    old, new = shown(a_run("r1", 1, inventory=INVENTORY)), shown(a_run("r2", 2, inventory=other), BROKEN)
    found = compared(old, new)
    assert "cpu model EPYC, now Xeon" in str(found.changes[0].cause)
    assert any("two machines may share the name desk" in text for text in found.remarks)
    assert [one.name for one in found.inventory] == ["model"]
    broken = a_run("r2", 2, inventory={**INVENTORY, "accelerators": [{"vendor": "X", "extra_info": [1]}]})
    assert compared(old, shown(broken)).inventory == ()  # of another shape: nothing is said


def test_flaky_is_what_alternates_with_nothing_that_differs():
    third = shown(a_run("r3", 3))
    flaky = the_change(GREEN, RED, third)
    assert (flaky.kind, flaky.cause) == (ChangeKind.FLAKY, None)
    assert [one.run.run_id for one in flaky.alternating] == ["r1", "r2", "r3"]
    assert the_change(GREEN, third, RED).kind is ChangeKind.FLAKY  # green on both sides, and not in between
    assert the_change(GREEN, RED).kind is ChangeKind.WORSE  # once is no alternation
    assert the_change(GREEN, RED, shown(a_run("r3", 3), BROKEN)).kind is ChangeKind.WORSE
    for differs in (
        a_run("r3", 3, versions={"numpy": "2.5.0"}),
        a_run("r3", 3, machine="lab"),
        a_run("r3", 3, jobs=2),
        a_run("r3", 3, plan={"suite_hash": "other"}),
        replace(a_run("r3", 3), started_at="2999-01-01T00:00:00+00:00"),
    ):
        assert the_change(GREEN, RED, shown(differs)).kind is ChangeKind.WORSE
    unknown = shown(a_run("r3", 3), outcome=Outcome.SKIPPED)
    assert the_change(GREEN, RED, unknown).kind is ChangeKind.WORSE  # what says nothing doesn't alternate


def timed(start: int, times: list[float], torch: str, *, subject: str = "config", jobs: int = 1) -> list[RunSummary]:
    return [
        shown(a_run(f"r{day}", day, versions={"torch": torch}, plan={"subject": subject}, jobs=jobs), latency_ms=took)
        for day, took in enumerate(times, start)
    ]


FAST, SLOW = [10.0, 11.0, 12.0, 10.5, 11.5], [13.0, 14.0, 15.0, 13.5, 12.5]


def speed(
    times: list[float], *, before: list[float] = FAST, torch: str = "2.14.0", **more: object
) -> list[CellChange]:
    old, new = timed(1, before, "2.13.0", **more), timed(11, times, torch, **more)
    return list(compared(old[-1], new[-1], *old[:-1], *new[:-1]).changes)


def test_slower_needs_real_sizes_and_five_medians_beyond_the_spread():
    (slower,) = speed(SLOW)
    assert slower.kind is ChangeKind.SLOWER
    assert (slower.slower.check, slower.slower.before, slower.slower.now) == (
        "builds",
        (11.0, 10.0, 12.0),
        (13.5, 12.5, 15.0),
    )
    assert speed(SLOW, subject="tiny") == []
    assert speed(SLOW, jobs=2) == []
    assert speed(SLOW[:4]) == []
    assert speed(SLOW, before=FAST[:4]) == []
    assert speed([*SLOW[:4], 11.9]) == []  # one of them was as fast as the slowest before
    assert speed(FAST, before=SLOW) == []  # faster is no finding
    assert speed(SLOW, torch="2.13.0") == []  # nothing differs: these are ten of one kind


def test_last_green_is_found_and_the_change_is_that_to_the_first_run_after_it():
    first = shown(a_run("r2", 2, versions={"torch": "2.14.0"}), BROKEN)
    now = shown(a_run("r3", 3, versions={"torch": "2.14.0", "transformers": "5.6.0"}), BROKEN)
    found = since_green(shown(a_run("r0", 1), BROKEN), GREEN, first, now)
    assert (found.kind, found.before.run.run_id, found.now.run.run_id) == (ChangeKind.WORSE, "r1", "r3")
    assert found.cause.single.name == "torch"  # transformers moved later, and broke nothing
    assert found.remarks == ("unchanged since run r2",)
    cut = summarize_run(first.run, lines_of(first.run)[:1])[BERT]
    assert since_green(GREEN, cut, now).cause.after == "r3"  # a run that was cut off shows nothing


def test_never_green_is_no_regression_and_green_is_nothing_to_tell():
    assert since_green(shown(a_run("r1", 1), BROKEN), RED).kind is ChangeKind.NEVER
    assert since_green(RED, shown(a_run("r3", 3, versions={"torch": "9"}))) is None
    elsewhere = shown(a_run("r1", 1, CUDA), substitution_reason="not here", actual_target="cpu")
    assert since_green(elsewhere, shown(a_run("r2", 2, CUDA), BROKEN)).kind is ChangeKind.NEVER
    assert since_green(GREEN, RED, shown(a_run("r3", 3))).kind is ChangeKind.FLAKY


def test_suspects_are_counted_over_cells_and_the_only_differences_come_first():
    old = [shown(a_run("r1", 1, cell)) for cell in (BERT, CUDA)]
    run = a_run("r2", 2, versions={"torch": "2.14.0"})
    other = a_run("r2", 2, CUDA, versions={"torch": "2.14.0", "nvidia_driver": "600"})
    found = compare_sides(side(*old), side(shown(run, BROKEN), shown(other, BROKEN)), {})
    told = [(one.differing.name, len(one.cells), len(one.alone)) for one in found.suspects]
    assert told == [("torch", 2, 1), ("nvidia_driver", 1, 0)]


def test_a_change_is_dated_by_the_first_run_that_was_not_cut_off():
    cut = summarize_run(a_run("r2", 2), lines_of(a_run("r2", 2))[:2])[BERT]
    third, now = (shown(a_run(f"r{day}", day), outcome=Outcome.SKIPPED) for day in (3, 4))
    assert (cut.state, cut.is_whole, third.state, third.is_whole) == (RunState.UNKNOWN, False, RunState.UNKNOWN, True)
    found = since_green(GREEN, cut, third, now)
    assert found is not None
    assert "unchanged since run r3" in str(found)
