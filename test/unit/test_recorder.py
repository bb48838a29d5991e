"""What the plug-in writes of a check, and what it never calls a pass."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.cell import Cell
from hardware.evidence.record import Outcome
from hardware.testing import pytest_plugin
from hardware.testing.suite_file import SuiteFile

SUITE = SuiteFile(
    path=Path("test_one.py"),
    cell=Cell.parse("bert/fill-mask/cuda/float32"),
    subject="tiny",
    checks=("builds", "matches_reference"),
    suite_hash="h",
)
PASSED = SimpleNamespace(excinfo=None)


class Writer:
    """Keeps what is written."""

    run_id, path = "run", "evidence"

    def __init__(self) -> None:
        self.written: list[Any] = []

    def write(self, line: Any) -> None:
        self.written.append(line)

    def end(self, *_: Any) -> None:
        self.written.append("end")

    def close(self) -> None:
        self.written.append("closed")


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def recorder(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> pytest_plugin.EvidenceRecorder:
    found = pytest_plugin.EvidenceRecorder(writer)
    monkeypatch.setattr(found, "_suite", lambda path: SUITE)
    return found


def item_of(request: pytest.FixtureRequest, check: str = "builds") -> Any:
    name = f"test_{check}"
    return SimpleNamespace(name=name, originalname=name, funcargs={}, config=request.config, path=SUITE.path)


def reported(recorder: pytest_plugin.EvidenceRecorder, item: Any, **report: Any) -> Any:
    made = SimpleNamespace(**{"when": "call", "outcome": "passed", "passed": True, "longrepr": None, **report})
    hook = recorder.pytest_runtest_makereport(item, PASSED)
    next(hook)
    try:
        hook.send(made)
    except StopIteration as done:
        return done.value
    raise AssertionError("the hook goes on")


def test_a_check_that_uses_no_case_of_ours_is_no_pass(recorder, writer, request):
    report = reported(recorder, item_of(request))
    assert [line.outcome for line in writer.written] == [Outcome.AMBIGUOUS]
    assert report.outcome == "skipped"
    assert "nothing says where it ran" in report.longrepr[2]


@pytest.mark.parametrize("check", ["matches_reference", "runs_natively"])
def test_what_asks_about_a_device_that_is_not_here_is_skipped(recorder, writer, request, monkeypatch, check):
    facts = {"requested_target": "cuda", "actual_target": "cpu", "substitution_reason": "no driver"}
    monkeypatch.setattr(pytest_plugin, "_facts_of", lambda case: (facts, ""))
    report = reported(recorder, item_of(request, check))
    (line,) = writer.written
    assert (line.outcome, line.error_type) == (Outcome.SKIPPED, "same_device")
    assert "cuda isn't here" in line.error_message
    assert report.outcome == "skipped"


@pytest.mark.parametrize(
    ("report", "lines"),
    [
        ({"when": "setup"}, 0),
        ({"when": "teardown"}, 0),
        ({"when": "setup", "outcome": "failed"}, 1),
        ({"when": "setup", "outcome": "skipped"}, 1),
        ({"when": "teardown", "outcome": "failed"}, 1),
        ({"when": "call", "outcome": "failed"}, 1),
    ],
)
def test_the_call_decides_and_whatever_else_did_not_pass(recorder, writer, request, report, lines):
    reported(recorder, item_of(request), **{"passed": False, **report})
    assert len(writer.written) == lines


def test_a_run_of_others_is_ended_by_them(recorder, writer):
    recorder.pytest_sessionfinish(SimpleNamespace(), 0)
    assert writer.written == []


def test_a_session_of_its_own_ends_its_run(writer):
    own = pytest_plugin.EvidenceRecorder()
    own.pytest_sessionfinish(SimpleNamespace(), 0)  # nothing was collected, so nothing was opened
    own._writer = writer
    own.pytest_sessionfinish(SimpleNamespace(), 0)
    assert writer.written == ["end", "closed"]


def test_of_a_long_traceback_the_end_is_kept(recorder, writer):
    recorder._write_import_failures(SUITE, "first\n" + "x" * 100_000 + "\nImportError: no module\n", {})
    assert [line.error_type for line in writer.written] == ["missing_dependency"] * len(SUITE.checks)
    assert {len(line.traceback) for line in writer.written} == {12_000}
    assert writer.written[0].traceback.endswith("ImportError: no module\n")
