"""Full disks and read-only folders: nothing stored is lost, no model gets the fault, and `--resume` completes the run
as soon as there is space.

A full disk is a small tmpfs in a mount namespace of the run; a folder is read-only by its mode, for a process
without root's right to override it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .checking import half_files, half_lines, incomplete, lost, read_raw, untold
from .kills import Undisturbed, after_resuming
from .moments import CHECKS
from .product import misread
from .result import Case, Result
from .running import Place, Process, run_to_end

SIZES_K = {
    "evidence": (4, 8, 12, 16, 20, 24, 28, 32, 36),
    "tmp": (4, 32, 128),
    "cache": (64, 256, 1024),
    "reports": (4, 48, 100),
    "suites": (4, 12),
}
"""Disk sizes in KiB by what is stored there, from very small to nearly enough."""

_BLAMES = {"failed", "crashed", "timeout", "out_of_memory"}
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1


def disk_cases() -> Iterator[Case]:
    """Return cases of every folder on disks of several sizes, and of read-only folders."""
    for what, sizes in SIZES_K.items():
        for size in sizes:
            yield Case(part="disks", id=f"full-{what}-{size}", kind=f"full disk: {what}", run=_Full(what, size))
    for what in ("evidence", "reports", "cache", "suites"):
        yield Case(
            part="disks", id=f"read-only-{what}", kind="read-only from the start", run=_ReadOnly(what, during=False)
        )
    for what in ("evidence", "reports", "cache"):
        yield Case(part="disks", id=f"locked-{what}", kind="read-only in mid-run", run=_ReadOnly(what, during=True))


@functools.cache
def may_mount() -> bool:
    """Whether this user may mount a tmpfs in a namespace."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def on_small_disk(folder: Path, kept: Path, size_k: int, command: Sequence[str]) -> list[str]:
    """Return a command that runs another with a small disk mounted on `folder`, and copies its content to `kept`."""
    script = (
        f"mount -t tmpfs -o size={size_k}k,mode=700 none {shlex.quote(str(folder))} && "
        f'"$@"; code=$?; cp -a {shlex.quote(str(folder))}/. {shlex.quote(str(kept))}; exit $code'
    )
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command]


class _Full:
    """Run a case with one folder on a small disk."""

    def __init__(self, what: str, size_k: int) -> None:
        self.what = what
        self.size_k = size_k

    def __call__(self, folder: Path, undisturbed: Undisturbed) -> Result:
        """Run on the small disk, check, copy the content to a larger place, resume and check."""
        if not may_mount():
            return Result(facts={"landed": False, "why": "no namespace can be made here"})
        place, kept = Place(folder=folder), folder / "kept"
        own = folder / self.what
        own.mkdir(exist_ok=True)
        kept.mkdir()
        ran = Process(place, on_small_disk(own, kept, self.size_k, place.command())).wait()
        shutil.rmtree(own)
        kept.rename(own)
        return _violations(place, ran, undisturbed)


class _ReadOnly:
    """Run a case with a folder that is read-only from the start or after the plan was written."""

    def __init__(self, what: str, *, during: bool) -> None:
        self.what = what
        self.during = during

    def __call__(self, folder: Path, undisturbed: Undisturbed) -> Result:
        """Lock the folder, run, check, unlock it, resume and check."""
        place = Place(folder=folder)
        own = folder / self.what
        own.mkdir(exist_ok=True)
        if not self.during:
            own.chmod(0o500)
        command = [sys.executable, "-m", "benchmarks.crashes.unprivileged", *place.command()[1:]]
        running = Process(place, command)
        while self.during and running.process.poll() is None:
            if read_raw(place.evidence).of_kind("run"):
                for part in (own, *(one for one in own.rglob("*") if one.is_dir())):
                    part.chmod(0o500)
                break
            time.sleep(0.01)
        ran = running.wait()
        for part in (own, *(one for one in own.rglob("*") if one.is_dir())):
            part.chmod(0o700)
        return _violations(place, ran, undisturbed)


def _violations(place: Place, ran: Any, undisturbed: Undisturbed) -> Result:
    """Return violations after a run that couldn't write, and of the run that resumes it."""
    raw = read_raw(place.evidence)
    wrong = [
        *lost(raw, place.folder / "log"),
        *half_lines(raw, killed=False),
        *untold(raw),
        *half_files(place.folder, undisturbed.suites),
        *misread(place.evidence, raw),
    ]
    blamed = [line for line in raw.of_kind("check") if line["outcome"] in _BLAMES]
    wrong += [f"{one['cell_id']} {one['check_name']} is {one['outcome']}: {one['error_message']}" for one in blamed]
    error = next((line for line in ran.err.splitlines() if line.startswith("error: ")), "")
    counts = sorted({line["error_type"] for line in raw.of_kind("check") if line["outcome"] == "not_run"})
    if ran.code not in (0, 1, 4) or "Traceback" in ran.err or "internal error" in ran.err:
        wrong.append(f"it ended with {ran.code}: {ran.err[-300:]}")
    if ran.code == 4 and not any(word in error.lower() for word in ("space", "disk", "denied", "permission")):
        wrong.append(f"its error does not say why: {error}")
    if ran.code == 1 and "disk_full" not in counts:
        wrong.append(f"it ended with 1, and no line says that a disk is full: {counts}")
    if ran.code == 0 and incomplete(raw, CHECKS):
        wrong.append("it ended with 0, and not every check was carried out")
    resumed = run_to_end(place, "--resume", name="resumed")
    wrong += after_resuming(place, raw, resumed, undisturbed)
    facts = {"landed": True, "exit": ran.code, "said": error[:200], "not_run": counts, "resumed": resumed.code}
    return Result(facts=facts, wrong=wrong)


def drop_override() -> None:
    """Make this process, and programs that it executes, obey file modes as an ordinary user does."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE)
