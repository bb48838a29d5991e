"""What people see while suites run: lines in a log, one bar on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

from hardware.cell import Cell
from hardware.command_line import is_quiet, note, run_command_line
from hardware.evidence.record import Outcome
from hardware.testing.progress import Pace, ProgressLines, counted, in_words
from hardware.testing.suite_file import SuiteFile
from hwcompat.cli.main_program import _prepared
from reports.progress_bar import ProgressBar, progress_on, working_on

FACTS = {"path": Path("test_x.py"), "subject": "tiny", "checks": ("builds",), "suite_hash": "0"}
BERT, GPT2 = (
    SuiteFile(cell=Cell.parse(cell), **FACTS)
    for cell in ("bert/fill-mask/cpu/float32", "gpt2/text-generation/cpu/float32")
)
PASSED = {Outcome.PASSED: 1}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0


def test_a_log_gets_one_line_for_each_suite_with_its_outcomes_and_what_is_left() -> None:
    stream = io.StringIO()
    lines = progress_on(stream)
    assert isinstance(lines, ProgressLines)
    lines.planned(2)
    lines.began(BERT, "builds")
    assert stream.getvalue() == "[0/2] loading torch\n"
    lines.ended(BERT, {Outcome.PASSED: 6, Outcome.FAILED: 1})
    lines.ended(GPT2, {Outcome.NOT_RUN: 7})
    assert stream.getvalue().splitlines()[1:] == [
        f"[1/2] {BERT.cell.id}  6 passed, 1 failed",
        f"[2/2] {GPT2.cell.id}  7 not_run",
    ]


def test_what_runs_is_named_with_its_time_and_the_last_cells_get_no_estimate() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = ProgressLines(stream, Pace(lambda: clock.now))
    lines.planned(4)
    lines.began(BERT, "builds")
    lines.began(GPT2, "builds")
    for clock.now in (10.0, 50.0):
        lines.ended(BERT, PASSED)
        lines.began(BERT, "builds")
    lines.began(BERT, "no_nan")
    assert stream.getvalue().splitlines()[1:] == [
        f"[1/4, about 30 s left] {BERT.cell.id}  1 passed; still running: {GPT2.cell.id} for 10 s",
        f"[2/4] {BERT.cell.id}  1 passed; still running: {GPT2.cell.id} for 50 s",
        f"[2/4] {BERT.cell.id} runs builds",
    ]


def test_a_long_suite_names_its_checks_after_three_seconds_without_a_line() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = ProgressLines(stream, Pace(lambda: clock.now))
    lines.planned(2)
    for clock.now, check in ((1.0, "builds"), (4.0, "matches_reference"), (5.0, "backward")):
        lines.began(BERT, check)
    assert stream.getvalue().splitlines() == ["[0/2] loading torch", f"[0/2] {BERT.cell.id} runs matches_reference"]


def test_one_long_check_shows_how_long_it_runs() -> None:
    clock, log, terminal = Clock(), io.StringIO(), Terminal()
    shown = ProgressLines(log, Pace(lambda: clock.now)), ProgressBar(terminal, Pace(lambda: clock.now))
    for one in shown:
        clock.now = 0.0
        one.planned(1)
        one.began(BERT, "builds")
        for clock.now in range(1, 62):
            one.waiting()
        one.closed()
    still = f"[0/1] still running: {BERT.cell.id} for"
    assert log.getvalue().splitlines() == ["[0/1] loading torch", f"{still} 30 s", f"{still} 1 min 0 s"]
    assert all(f"builds {seconds} s" in " ".join(terminal.getvalue().split()) for seconds in range(60))


def test_many_suites_that_pass_do_not_flood_a_log() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = ProgressLines(stream, Pace(lambda: clock.now))
    lines.planned(100)
    for number in range(1, 101):
        clock.now = float(number)
        lines.ended(BERT, PASSED if number != 13 else {**PASSED, Outcome.CRASHED: 1})
    shown = stream.getvalue().splitlines()[1:]
    assert [int(line[1:].partition("/")[0]) for line in shown] == [1, 11, 13, 23, 33, 43, 53, 63, 73, 83, 93, 100]
    assert "1 crashed" in shown[2]


def test_a_terminal_gets_a_bar_that_names_what_runs_and_counts_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert isinstance(progress_on(Terminal()), ProgressLines), "a terminal of CI is a log"
    monkeypatch.delenv("CI")
    stream = Terminal()
    bar = progress_on(stream)
    assert isinstance(bar, ProgressBar)
    bar.planned(2)
    bar.began(BERT, "matches_reference")
    bar.ended(BERT, {Outcome.PASSED: 6, Outcome.CRASHED: 1})
    bar.began(GPT2, "save_reload")
    bar.planned(3)  # a second round of the same job
    bar.closed()
    written = " ".join(stream.getvalue().split())
    running = (f"{BERT.cell.id} matches_reference", f"{GPT2.cell.id} save_reload")
    for shown in ("loading torch", *running, "6 passed, 1 crashed", "1/2", "1/5"):
        assert shown in written


def test_estimates_are_as_exact_as_they_can_be() -> None:
    wanted = {0.4: "0 s", 89: "89 s", 100: "2 min", 3540: "59 min", 7500: "2 h 5 min"}
    assert {seconds: in_words(seconds) for seconds in wanted} == wanted
    assert counted({}) == "nothing was run"


def test_a_terminal_shows_what_a_command_works_on_and_a_log_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with working_on("judging the evidence"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with working_on("judging the evidence"):
        pass
    assert "judging the evidence" in terminal.getvalue()


def test_quiet_hides_progress_and_notes_of_one_command_line(capsys) -> None:
    @click.command()
    def command() -> None:
        note("something")

    assert _prepared(command) is command
    for words, shown in ((["--quiet"], False), ([], True)):
        assert run_command_line(command, words, program="p") == 0
        assert ("note: something" in capsys.readouterr().err) is shown
        assert is_quiet() is not shown
        assert isinstance(progress_on(io.StringIO()), ProgressLines) is shown
