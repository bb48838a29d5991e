"""What a classification is: of a model type, of users' own code, and of graph files. Needs the catalogs alone."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hwcompat.hardware.cell import GRAPH_TASK, MODULE_TASK
from hwcompat.hardware.errors import BrokenInput, ModelError, echo
from hwcompat.hardware.file_formats import by_suffix, graph_format
from hwcompat.hardware.safe_read import is_folder, is_plain_file

from .architectures import UNKNOWN, architecture_data, shape_of, traits_of
from .folder_kinds import graph_in
from .given_recipe import FACTORY, factory_parts
from .model_libraries import catalog_of, is_known

TASKS = {"module": MODULE_TASK, "graph": GRAPH_TASK}
"""The task of each kind."""
SOURCES = {
    "module": "the name of your own code, which wasn't run",
    "graph": "the file's name, because a graph doesn't contain its task",
}
"""The source of a classification of each kind."""


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The classification of a model. `confidence` is high (mappings, config), medium or low (name only).

    `model` is the text that was passed (or the model type that it spells another way), `path` the checkpoint's folder
    if there is one, `model_class` the class that does the task (empty if unknown), `source` the source of the answer.
    `size_tier` is that of the number of parameters in the checkpoint's files, empty if there are none.
    """

    model: str
    model_type: str
    family: str
    architecture: str
    traits: tuple[str, ...]
    task: str
    model_class: str
    confidence: str
    source: str
    path: str | None = None
    size_tier: str = ""

    @property
    def parameters(self) -> None:
        """None: known only from a recipe."""

    @property
    def operators(self) -> tuple[str, ...]:
        """Empty: known only from a recipe."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"traits": list(self.traits)}


def spelling(name: str) -> str:
    """Return a name as it is compared: in lower case, with - for _."""
    return name.lower().replace("_", "-")


def classify_type(model_type: str, task: str | None = None) -> Classification:
    """Classify a model type by the mappings. Raises `ModelError` for an unknown type or task."""
    catalog = catalog_of(model_type)
    tasks = catalog.tasks_of(model_type)
    chosen = next((t for t in tasks if task in (None, t.task)), None)
    if task is not None and chosen is None:
        known = ", ".join(t.task for t in tasks) or "none"
        raise ModelError(f"{model_type} has no class for {echo(task)}", fix=f"Its tasks: {known}.")
    family, architecture, confidence = shape_of(model_type, tasks[0].task if tasks else "", catalog)
    return Classification(
        model=model_type,
        model_type=model_type,
        family=family,
        architecture=architecture,
        traits=traits_of(model_type),
        task=chosen.task if chosen else UNKNOWN,
        model_class=chosen.model_class if chosen else "",
        confidence=confidence,
        source=f"auto mappings of {catalog.library} {catalog.version}",
    )


def of_task(name: str, task: str, source: str) -> Classification:
    """Return the classification of a model of which only the task is known."""
    family, architecture = architecture_data()["task"][task]
    return Classification(
        model=name,
        model_type=UNKNOWN,
        family=family,
        architecture=architecture,
        traits=(),
        task=task,
        model_class="",
        confidence="low",
        source=source,
    )


def graph_path(name: str) -> Path:
    """Return the graph file that a name of kind `graph` means: itself, or one in its folder."""
    path = Path(os.path.expanduser(name))
    return (graph_in(path) or path) if is_folder(path) else path


def kind_of(name: str) -> str:
    """Return `module` for `package.module:factory`, `graph` for the path of a graph file or of a folder with one and
    without weights for torch, else the empty string.

    Run nothing; of a file only the beginning is read. Raises `ModelError` for arguments that aren't literals and for
    a missing file, `ModelRefused` for a file or folder of a format that no target runs, `BrokenInput` for a file that
    can't be read.
    """
    if FACTORY.fullmatch(name):
        factory_parts(name)
        return "module"
    path = Path(os.path.expanduser(name))  # leaves the name unchanged for an unknown user
    if is_folder(path):
        return "graph" if not is_known(name) and graph_in(path) else ""
    if (named := by_suffix(name)) is None or not (named.says or is_plain_file(path)):
        return ""
    if not is_plain_file(path):
        raise ModelError(
            f"the file {echo(name)} doesn't exist",
            why="such a name is the path of a graph file",
            fix="Name an .onnx file, or an OpenVINO .xml file with its .bin file beside it.",
        )
    if not path.stat().st_size:
        raise BrokenInput(f"the file {echo(name)} is empty", fix="Copy it again, or export it again.")
    return "graph" if graph_format(path) else ""
