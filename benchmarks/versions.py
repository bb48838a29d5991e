"""Test a sample of model types on cpu with the installed version of transformers.

Failures of calls beside the forward pass, such as with a static cache, and numbers that another version changed are
the library's: they don't count, and are printed.

Types that can be built are the denominator; the others are listed with the reason. No file of the product is made
for one version, so the share of types that pass every check measures how general the rules are.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import product
from generators.models.catalog import Catalog, installed_version, load_catalog
from generators.models.recipe_store import SHIPPED, refusals
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.store import lines_by_cell, read_folder
from hardware.testing.checks import call_checks, core_checks

_SEED = 4


def _drawn(catalog: Catalog, sample: int, *, new: bool) -> list[str]:
    """Draw model types with a class by seed; with `new`, only types without a shipped recipe for any version."""
    known = {path.stem for path in SHIPPED.glob("*/*.json")} | set(_refused_elsewhere())
    names = [name for name in catalog.model_types if catalog.tasks_of(name) and not (new and name in known)]
    return sorted(random.Random(_SEED).sample(names, min(sample, len(names))))


def _refused_elsewhere() -> Sequence[str]:
    import json

    return [one["model_type"] for path in SHIPPED.glob("refused-*.json") for one in json.loads(path.read_text())]


def _run(names: Sequence[str], folder: Path) -> None:
    command = product.command(folder, names, "cpu", "--run")
    subprocess.run(command, cwd=product.ROOT, check=False)  # Failed checks are counted below.


def _outcomes(folder: Path) -> tuple[dict[str, list[CheckLine]], dict[str, set[str]]]:
    """Return by model type the lines of a run and the planned checks."""
    evidence = read_folder(folder / "evidence")
    lines = {own[0].model: own for own in lines_by_cell(evidence.checks).values()}
    planned = {Cell.parse(one.cell_id).model: set(one.checks) for run in evidence.runs for one in run.plan}
    return lines, planned


@click.command()
@click.option("--sample", default=40, show_default=True, type=click.IntRange(min=1))
@click.option("--new", is_flag=True, help="Only types of which nothing is shipped for any version.")
@click.option("--goal", default=95.0, show_default=True, help="Percent of the buildable that must pass every check.")
def main(sample: int, new: bool, goal: float) -> None:
    """Run the sample and print the types that passed; exit with 1 below the goal."""
    names = _drawn(load_catalog(), sample, new=new)
    if not names:
        click.echo(f"transformers {installed_version()} has no type that is new")
        return
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        folder = Path(name)
        _run(_with_recipe(names), folder)
        lines, planned = _outcomes(folder) if (folder / "evidence").is_dir() else ({}, {})
    refused = {name: one for name, one in refusals().items() if name in names}
    buildable = [name for name in names if name not in refused or refused[name].is_buildable]
    passed = [name for name in buildable if _all_passed(lines.get(name, []), planned.get(name, set()))]
    for name in names:
        if why := _why(name, lines.get(name, [])):
            click.echo(f"{name}: {why}")
    share = 100 * len(passed) / max(1, len(buildable))
    click.echo(
        f"transformers {installed_version()}: {len(passed)} of {len(buildable)} that can be built pass what counts "
        f"({share:.0f} %, goal {goal:g} %), of {len(names)} drawn"
    )
    raise SystemExit(0 if share >= goal else 1)


def _with_recipe(names: Sequence[str]) -> list[str]:
    """Return the types with a recipe; the reasons of the others are added to the dict."""
    from generators.recipes.on_demand import derive_missing

    derive_missing(names, all_tasks=False)
    return [name for name in names if name not in refusals()]


def _all_passed(lines: Sequence[CheckLine], planned: set[str]) -> bool:
    """Whether every planned check has a line, and each that counts passed."""
    done = {line.check_name for line in lines}
    calls = call_checks() - core_checks()
    counted = [one for one in lines if one.check_name not in calls and one.error_type != "upgrade_changed_numbers"]
    return bool(planned) and planned <= done and all(line.outcome is Outcome.PASSED for line in counted)


def _why(name: str, lines: Sequence[CheckLine]) -> str:
    if name in refusals():
        one = refusals()[name]
        return f"{one.obstacle}: {one.reason}"
    wrong = [f"{line.check_name} {line.outcome} ({line.error_message[:200]})" for line in lines]
    return "; ".join(text for text, line in zip(wrong, lines, strict=True) if line.outcome is not Outcome.PASSED)


if __name__ == "__main__":
    main()
