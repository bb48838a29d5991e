"""`--repro CELL`: one folder with a script that shows a failure without us, and an issue text, checked in a child.

Exit codes: 0 where the script fails the same way as the check, 1 where it doesn't or nothing fails here any more, 4
where no script can show it, 5 where no failure of the cell is known.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generators.compatibility.rules import load_rules
from generators.models.classifier import classify_type
from generators.models.libraries import is_known, known_types
from hardware.backends.factory import backend_class
from hardware.basic_detection import inventory_here
from hardware.cell import Cell
from hardware.errors import ModelError, NothingMatched, OutputError, UsageError, did_you_mean, echo
from hardware.evidence.record import CheckLine
from hardware.evidence.store import Evidence, read_folder
from hardware.expected_targets import why_absent
from hardware.front_door import note
from hardware.paths import DEFAULT_EVIDENCE, OUTPUT
from hardware.testing.checkpoints import named_folders, weights_hash
from hardware.testing.runner import default_memory_limit
from hardware.whole_file import write_whole
from hwcompat.plugins.study.refresh.expired import ExpiredCell
from hwcompat.plugins.study.refresh.located import plan_again
from hwcompat.plugins.triage.repro.capture import capture
from hwcompat.plugins.triage.repro.failure import ANSWER, Captured
from hwcompat.plugins.triage.repro.making import ORDER, deadline_of, python_of, refuse, scripts, tidy
from hwcompat.plugins.triage.repro.running import SCRIPT, Shown, run_script
from hwcompat.plugins.triage.repro.source import ModelSource, model_source

from .repro_judgement import Judgement, judge
from .repro_text import Issue, issue_text, story_of, title_of
from .run_before import as_run_before

if TYPE_CHECKING:
    from generators.plan import PlannedSuite
    from hardware.evidence.record import RunLine
    from reports.request import Request

DEFAULT_FOLDER = OUTPUT / "repro"
README = "README.md"
_OWN_FILES = frozenset({SCRIPT, README, ANSWER})
_OWN_KINDS = (".safetensors", ".xml", ".bin", ".onnx", ".data")


@dataclass(frozen=True, kw_only=True)
class Repro:
    """A folder that was made, what was captured, how its script ended, and whether that is the same."""

    folder: Path
    captured: Captured
    shown: Shown
    judgement: Judgement


def report_repro(request: Request, text: str) -> int:
    """Make the folder, say what the script showed, and return the exit code."""
    cell = Cell.parse(text)
    evidence = _evidence(request)
    made = make_repro(cell, evidence, (request.output_dir or DEFAULT_FOLDER) / cell.slug)
    said = "reproduced the same way" if made.judgement.same else "NOT reproduced the same way"
    click.echo(f"{cell.id}, {made.captured.check}: {said}")
    click.echo(f"  {made.judgement.why}")
    click.echo(f"  {made.folder / SCRIPT}")
    click.echo(f"  {made.folder / README}" + ("" if made.judgement.same else ", which says so"))
    return 0 if made.judgement.same else 1


def make_repro(cell: Cell, evidence: Evidence | None, folder: Path) -> Repro:
    """Capture the failing check of a cell, write its folder, and run the script in it.

    Raises `UsageError` where no script can show it, `NothingMatched` where the evidence knows the cell and no failure
    of it, `NothingCaptured` where nothing fails here now.
    """
    refuse(cell)
    inventory = inventory_here()
    if absent := why_absent(cell.target, inventory):
        raise UsageError(f"{cell.target} isn't here, and a script has to be seen failing", why=absent)
    known = as_run_before(cell, evidence)
    checks = failing_checks(known.lines)
    if known.lines and not checks:
        raise NothingMatched(f"no check of {cell} failed in its latest run", fix="Name a cell that fails.")
    planned = _planned(known)
    source = model_source(planned.text)
    _empty(folder)
    note(f"running {', '.join(checks) or 'the suite'} of {cell} again, watched …")
    limit = backend_class(cell.target.name).DEADLINE_S
    captured = capture(
        planned.text,
        checks or [name for name in ORDER if f"def test_{name}(" in planned.text],
        folder,
        seconds=limit * max(1, len(checks)),
        memory_bytes=default_memory_limit(),
        weights=not source.checkpoint,
    )
    if captured.refused or captured.step is None:
        shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(f"{captured.check} of {cell} cannot be shown by a script", why=captured.refused)
    return _written(cell, captured, source, folder, planned, known.runs, limit)


def failing_checks(lines: Sequence[CheckLine]) -> tuple[str, ...]:
    """The checks that failed in the latest run of a cell, the most telling first."""
    if not lines:
        return ()
    latest = max(lines, key=lambda line: line.started_at).run_id
    failed = {line.check_name for line in lines if line.run_id == latest and line.outcome.is_failure}
    return tuple(name for name in ORDER if name in failed)


def _evidence(request: Request) -> Evidence | None:
    if request.evidence is not None:
        return read_folder(request.evidence)
    return read_folder(DEFAULT_EVIDENCE) if DEFAULT_EVIDENCE.is_dir() else None


def _planned(known: ExpiredCell) -> PlannedSuite:
    """The suite of the cell as it is made now."""
    cell = known.cell
    if not known.lines and not is_known(cell.model):
        raise ModelError(f"{echo(cell.model)} is no model type", fix=did_you_mean(cell.model, known_types()))
    try:
        return plan_again(known, (), (), load_rules(), inventory_here())
    except ModelError as error:
        task = classify_type(cell.model).task if is_known(cell.model) else cell.task
        if not error.fix and task != cell.task:
            raise ModelError(error.what, why=error.why, fix=f"Its first task is {task}.") from error
        raise


def _empty(folder: Path) -> None:
    """A folder of a repro from before, or of one that was cut off, is made anew; nothing else is taken away."""
    there = list(folder.iterdir()) if folder.is_dir() else []
    if not all(path.name in _OWN_FILES or path.suffix in _OWN_KINDS for path in there):
        raise OutputError(f"{folder} is in the way", why="it holds something else than a repro")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written", why=error.strerror or str(error)) from error


def _written(
    cell: Cell,
    captured: Captured,
    source: ModelSource,
    folder: Path,
    planned: PlannedSuite,
    runs: Sequence[RunLine],
    limit: float,
) -> Repro:
    """Write the script, run it, go on to the next way where it shows something else, and write the issue."""
    title, story = (
        title_of(cell, captured, getattr(planned.profile.recipe, "model_class", "")),
        story_of(cell, captured),
    )
    python, arguments = python_of(captured), _checkpoint(source, planned)
    tried: list[tuple[str, Shown, Judgement]] = []
    for text in scripts(captured, source, folder, title=title, story=story):
        write_whole(folder / SCRIPT, text)
        note("running the script alone …")
        shown = run_script(
            folder,
            python=python,
            seconds=deadline_of(captured, limit),
            memory_bytes=default_memory_limit(),
            arguments=arguments,
        )
        tried.append((text, shown, judge(captured, shown)))
        if tried[-1][2].same:
            break
    text, shown, judgement = next((one for one in tried if one[2].same), tried[0])
    write_whole(folder / SCRIPT, text)
    tidy(captured, folder)
    issue = Issue(cell=cell, captured=captured, shown=shown, judgement=judgement, title=title, story=story)
    write_whole(folder / README, issue_text(issue, text, next(iter(runs), None)))
    return Repro(folder=folder, captured=captured, shown=shown, judgement=judgement)


def _checkpoint(source: ModelSource, planned: PlannedSuite) -> tuple[str, ...]:
    """The folder of the checkpoint, as the argument of its script."""
    if not source.checkpoint:
        return ()
    folder = planned.profile.folder
    revision = getattr(planned.profile.recipe, "weights_hash", "")
    if folder is None:
        folder = next((one for one in named_folders() if one.is_dir() and weights_hash(one) == revision), None)
    if folder is None:
        raise UsageError("the checkpoint isn't here", fix="Name its folder in HWCOMPAT_CHECKPOINTS.")
    return (str(folder.resolve()),)
