"""Runs suites on a lab machine and concludes here: copied once, started detached, fetched as it grows.

A line that breaks costs nothing but time, and a command that was killed finds its run again when it is given anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generators.job import JobInterrupted, JobResult, WrittenSuite, read_written, result_of_runs
from hardware.changes import refuse_changes
from hardware.detection import HardwareInfo
from hardware.errors import UsageError
from hardware.evidence.versions import versions_of
from hardware.plain_text import one_line, size_text
from hardware.testing.progress import Progress

from .lab_answers import NEEDED_PACKAGES, Look, is_dead, last_words, read_greeting, read_look, refuse_unready
from .lab_evidence import LabEvidence, opened_evidence
from .lab_host import LabHost
from .lab_line import PATIENCE_S, Answer, LabMachine, LineLost
from .lab_parts import Packed, key_of, packed_bundle, packed_package

MOST_RESTARTS = 2
"""A run that is killed three times is told as that."""

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
    suites = [read_written(one) for one in written]
    lab = LabMachine(host, patience_s=patience_s, on_note=on_note)
    with opened_evidence(host.name, evidence, suites, progress or Progress()) as kept:
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
        self._start: dict[str, Any] | None = None
        self._sent: list[Packed] = []
        self._stopping = False
        self.told: dict[str, str] = {}
        self.last_words = ""

    def prepare(self, inventory: HardwareInfo) -> None:
        """See that the machine is ready, and decide whether the run has to be started."""
        bundle = packed_bundle(self._written, versions_of(inventory), self._package)
        self._bundle = bundle.place
        archives = (self._package, bundle)
        answer = self._lab.ask(
            "hello",
            packages=NEEDED_PACKAGES,
            archives=[one.place for one in archives],
            checkpoints=list(self._checkpoints),
            key=self._key,
        )
        there = read_greeting(self._name, answer)
        refuse_unready(self._name, there, runs=True)
        self._refuse_busy(there)
        self._sent = [one for one in archives if one.place in there["missing"]]
        if there["state"] == "running":
            self._note(f"this runs on {self._name} already; it is followed and not started again")
        elif is_dead(there):
            self._note(f"this was cut off on {self._name}; what is left of it runs")
            self._begin(again=True)
        elif there["state"] == "ended" and not there["collected"]:
            self._note(f"this ended on {self._name} and wasn't fetched yet; nothing runs again")
        else:
            self._begin(again=False)
            self._note(f"{len(self._written)} suite(s) run on {self._name}, whether this line holds or not")
            return
        self._kept.begin_with(there["files"])

    def _begin(self, *, again: bool) -> None:
        words = [*self._words, *(["--resume"] if again or self._resume else [])]
        self._start = {"words": words, "again": again, "command": self._command}

    def _request(self) -> tuple[dict[str, Any], bytes]:
        """Asks for what is new, and for the start of the run until an answer tells that it was heard."""
        sent = self._sent if self._start else []
        asked = {
            "key": self._key,
            "bundle": self._bundle,
            "checkpoints": list(self._checkpoints),
            "archives": [one.told() for one in sent],
            "have": self._kept.have(),
            "start": bool(self._start),
            **(self._start or {}),
        }
        return asked, b"".join(one.data for one in sent)

    def _refuse_busy(self, state: Answer) -> None:
        if state["state"] == "busy":
            since, command = (one_line(state.get(key, ""), longest=200) for key in ("since", "command"))
            raise UsageError(
                f"{self._name} is at work on something else",
                why=f"since {since} it runs: {command}",
                fix=f"Wait for it, or name a folder of your own where both may run: --host {self._name}:FOLDER",
            )

    def follow(self) -> _Cut | None:
        """Fetch until the run is over, or can't be reached; None where it came to its end. The first interruption
        ends the run there, a second one leaves it."""
        restarts = 0
        while True:
            try:
                look = self._looked()
                if not is_dead(look.told) or self._stopping:
                    return self._ended(look)
                if restarts == MOST_RESTARTS:
                    return _Cut(how=f"the run on {self._name} was killed {restarts + 1} times")
                restarts += 1
                self._note(f"the run on {self._name} was cut off ({_how(look.told)}); what is left of it runs")
                self._begin(again=True)
            except LineLost as error:
                how = f"the line to {self._name} broke and didn't come back ({error})"
                return _Cut(how=how, next_step=_FETCH)
            except KeyboardInterrupt:
                if self._stopping:
                    return _Cut(how=f"left before the run on {self._name} had ended", next_step=_FETCH)
                self._stop()

    def _looked(self) -> Look:
        """Take in what comes until the run is over."""
        with contextlib.closing(self._lab.answers("run", self._request, limit_s=_LIMIT_S)) as answers:
            while True:
                look = read_look(self._name, next(answers))
                self._refuse_busy(look.told)
                self._start, self._sent = None, []
                self._kept.take(look)
                if look.whole and not look.is_running:
                    return look

    def _stop(self) -> None:
        self._stopping, self._start = True, None
        self._note(f"the run on {self._name} is asked to end; Ctrl-C again leaves it as it is")
        with contextlib.suppress(LineLost):  # the next look says so
            self._lab.ask("stop", key=self._key)

    def _ended(self, look: Look) -> _Cut | None:
        result = look.told.get("result", {})
        self.told = result.get("runs", {})
        self.last_words = last_words(look.told.get("log", ""))
        self._lab.ask("collected", key=self._key)
        interrupted = result.get("interrupted") or self._stopping
        return _Cut(how=f"the run on {self._name} was ended before its time") if interrupted else None


def _how(state: Answer) -> str:
    return f"signal {-state['code']}" if state.get("code") else "its machine went down, or it was killed"


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
