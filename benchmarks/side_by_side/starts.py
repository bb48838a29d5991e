"""Compare the time of each command's help with an interpreter that imports only click."""

from __future__ import annotations

import sys

from .processes import in_turns, wall_time
from .result import Comparison, Result

COMMANDS = (
    ("run_test_generation.py",),
    ("hardware_compatibility_reporter.py",),
    ("-m", "hardware"),
    ("-m", "hardware", "list"),
    ("-m", "hardware", "doctor"),
    ("-m", "hardware", "monitor"),
    ("-m", "hardware", "stress"),
    ("-m", "hardware", "compare"),
    ("-m", "hwcompat.generators.models.classifier"),
)


def measure(runs: int) -> Result:
    """Measure `--help` of every command, in turns with `python -c "import click"`."""
    actions = {
        " ".join(words): lambda w=words: wall_time((sys.executable, *w, "--help"), allowed=(0,)) for words in COMMANDS
    }
    floor = "python -c 'import click'"
    taken = in_turns({**actions, floor: lambda: wall_time((sys.executable, "-c", "import click"))}, runs)
    return Result(
        title="Cold starts",
        comparisons=tuple(
            Comparison(
                what=f"`{name} --help`",
                ours=name,
                rival=floor,
                unit="s",
                ours_values=taken[name],
                rival_values=taken[floor],
            )
            for name in actions
        ),
    )
