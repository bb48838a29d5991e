"""The runner with children that only sleep, fail and die: no torch, but real processes, several at a time."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from evidence_lines import run_line
from small_suites import DIES, FULL, GOOD, LEAVES, LOOKS, NO_ROOM, NOTES, STARTS

from hardware.basic_detection import inventory_here
from hardware.errors import OutputError
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.writer import EvidenceWriter
from hardware.testing import child_watch, runner
from hardware.testing.runner import Limits, run_suites
from hardware.testing.session import run_session
from hardware.testing.suite_file import SuiteFile, read_suite

pytestmark = pytest.mark.forks

Make = Callable[..., SuiteFile]
Go = Callable[..., Evidence]


class DeviceProbe:
    """A probe that answers at once."""

    def __init__(self, _target: object) -> None: ...

    def poll(self) -> object:
        return runner._WELL

    def kill(self) -> None: ...


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are forked from this process as it is: nothing has to be warmed for suites without a model."""
    monkeypatch.setattr(runner, "warm_up", lambda _suites: None)
    monkeypatch.setattr(runner, "may_fork", lambda _target: True)
    monkeypatch.setattr(runner, "Probe", DeviceProbe)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(name: str, body: str, *, target: str = "cpu", revision: str = "") -> SuiteFile:
        head = f'CELL = "{name}/fill-mask/{target}/float32"\n'
        head += f'MODEL_REVISION = "{revision}"\n' if revision else ""
        path = tmp_path / f"test_{name}_{target}.py"
        path.write_text(f"{head}\n\n{body}", encoding="utf-8")
        suite = read_suite(path)
        assert suite is not None
        return suite

    return make


@pytest.fixture
def go(tmp_path: Path) -> Go:
    def go(*suites: SuiteFile, jobs: int = 1, folder: str = "evidence") -> Evidence:
        """Run suites; only one called `hangs` has a deadline that a busy machine could miss."""
        writer = EvidenceWriter(tmp_path / folder, "run")
        limits = Limits(timeout_s=300.0, by_cell={one.cell.id: 5.0 for one in suites if one.cell.model == "hangs"})
        run = run_line(*(suite.planned() for suite in suites), run_id="run", jobs=jobs)
        try:
            run_suites(run, suites, writer, limits=limits, jobs=jobs)
        finally:
            writer.close()
        return read_folder(tmp_path / folder)

    return go


def lines_of(evidence: Evidence, model: str) -> dict[str, CheckLine]:
    return {line.check_name: line for line in evidence.checks if line.model == model}


def outcomes(evidence: Evidence, model: str) -> list[str]:
    return [str(line.outcome) for _, line in sorted(lines_of(evidence, model).items())]


@pytest.mark.parametrize("forked", [True, False])
def test_a_child_that_dies_or_finds_no_room_costs_its_own_suite_alone(make, go, monkeypatch, forked) -> None:
    monkeypatch.setattr(runner, "may_fork", lambda _target: forked)
    changed = make("changed", GOOD)  # two runs share a folder of suites, and the second one writes others
    changed.path.write_text(changed.path.read_text(encoding="utf-8") + "\n# another\n", encoding="utf-8")
    talks = "def test_first():\n    import os\n    os.write(2, b'words of the first')\n"
    group = [make("talks", talks, revision="abc"), make("dies", DIES, target="openvino", revision="abc")]
    refusals = [
        make(f"no-room-{one}", NO_ROOM.format(number=f"errno.{one}")) for one in ("ENOSPC", "EDQUOT", "EROFS")
    ]
    evidence = go(*group, make("full", FULL), changed, *refusals[: 3 if forked else 1], make("good", GOOD), jobs=2)
    assert outcomes(evidence, "good") == ["ambiguous"] * 2
    assert outcomes(evidence, "dies") == ["ambiguous", "crashed", "not_run"]
    crashed = lines_of(evidence, "dies")["second"]
    assert "test_second" in crashed.traceback
    assert "words of the first" not in crashed.traceback, "the log of a suite is its own"
    full = lines_of(evidence, "full")
    assert full.pop("first").outcome is Outcome.AMBIGUOUS  # what was kept before stays
    assert {(line.outcome, line.error_type) for line in full.values()} == {(Outcome.NOT_RUN, "disk_full")}
    assert all("File too large" in line.error_message for line in full.values())
    for suite in refusals[: 3 if forked else 1]:
        first, second = lines_of(evidence, suite.cell.model).values()
        assert (first.outcome, first.error_type) == (Outcome.NOT_RUN, "disk_full")
        assert "kept nowhere" in first.error_message
        assert second.outcome is Outcome.AMBIGUOUS
    left = lines_of(evidence, "changed").values()
    assert {(line.outcome, line.error_type) for line in left} == {(Outcome.NOT_RUN, "not_reached")}
    assert {line.suite_hash for line in left} == {changed.suite_hash}
    assert all("was changed after planning" in line.error_message for line in left)
    assert evidence.broken == ()


def test_what_children_and_their_workers_left_is_gone_before_the_next_begins(make, go, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    ends = {"passes": "pass", "exits": "os._exit(0)", "killed": "os.kill(os.getpid(), 9)"}
    ends["hangs"] = "import time; time.sleep(600)"
    notes = {name: tmp_path / name for name in ends}
    suites = []
    for name, end in ends.items():
        suites.append(make(name, LEAVES.format(note=str(notes[name]), ends=end)))
        suites.append(
            make(f"looks-{name}", LOOKS.format(note=str(notes[name])).replace('"there"', f'"there-{name}"'))
        )
    evidence = go(*suites)
    for name, note in notes.items():
        left = note.read_text(encoding="utf-8").splitlines()
        assert len(left) == 2
        assert all(Path(one).is_relative_to(folder) for one in left)
        assert (tmp_path / f"there-{name}").read_text(encoding="utf-8") == "0"
    assert list(folder.iterdir()) == []
    hung = lines_of(evidence, "hangs")["first"]
    assert hung.outcome is Outcome.TIMEOUT
    assert "no sign of life for 5 s in first" in hung.error_message
    assert "test_first" in hung.traceback  # where it hung


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's list of processes")
@pytest.mark.parametrize("forked", [True, False])
def test_what_a_child_started_ends_with_it(make, go, tmp_path, monkeypatch, forked) -> None:
    assert is_alive(os.getpid())
    monkeypatch.setattr(runner, "may_fork", lambda _target: forked)
    ends = {"passes": "pass", "fails": "assert False", "exits": "os._exit(0)", "aborts": "os.abort()"}
    suites = [make(name, STARTS.format(note=str(tmp_path / name), ends=end)) for name, end in ends.items()]
    looked = child_watch._has_ended

    def look_too_early(pid: int) -> bool | None:
        ended = looked(pid)
        if ended is False and forked:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it ends now, after the look
        return ended

    assert len(go(*suites, jobs=2).checks) == 4
    monkeypatch.setattr(child_watch, "_has_ended", look_too_early)
    again = make("again", STARTS.format(note=str(tmp_path / "again"), ends="os._exit(0)"))
    assert len(go(again, folder="early").checks) == 1
    for name in (*ends, "again"):
        started = int((tmp_path / name).read_text())
        gone = any(not is_alive(started) or time.sleep(0.05) for _ in range(200))
        assert gone, name


def test_an_error_of_a_child_outside_of_any_check_is_in_its_log(make, go, monkeypatch) -> None:
    def fails(*_arguments: object) -> None:
        raise RuntimeError("a part is broken")

    monkeypatch.setattr("hardware.testing.suite_child._run_suite", fails)
    (first, second) = go(make("good", GOOD)).checks
    assert (first.outcome, second.outcome) == (Outcome.CRASHED, Outcome.NOT_RUN)
    assert "RuntimeError: a part is broken" in first.traceback


def test_evidence_that_is_removed_while_the_run_goes_on_is_an_output_error(make: Make, tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    suite = make("removes", f"import shutil\n\n\ndef test_first():\n    shutil.rmtree({str(evidence)!r})\n")
    how = {"evidence": evidence, "command": "", "limits": Limits(timeout_s=300.0), "jobs": 1}
    with pytest.raises(OutputError, match="was removed during the run"):
        run_session([suite], [suite.planned()], inventory_here(), **how)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_all_children_and_closes_the_record(make, go, tmp_path, number) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    body = NOTES.format(folder=str(folder), seconds=600)

    def interrupt() -> None:
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        go(*(make(f"model{n}", body) for n in range(3)), jobs=2)
    for path in folder.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name.split("-")[1]), 0)
    evidence = read_folder(tmp_path / "evidence")
    assert {(line.outcome, line.error_type) for line in evidence.checks} == {(Outcome.NOT_RUN, "interrupted")}
    assert len(evidence.checks) == 3
    assert evidence.ends[0].reason == "interrupted"
