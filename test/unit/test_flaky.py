"""Flaky cells: what passed and failed while nothing recorded differs is quarantined, and no later pass frees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import BERT, GPT2, a_run, lines_of, write

from generators.compatibility.expiry import flaky_cells
from generators.compatibility.grade import level_rules
from generators.compatibility.judge import judge, required_checks
from generators.compatibility.verdict import Level
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import EDITED, Outcome
from hardware.evidence.store import read_folder
from hardware.evidence.versions import versions_of
from reports.reason_text import texts
from reports.reporter import HardwareCompatibilityReporter

CHECKS = required_checks(Cell.parse(BERT))
BROKEN = ("matches_reference",)


def found(*told: tuple[object, dict[str, object]]) -> dict[str, tuple[str, ...]]:
    runs = [run for run, _ in told]
    lines = [line for run, more in told for line in lines_of(run, **more)]
    return flaky_cells(
        Latest(
            alternating=tuple(lines),
            versions={run.run_id: run.versions for run in runs},
            machines={run.run_id: run.machine for run in runs},
        )
    )


@pytest.mark.parametrize("order", [(True, False), (False, True), (False, True, True, True)])
def test_a_check_that_failed_once_and_passed_once_is_flaky_in_any_order(order):
    told = [(a_run(f"r{day}", day), {} if green else {"broken": BROKEN}) for day, green in enumerate(order, start=1)]
    assert found(*told) == {BERT: tuple(f"r{day}" for day in range(1, len(order) + 1))}


DIFFERENT = {
    "another version": ({"versions": {"torch": "2.14.0"}}, {}),
    "another suite": ({"plan": {"suite_hash": "other"}}, {}),
    "another machine": ({"machine": "lab"}, {}),
    "another configuration": ({}, {"config_hash": "c0ffee2"}),
    "another condition": ({}, {"conditions": {"shapes": "static"}}),
    "another cell": ({"cells": (GPT2,)}, {}),
    "a time out": ({}, {"outcome": Outcome.TIMEOUT}),
    "no memory": ({}, {"outcome": Outcome.OUT_OF_MEMORY}),
    "not reached": ({}, {"outcome": Outcome.NOT_RUN}),
    "a fallback": ({}, {"substitution_reason": "it isn't here"}),
    "an edited suite": ({}, {"conditions": {EDITED: "by hand"}}),
    "a package that is missing": ({}, {"error_type": "missing_dependency"}),
    "a day to come": ({}, {"started_at": "2999-01-01T00:00:00+00:00"}),
}


@pytest.mark.parametrize(("of_run", "of_lines"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_has_a_reason_isn_t_flaky(of_run, of_lines):
    cells = of_run.get("cells", ())
    failing = a_run("r1", 1, *cells, **{name: value for name, value in of_run.items() if name != "cells"})
    more = {"outcome": Outcome.FAILED, **of_lines}
    assert found((failing, more), (a_run("r2", 2), {})) == {}


def test_other_checks_of_two_runs_say_nothing_of_each_other():
    passing = a_run("r1", 1, plan={"checks": ("builds",)})
    failing = a_run("r2", 2, plan={"checks": ("matches_reference",)})
    assert found((passing, {}), (failing, {"broken": BROKEN})) == {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (cells, broken) in enumerate((((BERT, GPT2), BROKEN), ((BERT,), ())), start=1):
        run = a_run(f"r{number}", number, *cells, versions=versions_of(detect()), plan={"checks": CHECKS})
        write(tmp_path, run, broken)
    return tmp_path


def test_both_ways_to_what_counts_name_the_same_cells(folder):
    for latest in (read_latest(folder), read_latest(read_folder(folder))):
        assert flaky_cells(latest) == {BERT: ("r1", "r2")}


def test_the_newest_run_doesn_t_make_it_green(folder):
    verdicts = {one.cell: one for one in judge(read_latest(folder), detect())}
    assert verdicts[BERT].level is Level.UNKNOWN
    assert texts(verdicts[BERT].reasons) == (
        "flaky, so quarantined: it passed and failed in runs between which nothing recorded differs (r1, r2); "
        "5 clean runs in a row end the quarantine",
    )


def test_a_report_names_it(folder):
    reporter = HardwareCompatibilityReporter(read_folder(folder))
    (finding,) = (one for one in reporter.collect_compatibility_test_errors() if one.error_type == "flaky")
    assert (finding.hardware_type, finding.model_name, str(finding.severity)) == ("cpu", "bert", "error")
    assert BERT in finding.message


def test_enough_clean_runs_in_a_row_end_the_quarantine():
    def told(clean: int):
        runs = [(a_run("r1", 1), {"broken": BROKEN})]
        return [*runs, *((a_run(f"r{day}", day), {}) for day in range(2, clean + 2))]

    assert found(*told(level_rules().clean_runs - 1))
    assert found(*told(level_rules().clean_runs)) == {}
    last = (a_run("r9", 9), {"broken": BROKEN})
    assert found(*told(level_rules().clean_runs), last)


def test_runs_of_an_older_version_keep_no_newer_one_in_quarantine():
    older = {"versions": {"torch": "2.12.0"}}
    runs = [(a_run("r1", 1, **older), {"broken": BROKEN}), (a_run("r2", 2, **older), {}), (a_run("r3", 3), {})]
    assert found(*runs[:2])
    assert found(*runs) == {}


def test_a_modified_checker_makes_no_cell_flaky():
    versions = {**a_run("r1", 1).versions, "checker/runner": "1+000000000000"}
    assert found((a_run("r1", 1, versions=versions), {"broken": BROKEN}), (a_run("r2", 2), {})) == {}
