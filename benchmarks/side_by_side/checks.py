"""Running suites, beside plain calls of their test functions in one warm process (`benchmarks/catalog.py`)."""

from __future__ import annotations

import json
import subprocess
import sys

from .processes import ROOT
from .result import Comparison, Curve, Findings

_TYPES = (10, 20, 40)


def measure(runs: int) -> Findings:
    """The same suites both ways, for several numbers of types drawn by seed; each number once: it takes minutes."""
    del runs
    comparisons: list[Comparison] = []
    points: dict[str, list[tuple[float, float]]] = {"through the runner": [], "plain calls": []}
    for count in _TYPES:
        command = [sys.executable, "-m", "benchmarks.catalog", "--types", str(count), "--growth", "", "--json"]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        points["through the runner"].append((count, found["runner_s"]))
        points["plain calls"].append((count, found["plain_s"]))
        comparisons.append(
            Comparison(
                what=f"checks of {count} types on cpu",
                ours="through the runner",
                rival="plain calls",
                unit="s",
                ours_values=(found["runner_s"],),
                rival_values=(found["plain_s"],),
                note="ours: a forked child and pytest for each file, evidence of each check; "
                f"{100 * found['in_models']:.0f} % of plain calls is in models",
            )
        )
    curve = Curve(
        title="Running suites, one at a time",
        x="types",
        y="seconds",
        points={name: tuple(own) for name, own in points.items()},
    )
    return Findings(title="Running checks", comparisons=tuple(comparisons), curves=(curve,))
