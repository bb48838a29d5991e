"""What a name stands for beside model types and checkpoints: a user's own module, or a graph file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hardware.cell import GRAPH_TASK, MODULE_TASK
from hardware.errors import BrokenInput, ModelError, echo
from hardware.untrusted import is_folder, is_plain_file

_FACTORY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

GRAPH_SUFFIXES = (".onnx", ".xml")


def kind_of(name: str) -> str:
    """`module` for `package.module:factory`, `graph` for the path of a graph file, else the empty string.

    Runs and opens nothing. Raises `ModelError` for a graph file that isn't there, `BrokenInput` for an empty one.
    """
    if _FACTORY.fullmatch(name):
        return "module"
    if not name.lower().endswith(GRAPH_SUFFIXES):
        return ""
    path = Path(os.path.expanduser(name))  # of a home that nobody has it leaves the name as it is
    if is_folder(path):
        return ""
    if not is_plain_file(path):
        raise ModelError(
            f"the file {echo(name)} does not exist",
            why="a name like this is the path of a graph file",
            fix="Name an .onnx file, or an OpenVINO .xml file with its .bin file beside it.",
        )
    if not path.stat().st_size:
        raise BrokenInput(f"the file {echo(name)} is empty", fix="Fetch or export it again.")
    return "graph"


TASKS = {"module": MODULE_TASK, "graph": GRAPH_TASK}
"""The task of each kind."""

SAID = {
    "module": "a name of your own code, which classifying doesn't run",
    "graph": "the file's name: a graph says what it computes, not what for",
}
"""Where a classification of each kind comes from."""
