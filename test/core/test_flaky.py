"""Flaky cells: what passed and failed while nothing recorded differs is quarantined, and no later pass frees it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from front_doors import invoke
from made_runs import BERT, GPT2, a_run, lines_of, write

from generators.compatibility.expiry import flaky_cells
from generators.compatibility.grade import level_rules
from generators.compatibility.judge import judge
from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Level
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import EDITED, Outcome, RunLine
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import now
from reports.reason_text import texts
from reports.reporter import HardwareCompatibilityReporter

BROKEN = {"broken": ("matches_reference",)}
Known = tuple[RunLine, Mapping[str, object]]


def found(*known: Known) -> Mapping[str, tuple[str, ...]]:
    """Return the flaky cells of runs, each with what its lines differ in."""
    return flaky_cells(
        Latest(
            alternating=tuple(line for run, more in known for line in lines_of(run, **more)),
            versions={run.run_id: run.versions for run, _ in known},
            machines={run.run_id: run.machine for run, _ in known},
        )
    )


def history(*green: bool, **of_runs: object) -> list[Known]:
    """Return a run a day that passed or failed."""
    return [(a_run(f"r{day}", day, **of_runs), {} if one else BROKEN) for day, one in enumerate(green, start=1)]


def test_a_check_that_failed_once_and_passed_once_is_flaky_in_any_order() -> None:
    for order in ((True, False), (False, True), (False, True, True, True)):
        assert found(*history(*order)) == {BERT: tuple(f"r{day}" for day in range(1, len(order) + 1))}


def test_a_failure_with_a_reason_makes_no_cell_flaky() -> None:
    """Something else differed, or the failure says nothing about the check."""
    modified = {**a_run("r1", 1).versions, "checker/runner": "1+000000000000"}
    failures: list[Known] = [
        (a_run("r1", 1, versions={"torch": "2.14.0"}), {}),
        (a_run("r1", 1, versions=modified), {}),
        (a_run("r1", 1, plan={"suite_hash": "other"}), {}),
        (a_run("r1", 1, machine="lab"), {}),
        (a_run("r1", 1, GPT2), {}),
        (a_run("r1", 1), {"config_hash": "c0ffee2"}),
        (a_run("r1", 1), {"conditions": {"shapes": "static"}}),
        (a_run("r1", 1), {"conditions": {EDITED: "by hand"}}),
        (a_run("r1", 1), {"outcome": Outcome.TIMEOUT}),
        (a_run("r1", 1), {"outcome": Outcome.OUT_OF_MEMORY}),
        (a_run("r1", 1), {"outcome": Outcome.NOT_RUN}),
        (a_run("r1", 1), {"substitution_reason": "it isn't here"}),
        (a_run("r1", 1), {"error_type": "missing_dependency"}),
        (a_run("r1", 1), {"started_at": "2999-01-01T00:00:00+00:00"}),
    ]
    flaky = [one for one in failures if found((one[0], {"outcome": Outcome.FAILED, **one[1]}), (a_run("r2", 2), {}))]
    assert flaky == []
    passing, failing = a_run("r1", 1, plan={"checks": ("builds",)}), a_run("r2", 2, plan={"checks": BROKEN["broken"]})
    assert found((passing, {}), (failing, BROKEN)) == {}, "two checks say nothing of each other"


def test_enough_clean_runs_in_a_row_end_the_quarantine() -> None:
    clean = [True] * level_rules().clean_runs
    assert found(*history(False, *clean[1:]))
    assert found(*history(False, *clean)) == {}
    assert found(*history(False, *clean, False))
    older = {"versions": {"torch": "2.12.0"}}
    assert found(*history(False, True, **older))
    assert found(*history(False, True, **older), (a_run("r3", 3), {})) == {}, "newer versions aren't in quarantine"


def test_the_newest_run_doesnt_make_it_green_and_a_report_names_it(tmp_path: Path) -> None:
    checks, versions = required_checks(Cell.parse(BERT)), versions_of(detect())
    for number, (cells, more) in enumerate((((BERT, GPT2), BROKEN), ((BERT,), {})), start=1):
        write(tmp_path, a_run(f"r{number}", number, *cells, versions=versions, plan={"checks": checks}), **more)
    latest = read_latest(tmp_path)
    assert flaky_cells(latest) == flaky_cells(read_latest(read_folder(tmp_path))) == {BERT: ("r1", "r2")}
    verdicts = {one.cell: one for one in judge(latest, detect())}
    assert verdicts[BERT].level is Level.UNKNOWN
    assert texts(verdicts[BERT].reasons) == (
        "flaky and quarantined: it passed and failed in runs without a recorded difference (r1, r2); "
        "5 clean runs in a row end the quarantine, or `hwcompat evidence clear-flaky`",
    )
    reporter = HardwareCompatibilityReporter(read_folder(tmp_path))
    (finding,) = (one for one in reporter.collect_compatibility_test_errors() if one.error_type == "flaky")
    assert (finding.hardware_type, finding.model_name, str(finding.severity)) == ("cpu", "bert", "error")
    assert BERT in finding.message


def test_a_user_ends_a_quarantine_with_a_reason_and_only_later_results_start_it_again(tmp_path: Path) -> None:
    folder, copy = tmp_path / "here", tmp_path / "copy"
    facts = {"versions": versions_of(detect()), "plan": {"checks": required_checks(Cell.parse(BERT))}}
    write(folder, a_run("20260101T000000Z-000001", 1, BERT, GPT2, **facts), broken=BROKEN["broken"])
    write(folder, a_run("20260102T000000Z-000002", 2, **facts))
    clear, before = ("evidence", "clear-flaky", "--evidence", folder), len([*folder.iterdir()])
    for words, why in (
        ((BERT,), "--reason"),
        ((BERT, "--reason", " "), "--reason is empty"),
        (("bart/fill-mask/cpu/float32", "--reason", "x"), f"Did you mean {BERT!r}"),
        ((BERT, GPT2, "--reason", "x"), f"{GPT2!r} isn't flaky"),
    ):
        refused = invoke(*clear, *words)
        assert (refused.code, why in refused.err) == (4, True), (words, refused)
    assert invoke(*clear, BERT, "--reason", "a loose cable").code == 0
    assert len([*folder.iterdir()]) == before + 1
    assert "isn't flaky" in invoke(*clear, BERT, "--reason", "again").err
    assert invoke("evidence", "merge", folder, "--evidence", copy).code == 0
    assert invoke("evidence", "compact", "--evidence", copy).code == 0
    for place in (folder, copy):
        for command in (("explain", BERT), ("report", "--collect-all", "--without-memory")):
            said = " ".join(invoke(*command, "--evidence", place).out.split())
            assert re.search("as flaky since [-0-9]+: a loose cable", said), (command, said)
    for number, broken in enumerate(((), *BROKEN.values()), start=3):
        write(folder, a_run(f"20990101T00000{number}Z-000000", 1, started_at=now(), **facts), broken=broken)
    assert list(flaky_cells(read_latest(folder))) == [BERT]


def test_a_quarantine_ends_on_the_machine_of_its_runs_alone_and_not_ahead_of_time() -> None:
    runs = [a_run(f"{machine}{day}", day, machine=machine) for machine in "ab" for day in (1, 2)]
    latest = Latest(
        alternating=tuple(line for run in runs for line in lines_of(run, **(BROKEN if run.run_id[1] == "1" else {}))),
        versions={run.run_id: run.versions for run in runs},
        machines={run.run_id: run.machine for run in runs},
    )
    for moment, left in ((now(), {"a1", "a2"}), ("2099-01-01T00:00:00+00:00", {"a1", "a2", "b1", "b2"})):
        clear = a_run("c", 3, started_at=moment, machine="b", cleared={BERT: "its power supply was replaced"})
        cleared = replace(latest, others=Evidence(other_runs=(clear,)))
        assert set(flaky_cells(cleared)[BERT]) == left
