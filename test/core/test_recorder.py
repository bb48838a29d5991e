"""What the pytest plugin writes of a check, and what it never calls a pass."""

from __future__ import annotations

import errno
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.cell import Cell
from hardware.errors import OutputError
from hardware.evidence.record import Outcome
from hardware.testing import measurement, pytest_plugin
from hardware.testing.check_lines import is_full_disk
from hardware.testing.pytest_plugin import EvidenceRecorder
from hardware.testing.suite_file import SuiteFile, stamp

CELL = Cell.parse("bert/fill-mask/cuda/float32")
CHECKS = ("builds", "matches_reference")
SUITE = SuiteFile(path=Path("test_one.py"), cell=CELL, subject="tiny", checks=CHECKS, suite_hash="h")


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
def recorder(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> EvidenceRecorder:
    found = EvidenceRecorder(writer)
    monkeypatch.setattr(found, "_suite", lambda path: SUITE)
    return found


def reported(
    recorder: EvidenceRecorder, config: pytest.Config, check: str = "builds", excinfo: Any = None, **report: Any
) -> Any:
    """Return pytest's report of a check after the plugin saw it."""
    name = f"test_{check}"
    item = SimpleNamespace(name=name, originalname=name, funcargs={}, config=config, path=SUITE.path)
    made = SimpleNamespace(**{"when": "call", "outcome": "passed", "passed": True, "longrepr": None, **report})
    hook = recorder.pytest_runtest_makereport(item, SimpleNamespace(excinfo=excinfo))
    next(hook)
    with pytest.raises(StopIteration) as done:
        hook.send(made)
    return done.value.value


def test_a_check_that_uses_no_case_of_ours_is_no_pass(recorder, writer, pytestconfig) -> None:
    report = reported(recorder, pytestconfig)
    assert [line.outcome for line in writer.written] == [Outcome.AMBIGUOUS]
    assert report.outcome == "skipped"
    assert "the device that ran it is unknown" in report.longrepr[2]


class Block(list):
    """Memory that a check took; weak references to it can be made."""


def test_a_check_that_ran_out_of_memory_gives_it_back_before_its_report(recorder, writer, pytestconfig) -> None:
    blocks = []

    def fill() -> None:
        taken = Block([0])
        blocks.append(weakref.ref(taken))
        raise MemoryError

    with pytest.raises(MemoryError) as error:
        fill()
    assert blocks[0]() is not None
    reported(recorder, pytestconfig, excinfo=error, passed=False, outcome="failed")
    assert blocks[0]() is None
    assert [line.outcome for line in writer.written] == [Outcome.OUT_OF_MEMORY]


def test_what_is_about_a_device_that_is_not_here_is_skipped(recorder, writer, pytestconfig, monkeypatch) -> None:
    facts = {"requested_target": "cuda", "actual_target": "cpu", "substitution_reason": "no driver"}
    monkeypatch.setattr(pytest_plugin, "_facts_of", lambda case: (facts, ""))
    for check in ("matches_reference", "runs_natively"):
        report = reported(recorder, pytestconfig, check)
        line = writer.written[-1]
        assert (line.outcome, line.error_type) == (Outcome.SKIPPED, "same_device")
        assert "cuda not found" in line.error_message
        assert report.outcome == "skipped"


def test_the_call_decides_and_so_does_whatever_else_did_not_pass(recorder, writer, pytestconfig) -> None:
    phases = {
        ("setup", "passed"): 0,
        ("teardown", "passed"): 0,
        ("setup", "failed"): 1,
        ("setup", "skipped"): 1,
        ("teardown", "failed"): 1,
        ("call", "failed"): 1,
    }
    for (when, outcome), lines in phases.items():
        writer.written.clear()
        reported(recorder, pytestconfig, when=when, outcome=outcome, passed=False)
        assert len(writer.written) == lines, (when, outcome)


def test_a_run_is_ended_by_those_who_opened_it(recorder, writer) -> None:
    recorder.pytest_sessionfinish(SimpleNamespace(), 0)
    assert writer.written == []
    own = EvidenceRecorder()
    own.pytest_sessionfinish(SimpleNamespace(), 0)  # nothing was collected, so nothing was opened
    own._writer = writer
    own.pytest_sessionfinish(SimpleNamespace(), 0)
    assert writer.written == ["end", "closed"]


def test_of_a_long_traceback_the_end_is_kept(recorder, writer) -> None:
    recorder._write_import_failures(SUITE, "first\n" + "x" * 100_000 + "\nImportError: no module\n", {})
    assert [line.error_type for line in writer.written] == ["missing_dependency"] * len(CHECKS)
    assert {len(line.traceback) for line in writer.written} == {12_000}
    assert writer.written[0].traceback.endswith("ImportError: no module\n")


def test_only_isolated_suites_as_they_were_generated_keep_references(tmp_path, writer, monkeypatch) -> None:
    suite = tmp_path / "test_bert.py"
    text = stamp(f'CELL = "{CELL.id}"\n\n\ndef test_builds():\n    pass')
    for given, more, kept in ((writer, "", True), (writer, "# more\n", False), (None, "", False)):
        monkeypatch.setattr(measurement, "keeps_references", True)
        suite.write_text(text + more)
        EvidenceRecorder(given).pytest_runtest_setup(SimpleNamespace(path=suite, name="test_builds"))
        assert measurement.keeps_references is kept


def test_a_full_disk_is_recognized_by_number_text_or_cause_and_not_in_assertions() -> None:
    by_cause, in_handler = RuntimeError("kept nowhere"), RuntimeError("while it was handled")
    by_cause.__cause__ = OSError(errno.EROFS, "refused")
    in_handler.__context__ = OSError(errno.EDQUOT, "refused")
    hidden = RuntimeError("another one")
    hidden.__context__, hidden.__suppress_context__ = OSError(errno.ENOSPC, "refused"), True
    full = [
        OSError(errno.ENOSPC, ""),
        OSError(errno.EFBIG, ""),
        ValueError("No space left on device"),
        OutputError("x"),
    ]
    assert [one for one in (*full, by_cause, in_handler) if not is_full_disk(one)] == []
    others = [None, OSError(errno.EACCES, "no"), ValueError("28"), AssertionError("no space left on device"), hidden]
    assert [one for one in others if is_full_disk(one)] == []
