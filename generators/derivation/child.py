"""Derives a recipe, or a model's operators at its real size, in a process of its own.

Deriving computes, and a process that has computed with torch can't fork any more: its children would hang in
OpenMP. The process of the main job forks later, so it has this done elsewhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from generators.models.given import GivenRecipe
from generators.models.recipe import Recipe
from hardware.errors import ModelError, echo
from hardware.process import NoAnswer, answer, ask, limit_memory

from .operator_calls import Call

_LONGEST_S = 600.0
_LONGEST_BUILD_S = 3600.0


def derive_in_child(kind: str, name: str, task: str | None = None) -> Recipe:
    """The recipe of a model `type` (its name), of a `checkpoint` (its folder), or at `real-dimensions` (of either),
    derived in a child process.

    Raises what the derivation raised; `ModelError` where the child ended without an answer, or none came in an hour.
    """
    return Recipe.from_dict(_ask(kind, name, task, _LONGEST_BUILD_S))


def given_in_child(kind: str, name: str) -> GivenRecipe:
    """The recipe of a user's own `module` (`package.module:factory`) or of a `graph` (its file), from a child.

    Raises as `derive_in_child` does, and `ModelError` where no answer comes in ten minutes.
    """
    return GivenRecipe.from_dict(_ask(kind, name, None, _LONGEST_S))


def real_calls_in_child(model_type: str) -> tuple[Call, ...]:
    """How a model type calls torch's operators at the size of its default configuration, from a child: dtypes and
    shapes of a forward pass in which nothing is allocated.

    Raises `ModelError` where the type's code can't be run on shapes alone, or no answer comes in ten minutes.
    """
    return tuple(Call.from_dict(one) for one in _ask("real-operators", model_type, None, _LONGEST_S)["calls"])


def checked_in_child(folder: str) -> tuple[str, ...]:
    """What is to be said of a checkpoint that can be loaded, from a child that reads no numbers of it.

    Raises as `derive_in_child` does where `checkpoint` would raise it before anything is computed.
    """
    return tuple(_ask("check-checkpoint", folder, None, _LONGEST_S)["remarks"])


def memory_in_child(name: str, task: str | None, request: Mapping[str, Any]) -> dict[str, Any]:
    """What a model type, or the folder with a config.json, takes of memory: see `memory.asked.memory_of`.

    Raises as `given_in_child` does.
    """
    return _ask("memory", name, task, _LONGEST_S, request)


def _ask(
    kind: str, name: str, task: str | None, timeout: float | None, request: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    asked = {"kind": kind, "name": name, "task": task, "request": request}
    offline = {} if kind == "module" else {"HF_HUB_OFFLINE": "1"}  # a configuration may name what isn't here
    try:
        found: dict[str, Any] = ask(__name__, asked, limit_s=timeout, environment={**os.environ, **offline})
    except NoAnswer as error:
        raise ModelError(f"no recipe could be derived for {echo(name)}", why=str(error)) from error
    return found


def _derive(kind: str, name: str, task: str | None) -> Recipe | GivenRecipe:
    if kind == "module":
        from .own_module import derive_own_module

        return derive_own_module(name)
    if kind == "graph":
        from .graph_file import derive_graph

        return derive_graph(name)
    if kind == "real-dimensions":
        from .real_dims import derive_real

        return derive_real(name, task)
    from .derive import derive_checkpoint, derive_tiny

    return derive_checkpoint(Path(name)) if kind == "checkpoint" else derive_tiny(name, task)


def _made(asked: Mapping[str, Any]) -> dict[str, Any]:
    kind, name, task = asked["kind"], asked["name"], asked["task"]
    if kind == "memory":
        from .memory.asked import memory_of

        logging.disable(logging.CRITICAL)  # what torch logs of operators that it can't size comes back as a reason
        return memory_of(name, task, asked["request"])
    if kind == "check-checkpoint":
        from .derive import open_checkpoint

        return {"remarks": open_checkpoint(Path(name), empty=True).remarks}
    if kind == "real-operators":
        from .real_operators import real_calls

        return {"calls": [call.to_dict() for call in real_calls(name, task)]}
    return _derive(kind, name, task).to_dict()


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    from hardware.testing.runner import default_memory_limit

    # What a configuration or a graph asks for may be more than there is: then this process fails, and no other.
    limit_memory(default_memory_limit())
    return _made(asked)


if __name__ == "__main__":
    answer(_answer)
