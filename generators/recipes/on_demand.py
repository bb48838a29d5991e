"""Return facts about a model on request: the stored recipe, else one derived now in a child process.

Deriving computes, and a process that has computed with torch can't fork any more: its children would hang in OpenMP.
The process of the main job forks later, so deriving runs in another.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwcompat.generators.models.given_recipe import GivenRecipe
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import keep_recipe, load_recipe
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.files import CACHE_VARIABLE
from hwcompat.hardware.process import DROPPED, NoAnswer, answer, ask, limit_memory, run, with_product
from hwcompat.hardware.testing.pytest_environment import environment_with

from .operator_calls import OperatorCall

_LONGEST_S = 600.0
_LONGEST_BUILD_S = 3600.0
_GIVEN = {"module": "own_module.derive_own_module", "graph": "graph_file.derive_graph"}


def recipe_for(model_type: str, task: str | None = None) -> Recipe:
    """Return the recipe of a model type: the stored one, else one derived now (seconds, imports torch) and stored.

    Raises `ModelError` for an unknown type or task, or if no acceptable tiny model was found.
    """
    stored = load_recipe(model_type, task)
    if stored is not None:
        return stored
    # Seconds of silence look like a hang.
    print(
        f"deriving a recipe for {model_type} (a few seconds, once per library version)", file=sys.stderr, flush=True
    )
    recipe = _recipe("derive.derive_tiny", model_type, task)
    keep_recipe(recipe, primary=task is None)
    return recipe


def derive_checkpoint(folder: Path | str) -> Recipe:
    """Return the recipe of a real checkpoint in a local folder (config.json and safetensors); it isn't stored.

    Raises `BrokenInput` or `ModelError` if the folder can't be read or run, or if there is no answer in an hour.
    """
    return _recipe("derive.derive_checkpoint", str(folder))


def derive_real_widths(name: str, task: str | None, lengths: Sequence[int] | None) -> Recipe:
    """Return the recipe of a model type, or of a folder with a config.json, at its real widths: in pieces for texts
    of these `lengths` if they aren't None. Raise as above."""
    if lengths is None:
        return _recipe("real_dims.derive_real", name, task)
    return _recipe("real_dims.derive_pieces", name, task, list(lengths))


def derive_settings(folder: str, task: str | None) -> Recipe:
    """Return the recipe of a tiny model with the settings of a folder's config.json. Raise as above."""
    return _recipe("real_dims.derive_settings", folder, task)


def settings_apart(folder: str, task: str | None) -> tuple[str, ...]:
    """Return the settings of a folder's config.json with which no suite of its type runs. Raise as above."""
    return tuple(_ask("settings_apart.settings_apart", folder, task))


def derive_given(kind: str, name: str, inputs: str = "") -> GivenRecipe:
    """Return the recipe of a user's own `module` (`package.module:factory`) or of a `graph` (its file, with `inputs`
    of a `.npz` file or a folder of them).

    Raise the error of the derivation; `ModelError` if there is no answer in ten minutes.
    """
    more = [inputs] if inputs else []
    return GivenRecipe.from_dict(_ask(_GIVEN[kind], name, *more, offline=kind != "module"))


def real_calls_of(model_type: str) -> tuple[OperatorCall, ...]:
    """Return how a model type calls torch's operators at the size of its default configuration: dtypes and shapes of
    a forward pass in which nothing is allocated.

    Raises `ModelError` if the type's code can't be run on shapes alone, or if there is no answer in ten minutes.
    """
    return tuple(OperatorCall.from_dict(one) for one in _ask("real_dims.real_calls", model_type))


def check_checkpoint(folder: Path | str) -> tuple[str, ...]:
    """Return the remarks on a checkpoint before it runs, such as unused weights.

    Raises `BrokenInput` or `ModelError` if `derive_checkpoint` refuses the folder without computing anything. Takes
    seconds, in a child process that reads only the headers of the weights.
    """
    return tuple(_ask("derive.remarks_of", str(folder)))


def memory_in_child(name: str, task: str | None, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory of a model type, or of a folder with a config.json: see `memory.memory_request.memory_of`.

    Raise as `derive_given` does.
    """
    found: dict[str, Any] = _ask("memory.memory_request.memory_of", name, task, request)
    return found


def file_memory_in_child(name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory of an `.onnx` file: see `memory.file_memory.memory_of_file`. Raise as `derive_given` does."""
    found: dict[str, Any] = _ask("memory.file_memory.memory_of_file", name, request)
    return found


def keep_references(name: str, recipe: GivenRecipe, inputs: str, cache: Path) -> None:
    """Keep the references of a graph file's suite in a folder of their own. Raise as `derive_given` does."""
    with environment_with({CACHE_VARIABLE: str(cache)}):
        _ask("file_references.keep_references", name, recipe.to_dict(), inputs)


def derive_missing(model_types: Sequence[str], *, all_tasks: bool) -> None:
    """Derive missing recipes of these types, several at a time, and store them; a failure is stored as a refusal.

    Takes about two seconds per type on two cores; progress goes to standard error. One process imports the libraries
    once for all, because that takes longer than most derivations.
    """
    if not model_types:
        return
    # What it left out is derived one by one, with the reason if it can't be.
    words = [*(["--all-tasks"] if all_tasks else []), *model_types]
    run(
        [sys.executable, "-P", "-m", "hwcompat.generators.recipes", "--missing", *words],
        limit_s=None,
        environment=with_product(),
        stdout=DROPPED,
        stderr=None,
    )


def _recipe(work: str, *arguments: Any) -> Recipe:
    return Recipe.from_dict(_ask(work, *arguments, limit_s=_LONGEST_BUILD_S))


def _ask(work: str, *arguments: Any, limit_s: float = _LONGEST_S, offline: bool = True) -> Any:
    """Return the result of a function of this package, `module.function`, computed in a child process."""
    environment = {
        **os.environ,
        **({"HF_HUB_OFFLINE": "1"} if offline else {}),
    }  # a configuration may name a package that isn't installed
    try:
        return ask(__name__, {"work": work, "arguments": arguments}, limit_s=limit_s, environment=environment)
    except NoAnswer as error:
        raise ModelError(f"deriving a recipe for {echo(str(arguments[0]))} failed", why=str(error)) from error


def _answer(asked: Mapping[str, Any]) -> Any:
    from hwcompat.hardware.testing.runner import default_memory_limit

    # A configuration or a graph may exceed the memory: then only this process fails.
    limit_memory(default_memory_limit())
    logging.disable(logging.CRITICAL)  # torch's log of operators of unknown size is returned as a reason
    module, _, name = asked["work"].rpartition(".")
    found = getattr(importlib.import_module(f"{__package__}.{module}"), name)(*asked["arguments"])
    if isinstance(found, tuple):
        return [one.to_dict() if isinstance(one, OperatorCall) else one for one in found]
    return found.to_dict() if isinstance(found, Recipe | GivenRecipe) else found


if __name__ == "__main__":
    answer(_answer)
