"""Run the main job in child processes with separate folders and planted faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLANTING = Path(__file__).resolve().parent / "fallbacks" / "planting"
_FOLDERS = {"--output-dir": "suites", "--evidence": "evidence", "--report-dir": "reports"}


def command(folder: Path, models: Sequence[str], target: str, *words: str) -> list[str]:
    """Return the command line of the main job for some models, with all output below `folder`."""
    places = [word for option, name in _FOLDERS.items() for word in (option, str(folder / name))]
    asked = [word for model in models for word in ("--model", model)]
    return [sys.executable, "run_test_generation.py", *asked, "--device", target, *places, *words]


def environment(cache: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without settings of the product, and with a separate cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HWCOMPAT_")}
    return {**kept, "HWCOMPAT_CACHE": str(cache), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(more or {})}


def planted(environment: Mapping[str, str], names: str, mark: Path, *folders: Path) -> dict[str, str]:
    """Return an environment in which each Python plants `names` (joined by `+`) from `folders`, and writes `mark`."""
    path = [*dict.fromkeys([str(PLANTING), *map(str, folders)]), environment["PYTHONPATH"]]
    variables = {"HWCOMPAT_PLANT": names, "HWCOMPAT_PLANTED": str(mark)}
    variables["HWCOMPAT_PLANTING"] = os.pathsep.join(str(folder) for folder in folders)
    return {**environment, **variables, "PYTHONPATH": os.pathsep.join(path)}


def run(command: Sequence[str], environment: Mapping[str, str], longest_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command and return its result. Raises `TimeoutExpired` after `longest_s` seconds."""
    return subprocess.run(
        list(command),
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=longest_s,
        check=False,
    )


def verdict(folder: Path) -> dict[str, Any] | None:
    """Return the worst verdict of the newest report below a run's folder, with its first reason as `reason`."""
    reports = sorted((folder / "reports").glob("*.json"))
    verdicts = json.loads(reports[-1].read_text(encoding="utf-8"))["verdicts"] if reports else []
    if not verdicts:
        return None
    reason = " ".join(one["text"] for one in verdicts[0]["reasons"][:1])
    return {**verdicts[0], "reason": reason}
