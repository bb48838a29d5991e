"""The runner and its watch over children, with a clock and children that follow a script: no time passes here."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_lines import check_line, run_line

from generators.compatibility.fault import fault_of
from generators.compatibility.verdict import Fault, Level
from hardware.backends.factory import backend_class
from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import OutputError
from hardware.evidence.record import Outcome, Stage, to_dict
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.versions import RELEASE
from hardware.evidence.writer import EvidenceWriter
from hardware.step_times import SPEED
from hardware.testing import child_watch, runner
from hardware.testing.check_lines import line_for
from hardware.testing.child_watch import ChildWatch
from hardware.testing.device_state import DeviceState, Probed
from hardware.testing.progress import Progress
from hardware.testing.runner import Limits, run_suites
from hardware.testing.session import Session, exit_code, run_session
from hardware.testing.suite_child import ChildTask
from hardware.testing.suite_file import SuiteFile, read_suite, stamp

pytestmark = pytest.mark.forks

TASK = ChildTask(
    suites=["a", "b"],
    hashes=["", ""],
    evidence="",
    run_id="run",
    log="",
    pipe=-1,
    memory_limit=0,
    parent=0,
    pytest_arguments=[],
)


class Clock:
    """Stands still until it is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Child:
    """A process that writes to its pipe what a test tells it to; a kill ends it."""

    returncode: int | None = None
    done = False

    def __init__(self, task: ChildTask, pid: int) -> None:
        self.task, self.pid, self.pipe = task, pid, os.dup(task.pipe)

    def says(self, *lines: str) -> None:
        os.write(self.pipe, "".join(f"{line}\n" for line in lines).encode())

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int | None:
        return self.returncode


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(child_watch, "time", clock)
    return clock


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[list[Child]]:
    """The children that were started; none of their numbers is that of a process."""
    found: list[Child] = []

    def start(task: ChildTask, **_: object) -> Child:
        found.append(Child(task, (1 << 30) + len(found)))
        return found[-1]

    def kill(pid: int) -> None:
        child = found[pid - (1 << 30)]
        child.returncode = -9 if child.returncode is None else child.returncode

    monkeypatch.setattr(child_watch, "_start", start)
    monkeypatch.setattr(child_watch, "kill_group", kill)
    yield found
    for child in found:
        os.close(child.pipe)


# One child


@pytest.fixture
def start(children: list[Child], tmp_path: Path) -> Callable[[], tuple[ChildWatch, Child]]:
    def start() -> tuple[ChildWatch, Child]:
        task = replace(TASK, log=str(tmp_path / "log-"))
        watch = ChildWatch(task, fork=False, timeouts_s=[5.0, 50.0], on_check=lambda *_: None)
        return watch, children[-1]

    return start


def test_each_check_has_the_whole_time(clock, start) -> None:
    watch, child = start()
    for number in range(4):
        clock.now += 4.9
        child.says(f"check {number}")
        assert watch.poll() == []
    child.says("over 0")
    child.returncode = 0
    (ending,) = watch.poll()
    assert (ending.outcome, ending.running) == (None, "3")


def test_a_step_is_no_sign_of_life(clock, start) -> None:
    watch, child = start()
    child.says("check first")
    assert watch.poll() == []
    clock.now += 3.0
    child.says("step export")
    assert watch.poll() == []
    clock.now += 3.0
    for _ in range(2):  # it is asked where it hangs, and killed
        assert watch.poll() == []
        clock.now += 1.0
    (ending,) = watch.poll()
    assert (ending.outcome, ending.step) == (Outcome.TIMEOUT, "export")


def test_what_one_child_writes_is_no_sign_of_life_of_another(clock, start) -> None:
    silent, silent_child = start()
    silent_child.says("check first")
    assert silent.poll() == []
    talking, child = start()
    for number in range(2):
        clock.now += 3.0
        child.says(f"check {number}")
        assert talking.poll() == []
        assert silent.poll() == []
    silent_child.says("check late", "over 0")  # its time is up
    clock.now += 1.0  # it was asked where it hangs, and had its moment to answer
    silent.poll()
    (ending,) = silent.poll()
    assert (ending.outcome, ending.running) == (Outcome.TIMEOUT, "first")
    assert ending.message == "no sign of life for 5 s in first"


def test_each_suite_of_a_child_has_its_own_limit(clock, start) -> None:
    watch, child = start()
    child.says("suite 0", "check first", "over 0", "suite 1")
    (before,) = watch.poll()
    assert (before.number, before.outcome) == (0, None)
    clock.now += 40.0
    assert watch.poll() == []
    for moment in (11.0, 1.0):
        clock.now += moment
        assert watch.poll() == []
    (ending,) = watch.poll()
    assert ending.message == "no sign of life for 50 s in the start"


def test_a_pytest_that_ran_out_of_memory_is_told_as_such(start) -> None:
    for log, outcome in (("INTERNALERROR> MemoryError\n", Outcome.OUT_OF_MEMORY), ("", Outcome.CRASHED)):
        watch, child = start()
        child.says("suite 0", "check first")
        Path(f"{child.task.log}0").write_text(log)
        child.returncode = 3
        (ending,) = watch.poll()
        assert (ending.outcome, ending.running) == (outcome, "first")


def test_a_child_that_is_not_to_be_a_fork_is_a_new_process(monkeypatch) -> None:
    started = []
    monkeypatch.setattr(child_watch, "Child", lambda words, **options: started.append((words, options)))
    monkeypatch.setattr(child_watch.os, "fork", lambda: pytest.fail("it was forked"))
    assert child_watch._start(TASK, fork=False, reader=-1) is None
    ((words, options),) = started
    assert words == child_watch.command_for(TASK)
    assert options.get("own_session", True), "it is ended with all that it starts"


# A run of suites: each child follows the script of its model


class DeviceProbe:
    """A probe that answers at once."""

    found = Probed(state=DeviceState.ANSWERS)

    def __init__(self, _target: object) -> None: ...

    def poll(self) -> Probed:
        return self.found

    def kill(self) -> None: ...


SCRIPTS: dict[str, Sequence[str]] = {
    "good": ("first", "second", "over"),
    "dies": ("first", "second!", "-6"),
    "hangs": ("first!",),
    "leaves": ("first", "0"),
    "timed": ("first", "second", f"{SPEED}!", "-9"),
    "endless": ("first", "second", f"{SPEED}!"),
    "full": ("first", "second!", "full", "1"),
    "picky": ("first", "over"),
    "exports": ("first", "second!", "step export", "-8"),
    "exported": ("first", "second!", "step export", "step ", "-8"),
    "names": ("first", "second!", "step tidying", "-8"),
}
"""By model: the checks that are carried out, those that are only begun (!), steps, and how the child ends."""


class Runs:
    """Runs suites whose children follow scripts; what they do is done when the runner waits for them."""

    def __init__(self, folder: Path, children: list[Child], clock: Clock) -> None:
        self.folder, self.children, self.clock = folder, children, clock
        self.most = 0

    def suite(self, model: str, target: str = "cpu", **facts: str) -> SuiteFile:
        constants = {"CELL": f"{model}/fill-mask/{target}/float32", **facts}
        head = "".join(f'{name} = "{value}"\n' for name, value in constants.items())
        checks = "".join(f"\n\ndef test_{name}():\n    pass\n" for name in ("first", "second"))
        path = self.folder / f"test_{model}_{target}.py"
        path.write_text(stamp(head + checks), encoding="utf-8")
        found = read_suite(path)
        assert found is not None
        return found

    def wait(self, watches: Sequence[ChildWatch], _longest_s: float) -> None:
        """Let each child do all that it does, or time pass if each has."""
        self.most = max(self.most, len(watches))
        busy = [child for child in self.children if child.returncode is None and not child.done]
        self.clock.now += 0 if busy else 1
        for child in busy:
            child.done = True
            if all(self.follow(child, number) for number in range(len(child.task.suites))):
                child.returncode = 0

    def follow(self, child: Child, number: int) -> bool:
        """Let a child run one of its suites. Return whether it ended in order."""
        child.says(f"suite {number}")
        suite = read_suite(Path(child.task.suites[number]))
        for step in SCRIPTS[suite.cell.model.partition("-")[0]]:
            if step == "over":
                child.says("over 0")
                return True
            if step == "full":
                child.says("full OSError: File too large")
            elif step.startswith("step "):
                child.says(step)
            elif step.lstrip("-").isdecimal():
                child.returncode = int(step)
            else:
                child.says(f"check {step.removesuffix('!')}")
                if not step.endswith("!"):
                    self.write(child, suite, step)
        return False

    def write(self, child: Child, suite: SuiteFile, check: str) -> None:
        run_id = child.task.run_id
        with (Path(child.task.evidence) / f"{run_id}-{child.pid}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_dict(line_for(suite, run_id, check, Outcome.PASSED))) + "\n")

    def run(self, *suites: SuiteFile, progress: Progress | None = None, **how: object) -> Evidence:
        writer = EvidenceWriter(self.folder / "evidence", "run")
        line = run_line(*(suite.planned() for suite in suites), run_id="run")
        try:
            limits = Limits(timeout_s=5.0)
            run_suites(line, suites, writer, limits=limits, progress=progress or Progress(), **how)
        finally:
            writer.close()
        return read_folder(self.folder / "evidence")


@pytest.fixture
def runs(tmp_path: Path, children: list[Child], clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs(tmp_path, children, clock)
    monkeypatch.setattr(runner, "warm_up", lambda _suites: None)
    monkeypatch.setattr(runner, "may_fork", lambda _target: True)
    monkeypatch.setattr(runner, "Probe", DeviceProbe)
    monkeypatch.setattr(runner, "wait_for_any", found.wait)
    return found


def outcomes(evidence: Evidence) -> dict[str, list[str]]:
    """Return the outcomes of each cell by model and target, in the order of their checks."""
    found: dict[str, list[str]] = {}
    for line in sorted(evidence.checks, key=lambda line: line.check_name):
        found.setdefault(f"{line.model} {line.requested_target}", []).append(str(line.outcome))
    return found


def test_without_a_limit_the_target_says_how_long_a_check_may_take(runs: Runs) -> None:
    here, exported = runs.suite("good"), runs.suite("good", "openvino")
    assert Limits().timeout_of(here) == backend_class("cpu").DEADLINE_S
    assert Limits().timeout_of(exported) == backend_class("openvino").DEADLINE_S > backend_class("cpu").DEADLINE_S
    assert Limits(timeout_s=5.0).timeout_of(exported) == 5.0
    assert Limits(timeout_s=5.0, by_cell={exported.cell.id: 7.0}).timeout_of(exported) == 7.0


def test_every_planned_check_has_a_line_however_many_children_run_at_a_time(runs: Runs) -> None:
    names = ("good", "dies", "hangs", "leaves", "full", "good-2")
    for jobs in (1, 3):
        evidence = runs.run(*map(runs.suite, names), jobs=jobs)
        assert outcomes(evidence) == {
            "good cpu": ["passed", "passed"],
            "good-2 cpu": ["passed", "passed"],
            "dies cpu": ["passed", "crashed"],
            "hangs cpu": ["timeout", "not_run"],
            "leaves cpu": ["passed", "crashed"],
            "full cpu": ["passed", "not_run"],
        }
        lines = {(line.model, line.check_name): line for line in evidence.checks}
        assert lines["dies", "second"].error_message == "ended by SIGABRT"
        assert lines["leaves", "second"].error_message == "ended with exit code 0 before pytest finished"
        assert lines["hangs", "first"].error_message == "no sign of life for 5 s in first"
        assert lines["hangs", "second"].error_type == "not_reached"
        assert lines["full", "second"].error_type == "disk_full"
        assert "File too large" in lines["full", "second"].error_message
        (end,) = evidence.ends
        assert (end.reason, sum(end.counts.values())) == ("finished", 12)
        assert runs.most == jobs
        for path in (runs.folder / "evidence").iterdir():
            path.unlink()


def test_a_crash_is_recorded_at_the_step_of_loading_that_it_ended(runs: Runs) -> None:
    evidence = runs.run(*(runs.suite(name, "openvino") for name in ("exports", "exported", "names")))
    stages = {line.model: line.stage for line in evidence.checks if line.outcome is Outcome.CRASHED}
    assert stages == {"exports": Stage.EXPORT, "exported": Stage.RUN, "names": Stage.RUN}
    of_export = [line for line in evidence.checks if line.model == "exports"]
    cell = Cell.parse(of_export[0].cell_id)
    assert fault_of(cell, Level.LOW, of_export, []) is Fault.ROUTE


def test_a_child_that_ends_while_it_measures_leaves_its_checks_as_they_are(runs: Runs, monkeypatch) -> None:
    monkeypatch.setenv("HWCOMPAT_MEASURE", "1")
    notes: dict[str, str] = {}
    progress = Progress()
    progress.unmeasured = lambda suite, why: notes.update({suite.cell.model: why})
    evidence = runs.run(*map(runs.suite, ("timed", "endless", "dies", "good")), progress=progress)
    assert outcomes(evidence) == {
        **{f"{one} cpu": ["passed", "passed"] for one in ("timed", "endless", "good")},
        "dies cpu": ["passed", "crashed"],
    }
    assert notes["timed"] == "the child ended with -9 while it measured"
    assert notes["endless"] == "the child gave no sign of life for 5 s while it measured"
    assert notes["dies"] == "ended by SIGABRT"


def test_as_many_run_at_a_time_as_the_device_bears(runs: Runs) -> None:
    for target, most in (("cpu", 3), ("simulated", 1), ("cuda", 1)):
        runs.most = 0
        runs.run(*(runs.suite(f"good-{number}", target) for number in range(3)), jobs=3)
        assert runs.most == most


def test_suites_of_one_checkpoint_run_in_one_child_until_it_dies(runs: Runs, children: list[Child]) -> None:
    names = (("good", "cpu"), ("dies", "openvino"), ("good", "simulated"), ("good", "cuda"))
    suites = [runs.suite(*name, MODEL_REVISION="abc") for name in names]
    evidence = runs.run(*suites, runs.suite("good-2", MODEL_REVISION="def"), jobs=2)
    assert outcomes(evidence) == {
        "good cpu": ["passed", "passed"],
        "dies openvino": ["passed", "crashed"],
        "good simulated": ["passed", "passed"],
        "good cuda": ["passed", "passed"],
        "good-2 cpu": ["passed", "passed"],
    }
    started = [[read_suite(Path(one)).cell.target.name for one in child.task.suites] for child in children]
    assert started == [["cpu", "openvino", "simulated", "cuda"], ["simulated", "cuda"], ["cpu"]]


def test_what_is_left_for_a_lost_device_is_not_run_and_other_targets_go_on(runs, monkeypatch) -> None:
    monkeypatch.setattr(DeviceProbe, "found", Probed(state=DeviceState.LOST, reason="it hung"))
    suites = [runs.suite("dies", "simulated"), runs.suite("good", "simulated"), runs.suite("good-2")]
    evidence = runs.run(*suites, jobs=2)
    assert outcomes(evidence) == {
        "dies simulated": ["passed", "crashed"],
        "good simulated": ["not_run", "not_run"],
        "good-2 cpu": ["passed", "passed"],
    }
    lines = {(line.model, line.check_name): line for line in evidence.checks}
    assert "it hung" in lines["dies", "second"].error_message
    assert lines["good", "first"].error_type == "device_lost"
    assert "it hung" in lines["good", "first"].error_message


def test_checks_that_were_left_out_and_models_that_are_missing_are_not_run(runs: Runs) -> None:
    missing = replace(runs.suite("good"), missing="no such model")
    evidence = runs.run(runs.suite("picky"), missing, pytest_arguments=["-k", "first"])
    lines = {(line.model, line.check_name): (line.outcome, line.error_type) for line in evidence.checks}
    assert lines["picky", "second"] == (Outcome.NOT_RUN, "deselected")
    assert lines["good", "first"] == lines["good", "second"] == (Outcome.NOT_RUN, "weights_missing")


class Interrupts(Progress):
    """Somebody presses Ctrl-C when a suite of this model begins."""

    def __init__(self, model: str) -> None:
        self.model = model

    def began(self, suite: SuiteFile, check: str) -> None:
        if suite.cell.model == self.model:
            raise KeyboardInterrupt


def test_an_interruption_ends_all_children_and_closes_the_record(runs: Runs, children: list[Child]) -> None:
    with pytest.raises(KeyboardInterrupt):
        runs.run(*map(runs.suite, ("hangs", "hangs-2", "good")), jobs=2, progress=Interrupts("hangs"))
    evidence = read_folder(runs.folder / "evidence")
    assert {(line.outcome, line.error_type) for line in evidence.checks} == {(Outcome.NOT_RUN, "interrupted")}
    assert len(evidence.checks) == 6
    assert evidence.ends[0].reason == "interrupted"
    assert [child.returncode for child in children] == [-9, -9]


def test_a_session_that_was_interrupted_is_resumed_and_then_complete(runs, monkeypatch) -> None:
    suites, evidence, notes, here = [*map(runs.suite, ("good", "hangs"))], runs.folder / "evidence", [], detect()

    def session(**how: Any) -> Session:
        plan = [suite.planned({"level": "high"}) for suite in suites]
        more = {"command": "c", "machine": "lab", "limits": Limits(timeout_s=5.0), "jobs": 1, "on_note": notes.append}
        return run_session(suites, plan, here, evidence=evidence, **{**more, **how})

    first = session(progress=Interrupts("hangs"))
    assert (first.interrupted, notes) == (True, [])
    monkeypatch.setitem(SCRIPTS, "hangs", SCRIPTS["good"])
    second = session(resume=True)
    good, other = (suite.cell.id for suite in suites)
    assert (second.interrupted, second.run_of(good), second.run_of(other)) == (False, first.run_id, second.run_id)
    assert notes[0] == f"resuming run {first.run_id}: 1 cell(s) are done, 1 run"
    run = read_folder(evidence).run(second.run_id)
    assert ([one.cell_id for one in run.plan], run.resumes, run.jobs) == ([other], (first.run_id,), 1)
    assert (run.machine, run.command, run.versions["hwcompat"]) == ("lab", "c", RELEASE)
    third = session(resume=True)
    assert (third.run_id, notes[-1]) == (second.run_id, f"nothing to resume: run {second.run_id} is complete")


def test_the_exit_code_of_a_run_shows_failures_unreached_checks_and_missing_devices() -> None:
    passed, failed = check_line(), check_line("builds", Outcome.FAILED)
    unreached, left_out = (
        check_line("builds", Outcome.NOT_RUN, error_type=one) for one in ("not_reached", "deselected")
    )
    for lines, missing, code in (
        ([passed], False, 0),
        ([passed], True, 1),
        ([passed, failed], False, 1),
        ([passed, unreached], False, 1),
        ([passed, left_out], False, 0),
        ([left_out, left_out], False, 5),
    ):
        assert exit_code(lines, missing=missing) == code


def test_a_temporary_folder_without_room_is_an_output_error_and_the_run_can_be_gone_on_with(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = tempfile.mkdtemp, []

    def full(*words: object, **named: object) -> str:
        if not room:
            raise OSError(28, "No space left on device")
        room.pop()
        return real(*words, **named)

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    for folders, left in ((0, {"good", "good-2"}), (1, {"good", "good-2"}), (2, {"good-2"})):
        room[:] = [None] * folders
        with pytest.raises(OutputError, match=r"temporary folder.*TMPDIR.*--resume"):
            runs.run(runs.suite("good"), runs.suite("good-2"))
        evidence = read_folder(runs.folder / "evidence")
        silent = [line for line in evidence.checks if line.outcome is Outcome.NOT_RUN]
        assert {(line.model, line.error_type) for line in silent} == {(name, "interrupted") for name in left}
        assert len(evidence.checks) == 4
        assert [end.reason for end in evidence.ends] == ["aborted"]
        for path in (runs.folder / "evidence").iterdir():
            path.unlink()
