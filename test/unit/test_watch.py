"""Whose clock runs out, with a clock and children that stand in: no time passes here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hardware.evidence.record import Outcome
from hardware.testing import child_watch as module
from hardware.testing.child_watch import ChildWatch
from hardware.testing.suite_child import ChildTask

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
    """A process that talks when told to; a kill ends it."""

    pid = 0
    returncode: int | None = None

    def __init__(self, pipe: int) -> None:
        self.pipe = os.dup(pipe)

    def says(self, *lines: str) -> None:
        os.write(self.pipe, "".join(f"{line}\n" for line in lines).encode())

    def poll(self) -> int | None:
        return self.returncode


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def start(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, tmp_path: Path
) -> Iterator[Callable[[], tuple[ChildWatch, Child]]]:
    children: list[Child] = []

    def stand_in(task: ChildTask, **_: object) -> Child:
        children.append(Child(task.pipe))
        return children[-1]

    def killed(_pid: int) -> None:
        for child in children:
            child.returncode = child.returncode if child.returncode is not None else -9

    monkeypatch.setattr(module, "_start", stand_in)
    monkeypatch.setattr(module, "kill_group", killed)
    monkeypatch.setattr(module.os, "kill", lambda *_: None)

    def start() -> tuple[ChildWatch, Child]:
        task = replace(TASK, log=str(tmp_path / "log-"))
        watch = ChildWatch(task, fork=False, timeouts_s=[5.0, 50.0], on_check=lambda *_: None)
        return watch, children[-1]

    yield start
    for child in children:
        os.close(child.pipe)


def test_each_check_has_the_whole_time(clock, start):
    watch, child = start()
    for number in range(4):
        clock.now += 4.9
        child.says(f"check {number}")
        assert watch.poll() == []
    child.says("over 0")
    child.returncode = 0
    (ending,) = watch.poll()
    assert (ending.outcome, ending.running) == (None, "3")


def test_what_one_child_says_is_no_sign_of_life_of_another(clock, start):
    silent, silent_child = start()
    silent_child.says("check first")
    assert silent.poll() == []
    talking, child = start()
    for number in range(2):
        clock.now += 3.0
        child.says(f"check {number}")
        assert talking.poll() == []
        assert silent.poll() == []
    clock.now += 1.0  # the silent one was asked where it hangs, and had its moment to answer
    silent.poll()
    (ending,) = silent.poll()
    assert ending.outcome is Outcome.TIMEOUT
    assert ending.message == "no sign of life for 5 s in first"


def test_each_suite_of_a_child_has_its_own_limit(clock, start):
    watch, child = start()
    child.says("suite 0", "check first", "over 0", "suite 1")
    (before,) = watch.poll()
    assert (before.number, before.outcome) == (0, None)
    clock.now += 40.0
    assert watch.poll() == []
    clock.now += 11.0
    watch.poll()
    clock.now += 1.0
    watch.poll()
    (ending,) = watch.poll()
    assert ending.message == "no sign of life for 50 s in the start"


def test_what_is_said_after_the_time_is_up_changes_nothing(clock, start):
    watch, child = start()
    clock.now += 5.1
    watch.poll()
    child.says("check late", "over 0")
    clock.now += 1.0
    watch.poll()
    (ending,) = watch.poll()
    assert (ending.outcome, ending.running) == (Outcome.TIMEOUT, "")


def test_a_child_that_is_not_to_be_a_fork_is_a_new_process(monkeypatch):
    started = []
    monkeypatch.setattr(module, "Child", lambda words, **options: started.append((words, options)))
    monkeypatch.setattr(module.os, "fork", lambda: pytest.fail("it was forked"))
    assert module._start(TASK, fork=False, reader=-1) is None
    ((words, options),) = started
    assert words == module.command_for(TASK)
    assert options.get("own_session", True), "it is ended with all that it starts"
