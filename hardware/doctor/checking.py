"""Computes on a target in a child of its own, with a time limit: what crashes or hangs is a reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace

from ..detection import ProbeResult, probe
from ..errors import HwCompatError
from ..known_answer import expected
from ..process import NoAnswer, answer, ask

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
        told = ask(__name__, name, limit_s=timeout_s)
    except NoAnswer as error:
        ended = error.ended
        if ended.timed_out:
            return replace(_failed(name, f"it took longer than {timeout_s:g} s", started), timed_out=True)
        said = " ".join(ended.stderr.split())[-_TAIL:]
        return _failed(name, f"its process {ended.how}. {said}".strip(), started)
    except HwCompatError as error:
        return _failed(name, str(error), started)
    got = None if told["got"] is None else tuple(told["got"])
    return ProbeResult(**{**told, "got": got, "expected": tuple(told["expected"])})


def _failed(name: str, reason: str, started: float) -> ProbeResult:
    seconds = time.perf_counter() - started
    return ProbeResult(target=name, ok=False, reason=reason, expected=expected(), got=None, duration_s=seconds)


if __name__ == "__main__":
    answer(lambda name: asdict(probe(name)))
