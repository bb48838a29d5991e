"""Time processes in turns, so that other load affects all of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def wall_time(
    command: Sequence[str],
    *,
    allowed: Sequence[int] = (0,),
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> float:
    """Return the time in s of a new process in `cwd`. Raises `RuntimeError` if it fails, because that isn't a fast
    run.

    All commands may store bytecode, as an installed program does.
    """
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run(
        list(command), cwd=cwd, env={**kept, **(environment or {})}, check=False, capture_output=True, text=True
    )
    taken = time.perf_counter() - started
    if done.returncode not in allowed:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {last}")
    return taken


def in_turns(actions: Mapping[str, Callable[[], float]], runs: int) -> dict[str, tuple[float, ...]]:
    """Return the figures of each action, called in turns `runs` times after a warm-up round."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(runs + 1):
        for name, action in actions.items():
            value = action()
            if number:
                taken[name].append(value)
    return {name: tuple(values) for name, values in taken.items()}


def timed(action: Callable[[], object]) -> float:
    """Return the wall-clock time in s of a call in this process."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
