"""Compare running suites with plain calls of their test functions in one warm process.

The same suites run on cpu three times: as plain calls in one warm process, so with a timer around the models' code,
and by the runner (a forked child and pytest for each file). Suites run one at a time, so that sums are comparable.
`python -m benchmarks.side_by_side.checks TYPES` measures one number of types, and prints JSON.
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
    """Measure the same suites both ways, once for each of several numbers of seeded types; takes minutes."""
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
    """Write suites of seeded recipes; any beginning of the list is a fair sample."""
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
    """Suites with checks that didn't pass."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        if set(outcomes) != {Outcome.PASSED}:
            self.failed.append(suite.cell.id)


def _run_by_runner(suites: Sequence[SuiteFile], folder: Path) -> tuple[float, list[str]]:
    """Return the wall-clock time of one run in s, and the cells that didn't pass."""
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
    """Return the result of `work` in a forked child, without its output."""
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


def _plain_calls(suites: Sequence[SuiteFile], *, watched: bool = False) -> tuple[float, float]:
    """Return the time in s of all test functions in one warm process, and the part in models' code."""

    def work() -> str:
        inside = [0.0]
        started = time.perf_counter()
        with _model_time(inside) if watched else contextlib.nullcontext():
            for suite in suites:
                _call_all(suite)
        return f"{time.perf_counter() - started} {inside[0]}"

    total, inside = map(float, _in_child(work).split())
    return total, inside


@contextmanager
def _model_time(inside: list[float]) -> Iterator[None]:
    """Add up the time of outermost forward passes and backward passes."""
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
                # Failures and skips take time here and in the runner, which reports them.
                with contextlib.suppress(Exception, pytest.skip.Exception):
                    test(case, **extra)


def _measure_types(count: int) -> dict[str, Any]:
    """Return times in s of plain calls and of the runner, the share of models in plain calls, and failing cells."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HWCOMPAT_CACHE"] = str(folder / "cache")
        (folder / "suites").mkdir()
        suites = _write(folder / "suites", count)
        warm_up(suites)
        _plain_calls(suites)  # Fills the store of references for all measurements.
        plain, _ = _plain_calls(suites)
        watched, inside = _plain_calls(suites, watched=True)
        isolated, failed = _run_by_runner(suites, folder / "evidence")
    return {"plain_s": plain, "runner_s": isolated, "in_models": inside / watched, "not_passed": failed}


if __name__ == "__main__":
    print(json.dumps(_measure_types(int(sys.argv[1]))))
