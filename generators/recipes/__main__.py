"""The maintainers' command: `python -m generators.recipes` derives recipes and stores them.

Without names it derives all model types of the installed libraries. With `--ship` the results go into the package's
data; otherwise into this machine's cache, as on a user's first use of a type.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from hwcompat.generators.models.code_facts import CodeFacts, code_facts, keep_code_facts
from hwcompat.generators.models.model_libraries import catalog_of, usable_types
from hwcompat.generators.models.recipe import SHIPPED, Recipe
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.hardware.command_line import run_command_line
from hwcompat.hardware.inventory.system.processor import usable_cores

from .derive_many import Wanted, derive_and_keep, in_children, missing


@click.command()
@click.argument("model_types", nargs=-1)
@click.option("--ship", is_flag=True, help="Store in the package, for the pinned version.")
@click.option(
    "--missing",
    "only_missing",
    is_flag=True,
    help="Derive only recipes that are not stored, for example after an interruption.",
)
@click.option("--all-tasks", is_flag=True, help="Derive all tasks of a type, not only the primary one.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at a time. Default: one per core.")
@click.option(
    "--code", is_flag=True, help="Probe the modeling code instead: padding, cache, trace, host work, ONNX export."
)
@click.option("--onnx", is_flag=True, help="Probe only the ONNX exports instead, and keep the other facts.")
def main(
    model_types: tuple[str, ...],
    ship: bool,
    only_missing: bool,
    all_tasks: bool,
    jobs: int | None,
    code: bool,
    onnx: bool,
) -> int:
    """Derive the recipes of MODEL_TYPES, by default of every type, and store them."""
    wanted = _work(model_types or usable_types(), all_tasks)
    jobs = jobs or usable_cores()
    if code or onnx:
        return _ask_code(wanted, ship, only_missing, jobs, onnx=onnx)
    if only_missing:
        wanted = missing(wanted)
    progress, made = _Progress(len(wanted)), 0
    for one, found in derive_and_keep(wanted, jobs=jobs, shipped=ship):
        what = one.model_type + (f" {one.task}" if one.task else "")
        if isinstance(found, Recipe):
            made += 1
            progress.tell(f"{what}: gain {found.gain}, {found.parameters:,} parameters")
        else:
            progress.tell(f"{what}: {found.obstacle}: {found.reason}")
    click.echo(f"{made} of {len(wanted)} have a recipe")
    return 0


def _ask_code(wanted: list[Wanted], ship: bool, only_missing: bool, jobs: int, *, onnx: bool) -> int:
    known = [recipe for one in wanted if (recipe := load_recipe(one.model_type, one.task))]
    if only_missing:
        known = [one for one in known if _is_unknown(one, onnx=onnx)]
    progress, done = _Progress(len(known)), 0
    for recipe, answer, lost in in_children(known, _onnx_facts if onnx else _code_facts, jobs=jobs):
        failure = lost or str((answer or {}).get("failure", ""))
        if answer and not failure:
            done += 1
            keep_code_facts(CodeFacts.from_dict(answer), SHIPPED if ship else None)
        progress.tell(f"{recipe.model_type} {failure}")
    click.echo(f"{done} of {len(known)} types were probed")
    return 0


class _Progress:
    """Report on standard error how many pieces of work are done, and how long the rest will take."""

    def __init__(self, of: int) -> None:
        self._of, self._done, self._started = of, 0, time.monotonic()

    def tell(self, text: str) -> None:
        self._done += 1
        left = (time.monotonic() - self._started) / self._done * (self._of - self._done)
        click.echo(f"[{self._done}/{self._of}, {left / 60:.0f} min left] {text}", err=True)


def _is_unknown(recipe: Recipe, *, onnx: bool) -> bool:
    found = code_facts(recipe.model_type, recipe.task)
    return found is None or (onnx and not found.onnx)


def _code_facts(recipe: Recipe) -> dict[str, Any]:
    from .probe_code import code_facts_of

    return _facts_or_failure(lambda: code_facts_of(recipe))


def _onnx_facts(recipe: Recipe) -> dict[str, Any]:
    from .probe_code import with_onnx

    found = code_facts(recipe.model_type, recipe.task)
    if found is None or found.recipe != recipe.digest:
        return {"failure": "probe its code first, with --code"}
    return _facts_or_failure(lambda: with_onnx(found, recipe))


def _facts_or_failure(ask: Callable[[], CodeFacts]) -> dict[str, Any]:
    try:
        return ask().to_dict()
    except Exception as error:  # modeling code may raise anything: this type has no facts
        return {"failure": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def _work(model_types: tuple[str, ...], all_tasks: bool) -> list[Wanted]:
    primary = [Wanted(model_type=name) for name in model_types]
    others = [
        Wanted(model_type=name, task=one.task) for name in model_types for one in catalog_of(name).tasks_of(name)[1:]
    ]
    return primary + (others if all_tasks else [])


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m generators.recipes"))
