"""Evidence of several runs, versions and accelerators: what replaces what, and what is never averaged."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from judged_cells import PLAN, VERSIONS, ask, line, passed

from generators.compatibility.verdict import Basis, Level
from hardware.cell import Cell
from hardware.evidence.record import EDITED, Outcome
from reports.reason_text import texts


def test_other_versions_make_evidence_expired():
    lines = passed().values()
    moved = ask(lines, now={**VERSIONS, "torch": "2.14.0"})
    assert (moved.level, moved.basis) == (Level.HIGH, Basis.EXPIRED)
    assert any("torch 2.13.0, now 2.14.0" in reason for reason in texts(moved.reasons))
    assert ask(lines, then={}).basis is Basis.EXPIRED
    assert ask(lines, suite_hash="another").basis is Basis.EXPIRED
    assert ask(lines, suite_hash="abc").basis is Basis.MEASURED


def test_valid_evidence_goes_before_expired():
    old = passed(run_id="run2", outcome=Outcome.FAILED)
    verdict = ask([*passed().values(), *old.values()], then={"run1": VERSIONS, "run2": {"torch": "1"}})
    assert (verdict.level, verdict.basis) == (Level.HIGH, Basis.MEASURED)


@pytest.mark.parametrize("order", list(itertools.permutations(["run1", "run2"])))
def test_two_runs_that_disagree_give_the_worst_not_the_last(order):
    runs = {"run1": passed(), "run2": passed(run_id="run2")}
    runs["run2"]["matches_reference"] = line("matches_reference", Outcome.FAILED, run_id="run2")
    verdict = ask([one for name in order for one in runs[name].values()])
    assert verdict.level is Level.UNSUPPORTED


def test_accelerators_are_judged_apart_and_the_worst_counts():
    other = passed(run_id="run2", accelerator="L4")
    other["backward"] = line("backward", Outcome.FAILED, run_id="run2", accelerator="L4")
    verdict = ask([*passed().values(), *other.values()])
    assert verdict.level is Level.LOW
    assert any(reason.startswith("L4: backward failed") for reason in texts(verdict.reasons))
    assert any(reason.startswith("H200: all") for reason in texts(verdict.reasons))


def test_a_whole_run_on_each_of_two_accelerators_is_no_mixture_of_runs():
    other = passed(run_id="run2", accelerator="L4")
    assert ask([*passed().values(), *other.values()]).level is Level.HIGH
    both = replace(other["builds"], accelerator="H200")
    assert ask([*passed().values(), both]).level is Level.HIGH
    assert ask([*(line(check) for check in PLAN if check != "builds"), both]).level is Level.MEDIUM


def test_half_on_one_accelerator_and_half_on_another_is_not_a_whole():
    first, second = PLAN[:4], PLAN[4:]
    lines = [
        *(line(check) for check in first),
        *(line(check, run_id="run2", accelerator="L4") for check in second),
    ]
    assert ask(lines).level is Level.UNKNOWN


@pytest.mark.parametrize("worst_first", [True, False])
@pytest.mark.parametrize(
    ("check", "changes", "level"),
    [
        ("matches_reference", {"outcome": Outcome.FAILED}, Level.UNSUPPORTED),
        ("backward", {"outcome": Outcome.FAILED}, Level.LOW),
        ("backward", {"outcome": Outcome.AMBIGUOUS}, Level.UNKNOWN),
        ("backward", {"outcome": Outcome.SKIPPED, "error_type": "not_applicable"}, Level.LOW),
        ("backward", {"outcome": Outcome.NOT_RUN, "error_type": "not_reached"}, Level.HIGH),
    ],
)
def test_of_two_lines_of_a_check_in_one_run_the_worse_counts(check, changes, level, worst_first):
    second = line(check, **changes)
    good = list(passed().values())
    verdict = ask([second, *good] if worst_first else [*good, second])
    assert verdict.level is level
    assert len(verdict.evidence_ids) == len(set(verdict.evidence_ids)) == len(PLAN)


def test_an_edited_suite_shows_nothing_not_even_its_crash():
    edited = {"conditions": {EDITED: "by hand"}}
    verdict = ask(passed(**edited).values())
    assert (verdict.level, verdict.evidence_ids) == (Level.UNKNOWN, ())
    assert any("edited by hand" in reason for reason in texts(verdict.reasons))
    died = line("matches_reference", Outcome.CRASHED, actual_target=None, accelerator=None, **edited)
    assert ask([line("builds", **edited), died]).level is Level.UNKNOWN
    # One line that is marked marks the suite.
    assert ask([*passed().values(), died]).level is Level.UNKNOWN
    on_cpu = Cell.parse("gpt2/text-generation/cpu/float32")
    silent = replace(died, cell_id=on_cpu.id, requested_target="cpu")
    verdict = ask([silent], cell=on_cpu)
    assert verdict.level is Level.UNKNOWN
    assert any("edited by hand" in reason for reason in texts(verdict.reasons))


def test_an_edited_run_takes_nothing_from_another():
    edited = passed(run_id="run2", conditions={EDITED: "by hand"}, outcome=Outcome.FAILED)
    assert ask([*passed().values(), *edited.values()]).level is Level.HIGH


def test_a_run_whose_versions_are_not_known_is_expired_whatever_is_asked():
    assert ask(passed().values(), then={}, now={}).basis is Basis.EXPIRED


def test_what_was_put_together_from_several_runs_says_so():
    lines = {**passed(), "runs_natively": line("runs_natively", run_id="run2")}
    verdict = ask(lines.values())
    assert verdict.level is Level.MEDIUM
    assert "put together from several runs" in texts(verdict.conditions)
