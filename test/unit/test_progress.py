"""What people see while suites run: lines in a log, one bar on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hardware.evidence.record import Outcome
from hardware.testing.progress import Pace, ProgressLines, counted, in_words
from hardware.testing.suite_file import SuiteFile, read_suite
from reports.progress_bar import ProgressBar, progress_on

GOLDEN = Path(__file__).parents[1] / "recorded" / "suites"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def suites() -> tuple[SuiteFile, SuiteFile]:
    found = [read_suite(path) for path in sorted(GOLDEN.glob("test_*_cpu_float32.py"))[:2]]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def test_a_log_gets_one_line_for_each_suite_with_its_outcomes_and_what_is_left(
    suites: tuple[SuiteFile, SuiteFile],
) -> None:
    stream = io.StringIO()
    lines = progress_on(stream)
    assert isinstance(lines, ProgressLines)
    lines.planned(2)
    lines.began(suites[0], "builds")
    assert stream.getvalue() == ""
    lines.ended(suites[0], {Outcome.PASSED: 6, Outcome.FAILED: 1})
    lines.ended(suites[1], {Outcome.NOT_RUN: 7})
    first, last = stream.getvalue().splitlines()
    assert first == f"[1/2] {suites[0].cell.id}  6 passed, 1 failed"
    assert last == f"[2/2] {suites[1].cell.id}  7 not_run"


def test_what_runs_is_named_with_its_time_and_the_last_cells_get_no_estimate(
    suites: tuple[SuiteFile, SuiteFile],
) -> None:
    clock = 0.0
    stream = io.StringIO()
    lines = ProgressLines(stream, Pace(lambda: clock))
    lines.planned(4)
    lines.began(suites[0], "builds")
    lines.began(suites[1], "builds")
    clock = 10.0
    lines.ended(suites[0], {Outcome.PASSED: 1})
    lines.began(suites[0], "builds")
    clock = 50.0
    lines.ended(suites[0], {Outcome.PASSED: 1})
    lines.began(suites[0], "builds")
    lines.began(suites[0], "no_nan")
    one, other = (suite.cell.id for suite in suites)
    assert stream.getvalue().splitlines() == [
        f"[1/4, about 30 s left] {one}  1 passed; still running: {other} for 10 s",
        f"[2/4] {one}  1 passed; still running: {other} for 50 s",
        f"[2/4] {one} runs",
    ]


def test_many_suites_that_pass_do_not_flood_a_log(suites: tuple[SuiteFile, SuiteFile]) -> None:
    clock = 0.0
    stream = io.StringIO()
    lines = ProgressLines(stream, Pace(lambda: clock))
    lines.planned(100)
    for number in range(1, 101):
        clock = float(number)
        lines.ended(suites[0], {Outcome.PASSED: 1} if number != 13 else {Outcome.PASSED: 1, Outcome.CRASHED: 1})
    said = stream.getvalue().splitlines()
    assert [int(line[1:].partition("/")[0]) for line in said] == [1, 11, 13, 23, 33, 43, 53, 63, 73, 83, 93, 100]
    assert "1 crashed" in said[2]


def test_a_terminal_of_ci_is_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert isinstance(progress_on(Terminal()), ProgressLines)


def test_a_terminal_gets_a_bar_that_names_what_runs_and_counts_outcomes(
    suites: tuple[SuiteFile, SuiteFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    stream = Terminal()
    bar = progress_on(stream)
    assert isinstance(bar, ProgressBar)
    bar.planned(2)
    bar.began(suites[0], "matches_reference")
    bar.ended(suites[0], {Outcome.PASSED: 6, Outcome.CRASHED: 1})
    bar.began(suites[1], "save_reload")
    bar.planned(3)  # a second round of the same job
    bar.closed()
    text = stream.getvalue()
    assert f"{suites[0].cell.model} matches_reference" in text
    assert "6 passed, 1 crashed" in text
    assert f"{suites[1].cell.model} save_reload" in text
    assert "1/2" in text
    assert "1/5" in text


def test_estimates_are_as_exact_as_they_can_be() -> None:
    assert [in_words(seconds) for seconds in (0.4, 89, 100, 3540, 7500)] == [
        "0 s",
        "89 s",
        "2 min",
        "59 min",
        "2 h 5 min",
    ]
    assert counted({}) == "nothing was run"
