"""Compare writing suites with copying the same files, and with a minimal Python program that renders a template."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .processes import ROOT, in_turns, timed, wall_time
from .result import Comparison, Curve, Result

_FLOOR = "import click, jinja2; jinja2.Environment().from_string('{{ x }}').render(x=1)"
_NO_TORCH = """
import sys
from hwcompat.generators.model_profile import profile_of
from hwcompat.generators.suites.render import render
from hwcompat.hardware.cell import Cell

render(profile_of("bert").recipe, Cell.parse("bert/fill-mask/cpu/float32"), [])
print("torch" in sys.modules)
"""
_GROWTH = ("bert", "--priority high", "--priority all", "--priority all, two targets", "--priority all, all targets")
_WORDS = {
    "bert": ("--model", "bert", "--device", "cpu"),
    "--priority high": ("--priority", "high", "--device", "cpu"),
    "--priority all": ("--priority", "all", "--device", "cpu"),
    "--priority all, two targets": ("--priority", "all", "--device", "cpu", "--device", "openvino"),
    "--priority all, all targets": ("--priority", "all", "--device", "known"),
}


def measure(runs: int) -> Result:
    """Measure five sizes, written first and unchanged, in turns with a plain copy of the same files."""
    with tempfile.TemporaryDirectory() as name:
        return _measured(Path(name), runs)


def _measured(folder: Path, runs: int) -> Result:
    suites, copy = folder / "suites", folder / "copy"
    environment = {"HWCOMPAT_CACHE": str(folder / "cache")}
    comparisons: list[Comparison] = []
    points: dict[str, list[tuple[float, float]]] = {"written anew": [], "nothing changed": [], "files copied": []}
    for what in _GROWTH:
        command = [sys.executable, "run_test_generation.py", *_WORDS[what], "--output-dir", str(suites)]

        def anew(command: list[str] = command) -> float:
            shutil.rmtree(suites, ignore_errors=True)
            return wall_time(command, environment=environment)

        def again(command: list[str] = command) -> float:
            return wall_time(command, environment=environment)

        def copied() -> float:
            shutil.rmtree(copy, ignore_errors=True)
            return timed(lambda: shutil.copytree(suites, copy))

        taken = in_turns({"written anew": anew, "nothing changed": again, "files copied": copied}, max(1, runs // 2))
        count = len(list(suites.glob("test_*.py")))
        for key, values in taken.items():
            points[key].append((float(count), sorted(values)[len(values) // 2]))
            if key != "files copied":
                comparisons.append(
                    Comparison(
                        what=f"{count:,} suites ({what})",
                        ours=key,
                        rival="files copied",
                        unit="s",
                        ours_values=values,
                        rival_values=taken["files copied"],
                        note="ours is a process, started anew; the copy is a call of shutil.copytree",
                    )
                )
    comparisons.append(_floor(suites, environment, runs))
    done = subprocess.run([sys.executable, "-c", _NO_TORCH], cwd=ROOT, check=True, capture_output=True, text=True)
    curve = Curve(
        title="Writing suites",
        x="suites",
        y="seconds",
        points=points,
        runs=max(1, runs // 2),
    )
    return Result(
        title="Writing suites",
        comparisons=tuple(comparisons),
        curves=(curve,),
        remarks=(f"Rendering a suite imports torch: {done.stdout.strip()}.",),
    )


def _floor(suites: Path, environment: dict[str, str], runs: int) -> Comparison:
    command = [sys.executable, "run_test_generation.py", *_WORDS["bert"], "--output-dir", str(suites)]

    def anew() -> float:
        shutil.rmtree(suites, ignore_errors=True)
        return wall_time(command, environment=environment)

    taken = in_turns({"bert": anew, "floor": lambda: wall_time([sys.executable, "-c", _FLOOR])}, runs)
    return Comparison(
        what="one suite (bert), written anew",
        ours="run_test_generation.py --model bert",
        rival="click and Jinja2 alone",
        unit="s",
        ours_values=taken["bert"],
        rival_values=taken["floor"],
    )
