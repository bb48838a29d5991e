"""Compare the first verdict about BERT with a hand-written pytest file that makes the same checks."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from hardware.files import CACHE_VARIABLE

from .processes import ROOT, in_turns, wall_time
from .result import Comparison, Result

_BY_HAND = Path(__file__).with_name("hand_written_bert.py")


def measure(runs: int) -> Result:
    """Measure new processes in turns, ours with an empty cache and no suite."""

    def ours() -> float:
        with tempfile.TemporaryDirectory() as folder:
            places = ("--output-dir", f"{folder}/suites", "--evidence", f"{folder}/evidence")
            command = [sys.executable, "-m", "hwcompat", "run", "--model", "bert", "--device", "cpu", *places]
            return wall_time(command, environment={CACHE_VARIABLE: f"{folder}/cache"})

    def by_hand() -> float:
        return wall_time(
            [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(ROOT), str(_BY_HAND)]
        )

    taken = in_turns({"ours": ours, "by hand": by_hand}, runs)
    return Result(
        title="A first verdict",
        comparisons=(
            Comparison(
                what="the first verdict about BERT on cpu",
                ours="hwcompat run --model bert --device cpu",
                rival="pytest hand_written_bert.py",
                unit="s",
                ours_values=taken["ours"],
                rival_values=taken["by hand"],
                note="ours: detects devices, writes the suite, proves where operators ran, keeps evidence",
            ),
        ),
    )
