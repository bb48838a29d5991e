"""Computes on a target in a child of its own, with a time limit: what crashes or hangs is a reason.

`python -m hardware.doctor.checking TARGET` is the child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ..detection import ProbeResult, probe
from ..known_answer import expected

_ROOT = Path(__file__).parents[2]
_TAIL = 300


def check_targets(names: Iterable[str], *, timeout_s: float, note: Callable[[str], None]) -> dict[str, ProbeResult]:
    """What came of computing three numbers on each target, one after the other, `timeout_s` seconds for each."""
    found = {}
    for name in names:
        note(f"computing on {name} …")
        found[name] = check_target(name, timeout_s=timeout_s)
    return found


def check_target(name: str, *, timeout_s: float) -> ProbeResult:
    """What came of computing three numbers on one target. Never raises."""
    started = time.perf_counter()
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "hardware.doctor.checking", name],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return replace(_failed(name, f"it took longer than {timeout_s:g} s", started), timed_out=True)
    try:
        told = json.loads(ran.stdout)
        got = None if told["got"] is None else tuple(told["got"])
        return ProbeResult(**{**told, "got": got, "expected": tuple(told["expected"])})
    except (ValueError, TypeError, KeyError):
        how = f"signal {-ran.returncode}" if ran.returncode < 0 else f"exit code {ran.returncode}"
        said = " ".join(ran.stderr.decode(errors="replace").split())[-_TAIL:]
        return _failed(name, f"its process ended with {how}. {said}".strip(), started)


def _failed(name: str, reason: str, started: float) -> ProbeResult:
    seconds = time.perf_counter() - started
    return ProbeResult(target=name, ok=False, reason=reason, expected=expected(), got=None, duration_s=seconds)


def main(arguments: Sequence[str]) -> int:
    """Compute on the target named, and say what came of it as JSON on a stream that no library prints to."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)
        stream.write(json.dumps(asdict(probe(arguments[0]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
