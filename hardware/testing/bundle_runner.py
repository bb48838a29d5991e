"""The commands of a bundle's run.py: select suites, run them and print their results. A bundle contains no rules:
verdicts are made from its evidence on the machine that packed it. It needs only torch, transformers and pytest."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..backends.factory import resolve_target
from ..cell_selection import choose_cells
from ..errors import BrokenInput, HwCompatError, NothingMatched, UsageError, echo
from ..evidence.record import CheckLine, Outcome
from ..evidence.store import read_cells
from ..files import CACHE_VARIABLE, write_whole
from ..plain_text import one_line, printable
from ..safe_read import is_inside, is_plain_file, read_json, reason_of
from ..software import package_versions
from ..target import Target
from .checkpoints import CHECKPOINTS_VARIABLE
from .progress import ProgressLines, counted
from .pytest_environment import DEVICES_VARIABLE
from .session import exit_code, run_session
from .suite_file import Carried, SuiteFile, read_suite

SCHEMA_VERSION = 1
SUITES = "suites"
FILES = "files"
CACHE = "cache"
TESTED: Mapping[str, str] = {"torch": "2.6 to 2.15", "transformers": "4.57 to 5.23", "pytest": "8 and 9"}
"""Versions that suites are known to work with. Other versions aren't refused, and nothing is installed."""

_LONGEST = 64 * 1024 * 1024
_INTERRUPTED = 2
_USAGE = 4


def read_bundle(root: Path) -> tuple[Carried, ...]:
    """Return the suites of the bundle unpacked at `root`. Raises `BrokenInput` if one is missing or isn't its
    cell's."""
    try:
        plain = read_json(root / "bundle.json", longest=_LONGEST)
        if plain["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is {plain['schema_version']!r}, not {SCHEMA_VERSION}")
        entries = [
            (
                str(one["file"]),
                str(one["cell"]),
                dict(one["verdict"]),
                bool(one["required"]),
                dict(one.get("selection") or {}),
            )
            for one in plain["suites"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenInput(
            "bundle.json cannot be read", why=reason_of(error), fix="Unpack the bundle again."
        ) from error
    carried = []
    for name, cell, verdict, required, selection in entries:
        path = root / SUITES / Path(name).name
        own = path.name.startswith("test_") and is_plain_file(path) and is_inside(path, root / SUITES)
        suite = read_suite(path) if own else None
        if suite is None or suite.cell.id != cell:
            raise BrokenInput(f"{echo(path.name)} is not the suite of {echo(cell)}", fix="Unpack the bundle again.")
        carried.append(Carried(suite=suite, verdict=verdict, required=required, selection=selection))
    return tuple(carried)


def missing_packages() -> tuple[str, ...]:
    """Return the packages that suites need and that aren't installed."""
    found = package_versions((*TESTED, "numpy", "safetensors"))
    return tuple(name for name, version in found.items() if version is None)


def chosen(
    carried: Sequence[Carried], devices: Sequence[Target], select: Sequence[str], skip: Sequence[str]
) -> tuple[Carried, ...]:
    """Return the suites for some devices (all if none are given) that fit `select` and don't fit `skip`. Raises
    `NothingMatched`."""
    there = {one.suite.cell.target for one in carried}
    for device in devices:
        if device.kind not in there:
            raise NothingMatched(
                f"this bundle has no suite for {device}",
                why=f"its suites are for {', '.join(sorted(map(str, there)))}",
                fix="Make one on your machine: hwcompat bundle suite.zip --device NAME",
            )
    kinds = {device.kind for device in devices} or there
    by_id = {one.suite.cell.id: one for one in carried if one.suite.cell.target in kinds}
    return tuple(by_id[cell] for cell in choose_cells(tuple(by_id), select=select, skip=skip))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Run the suites of this bundle on this machine and record the results.",
        epilog="For example: python run.py --device cuda:0 --resume. Exit codes: 0 passed, 1 failed or the device "
        "was not found, 2 interrupted, 4 usage, 5 nothing to run.",
    )
    parser.add_argument("--device", action="append", default=[], metavar="TARGET", help="default: all in the bundle")
    parser.add_argument("--select", action="append", default=[], metavar="PATTERN", help="run only cells that match")
    parser.add_argument("--skip", action="append", default=[], metavar="PATTERN", help="skip cells that match")
    parser.add_argument("--list", action="store_true", help="print the cells and exit")
    parser.add_argument("--resume", action="store_true", help="resume an interrupted run")
    parser.add_argument(
        "--jobs", type=_at_least_one, metavar="N", help="suites to run at a time (default: chosen for this machine)"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds per check (default: the target's)")
    parser.add_argument("--allow-fallback", action="store_true", help="don't fail if the device was not found")
    parser.add_argument("--checkpoint", action="append", default=[], metavar="DIR", help="folder with real weights")
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="default: the folder `evidence` next to run.py")
    parser.add_argument("--machine", default="", metavar="NAME", help="name of this machine in the evidence")
    parser.add_argument(
        "--on-request", action="store_true", help="run cells requested on standard input (used by a fleet)"
    )
    parser.add_argument(
        "--result",
        type=Path,
        metavar="FILE.json",
        help="write the run whose results count for each cell to this file",
    )
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def main(root: Path, arguments: Sequence[str]) -> int:
    """Run the bundle unpacked at `root` and return the exit code."""
    try:
        asked = _parser().parse_args(list(arguments))
    except SystemExit as end:  # argparse has printed its message
        return _USAGE if end.code else 0
    try:
        return _do(root, asked, arguments)
    except HwCompatError as error:
        print(f"error: {one_line(str(error), longest=2000)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted; continue with --resume", file=sys.stderr)
        return _INTERRUPTED


def _do(root: Path, asked: argparse.Namespace, arguments: Sequence[str]) -> int:
    carried = read_bundle(root)
    devices = [resolve_target(name) for name in asked.device]
    kept = chosen(carried, devices, asked.select, asked.skip)
    if asked.list:
        print("\n".join(one.suite.cell.id for one in kept))
        return 0
    missing = missing_packages()
    if asked.on_request:
        from .request_runner import answer_requests

        os.environ.setdefault(CACHE_VARIABLE, str(root / CACHE))
        return answer_requests(kept, missing)
    if missing:
        raise UsageError(
            f"{', '.join(missing)} isn't installed in {sys.executable}",
            fix="Install it for this machine's hardware; the bundle installs nothing.",
        )
    os.environ.setdefault(CACHE_VARIABLE, str(root / CACHE))
    os.environ[DEVICES_VARIABLE] = ",".join(str(device) for device in devices if device.index is not None)
    packed = [path for path in (root / FILES).glob("**/") if path != root / FILES]
    folders = [str(Path(name).resolve()) for name in (*asked.checkpoint, *packed)]
    if folders:
        os.environ[CHECKPOINTS_VARIABLE] = os.pathsep.join(folders)
    return _run(kept, asked, shlex.join(["python", "run.py", *arguments]), asked.evidence or root / "evidence")


def _run(kept: Sequence[Carried], asked: argparse.Namespace, command: str, evidence: Path) -> int:
    from ..detection import detect
    from .runner import Limits, default_memory_limit

    session = run_session(
        [one.suite for one in kept],
        [one.planned() for one in kept],
        detect(),
        evidence=evidence,
        command=command,
        machine=asked.machine,
        limits=Limits(timeout_s=asked.timeout, memory_bytes=default_memory_limit()),
        jobs=asked.jobs,
        resume=asked.resume,
        progress=ProgressLines(),
        on_note=lambda text: print(f"note: {one_line(text, longest=2000)}", file=sys.stderr),
    )
    runs = {one.suite.cell.id: session.run_of(one.suite.cell.id) for one in kept}
    if asked.result:
        write_whole(asked.result, json.dumps({"runs": runs, "interrupted": session.interrupted}) + "\n")
    lines = read_cells(evidence, runs, also=[session.run_id]).checks
    for one in kept:
        print(_summary(one.suite, [line for line in lines if line.cell_id == one.suite.cell.id]))
    print(f"Evidence    {evidence}: copy it to your machine and run: hwcompat evidence merge DIR")
    if session.interrupted:
        raise KeyboardInterrupt
    required = {one.suite.cell.id for one in kept if one.required or asked.device}
    missing = any(line.substitution_reason for line in lines if line.cell_id in required)
    return exit_code(lines, missing=missing and not asked.allow_fallback)


def _summary(suite: SuiteFile, lines: Sequence[CheckLine]) -> str:
    """Return one suite's outcomes in a line, and below it the message of each check that didn't pass."""
    text = [f"{suite.cell.id}  {counted(Counter(line.outcome for line in lines))} of {len(suite.checks)}"]
    for line in lines:
        if line.outcome is not Outcome.PASSED:
            why = (line.error_message or line.substitution_reason).splitlines()
            text.append(f"  {line.check_name} {line.outcome}: {why[0][:300] if why else line.error_type}")
    return "\n".join(map(printable, text))
