"""Running suites, beside plain calls of their test functions in one warm process.

Three times over the same suites on cpu: as plain calls of their test functions in one warm process, in that way with
a clock around the models' own code, and through the runner (a forked child and pytest for each file). One suite at a
time throughout, so that sums can be compared. `python -m benchmarks.side_by_side.checks TYPES` measures one number of
types, and prints JSON.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from generators.models.recipe_store import stored_recipes
from generators.suites.render import render
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import Outcome, RunLine
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter, new_run_id, now
from hardware.target import Target
from hardware.testing.progress import Progress
from hardware.testing.runner import Limits, run_suites
from hardware.testing.suite_file import SuiteFile, read_suite
from hardware.testing.warm import warm_up

from .processes import ROOT
from .result import Comparison, Curve, Result

_TYPES = (10, 20, 40)
_SEED = 4


def measure(runs: int) -> Result:
    """The same suites both ways, for several numbers of types drawn by seed; each number once: it takes minutes."""
    del runs
    comparisons: list[Comparison] = []
    points: dict[str, list[tuple[float, float]]] = {"through the runner": [], "plain calls": []}
    for count in _TYPES:
        command = [sys.executable, "-m", "benchmarks.side_by_side.checks", str(count)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        failed = f"; not passed: {', '.join(found['not_passed'])}" if found["not_passed"] else ""
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
                f"{100 * found['in_models']:.0f} % of plain calls is in models{failed}",
            )
        )
    curve = Curve(title="Running suites, one at a time", x="types", y="seconds", points=points)
    return Result(title="Running checks", comparisons=tuple(comparisons), curves=(curve,))


def _write(folder: Path, count: int) -> list[SuiteFile]:
    """Suites of so many stored recipes, drawn by seed; any first part of the list is a fair sample."""
    recipes = sorted(stored_recipes(), key=lambda recipe: recipe.model_type)
    random.Random(_SEED).shuffle(recipes)
    suites = []
    for recipe in recipes[:count]:
        cell = Cell(model=recipe.model_type, task=recipe.task, target=Target(name="cpu"))
        path = folder / f"test_{cell.slug}.py"
        path.write_text(render(recipe, cell, []), encoding="utf-8")
        suite = read_suite(path)
        assert suite is not None
        suites.append(suite)
    return suites


class _Failures(Progress):
    """Which suites had checks that weren't passed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        if set(outcomes) != {Outcome.PASSED}:
            self.failed.append(suite.cell.id)


def _through_runner(suites: Sequence[SuiteFile], folder: Path) -> tuple[float, list[str]]:
    """Seconds of wall time of one run, and the cells that didn't pass whole."""
    inventory = detect()
    writer = EvidenceWriter(folder, new_run_id())
    run = RunLine(
        run_id=writer.run_id,
        started_at=now(),
        command="benchmarks/side_by_side/checks.py",
        machine="",
        inventory=inventory.to_dict(),
        versions=versions_of(inventory),
        plan=tuple(suite.planned() for suite in suites),
    )
    clock = _Failures()
    started = time.perf_counter()
    run_suites(run, suites, writer, limits=Limits(), progress=clock)
    writer.close()
    return time.perf_counter() - started, clock.failed


def _in_child(work: Callable[[], str]) -> str:
    """What `work` returns in a forked child, whose own output is of no interest."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        with os.fdopen(writer, "w") as out:
            out.write(work())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        answer = source.read()
    os.waitpid(pid, 0)
    return answer


def _plainly(suites: Sequence[SuiteFile], *, watched: bool = False) -> tuple[float, float]:
    """Seconds of all test functions, called one after the other in one warm process, and those in models' code."""

    def work() -> str:
        inside = [0.0]
        started = time.perf_counter()
        with _watching(inside) if watched else contextlib.nullcontext():
            for suite in suites:
                _call_all(suite)
        return f"{time.perf_counter() - started} {inside[0]}"

    total, inside = map(float, _in_child(work).split())
    return total, inside


@contextmanager
def _watching(inside: list[float]) -> Iterator[None]:
    """Adds up the seconds in the outermost forward pass of modules, and in backward passes."""
    import torch

    called, backward = torch.nn.Module.__call__, torch.Tensor.backward
    depth = 0

    def timed(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth:
                return function(*args, **kwargs)
            depth, started = 1, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                depth = 0
                inside[0] += time.perf_counter() - started

        return call

    torch.nn.Module.__call__, torch.Tensor.backward = timed(called), timed(backward)
    try:
        yield
    finally:
        torch.nn.Module.__call__, torch.Tensor.backward = called, backward


def _call_all(suite: SuiteFile) -> None:
    spec = importlib.util.spec_from_file_location(suite.path.stem, suite.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make_case = inspect.unwrap(module.case)
    make_case = getattr(make_case, "_fixture_function", make_case)
    for case in make_case():
        for check in suite.checks:
            test = getattr(module, f"test_{check}")
            with tempfile.TemporaryDirectory() as scratch:
                extra = {"tmp_path": Path(scratch)} if "tmp_path" in inspect.signature(test).parameters else {}
                # What fails or is skipped takes its time here as it does in the runner, which says which they are.
                with contextlib.suppress(Exception, pytest.skip.Exception):
                    test(case, **extra)


def _measure_types(count: int) -> dict[str, Any]:
    """Seconds of plain calls and of the runner, the share of plain calls in models, and cells that didn't pass."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HWCOMPAT_CACHE"] = str(folder / "cache")
        (folder / "suites").mkdir()
        suites = _write(folder / "suites", count)
        warm_up(suites)
        _plainly(suites)  # fills the store of references for all that is compared
        plain, _ = _plainly(suites)
        watched, inside = _plainly(suites, watched=True)
        isolated, failed = _through_runner(suites, folder / "evidence")
    return {"plain_s": plain, "runner_s": isolated, "in_models": inside / watched, "not_passed": failed}


if __name__ == "__main__":
    print(json.dumps(_measure_types(int(sys.argv[1]))))
