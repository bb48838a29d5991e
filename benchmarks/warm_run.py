"""What one more suite costs in a warm run, beyond its own checks.

Runs the eight known suites on cpu twice in one process each way: through the runner (a forked child and pytest for
each file), and as plain calls of the same test functions in one warm child. Prints the difference for each file.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from generators.models.store import stored_recipes
from generators.suites.render import render
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import RunLine
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter, new_run_id, now
from hardware.target import Target
from hardware.testing.runner import Limits, run_suites
from hardware.testing.suite_file import SuiteFile, read_suite
from hardware.testing.warm import warm_up


def _write(folder: Path) -> list[SuiteFile]:
    suites = []
    for recipe in stored_recipes():
        cell = Cell(model=recipe.model_type, task=recipe.task, target=Target(name="cpu"))
        path = folder / f"test_{cell.slug}.py"
        path.write_text(render(recipe, cell, []), encoding="utf-8")
        suite = read_suite(path)
        assert suite is not None
        suites.append(suite)
    return suites


def _through_runner(suites: list[SuiteFile], folder: Path) -> dict[str, float]:
    inventory = detect()
    writer = EvidenceWriter(folder, new_run_id())
    run = RunLine(
        run_id=writer.run_id,
        started_at=now(),
        command="benchmarks/warm_run.py",
        machine="",
        inventory=inventory.to_dict(),
        versions=versions_of(inventory),
        plan=tuple(suite.planned() for suite in suites),
    )
    starts: dict[str, float] = {}

    def note(suite: SuiteFile, _check: str) -> None:
        starts.setdefault(suite.cell.id, time.perf_counter())

    spent: dict[str, float] = {}
    warm_up(suites)
    for suite in suites:
        started = time.perf_counter()
        run_suites(run, [suite], writer, limits=Limits(), on_progress=note)
        spent[suite.cell.id] = time.perf_counter() - started
    writer.close()
    return spent


def _plainly(suites: list[SuiteFile]) -> dict[str, float]:
    """The same test functions, called one after the other in one forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        silence = os.open(os.devnull, os.O_WRONLY)  # what libraries print belongs to neither side
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        with os.fdopen(writer, "w") as out:
            for suite in suites:
                out.write(f"{suite.cell.id} {_call_all(suite)}\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        spent = {line.split()[0]: float(line.split()[1]) for line in source}
    os.waitpid(pid, 0)
    return spent


def _call_all(suite: SuiteFile) -> float:
    started = time.perf_counter()
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
                test(case, **extra)
    return time.perf_counter() - started


@click.command()
@click.option("--runs", default=3, show_default=True, type=click.IntRange(min=1))
def main(runs: int) -> None:
    """Print the table and the median difference."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HWCOMPAT_CACHE"] = str(folder / "cache")
        (folder / "suites").mkdir()
        suites = _write(folder / "suites")
        warm_up(suites)
        _plainly(suites)  # fills the store of references for both sides
        plain = [_plainly(suites) for _ in range(runs)]
        isolated = [_through_runner(suites, folder / "evidence") for _ in range(runs)]
    differences = []
    click.echo(f"{'cell':48} {'plain calls':>12} {'isolated':>10} {'beyond':>8}")
    for suite in suites:
        first = statistics.median(one[suite.cell.id] for one in plain)
        second = statistics.median(one[suite.cell.id] for one in isolated)
        differences.append(second - first)
        click.echo(f"{suite.cell.id:48} {first:10.2f} s {second:8.2f} s {second - first:6.2f} s")
    ratio = sum(statistics.median(o[s.cell.id] for o in isolated) for s in suites) / sum(
        statistics.median(o[s.cell.id] for o in plain) for s in suites
    )
    click.echo(f"median beyond its own checks: {statistics.median(differences):.2f} s a file; ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
