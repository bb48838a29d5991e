"""Inventories and runs on a lab machine: suites are copied once, started detached, fetched as evidence grows, and
judged here.

After a broken connection the run continues, and after a killed command the same command finds the run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hwcompat.generators.options import Options
from hwcompat.generators.run import JobInterrupted, JobResult, WrittenSuite, read_written, result_of_runs
from hwcompat.generators.suites.bundle import bundle_files, package_part, zipped
from hwcompat.hardware.applied_fix import refuse_changes
from hwcompat.hardware.command_line import note
from hwcompat.hardware.detection import detect
from hwcompat.hardware.errors import BrokenInput, UsageError
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.plain_text import one_line, size_text
from hwcompat.hardware.recording import ReplayedMachine
from hwcompat.hardware.safe_read import reason_of
from hwcompat.reports.progress_bar import progress_on

from .lab_answers import NEEDED_PACKAGES, is_dead, last_words, read_greeting, read_look, refuse_unready
from .lab_evidence import LabEvidence, opened_evidence
from .lab_line import Answer, LabHost, LabMachine, LineLost

if TYPE_CHECKING:
    from hwcompat.generators.project.project_plan import ProjectRun

MOST_RESTARTS = 2
"""After this many kills a run isn't restarted."""

_LIMIT_S = 90.0
_RECORDING_S = 120.0
_MOST_FILES = 10_000
_DIGITS = 16
_FETCH = "The run continues there. Repeat the command to fetch the rest."


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A zip archive that is sent once, and the folder into which it is unpacked, named by its hash; a bundle is
    placed beside the `package` that it was packed with."""

    place: str
    data: bytes
    package: str = ""

    @classmethod
    def of(cls, kind: str, files: Mapping[str, bytes], package: str = "") -> Packed:
        """Return some files by name as an archive of a kind."""
        files = dict(sorted(files.items()))
        digest = hashlib.sha256(package.encode())
        for name, data in files.items():
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return cls(place=f"{kind}/{digest.hexdigest()[:_DIGITS]}", data=zipped(files), package=package)

    def description(self) -> dict[str, str | int]:
        """Return the facts that the other side needs to unpack it; the hash proves that it arrived."""
        digest = hashlib.sha256(self.data).hexdigest()
        return {"place": self.place, "size": len(self.data), "sha256": digest, "package": self.package}


def packed_package() -> Packed:
    """Return the part of the package `hwcompat` that suites need."""
    return Packed.of("packages", package_part())


def inventory_of_host(options: Options) -> HardwareInfo:
    """Return the inventory of the machine that `--host` names. It only needs Python 3.11 there. Raises `UsageError`
    if it isn't ready, and `BrokenInput` for an invalid recording."""
    assert options.host
    package = packed_package()
    lab = LabMachine(LabHost.parse(options.host, options.host_python), patience_s=0)
    try:
        sent = [package] if greeted(lab, [package], runs=False)["missing"] else []
        answer = lab.ask(
            "inventory",
            package=package.place,
            archives=[one.description() for one in sent],
            payload=b"".join(one.data for one in sent),
            limit_s=_RECORDING_S,
        )
    except LineLost as error:
        raise UsageError(f"{lab.host.name} cannot be used", why=str(error)) from error
    return _replayed(lab.host.name, answer)


def _replayed(name: str, answer: Answer) -> HardwareInfo:
    try:
        files = answer.get("files")
        if not isinstance(files, Mapping) or len(files) > _MOST_FILES:
            raise ValueError("it isn't an object with files")
        with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
            for file, text in files.items():
                _write(Path(folder), file, text)
            return detect(ReplayedMachine(Path(folder)))
    except (OSError, ValueError) as error:
        raise BrokenInput(f"the inventory of {name} can't be read", why=reason_of(error)) from error


def _write(folder: Path, name: object, text: object) -> None:
    """Write one file of the recording; no name leads out of the folder."""
    parts = PurePosixPath(str(name)).parts
    if not isinstance(name, str) or not isinstance(text, str) or not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"{ascii(name)[:80]} isn't a file of a recording")
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run_in_lab(
    options: Options,
    host_text: str,
    written: Sequence[WrittenSuite],
    inventory: HardwareInfo,
    project: ProjectRun | None,
    command: str,
) -> JobResult:
    """Run written suites on the named host, whose `inventory` they were planned with, and judge each cell.

    If the same request runs there, or ended there without being fetched, that run is followed and none is started.
    Raises `UsageError` if the host isn't ready or the project file has timeouts, `BrokenInput` for an invalid answer,
    `JobInterrupted` if the run was interrupted or the connection is lost.
    """
    if project and project.timeouts and not options.timeout:
        raise UsageError(
            "timeouts of a project file don't work with --host",
            fix="Set one for all checks with --timeout S, which overrides them.",
        )
    host = LabHost.parse(host_text, options.host_python)
    refuse_changes()
    _refuse_weights(written, host, options.host_checkpoints)
    suites = [read_written(one) for one in written]
    lab = LabMachine(host, patience_s=options.host_patience, on_note=note)
    progress = progress_on(sys.stderr)
    with opened_evidence(host.name, options.evidence, suites, progress) as kept:
        run = _LabRun(lab, kept, written, options, command)
        run.prepare(inventory)
        try:
            cut = run.follow()
        finally:
            progress.closed()
            note(f"sent {size_text(lab.sent)} to {host.name}, received {size_text(lab.received)}")
    runs = kept.runs(run.run_ids)
    if len(runs) < len(written):
        if cut:  # before there were results to judge
            raise UsageError(cut.how, fix=cut.next_step)
        missing = next(one.planned.cell.id for one in written if one.planned.cell.id not in runs)
        raise UsageError(f"the run on {host.name} recorded no plan for {missing}", why=run.last_words)
    result = result_of_runs(written, runs, options.evidence, inventory)
    if cut:
        raise JobInterrupted(result, how=cut.how, next_step=cut.next_step)
    return result


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """Why a run ended early, or is no longer followed, and what to do."""

    how: str
    next_step: str = "Continue with the same command and --resume."


class _LabRun:
    """One run on one lab machine, from its check to its end."""

    def __init__(
        self, lab: LabMachine, kept: LabEvidence, written: Sequence[WrittenSuite], options: Options, command: str
    ) -> None:
        self._lab = lab
        self._name = lab.host.name
        self._kept = kept
        self._written = written
        self._words = _words_for(written, options)
        self._checkpoints = list(options.host_checkpoints)
        self._resume = options.resume
        self._command = command
        self._package = packed_package()
        self._key = self._key_of()
        self._bundle = ""
        self._start: dict[str, Any] | None = None
        self._sent: list[Packed] = []
        self._stopping = False
        self.run_ids: dict[str, str] = {}
        self.last_words = ""

    def _key_of(self) -> str:
        """Return the name of a run, a hash of suites, arguments of run.py and package, so that the same request finds
        it again. Predictions aren't part of it, or whether the run is resumed."""
        suites = sorted(
            (one.planned.cell.id, hashlib.sha256(one.path.read_bytes()).hexdigest()) for one in self._written
        )
        decides = [suites, [*self._words, *self._checkpoints], self._package.place]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:_DIGITS]

    def prepare(self, inventory: HardwareInfo) -> None:
        """Check that the machine is ready, and decide whether the run must be started. Raises `UsageError` for suites
        of a user's own code."""
        # The suites on disk, edited or not, with their stored predictions.
        planned = [replace(one.planned, text=one.path.read_text(encoding="utf-8")) for one in self._written]
        files = bundle_files("lab", planned, versions_of(inventory))
        bundle = Packed.of("bundles", files, self._package.place)
        self._bundle = bundle.place
        archives = (self._package, bundle)
        there = greeted(self._lab, archives, checkpoints=self._checkpoints, key=self._key)
        self._refuse_busy(there)
        self._sent = [one for one in archives if one.place in there["missing"]]
        if there["state"] == "running":
            note(f"already running on {self._name}: following that run")
        elif is_dead(there):
            note(f"an earlier run on {self._name} was interrupted: running the rest")
            self._begin(again=True)
        elif there["state"] == "ended" and not there["collected"]:
            note(f"an earlier run on {self._name} ended: fetching its evidence")
        else:
            self._begin(again=False)
            note(f"running {len(self._written)} suite(s) on {self._name}, even if the connection breaks")

    def _begin(self, *, again: bool) -> None:
        words = [*self._words, *(["--resume"] if again or self._resume else [])]
        self._start = {"words": words, "again": again, "command": self._command}

    def _request(self) -> tuple[dict[str, Any], bytes]:
        """Return a request for what is new, and for the start of the run until an answer confirms it."""
        sent = self._sent if self._start else []
        request = {
            "key": self._key,
            "bundle": self._bundle,
            "checkpoints": self._checkpoints,
            "archives": [one.description() for one in sent],
            "have": self._kept.sizes(),
            "start": bool(self._start),
            **(self._start or {}),
        }
        return request, b"".join(one.data for one in sent)

    def _refuse_busy(self, state: Answer) -> None:
        if state["state"] == "busy":
            since, command = (one_line(state.get(key, ""), longest=200) for key in ("since", "command"))
            raise UsageError(
                f"{self._name} is busy with another run",
                why=f"running since {since}: {command}",
                fix=f"Wait for it, or run both with a folder of your own: --host {self._name}:FOLDER",
            )

    def follow(self) -> _Cut | None:
        """Fetch until the run ends or can't be reached; return None if it ended by itself. The first interruption
        stops the run, a second one leaves it running."""
        restarts = 0
        while True:
            try:
                look = self._fetch()
                if not is_dead(look) or self._stopping:
                    return self._ended(look)
                if restarts == MOST_RESTARTS:
                    return _Cut(how=f"the run on {self._name} was killed {restarts + 1} times")
                restarts += 1
                code = look.get("code")
                how = f"signal {-code}" if code else "killed, or the machine went down"
                note(f"the run on {self._name} was interrupted ({how}): running the rest")
                self._begin(again=True)
            except LineLost as error:
                how = f"the connection to {self._name} is lost ({error})"
                return _Cut(how=how, next_step=_FETCH)
            except KeyboardInterrupt:
                if self._stopping:
                    return _Cut(how=f"stopped following the run on {self._name}", next_step=_FETCH)
                self._stop()

    def _fetch(self) -> Answer:
        """Store received evidence until the run ends."""
        with contextlib.closing(self._lab.answers("run", self._request, limit_s=_LIMIT_S)) as answers:
            while True:
                look = read_look(self._name, next(answers))
                self._refuse_busy(look)
                self._start, self._sent = None, []
                self._kept.take(look)
                if look["whole"] and look["state"] != "running":
                    return look

    def _stop(self) -> None:
        self._stopping, self._start = True, None
        note(f"stopping the run on {self._name}; press Ctrl-C again to leave it running")
        with contextlib.suppress(LineLost):  # the next answer reports it
            self._lab.ask("stop", key=self._key)

    def _ended(self, look: Answer) -> _Cut | None:
        result = look.get("result", {})
        self.run_ids = result.get("runs", {})
        self.last_words = last_words(look.get("log", ""))
        self._lab.ask("collected", key=self._key)
        interrupted = result.get("interrupted") or self._stopping
        return _Cut(how=f"the run on {self._name} was interrupted") if interrupted else None


def greeted(
    lab: LabMachine, archives: Sequence[Packed], *, checkpoints: Sequence[str] = (), key: str = "", runs: bool = True
) -> Answer:
    """Return a machine's description of itself, before anything is copied. `runs`: suites will run there, which need
    packages. Raises `UsageError` if it isn't ready."""
    answer = lab.ask(
        "hello",
        packages=NEEDED_PACKAGES,
        archives=[one.place for one in archives],
        checkpoints=list(checkpoints),
        key=key,
    )
    there = read_greeting(lab.host.name, answer)
    refuse_unready(lab.host.name, there, runs=runs)
    return there


def _words_for(written: Sequence[WrittenSuite], options: Options) -> list[str]:
    """Return the arguments of `run.py` of a bundle, except for `--resume` and for folders of that machine."""
    words = [word for device in sorted({str(one.planned.device) for one in written}) for word in ("--device", device)]
    words += ["--machine", options.machine] if options.machine else []
    words += ["--timeout", str(options.timeout)] if options.timeout else []
    words += ["--jobs", str(options.jobs)] if options.jobs else []
    return words + (["--allow-fallback"] if options.allow_fallback else [])


def _refuse_weights(written: Sequence[WrittenSuite], host: LabHost, checkpoints: Sequence[str]) -> None:
    """Raise `UsageError` for weights that aren't on that machine: they aren't copied."""
    profile = next((one.planned.profile for one in written if one.planned.profile.folder is not None), None)
    if profile and not checkpoints:
        raise UsageError(
            f"the weights of {profile.asked} may be missing on {host.name}",
            why="hwcompat never copies weights",
            fix=f"Copy them, for example rsync -a FOLDER {host.name}:checkpoints/, and pass their folder there: "
            "--host-checkpoint checkpoints/FOLDER",
        )
