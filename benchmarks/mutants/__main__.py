"""`python -m benchmarks.mutants`: break the suites of every kind of model in ten ways, and detect each break."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from generators.models.recipe_store import stored_recipes
from generators.mutants.mutation_operators import OPERATORS
from generators.recipes.on_demand import recipe_for
from generators.suites.render import TEMPLATES, render
from hardware.backends._torch import TorchBackend
from hardware.backends.factory import backend_class
from hardware.cell import Cell
from hardware.command_line import run_command_line
from hardware.errors import OutputError, UsageError
from hardware.files import CACHE_VARIABLE
from hardware.target import Target
from hardware.testing.suite_file import SuiteFile, read_suite

from .runs import Result, plan_rounds, run_rounds
from .table import table

KINDS = (
    "bert",
    "gpt2",
    "t5",
    "vit",
    "resnet",
    "clip",
    "whisper",
    "llava",
    "patchtst",
    "mixtral",
    "mamba",
    "rag",
    "bamba",
    "videomae",
    "stable-diffusion",
)
"""One kind for each architecture and trait, and one without attention; `--all` uses every shipped recipe."""
AT_FAULT = {"mamba": "beam_search"}
"""Checks that fail for a kind without a mutant, because the library is at fault (docs/measured/library-faults.md)."""
_SEED = 4


@click.command()
@click.option("--model", "models", multiple=True, help="A model type; may be repeated.")
@click.option("--all", "all_kinds", is_flag=True, help="Every model type whose recipe ships, not one of each shape.")
@click.option("--draw", type=click.IntRange(min=1), metavar="N", help="N of those, drawn by seed.")
@click.option("--operator", "operators", multiple=True, type=click.Choice(tuple(OPERATORS)), help="May be repeated.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Sites drawn per operator.")
@click.option("--clean", type=click.IntRange(min=0), default=4, show_default=True, help="Clean runs per kind.")
@click.option("--device", default="cpu", show_default=True, help="A target that PyTorch reaches.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file too.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(
    models: tuple[str, ...],
    all_kinds: bool,
    draw: int | None,
    operators: tuple[str, ...],
    seeds: int,
    clean: int,
    device: str,
    json_file: Path | None,
    debug: bool,
) -> int:
    """Break each suite's model in ways that it must detect, and run it unchanged, which must pass.

    Exit code 1 if a mutant lived, changed nothing or ended in another way than a check that disagreed, or if a clean
    run didn't pass every check.
    """
    started = time.monotonic()
    # Both are read when torch is imported. Spinning threads slow down other processes on their cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with tempfile.TemporaryDirectory(prefix="hwcompat-mutants-") as name:
        folder = Path(name).resolve()
        os.environ[CACHE_VARIABLE] = str(folder / "cache")  # empty, so that only shipped recipes are known
        kinds = models or _kinds(all_kinds=all_kinds, draw=draw)
        rounds = plan_rounds(
            render_suites(kinds, device, folder / "suites"), operators or tuple(OPERATORS), seeds, clean
        )
        planned = sum(len(jobs) for jobs in rounds)
        results: list[Result] = []
        for result in run_rounds(rounds, folder / "runs"):
            results.append(result)
            _progress(len(results), planned, result)
    click.echo(table(results))
    click.echo(f"{planned} runs in {time.monotonic() - started:.0f} s", err=True)
    if json_file is not None:
        _write(json_file, results)
    return 0 if all(result.good for result in results) else 1


def _kinds(*, all_kinds: bool, draw: int | None) -> tuple[str, ...]:
    if not (all_kinds or draw):
        return KINDS
    kinds = [recipe.model_type for recipe in stored_recipes()]
    return tuple(sorted(random.Random(_SEED).sample(kinds, min(draw, len(kinds)))) if draw else kinds)


def render_suites(models: Sequence[str], device: str, folder: Path) -> list[SuiteFile]:
    """Render each model's suite for `device` into `folder`. Raises `UsageError`."""
    target = Target.parse(device)
    if not issubclass(backend_class(target.name), TorchBackend):
        raise UsageError(
            f"mutants can't be made on {target}",
            why="only a model that PyTorch runs can be broken in place",
            fix="Take --device cpu.",
        )
    folder.mkdir(parents=True)
    (folder / "conftest.py").write_text(
        (TEMPLATES / "suite_conftest.py.j2").read_text(encoding="utf-8"), encoding="utf-8"
    )
    suites = []
    for number, model in enumerate(dict.fromkeys(models)):
        recipe = recipe_for(model)
        calls = {name: one for name, one in recipe.calls.items() if name != AT_FAULT.get(model)}
        recipe = dataclasses.replace(recipe, calls=calls)
        path = folder / f"test_suite_{number}.py"
        path.write_text(render(recipe, Cell.parse(f"{model}/{recipe.task}/{target}/float32"), ()), encoding="utf-8")
        suite = read_suite(path)
        assert suite is not None
        suites.append(suite)
    return suites


def _progress(done: int, planned: int, result: Result) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{done}/{planned} {result.job.model} {result.job.mutant}", err=True, nl=done == planned)


def _write(path: Path, results: Sequence[Result]) -> None:
    text = json.dumps([result.to_dict() for result in results], indent=2, allow_nan=False) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"can't write {path}", why=error.strerror or str(error), fix="Name a file in an existing folder."
        ) from error


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.mutants"))
