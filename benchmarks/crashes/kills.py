"""Kill runs one after another, check what they left, and complete them with `--resume`."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .checking import (
    Raw,
    changed,
    half_files,
    half_lines,
    incomplete,
    leftovers,
    lost,
    read_raw,
    unfinished,
    untold,
)
from .moments import CHECKS, Kill, draw
from .product import levels_in, misread
from .result import Case, Result
from .running import Killed, Place, Ran, run_and_kill, run_to_end

_DONE = re.compile(r"(?P<done>[0-9]+) cell\(s\) are done")
_TRIES = 4
_SOONER = 0.7
_FORMATS = {".md", ".json", ".html", ".xml", ".sarif"}


def kill_cases(kills: int, seed: int) -> Iterator[Case]:
    """Return a case for each drawn kill."""
    for kill in draw(kills, seed):
        yield Case(part="kills", id=f"kill-{seed}-{kill.number:03}", kind=kill.kind, run=_Cut(kill))


class _Cut:
    """Run one case."""

    def __init__(self, kill: Kill) -> None:
        self.kill = kill

    def __call__(self, folder: Path, undisturbed: Undisturbed) -> Result:
        """Kill, check, resume and check."""
        kill, place, killed = self.kill, Place(folder=folder), None
        for number in range(_TRIES):  # With less load the run may end sooner.
            place = Place(folder=folder / str(number))
            killed = run_and_kill(place, kill, undisturbed.seconds)
            if killed.landed:
                break
            kill = replace(kill, share=kill.share * _SOONER)
        assert killed is not None
        if not killed.landed:
            return Result(facts={"landed": False}, wrong=[])
        raw = read_raw(place.evidence)
        wrong = look(place, raw, undisturbed, killed.left)
        wrong += _victims(self.kill, killed, raw)
        facts: dict[str, Any] = {"landed": True, **_progress(place, raw)}
        if self.kill.victim == "twice":
            again = run_and_kill(place, kill, undisturbed.seconds, name="again", words=("--resume",))
            later = read_raw(place.evidence)
            wrong += [*changed(raw, later), *look(place, later, undisturbed, again.left)]
            facts["killed again"] = again.landed
            raw = later
        ran = run_to_end(place, "--resume", name="resumed")
        wrong += after_resuming(place, raw, ran, undisturbed)
        facts |= {"taken over": _taken_over(ran), "exit": ran.code, "left": len(leftovers(place.folder))}
        return Result(facts=facts, wrong=wrong)


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """Facts of an undisturbed run: its time in s, and the suites that every run has to write."""

    seconds: float
    suites: Mapping[str, bytes]


def undisturbed_run(place: Place) -> Undisturbed:
    """Run undisturbed, and check that all invariants hold."""
    ran = run_to_end(place)
    if ran.code != 0:
        raise RuntimeError(f"a run that nobody disturbed ended with {ran.code}: {ran.err[-500:]}")
    found = Undisturbed(seconds=ran.seconds, suites=suites_in(place))
    wrong = look(place, read_raw(place.evidence), found, [], killed=False)
    if wrong:
        raise RuntimeError(f"what must hold doesn't where nobody was killed: {wrong}")
    return found


def suites_in(place: Place) -> dict[str, bytes]:
    """Return the files of a run's folder of suites."""
    return {path.name: path.read_bytes() for path in (place.folder / "suites").glob("*.py")}


def look(place: Place, raw: Raw, undisturbed: Undisturbed, alive: Sequence[int], *, killed: bool = True) -> list[str]:
    """Return violations of the invariants of a run's folder while no process runs."""
    return [
        *lost(raw, place.folder / "log"),
        *half_lines(raw, killed),
        *untold(raw),
        *half_files(place.folder, undisturbed.suites),
        *misread(place.evidence, raw),
        *(f"process {pid} was left alive" for pid in alive),
    ]


def after_resuming(place: Place, before: Raw, ran: Ran, undisturbed: Undisturbed) -> list[str]:
    """Return violations after a resumed run: it must be complete, earlier lines unchanged, and all results reported.
    A crash that a kill left as the last check of a cell is a result and stays."""
    raw = read_raw(place.evidence)
    wrong = [*changed(before, raw), *look(place, raw, undisturbed, []), *incomplete(raw, CHECKS)]
    crashed = {line["cell_id"] for line in _last_lines(raw) if line["outcome"] != "passed"}
    if ran.code != (1 if crashed else 0):
        wrong.append(f"--resume ended with {ran.code}: {ran.err[-300:]}")
    levels = levels_in(place.evidence)
    wrong += [
        f"{cell} is {levels.get(cell)} after --resume"
        for cell in CHECKS
        if (levels.get(cell) == "high") is (cell in crashed)
    ]
    if not _has_reports(place.folder / "reports"):
        wrong.append("no report in all formats tells of all cells")
    return wrong


def _last_lines(raw: Raw) -> list[dict[str, Any]]:
    """Return the lines of each cell in the last run that planned it."""
    last: dict[str, str] = {}
    for run in sorted(raw.of_kind("run"), key=lambda run: run["started_at"]):
        for cell in run["plan"]:
            last[cell["cell_id"]] = run["run_id"]
    return [line for line in raw.of_kind("check") if last.get(line["cell_id"]) == line["run_id"]]


def _victims(kill: Kill, killed: Killed, raw: Raw) -> list[str]:
    """Check that evidence shows each victim: a child by the line of its check, a parent by a run without an end."""
    crashed = [line for line in raw.of_kind("check") if line["outcome"] == "crashed"]
    if kill.victim == "child":
        wrong = [] if killed.ran.code == 1 else [f"a child was killed, and the run ended with {killed.ran.code}"]
        cells = {line["cell_id"] for line in crashed if "SIGKILL" in line["error_message"]}
        each = kill.point.startswith("replace:")  # Every child reaches that point.
        if len(cells) != len(crashed) or not cells or (len(cells) > 1 and not each):
            wrong.append(f"a child was killed, and {len(crashed)} lines say so")
        return wrong + [f"run {name} has no end, and only a child was killed" for name in unfinished(raw)]
    wrong = [] if killed.ran.code == -signal.SIGKILL else [f"a killed run ended with {killed.ran.code}"]
    planned = {run["run_id"] for run in raw.of_kind("run")}
    ended = {line["run_id"] for line in raw.of_kind("end")}
    if planned - ended != unfinished(raw):
        wrong.append("a run that was cut off is not to be told from one that ended")
    return wrong


def _progress(place: Place, raw: Raw) -> Mapping[str, int]:
    """Return the progress of the run."""
    notes = [path.read_text().count("\n") for path in (place.folder / "log").glob("*.ack")]
    return {
        "acknowledged": sum(notes),
        "checks": len(raw.of_kind("check")),
        "half lines": len(raw.torn),
        "left at once": len(leftovers(place.folder)),
    }


def _taken_over(ran: Ran) -> int:
    """Return the cells that `--resume` reported as taken over; all cells if no work was left."""
    found = _DONE.search(ran.err)
    return int(found["done"]) if found else len(CHECKS) if "nothing to resume" in ran.err else 0


def _has_reports(folder: Path) -> bool:
    for path in folder.glob("*.json"):
        cells = {one["cell"] for one in json.loads(path.read_bytes())["verdicts"]}
        if set(CHECKS) <= cells and {one.suffix for one in folder.glob(f"{path.stem}.*")} >= _FORMATS:
            return True
    return False
