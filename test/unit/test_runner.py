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
from small_suites import DIES, FULL, GOOD, HANGS, LEAVES, LOOKS, NO_ROOM, NOTES, STARTS

from hardware.backends.factory import backend_class
from hardware.errors import OutputError
from hardware.evidence.record import Outcome, RunLine
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.writer import EvidenceWriter
from hardware.testing import child_watch, runner
from hardware.testing.device_state import DeviceState, Probed
from hardware.testing.runner import Limits, run_suites
from hardware.testing.session import run_session
from hardware.testing.suite_file import SuiteFile, read_suite


class _Asked:
    """A probe that answers at once."""

    found = Probed(state=DeviceState.ANSWERS)

    def __init__(self, _target: object) -> None:
        pass

    def poll(self) -> Probed:
        return self.found

    def kill(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are forked from this process as it is: nothing has to be warmed for suites without a model."""
    monkeypatch.setattr(runner, "warm_up", lambda _suites: None)
    monkeypatch.setattr(runner, "may_fork", lambda _target: True)
    monkeypatch.setattr(runner, "Probe", _Asked)
    monkeypatch.setattr(_Asked, "found", Probed(state=DeviceState.ANSWERS))


Make = Callable[..., SuiteFile]


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


def test_without_a_limit_the_target_says_how_long_a_check_may_take(make: Make) -> None:
    here, exported = make("good", GOOD), make("good", GOOD, target="openvino")
    assert Limits().timeout_of(here) == backend_class("cpu").DEADLINE_S
    assert Limits().timeout_of(exported) == backend_class("openvino").DEADLINE_S > backend_class("cpu").DEADLINE_S
    assert Limits(timeout_s=5.0).timeout_of(exported) == 5.0
    assert Limits(timeout_s=5.0, by_cell={exported.cell.id: 7.0}).timeout_of(exported) == 7.0


@pytest.fixture
def go(tmp_path: Path) -> Callable[..., Evidence]:
    def go(*suites: SuiteFile, jobs: int = 1, hung_after_s: float = 10.0) -> Evidence:
        """Only suites called `hangs` have a deadline that a busy machine could miss."""
        writer = EvidenceWriter(tmp_path / "evidence", "run")
        plan = tuple(suite.planned() for suite in suites)
        facts = {
            "command": "",
            "machine": "",
            "inventory": {},
            "versions": {},
            "started_at": "2026-01-01T00:00:00+00:00",
        }
        try:
            run_suites(
                RunLine(run_id="run", plan=plan, jobs=jobs, **facts),
                suites,
                writer,
                limits=Limits(
                    timeout_s=300.0,
                    by_cell={one.cell.id: hung_after_s for one in suites if one.cell.model == "hangs"},
                ),
                jobs=jobs,
            )
        finally:
            writer.close()
        return read_folder(tmp_path / "evidence")

    return go


def outcomes(evidence: Evidence, model: str) -> list[str]:
    return [str(line.outcome) for line in evidence.checks if line.model == model]


@pytest.mark.parametrize(
    "jobs", [pytest.param(1, marks=pytest.mark.extended), 2, pytest.param(3, marks=pytest.mark.extended)]
)
def test_what_is_found_does_not_depend_on_how_many_run_at_a_time(make, go, jobs):
    suites = [make("good", GOOD), make("dies", DIES), make("hangs", HANGS), make("other", GOOD)]
    evidence = go(*suites, jobs=jobs)
    assert outcomes(evidence, "good") == outcomes(evidence, "other") == ["ambiguous"] * 2
    assert sorted(outcomes(evidence, "dies")) == ["ambiguous", "crashed", "not_run"]
    assert sorted(outcomes(evidence, "hangs")) == ["not_run", "timeout"]
    (end,) = evidence.ends
    assert end.reason == "finished"
    assert sum(end.counts.values()) == 9


def test_a_check_that_hangs_is_named_with_the_line_where_it_does(make, go):
    evidence = go(make("good", GOOD), make("hangs", HANGS), jobs=2)
    hung = next(line for line in evidence.checks if line.outcome is Outcome.TIMEOUT)
    assert (hung.model, hung.check_name) == ("hangs", "first")
    assert "no sign of life for 10 s in first" in hung.error_message
    assert "test_first" in hung.traceback  # where it hung


@pytest.mark.parametrize("ends", ["pass", "os._exit(0)", "os.kill(os.getpid(), 9)", "import time; time.sleep(600)"])
def test_what_a_child_and_its_workers_left_is_gone_before_the_next_begins(make, go, tmp_path, monkeypatch, ends):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    note = tmp_path / "note"
    leaves, looks = (
        make("hangs", LEAVES.format(note=str(note), ends=ends)),
        make("looks", LOOKS.format(note=str(note))),
    )
    go(leaves, looks, hung_after_s=8.0 if "sleep" in ends else 120.0)
    left = note.read_text(encoding="utf-8").splitlines()
    assert len(left) == 2
    assert all(Path(one).is_relative_to(folder) for one in left)
    assert (tmp_path / "there").read_text(encoding="utf-8") == "0"
    assert list(folder.iterdir()) == []


def most_at_once(folder: Path) -> int:
    spans = [(int(path.name.rpartition("-")[2]), int(path.read_text())) for path in folder.iterdir()]
    return max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)


@pytest.mark.parametrize("ends", ["pass", "assert False", "os._exit(0)", "os.abort()"])
@pytest.mark.parametrize("forked", [True, False])
def test_what_a_child_started_ends_with_it(make, go, tmp_path, monkeypatch, forked, ends):
    monkeypatch.setattr(runner, "may_fork", lambda _target: forked)
    note = tmp_path / "note"
    body = STARTS.format(note=str(note), ends=ends)
    evidence = go(make("starts", body))
    assert len(evidence.checks) == 1
    for _ in range(200):
        if not _is_alive(int(note.read_text())):
            break
        time.sleep(0.05)
    assert not _is_alive(int(note.read_text()))


def test_a_child_that_ends_while_it_is_looked_at_leaves_nothing(make, go, tmp_path, monkeypatch):
    def look_too_early(pid: int) -> bool | None:
        ended = looked(pid)
        if ended is False:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it ends now, after the look
        return ended

    looked = child_watch._has_ended
    monkeypatch.setattr(child_watch, "_has_ended", look_too_early)
    note = tmp_path / "note"
    go(make("starts", STARTS.format(note=str(note), ends="os._exit(0)")))
    started = int(note.read_text())
    for _ in range(200):
        if not _is_alive(started):
            break
        time.sleep(0.05)
    assert not _is_alive(started)


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's list of processes")
def test_a_process_is_told_from_one_that_is_gone():
    assert _is_alive(os.getpid())
    assert not _is_alive(2**22 + 1)


@pytest.mark.parametrize(
    ("target", "jobs", "most"),
    [("cpu", 1, 1), ("cpu", 3, 3), ("simulated", 3, 1), pytest.param("cuda", 3, 1, marks=pytest.mark.extended)],
)
def test_as_many_run_at_a_time_as_were_asked_for_and_as_the_device_bears(make, go, tmp_path, target, jobs, most):
    folder = tmp_path / "notes"
    folder.mkdir()
    body = NOTES.format(folder=str(folder), seconds=0.6)
    go(*(make(f"model{n}", body, target=target) for n in range(3)), jobs=jobs)
    assert len(list(folder.iterdir())) == 3
    assert most_at_once(folder) == most


def test_suites_of_one_checkpoint_run_in_one_child(make, go, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    body = NOTES.format(folder=str(folder), seconds=0)
    suites = [make("one", body, target=target, revision="abc") for target in ("cpu", "openvino")]
    evidence = go(*suites, make("two", body, revision="def"), jobs=2)
    children = {path.name.split("-")[1] for path in folder.iterdir()}
    assert len(children) == 2
    assert len(evidence.checks) == 3
    assert len(list((tmp_path / "evidence").iterdir())) == 3  # the parent's file, and one for each child


def test_after_a_crash_the_rest_of_a_checkpoints_suites_go_on_in_a_new_child(make, go):
    suites = [make("one", GOOD, target="cpu", revision="abc"), make("one", DIES, target="openvino", revision="abc")]
    suites.append(make("one", GOOD, target="simulated", revision="abc"))
    evidence = go(*suites)
    by_cell = {
        suite.cell.id: [str(x.outcome) for x in evidence.checks if x.cell_id == suite.cell.id] for suite in suites
    }
    assert by_cell[suites[0].cell.id] == by_cell[suites[2].cell.id] == ["ambiguous"] * 2
    assert sorted(by_cell[suites[1].cell.id]) == ["ambiguous", "crashed", "not_run"]
    crashed = next(line for line in evidence.checks if line.outcome is Outcome.CRASHED)
    assert (crashed.cell_id, crashed.check_name) == (suites[1].cell.id, "second")


def test_the_log_of_a_suite_in_a_group_is_its_own(make, go):
    talks = "def test_first():\n    import os\n    os.write(2, b'words of the first')\n"
    evidence = go(make("one", talks, revision="abc"), make("one", DIES, target="openvino", revision="abc"))
    crashed = next(line for line in evidence.checks if line.outcome is Outcome.CRASHED)
    assert "test_second" in crashed.traceback
    assert "words of the first" not in crashed.traceback


def test_what_is_left_for_a_lost_device_is_not_run_and_other_targets_go_on(make, go, monkeypatch):
    monkeypatch.setattr(_Asked, "found", Probed(state=DeviceState.LOST, reason="it hung"))
    suites = [make("one", DIES, target="simulated"), make("two", GOOD, target="simulated"), make("three", GOOD)]
    evidence = go(*suites, jobs=2)
    assert "crashed" in outcomes(evidence, "one")
    assert outcomes(evidence, "three") == ["ambiguous"] * 2
    left = [line for line in evidence.checks if line.model == "two"]
    assert {(line.outcome, line.error_type) for line in left} == {(Outcome.NOT_RUN, "device_lost")}
    assert "it hung" in left[0].error_message


@pytest.mark.parametrize("forked", [True, False])
def test_a_child_that_can_write_nothing_is_no_crash_and_says_why(make, go, monkeypatch, forked):
    monkeypatch.setattr(runner, "may_fork", lambda _target: forked)
    evidence = go(make("full", FULL), make("good", GOOD))
    full = {line.check_name: line for line in evidence.checks if line.model == "full"}
    assert full.pop("first").outcome is Outcome.AMBIGUOUS  # what was kept before stays
    assert {(line.outcome, line.error_type) for line in full.values()} == {(Outcome.NOT_RUN, "disk_full")}
    assert {"second", "third"} == set(full)
    assert all("File too large" in line.error_message for line in full.values())
    assert outcomes(evidence, "good") == ["ambiguous"] * 2
    assert evidence.broken == ()


@pytest.mark.parametrize("number", ["errno.ENOSPC", "errno.EDQUOT", "errno.EROFS"])
def test_a_check_that_finds_no_room_was_not_carried_out(make, go, number):
    evidence = go(make("model", NO_ROOM.format(number=number)))
    first, second = evidence.checks
    assert (first.outcome, first.error_type) == (Outcome.NOT_RUN, "disk_full")
    assert "kept nowhere" in first.error_message
    assert second.outcome is Outcome.AMBIGUOUS


def test_an_error_of_a_child_outside_of_any_check_is_in_its_log(make, go, monkeypatch, tmp_path):
    def fails(*_arguments: object) -> None:
        raise RuntimeError("a part is broken")

    monkeypatch.setattr("hardware.testing.suite_child._run_suite", fails)
    (first, second) = go(make("good", GOOD)).checks
    assert (first.outcome, second.outcome) == (Outcome.CRASHED, Outcome.NOT_RUN)
    assert "RuntimeError: a part is broken" in first.traceback


def test_a_suite_that_was_changed_after_it_was_planned_is_not_run(make, go):
    """Two runs share a folder of suites, and the second one writes others."""
    suite, other = make("good", GOOD), make("other", GOOD)
    suite.path.write_text(suite.path.read_text(encoding="utf-8") + "\n# another\n", encoding="utf-8")
    evidence = go(suite, other)
    lines = [line for line in evidence.checks if line.model == "good"]
    assert {(line.outcome, line.error_type) for line in lines} == {(Outcome.NOT_RUN, "not_reached")}
    assert {line.suite_hash for line in lines} == {suite.suite_hash}
    assert all("was changed after it was planned" in line.error_message for line in lines)
    assert outcomes(evidence, "other") == ["ambiguous"] * 2


def test_evidence_that_somebody_removes_while_the_run_goes_on_is_an_output_error(make, tmp_path):
    from hardware.basic_detection import inventory_here

    removes = f"import shutil\n\n\ndef test_first():\n    shutil.rmtree({str(tmp_path / 'evidence')!r})\n"
    suites = [make("removes", removes), make("good", GOOD)]
    with pytest.raises(OutputError, match="was removed while it ran"):
        run_session(
            suites,
            [suite.planned() for suite in suites],
            inventory_here(),
            evidence=tmp_path / "evidence",
            command="",
            limits=Limits(timeout_s=300.0),
            jobs=1,
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_all_children_and_closes_the_record(make, go, tmp_path, number):
    folder = tmp_path / "notes"
    folder.mkdir()
    body = NOTES.format(folder=str(folder), seconds=600)
    suites = [make(f"model{n}", body) for n in range(3)]

    def interrupt() -> None:
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        go(*suites, jobs=2)
    for path in folder.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name.split("-")[1]), 0)
    evidence = read_folder(tmp_path / "evidence")
    assert {(line.outcome, line.error_type) for line in evidence.checks} == {(Outcome.NOT_RUN, "interrupted")}
    assert len(evidence.checks) == 3
    assert evidence.ends[0].reason == "interrupted"


def test_a_child_that_leaves_early_leaves_no_suite_without_a_line(make, go, tmp_path):
    note = tmp_path / "note"
    leaves = f"""
import os
import threading
import time
from pathlib import Path


def leave():
    while not Path({str(note)!r}).exists():
        time.sleep(0.01)
    os._exit(0)


def test_first():
    threading.Thread(target=leave, daemon=True).start()
"""
    waits = f"""
import time
from pathlib import Path


def test_first():
    Path({str(note)!r}).touch()
    time.sleep(600)


def test_second():
    pass
"""
    suites = [make("one", leaves, revision="abc"), make("one", waits, target="openvino", revision="abc")]
    evidence = go(*suites, make("one", GOOD, target="simulated", revision="abc"))
    found = {target: [] for target in ("cpu", "openvino", "simulated")}
    for line in evidence.checks:
        found[line.requested_target].append(str(line.outcome))
    assert found["cpu"] == ["ambiguous"]
    assert sorted(found["openvino"]) == ["crashed", "not_run"]
    assert found["simulated"] == ["ambiguous"] * 2


def test_suites_that_may_not_be_forked_run_in_fresh_interpreters(make, go, monkeypatch):
    monkeypatch.setattr(runner, "may_fork", lambda _target: False)
    evidence = go(make("good", GOOD), make("dies", DIES), jobs=2)
    assert outcomes(evidence, "good") == ["ambiguous"] * 2
    assert sorted(outcomes(evidence, "dies")) == ["ambiguous", "crashed", "not_run"]


@pytest.mark.parametrize("there_are", [0, 1, 2])
def test_a_temporary_folder_without_room_is_an_output_error_and_the_run_can_be_gone_on_with(
    make, go, tmp_path, monkeypatch, there_are
):
    real, made = tempfile.mkdtemp, []

    def full(*words: object, **named: object) -> str:
        if len(made) == there_are:
            raise OSError(28, "No space left on device")
        made.append(real(*words, **named))
        return made[-1]

    suites = [make("good", GOOD), make("other", GOOD)]
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(OutputError, match=r"temporary folder.*TMPDIR.*--resume"):
        go(*suites)
    evidence = read_folder(tmp_path / "evidence")
    left = ["other"] if there_are == 2 else ["good", "other"]
    silent = [line for line in evidence.checks if line.outcome is Outcome.NOT_RUN]
    assert {(line.model, line.error_type) for line in silent} == {(name, "interrupted") for name in left}
    assert len(evidence.checks) == 4
    assert [end.reason for end in evidence.ends] == ["aborted"]
