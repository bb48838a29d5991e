"""Derives a recipe, or a model's operators at its real size, in a process of its own.

Deriving computes, and a process that has computed with torch can't fork any more: its children would hang in
OpenMP. The process of the main job forks later, so it has this done elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from generators.models.given import GivenRecipe
from generators.models.recipe import Recipe
from hardware.errors import BrokenInput, HwCompatError, ModelError, ModelRefused, echo

from .operator_calls import Call

_LONGEST_S = 600.0
_LONGEST_BUILD_S = 3600.0
ROOT = Path(__file__).parents[2]
"""The folder that the product is imported from."""

_KINDS: dict[str, type[HwCompatError]] = {"BrokenInput": BrokenInput, "ModelError": ModelError}
"""Kinds of errors that the child reports; `ModelRefused` has an error type beside."""


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
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
        answer = Path(folder) / "answer.json"
        asked = {"kind": kind, "name": name, "task": task, "request": request, "answer": str(answer)}
        question = json.dumps(asked)
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        offline = {} if kind == "module" else {"HF_HUB_OFFLINE": "1"}  # a configuration may name what isn't here
        try:
            done = subprocess.run(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    __name__,
                    question,
                ],  # -P: no file that lies here stands in for a library
                env={**os.environ, **offline, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as error:
            raise ModelError(
                f"no recipe could be derived for {echo(name)}", why=f"there was no answer in {timeout:g} seconds"
            ) from error
        if not answer.is_file():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise ModelError(
                f"no recipe could be derived for {echo(name)}",
                why=f"the process that built it ended with code {done.returncode}: {last[:300]}",
            )
        said = json.loads(answer.read_text(encoding="utf-8"))
    if "made" in said:
        found: dict[str, Any] = said["made"]
        return found
    failure = said["error"]
    words = {name: failure[name] for name in ("why", "fix")}
    if failure["error_type"]:
        raise ModelRefused(failure["what"], **words, error_type=failure["error_type"])
    raise _KINDS.get(failure["class"], ModelError)(failure["what"], **words)


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


def _limit_memory() -> None:
    """What a configuration or a graph asks for may be more than there is: then this process fails, and no other."""
    with contextlib.suppress(ImportError):  # Windows has no such limit
        import resource

        from hardware.testing.runner import default_memory_limit

        if limit := default_memory_limit():
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _answer(question: str) -> None:
    asked = json.loads(question)
    _limit_memory()
    try:
        said: dict[str, Any] = {"made": _made(asked)}
    except HwCompatError as error:
        error_type = error.error_type if isinstance(error, ModelRefused) else ""
        words = {"what": error.what, "why": error.why, "fix": error.fix, "error_type": error_type}
        said = {"error": {"class": type(error).__name__, **words}}
    Path(asked["answer"]).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    _answer(sys.argv[1])
