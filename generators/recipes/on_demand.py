"""What a user asks to be known of a model: the stored recipe, else what is derived now, in a process of its own.

Deriving computes, and a process that has computed with torch can't fork any more: its children would hang in
OpenMP. The process of the main job forks later, so it has this done elsewhere.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from generators.models.given_recipe import GivenRecipe
from generators.models.recipe import Recipe
from generators.models.recipe_store import keep_recipe, load_recipe
from hardware.errors import ModelError, echo
from hardware.process import DROPPED, NoAnswer, answer, ask, limit_memory, run, with_product

from .operator_calls import OperatorCall

_LONGEST_S = 600.0
_LONGEST_BUILD_S = 3600.0
_GIVEN = {"module": "own_module.derive_own_module", "graph": "graph_file.derive_graph"}


def recipe_for(model_type: str, task: str | None = None) -> Recipe:
    """The recipe of a model type: the stored one, else one derived now (seconds, imports torch) and kept.

    Raises `ModelError` for an unknown type or task, or where no acceptable tiny model could be made.
    """
    stored = load_recipe(model_type, task)
    if stored is not None:
        return stored
    # Seconds of silence look like a hang.
    print(f"deriving a recipe of {model_type}: a few seconds, once per version", file=sys.stderr, flush=True)
    recipe = _recipe("derive.derive_tiny", model_type, task)
    keep_recipe(recipe, primary=task is None)
    return recipe


def derive_checkpoint(folder: Path | str) -> Recipe:
    """The recipe of a real checkpoint in a local folder (config.json and safetensors); it is not kept.

    Raises `BrokenInput` or `ModelError` where the folder can't be read or run, or no answer comes in an hour.
    """
    return _recipe("derive.derive_checkpoint", str(folder))


def derive_real_widths(name: str, task: str | None) -> Recipe:
    """The recipe of a model type, or of the folder with a config.json, at its real widths. Raises as above."""
    return _recipe("real_dims.derive_real", name, task)


def derive_given(kind: str, name: str) -> GivenRecipe:
    """The recipe of a user's own `module` (`package.module:factory`) or of a `graph` (its file).

    Raises what the derivation raised; `ModelError` where no answer comes in ten minutes.
    """
    return GivenRecipe.from_dict(_ask(_GIVEN[kind], name, offline=kind != "module"))


def real_calls_of(model_type: str) -> tuple[OperatorCall, ...]:
    """How a model type calls torch's operators at the size of its default configuration: dtypes and shapes of a
    forward pass in which nothing is allocated.

    Raises `ModelError` where the type's code can't be run on shapes alone, or no answer comes in ten minutes.
    """
    return tuple(OperatorCall.from_dict(one) for one in _ask("real_dims.real_calls", model_type))


def check_checkpoint(folder: Path | str) -> tuple[str, ...]:
    """What is to be said of a checkpoint before it runs, such as weights that its class doesn't take.

    Raises `BrokenInput` or `ModelError` where `derive_checkpoint` refuses the folder without computing anything.
    Takes seconds, in a child process that reads the headers of the weights alone.
    """
    return tuple(_ask("derive.remarks_of", str(folder)))


def memory_in_child(name: str, task: str | None, request: Mapping[str, Any]) -> dict[str, Any]:
    """What a model type, or the folder with a config.json, takes of memory: see `memory.memory_request.memory_of`.

    Raises as `derive_given` does.
    """
    found: dict[str, Any] = _ask("memory.memory_request.memory_of", name, task, request)
    return found


def derive_missing(model_types: Sequence[str], *, all_tasks: bool) -> None:
    """Derive what isn't stored for these types, several at a time, and keep it; what can't be is kept as a refusal.

    Takes about two seconds a type on two cores; progress goes to standard error. One process for all: it imports the
    libraries once, which costs more than most derivations.
    """
    if not model_types:
        return
    # What it left out is derived one by one, and says why it can't be.
    words = [*(["--all-tasks"] if all_tasks else []), *model_types]
    run(
        [sys.executable, "-P", "-m", "generators.recipes", "--missing", *words],
        limit_s=None,
        environment=with_product(),
        stdout=DROPPED,
        stderr=None,
    )


def _recipe(work: str, *arguments: Any) -> Recipe:
    return Recipe.from_dict(_ask(work, *arguments, limit_s=_LONGEST_BUILD_S))


def _ask(work: str, *arguments: Any, limit_s: float = _LONGEST_S, offline: bool = True) -> Any:
    """What a function of this package, `module.function`, returns for some arguments in a process of its own."""
    environment = {
        **os.environ,
        **({"HF_HUB_OFFLINE": "1"} if offline else {}),
    }  # a configuration may name what isn't here
    try:
        return ask(__name__, {"work": work, "arguments": arguments}, limit_s=limit_s, environment=environment)
    except NoAnswer as error:
        raise ModelError(f"no recipe could be derived for {echo(str(arguments[0]))}", why=str(error)) from error


def _answer(asked: Mapping[str, Any]) -> Any:
    from hardware.testing.runner import default_memory_limit

    # What a configuration or a graph asks for may be more than there is: then this process fails, and no other.
    limit_memory(default_memory_limit())
    logging.disable(logging.CRITICAL)  # what torch logs of operators that it can't size comes back as a reason
    module, _, name = asked["work"].rpartition(".")
    found = getattr(importlib.import_module(f"{__package__}.{module}"), name)(*asked["arguments"])
    if isinstance(found, tuple):
        return [one.to_dict() if isinstance(one, OperatorCall) else one for one in found]
    return found.to_dict() if isinstance(found, Recipe | GivenRecipe) else found


if __name__ == "__main__":
    answer(_answer)
