"""Compare memory estimates of published configurations with `accelerate estimate-memory`: time.

docs/measured/memory.md compares their errors.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.memory.page import CONFIGS
from hardware.files import CACHE_VARIABLE

from .processes import in_turns, wall_time
from .result import Comparison, Result
from .rivals import tried

CONFIGURATIONS = ("bert-large", "mistral-7b", "llama-3-70b")
_RIVAL = """
import sys
from accelerate import init_empty_weights
from accelerate.utils.modeling import calculate_maximum_sizes
from transformers import AutoConfig, AutoModel

config = AutoConfig.from_pretrained(sys.argv[1], local_files_only=True)
with init_empty_weights():
    model = AutoModel.from_config(config)
print(calculate_maximum_sizes(model))
"""
"""The work of `accelerate estimate-memory` after it has fetched a configuration from the Hub."""


def measure(runs: int) -> Result:
    """Measure both on each configuration in new processes; ours without a cache and with it."""
    comparisons: list[Comparison] = []
    with tempfile.TemporaryDirectory() as name:
        for configuration in CONFIGURATIONS:
            comparisons += _compared(configuration, Path(name), runs)
    return Result(title="How much memory a model takes", comparisons=tuple(comparisons))


def _compared(configuration: str, folder: Path, runs: int) -> list[Comparison]:
    path = str(CONFIGS / configuration)
    ours = [sys.executable, "hardware_compatibility_reporter.py", "--check-model", path, "--memory", "80GB"]
    ours += ["--evidence", str(folder / "evidence")]
    theirs = tried((sys.executable, "-c", _RIVAL, path))
    environment = {CACHE_VARIABLE: str(folder / "cache")}
    (folder / "evidence").mkdir(exist_ok=True)

    def again() -> float:
        return wall_time(ours, allowed=(0, 1), environment=environment)

    def anew() -> float:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        return again()

    actions = {"nothing kept": anew, "again": again}
    if not theirs.missing:
        actions["accelerate"] = lambda: wall_time(theirs.command)
    taken = in_turns(actions, runs)
    return [
        Comparison(
            what=f"memory of {configuration}, {name}",
            ours="--check-model … --memory 80GB",
            rival="accelerate: calculate_maximum_sizes",
            unit="s",
            ours_values=taken[name],
            rival_values=taken.get("accelerate", ()),
            missing=theirs.missing,
            note="ours runs the model without data, for activations too; the rival adds up weights",
        )
        for name in ("nothing kept", "again")
    ]
