"""From a suite's text to a folder with a script: what can be shown that way, and in which ways it is tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hardware.backends.factory import backend_class, built_in_targets, resolve_target
from hardware.cell import GRAPH_TASK, MODULE_TASK, Cell
from hardware.errors import UsageError
from hardware.workers import environment_of

from .failure import ANSWER, EXPECTED, INPUTS, WEIGHTS, Captured, Does, Way
from .running import SCRIPT
from .script import names_in, script_text
from .source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGETS = tuple(name for name in built_in_targets() if backend_class(name).CALLED_BY_SCRIPTS)
"""Targets whose runtime is public, and called by a script in a few lines."""

ORDER = (
    *("matches_reference", "honours_mask", "generates_like_reference", "cache_matches", "backward", "save_reload"),
    *("matches_recorded", "builds", "runs_natively"),
)
"""Which check of several that fail says most of the runtime."""

_MINIMUM_S = 120.0


def refuse(cell: Cell) -> None:
    """Raise `UsageError` where no script without our packages can show what fails in this cell."""
    name = resolve_target(str(cell.target)).name
    if backend_class(name).SIMULATED:
        raise UsageError(
            f"{cell} cannot be shown without this product", why=f"{name} exists only here: there is no upstream"
        )
    if name not in TARGETS:
        raise UsageError(
            f"{cell} cannot be shown by a script yet",
            why=f"nothing is known here of how {name} is called without our worker or plugin",
            fix=f"Known: {', '.join(TARGETS)}.",
        )
    if cell.task in (GRAPH_TASK, MODULE_TASK):
        raise UsageError(
            f"{cell} cannot be shown by a script yet",
            why="it is a graph file or code of somebody's own, which isn't ours to copy into an issue",
        )


def python_of(captured: Captured) -> str:
    """The Python that has the runtime of a script."""
    if captured.step is not None and captured.step.way is Way.QNN_GRAPH:
        found = environment_of("qnn").python
        if found is None:
            raise UsageError("the script cannot be run here", why=environment_of("qnn").reason)
        return str(found)
    return sys.executable


def scripts(
    captured: Captured, source: ModelSource, folder: Path, *, title: str, story: Sequence[str]
) -> Iterator[str]:
    """The scripts that are worth a try, the plainest first."""
    arrays = _arrays(folder)
    yield script_text(captured, source, arrays, title=title, story=story)
    if captured.step is not None and captured.step.way is Way.OPENVINO_CONVERT:
        yield script_text(captured, source, arrays, title=title, story=story, masks=True)


def _arrays(folder: Path) -> dict[str, list[str]]:
    from safetensors.numpy import load_file

    found = {
        name: names_in(load_file(str(folder / name))) for name in (INPUTS, EXPECTED) if (folder / name).is_file()
    }
    return found | ({WEIGHTS: []} if (folder / WEIGHTS).is_file() else {})


def tidy(captured: Captured, folder: Path) -> None:
    """Leave in a folder what its script reads, and nothing that was written on the way."""
    step = captured.step
    if step is None:
        return
    kept = {SCRIPT, INPUTS, EXPECTED, "README.md"}
    if step.way.has_graph:
        kept |= {step.graph, str(Path(step.graph).with_suffix(".bin")), f"{step.graph}.data"}
    elif step.does is not Does.BUILD:
        kept.add(WEIGHTS)
    for path in folder.iterdir():
        if path.name not in kept or path.name == ANSWER:
            path.unlink()


def deadline_of(captured: Captured, given: float) -> float:
    """Seconds that a script gets: as long as its check took, which did more, and at least two minutes."""
    return max(_MINIMUM_S, min(given, captured.seconds)) if captured.seconds else given
