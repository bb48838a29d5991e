"""Compare checks of a machine and a model with torchbridge's doctor and validation."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .processes import in_turns, wall_time
from .result import Comparison, Result
from .rivals import rival

_MODEL = (sys.executable, "run_test_generation.py", "--model", "bert", "--device", "cpu", "--run")
_WARNED = (0, 2)
"""2 is a warning of tb-validate, for example without a GPU."""


def measure(runs: int) -> Result:
    """Measure our doctor without and with computing on each target, and our run of one model, and torchbridge's."""
    doctor = rival("torchbridge", "tb-doctor")
    validation = rival("torchbridge", "tb-validate", "--level", "quick", allowed=_WARNED)
    ours = {
        "python -m hardware doctor --no-check": (sys.executable, "-m", "hardware", "doctor", "--no-check"),
        "python -m hardware doctor": (sys.executable, "-m", "hardware", "doctor"),
    }
    with tempfile.TemporaryDirectory() as name:
        folders = [
            word
            for option in ("output-dir", "evidence", "report-dir")
            for word in (f"--{option}", str(Path(name) / option))
        ]
        actions = {key: lambda c=command: wall_time(c, allowed=(0, 1)) for key, command in ours.items()}
        actions["bert on cpu"] = lambda: wall_time((*_MODEL, *folders))
        for key, one in (("tb-doctor", doctor), ("tb-validate", validation)):
            if not one.missing:
                actions[key] = lambda c=one.command: wall_time(c, allowed=_WARNED)
        taken = in_turns(actions, runs)
    notes = {
        "python -m hardware doctor --no-check": "looks at the machine, imports no framework; the rival imports torch",
        "python -m hardware doctor": "computes on every target that may be here, a process each; the rival doesn't",
    }
    comparisons = [
        Comparison(
            what="what is missing on a machine",
            ours=key,
            rival="tb-doctor",
            unit="s",
            ours_values=taken[key],
            rival_values=taken.get("tb-doctor", ()),
            missing=doctor.missing,
            note=notes[key],
        )
        for key in ours
    ]
    comparisons.append(
        Comparison(
            what="does it compute right numbers",
            ours="--model bert --device cpu --run",
            rival="tb-validate --level quick",
            unit="s",
            ours_values=taken["bert on cpu"],
            rival_values=taken.get("tb-validate", ()),
            missing=validation.missing,
            note="ours: seven checks of a transformers model against float64, with evidence and reports; the rival: "
            "modules of its own, and no model of anybody's",
        )
    )
    return Result(title="Is it all right here?", comparisons=tuple(comparisons))
