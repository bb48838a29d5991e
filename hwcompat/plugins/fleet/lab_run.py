"""Runs suites on a lab machine and concludes here: copied once, started detached, fetched as it grows.

A line that breaks costs nothing but time, and a command that was killed finds its run again when it is given anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from generators.job import JobInterrupted, JobResult, WrittenSuite, result_of_runs
from hardware.changes import refuse_changes
from hardware.detection import HardwareInfo
from hardware.errors import UsageError
from hardware.evidence.versions import versions_of
from hardware.plain_text import size_text
from hardware.testing.progress import Progress
from hardware.testing.suite_file import SuiteFile, read_suite

from .lab_answers import (
    NEEDED_PACKAGES,
    Look,
    RunState,
    last_words,
    read_files,
    read_greeting,
    read_look,
    read_state,
    refuse_unready,
)
from .lab_evidence import LabEvidence, opened_evidence
from .lab_host import LabHost
from .lab_inventory import put
from .lab_line import MOST_BYTES
from .lab_machine import PATIENCE_S, LabMachine, LineLost
from .lab_parts import key_of, packed_bundle, packed_package

MOST_RESTARTS = 2
"""A run that is killed three times is told as that."""

_WAIT_S = 2.0
_LIMIT_S = 90.0


@dataclass(frozen=True, kw_only=True)
class LabRequest:
    """How suites are to run there: what `run.py` of a bundle takes. `checkpoints` are folders of that machine."""

    machine: str = ""
    timeout_s: float | None = None
    jobs: int | None = None
    allow_fallback: bool = False
    resume: bool = False
    checkpoints: Sequence[str] = ()

    def words(self, written: Sequence[WrittenSuite]) -> list[str]:
        """The words for `run.py`, but for `--resume`: whether it is a run's first part doesn't make it another."""
        words = [
            word for device in sorted({str(one.planned.device) for one in written}) for word in ("--device", device)
        ]
        words += ["--machine", self.machine] if self.machine else []
        words += ["--timeout", str(self.timeout_s)] if self.timeout_s else []
        words += ["--jobs", str(self.jobs)] if self.jobs else []
        return words + (["--allow-fallback"] if self.allow_fallback else [])


def run_in_lab(
    written: Sequence[WrittenSuite],
    host: LabHost,
    inventory: HardwareInfo,
    request: LabRequest,
    *,
    evidence: Path,
    command: str,
    patience_s: float = PATIENCE_S,
    progress: Progress | None = None,
    on_note: Callable[[str], None] = lambda _text: None,
) -> JobResult:
    """Run suites that were written on a host whose `inventory` they were planned with, and conclude for each cell.

    Where the same request runs there, or ended there unseen, that run is followed and none is started. Raises
    `UsageError` where the host isn't ready, `BrokenInput` where it answers what can't be, `JobInterrupted` where the
    run was ended before its time, or the line to it didn't come back.
    """
    refuse_changes()
    _refuse_weights(written, host, request)
    suites = [_suite(one) for one in written]
    with (
        opened_evidence(host.name, evidence, suites, progress or Progress()) as kept,
        LabMachine(host, patience_s=patience_s, on_note=on_note) as lab,
    ):
        run = _LabRun(lab, kept, written, request, command, on_note)
        run.prepare(inventory)
        try:
            cut = run.follow()
        finally:
            if progress:
                progress.closed()
            sent, received = size_text(lab.traffic.sent), size_text(lab.traffic.received)
            on_note(f"{sent} were sent to {host.name}, {received} came back")
    runs = kept.runs(run.told)
    if len(runs) < len(written):
        if cut:  # before there was anything to conclude from
            raise UsageError(cut.how, fix=cut.next_step)
        missing = next(one.planned.cell.id for one in written if one.planned.cell.id not in runs)
        raise UsageError(f"the run on {host.name} left no plan for {missing}", why=run.last_words)
    result = result_of_runs(written, runs, evidence, inventory)
    if cut:
        raise JobInterrupted(result, how=cut.how, next_step=cut.next_step)
    return result


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """Why a run ended before its time, or is no longer followed, and what to do."""

    how: str
    next_step: str = "Go on with the same command and --resume."


_FETCH = "It goes on there, and the same command fetches the rest."


class _LabRun:
    """One run on one lab machine, from what is there to its end."""

    def __init__(
        self,
        lab: LabMachine,
        kept: LabEvidence,
        written: Sequence[WrittenSuite],
        request: LabRequest,
        command: str,
        on_note: Callable[[str], None],
    ) -> None:
        self._lab = lab
        self._name = lab.host.name
        self._kept = kept
        self._written = written
        self._words = request.words(written)
        self._checkpoints = request.checkpoints
        self._resume = request.resume
        self._command = command
        self._note = on_note
        self._package = packed_package()
        self._key = key_of(written, [*self._words, *self._checkpoints], self._package)
        self._bundle = ""
        self._stopping = False
        self.told: dict[str, str] = {}
        self.last_words = ""

    def prepare(self, inventory: HardwareInfo) -> None:
        """See that the machine is ready, copy what isn't there, and start the run unless it is there already."""
        bundle = packed_bundle(self._written, versions_of(inventory), self._package)
        self._bundle = bundle.name
        answer = self._lab.ask(
            "hello",
            packages=NEEDED_PACKAGES,
            package=self._package.name,
            bundle=bundle.name,
            folders=list(self._checkpoints),
        )
        there = read_greeting(self._name, answer)
        refuse_unready(self._name, there, runs=True)
        state = self._refuse_busy(self._state())
        if not there.has_package:
            put(self._lab, "packages", self._package)
        if not there.has_bundle:
            put(self._lab, "bundles", bundle, self._package.name)
        if state.state == "running":
            self._note(f"this runs on {self._name} already; it is followed and not started again")
        elif state.is_dead:
            self._note(f"this was cut off on {self._name}; what is left of it runs")
            self._start(again=True)
        elif state.state == "ended" and not state.collected:
            self._note(f"this ended on {self._name} and wasn't fetched yet; nothing runs again")
        else:
            self._start(again=False)
            self._note(f"{len(self._written)} suite(s) run on {self._name}, whether this line holds or not")
        self._begin_with_what_is_here()

    def _start(self, *, again: bool) -> None:
        words = [*self._words, *(["--resume"] if again or self._resume else [])]
        answer = self._lab.ask(
            "start",
            key=self._key,
            bundle=self._bundle,
            words=words,
            checkpoints=list(self._checkpoints),
            again=again,
            command=self._command,
            limit_s=_LIMIT_S,
        )
        self._refuse_busy(read_state(self._name, answer))

    def _state(self) -> RunState:
        return read_state(self._name, self._lab.ask("state", key=self._key))

    def _refuse_busy(self, state: RunState) -> RunState:
        if state.state == "busy":
            raise UsageError(
                f"{self._name} is at work on something else",
                why=f"since {state.since} it runs: {state.command}",
                fix=f"Wait for it, or name a folder of your own where both may run: --host {self._name}:FOLDER",
            )
        return state

    def _begin_with_what_is_here(self) -> None:
        """Only what is new is fetched: a command before this one may have taken in a part of it."""
        names, _ = read_files(self._name, self._lab.ask("files", key=self._key, have={}))
        if have := self._kept.at_home(names):
            _, same = read_files(self._name, self._lab.ask("files", key=self._key, have=have))
            self._kept.begin_with([name for name in have if same.get(name)])

    def follow(self) -> _Cut | None:
        """Fetch until the run is over, or can't be reached; None where it came to its end. The first interruption
        ends the run there, a second one leaves it."""
        restarts = 0
        while True:
            try:
                look = self._look()
                self._kept.take(look)
                if look.run.state == "running" or not look.whole:
                    continue
                if look.run.is_dead and not self._stopping:
                    if restarts == MOST_RESTARTS:
                        return _Cut(how=f"the run on {self._name} was killed {restarts + 1} times")
                    restarts += 1
                    self._note(f"the run on {self._name} was cut off ({_how(look.run)}); what is left of it runs")
                    self._start(again=True)
                    continue
                return self._ended(look)
            except LineLost as error:
                how = f"the line to {self._name} broke and didn't come back ({error})"
                return _Cut(how=how, next_step=_FETCH)
            except KeyboardInterrupt:
                if self._stopping:
                    return _Cut(how=f"left before the run on {self._name} had ended", next_step=_FETCH)
                self._stop()

    def _look(self) -> Look:
        answer = self._lab.ask("look", key=self._key, have=self._kept.sizes(), wait_s=_WAIT_S, most=MOST_BYTES)
        return read_look(self._name, answer)

    def _stop(self) -> None:
        self._stopping = True
        self._note(f"the run on {self._name} is asked to end; Ctrl-C again leaves it as it is")
        with contextlib.suppress(LineLost):  # the next look says so
            self._lab.ask("stop", key=self._key)

    def _ended(self, look: Look) -> _Cut | None:
        self.told = dict(look.runs)
        self.last_words = last_words(look.log)
        self._lab.ask("collected", key=self._key)
        interrupted = look.interrupted or self._stopping
        return _Cut(how=f"the run on {self._name} was ended before its time") if interrupted else None


def _how(run: RunState) -> str:
    return f"signal {-run.code}" if run.code else "its machine went down, or it was killed"


def _suite(one: WrittenSuite) -> SuiteFile:
    suite = read_suite(one.path)
    if suite is None or suite.cell != one.planned.cell:
        raise UsageError(f"{one.path} is not the suite of {one.planned.cell}", fix="Generate it again with --force.")
    return suite


def _refuse_weights(written: Sequence[WrittenSuite], host: LabHost, request: LabRequest) -> None:
    """Nobody's weights are copied over: they have to lie there already."""
    asked = next((one.planned.profile for one in written if one.planned.profile.folder is not None), None)
    if asked and not request.checkpoints:
        raise UsageError(
            f"the weights of {asked.asked} aren't on {host.name} as far as is known",
            why="suites are sent there, and weights never are",
            fix=f"Copy them, for example rsync -a FOLDER {host.name}:checkpoints/, and name the folder there: "
            "--host-checkpoint checkpoints/FOLDER",
        )
