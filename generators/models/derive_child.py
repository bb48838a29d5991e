"""Derives a recipe in a process of its own.

Deriving computes, and a process that has computed with torch can't fork any more: its children would hang in
OpenMP. The process of the main job forks later, so it has this done elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hardware.errors import BrokenInput, HwCompatError, ModelError, echo

from .recipe import Recipe

_ROOT = Path(__file__).parents[2]
_KINDS: dict[str, type[HwCompatError]] = {"BrokenInput": BrokenInput, "ModelError": ModelError}


def derive_in_child(kind: str, name: str, task: str | None = None) -> Recipe:
    """The recipe of a model `type` (its name) or of a `checkpoint` (its folder), derived in a child process.

    Raises what the derivation raised; `ModelError` where the child ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
        answer = Path(folder) / "answer.json"
        question = json.dumps({"kind": kind, "name": name, "task": task, "answer": str(answer)})
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-m", __name__, question],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if not answer.is_file():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise ModelError(
                f"no recipe could be derived for {echo(name)}",
                why=f"the process that built it ended with code {done.returncode}: {last[:300]}",
            )
        said = json.loads(answer.read_text(encoding="utf-8"))
    if "recipe" in said:
        return Recipe.from_dict(said["recipe"])
    error = said["error"]
    raise _KINDS.get(error["class"], ModelError)(error["what"], why=error["why"], fix=error["fix"])


def _answer(question: str) -> None:
    from .derive import derive_checkpoint, derive_tiny

    asked = json.loads(question)
    try:
        if asked["kind"] == "checkpoint":
            recipe = derive_checkpoint(Path(asked["name"]))
        else:
            recipe = derive_tiny(asked["name"], asked["task"])
        said = {"recipe": recipe.to_dict()}
    except HwCompatError as error:
        said = {"error": {"class": type(error).__name__, "what": error.what, "why": error.why, "fix": error.fix}}
    Path(asked["answer"]).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    _answer(sys.argv[1])
