"""`hwcompat repro CELL`: write a folder with a script that shows a failure without hwcompat, and an issue text.

Exit codes: 0 if the script fails the same way as the check, 1 if it doesn't or nothing fails here anymore, 4 if no
script can show the failure, 5 if no failure of the cell is known.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hwcompat.generators.compatibility.rules import load_rules
from hwcompat.generators.models.classification import classify_type
from hwcompat.generators.models.model_libraries import is_known, known_types
from hwcompat.generators.suites.suite_files import suite_environment
from hwcompat.hardware.backends._web import WebBackend
from hwcompat.hardware.backends.factory import backend_class, built_in_targets, get_backend, resolve_target
from hwcompat.hardware.backends.webgpu import NATIVE
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.cell import GRAPH_TASK, MODULE_TASK, Cell, label_of
from hwcompat.hardware.command_line import note
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import ModelError, NothingMatched, OutputError, UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.evidence.store import Evidence, read_folder
from hwcompat.hardware.expected_targets import why_absent
from hwcompat.hardware.files import DEFAULT_EVIDENCE, OUTPUT, write_whole, writing
from hwcompat.hardware.testing.checkpoints import named_folders, weights_hash
from hwcompat.hardware.testing.graph_weights import weight_files
from hwcompat.hardware.testing.runner import default_memory_limit
from hwcompat.hardware.workers import environment_of
from hwcompat.plugins.study.refresh.expired_cells import ExpiredCell, as_run_before
from hwcompat.plugins.study.refresh.locate_suite import plan_again
from hwcompat.reports.progress_bar import working_on

from .repro.capture_failure import capture
from .repro.captured_failure import ANSWER, EXPECTED, INPUTS, WEIGHTS, CapturedFailure, Does, Way
from .repro.repro_script import SCRIPT, ModelSource, Shown, arrays_in, model_source, run_script, script_text
from .repro_match import ReproMatch, judge
from .repro_text import issue_text, story_of, title_of

if TYPE_CHECKING:
    from hwcompat.generators.plan import PlannedSuite
    from hwcompat.hardware.evidence.record import RunLine
    from hwcompat.reports.report_request import Request

TARGETS = tuple(name for name in built_in_targets() if backend_class(name).CALLED_BY_SCRIPTS)
"""Targets whose runtime is public and can be called by a short script."""

ORDER = (
    *("matches_reference", "honours_mask", "generates_like_reference", "cache_matches", "backward", "save_reload"),
    *("matches_recorded", "builds", "runs_natively"),
)
"""Checks in the order in which a failing one is chosen, the most informative first."""

DEFAULT_FOLDER = OUTPUT / "repro"
README = "README.md"
_OWN_FILES = frozenset({SCRIPT, README, ANSWER})
_MINIMUM_S = 120.0
"""The shortest time limit of a script in seconds; otherwise the duration of its check, which did more."""

_LARGEST_INSIDE = 2 << 20
"""Bytes of data up to which a script contains it, so that it is one file. Larger data stays beside it."""

_OWN_KINDS = (".safetensors", ".npz", ".xml", ".bin", ".onnx", ".data")


def report_repro(request: Request, text: str) -> int:
    """Write the folder, print what the script showed, as Markdown the issue, and return the exit code."""
    cell = Cell.parse(text)
    folder = (request.output_dir or DEFAULT_FOLDER) / cell.slug
    with working_on("running the cell"):
        captured, judgement = make_repro(cell, evidence_of(request), folder)
    if request.format == "markdown":
        click.echo((folder / README).read_text(encoding="utf-8"), nl=False)
        return int(not judgement.same)
    said, so = ("reproduced", "") if judgement.same else ("NOT reproduced", " (states the difference)")
    click.echo(f"{cell.id}, {captured.check}: {said}\n  {judgement.why}")
    click.echo(f"  {folder / SCRIPT}\n  {folder / README}{so}")
    return int(not judgement.same)


def make_repro(cell: Cell, evidence: Evidence | None, folder: Path) -> tuple[CapturedFailure, ReproMatch]:
    """Capture the failing check of a cell, write its folder, and run the script in it.

    Return the captured failure, and whether the script shows the same. Raises `UsageError` if no script can show it,
    `NothingMatched` if the evidence knows the cell and no failure of it, `NothingCaptured` if nothing fails here now.
    """
    refuse(cell)
    inventory = inventory_here()
    if absent := why_absent(cell.target, inventory):
        raise UsageError(f"{cell.target} isn't available, and the script must run to show the failure", why=absent)
    known = as_run_before(cell, evidence)
    checks = failing_checks(known.lines)
    if known.lines and not checks:
        raise NothingMatched(f"no check of {cell} failed in its latest run", fix="Name a cell that fails.")
    planned = planned_again(known)
    is_file = cell.task == GRAPH_TASK
    source = ModelSource(imports=(), code="") if is_file else model_source(planned.text)
    _empty(folder)
    note(f"running {', '.join(checks) or 'the suite'} of {cell} again and recording it …")
    limit = backend_class(cell.target.name).DEADLINE_S
    captured = capture(
        planned.text,
        checks or [name for name in ORDER if f"def test_{name}(" in planned.text],
        folder,
        seconds=limit * max(1, len(checks)),
        memory_bytes=default_memory_limit(),
        weights=not source.checkpoint,
        variables=suite_environment([planned]),
    )
    if captured.refused or captured.step is None:
        shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(f"{captured.check} of {cell} cannot be shown by a script", why=captured.refused)
    return _write_folder(cell, captured, source, folder, planned, known.runs, limit)


def refuse(cell: Cell) -> None:
    """Raise `UsageError` if no script without our packages can show what fails in this cell."""
    name = resolve_target(str(cell.target)).name
    if backend_class(name).SIMULATED:
        raise UsageError(
            f"{cell} cannot be shown without hwcompat", why=f"{name} is part of hwcompat, so it has no upstream"
        )
    is_page = cell.task == GRAPH_TASK and backend_class(name).IN_BROWSER and cell.target.variant != NATIVE
    if name not in TARGETS and not is_page:
        raise UsageError(
            f"{cell} cannot be shown by a script yet",
            why=f"scripts for {name} aren't supported",
            fix=f"Supported: {', '.join(TARGETS)}.",
        )
    if cell.task == MODULE_TASK:
        raise UsageError(
            f"{cell} cannot be shown by a script yet",
            why="the model is your own code, which isn't copied into an issue",
        )


def failing_checks(lines: Sequence[CheckLine]) -> tuple[str, ...]:
    """Return the checks that failed in the latest run of a cell, the most informative first."""
    if not lines:
        return ()
    latest = max(lines, key=lambda line: line.started_at).run_id
    failed = {line.check_name for line in lines if line.run_id == latest and line.outcome.is_failure}
    return tuple(name for name in ORDER if name in failed)


def evidence_of(request: Request) -> Evidence | None:
    """Return the evidence of a request, by default that of this folder; None if there is none."""
    if request.evidence is not None:
        return read_folder(request.evidence)
    return read_folder(DEFAULT_EVIDENCE) if DEFAULT_EVIDENCE.is_dir() else None


def planned_again(known: ExpiredCell) -> PlannedSuite:
    """Return the suite of the cell as it is rendered now."""
    cell = known.cell
    if not known.lines and cell.task == GRAPH_TASK:
        raise ModelError(
            f"no run of {cell} is known",
            why="a cell doesn't say where its file is",
            fix=as_runnable(f"Run it first: hwcompat run --model {label_of(cell.model)} --device {cell.target}"),
        )
    if not known.lines and not is_known(cell.model):
        raise ModelError(f"{echo(cell.model)} isn't a model type", fix=did_you_mean(cell.model, known_types()))
    try:
        return plan_again(known, (), (), load_rules(), inventory_here())
    except ModelError as error:
        task = classify_type(cell.model).task if is_known(cell.model) else cell.task
        if not error.fix and task != cell.task:
            raise ModelError(error.what, why=error.why, fix=f"Its first task is {task}.") from error
        raise


def _empty(folder: Path) -> None:
    """Empty a folder of an earlier or interrupted repro. Raises `OutputError` if it contains other files."""
    there = list(folder.iterdir()) if folder.is_dir() else []
    own = {*_OWN_FILES, *_weights_of(there)}
    if not all(path.name in own or path.suffix in _OWN_KINDS for path in there):
        raise OutputError(f"{folder} exists", why="it contains files that aren't of a repro")
    with writing(f"{folder} cannot be written"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)


def _weights_of(files: Sequence[Path]) -> Iterator[str]:
    """Yield the names, or the folders, of the weights beside the copies of graph files."""
    for file in files:
        if file.suffix.lower() == ".onnx":
            with contextlib.suppress(Exception):  # a copy that was interrupted
                yield from (one.relative_to(file.parent).parts[0] for one in weight_files(file))


def _write_folder(
    cell: Cell,
    captured: CapturedFailure,
    source: ModelSource,
    folder: Path,
    planned: PlannedSuite,
    runs: Sequence[RunLine],
    limit: float,
) -> tuple[CapturedFailure, ReproMatch]:
    """Write the script, run it, try the next way if it shows another failure, and write the issue.

    The script that stays pins the versions that it ran with.
    """
    title = title_of(cell, captured, getattr(planned.profile.recipe, "model_class", ""))
    story, arrays = story_of(cell, captured), arrays_in(folder)
    _remove_unused(captured, folder)
    files = _small_files(folder)
    render = partial(script_text, captured, source, arrays, title=title, story=story, files=files)
    way = captured.step.way if captured.step else None
    python = _python_of(way, cell)
    arguments = _runtime_of(cell) if way is Way.WEB_FILE else _checkpoint(source, planned)
    tried: list[tuple[bool, Shown, ReproMatch]] = []
    for masks in (False, True) if way is Way.OPENVINO_CONVERT else (False,):
        write_whole(folder / SCRIPT, render(masks=masks))
        note("running the script alone …")
        shown = run_script(
            folder,
            python=python,
            seconds=max(_MINIMUM_S, min(limit, captured.seconds)) if captured.seconds else limit,
            memory_bytes=default_memory_limit(),
            arguments=arguments,
        )
        tried.append((masks, shown, judge(captured, shown)))
        if tried[-1][2].same:
            break
    masks, shown, judgement = next((one for one in tried if one[2].same), tried[0])
    text = render(masks=masks, printed=shown.printed)
    write_whole(folder / SCRIPT, text)
    for name in {Path(name).parts[0] for name in files}:
        _remove(folder / name)
    issue = issue_text(captured, shown, judgement, title=title, story=story, script=text, run=next(iter(runs), None))
    write_whole(folder / README, issue)
    return captured, judgement


def _python_of(way: Way | None, cell: Cell) -> str:
    """Return the Python that has the runtime of a script."""
    if way not in (Way.QNN_GRAPH, Way.WEB_FILE):
        return sys.executable
    found = environment_of(cell.target.name)
    if found.python is None:
        raise UsageError("the script cannot be run here", why=found.reason)
    return str(found.python)


def _runtime_of(cell: Cell) -> tuple[str, ...]:
    """Return the folder of ONNX Runtime Web and the browser, as the arguments of a script."""
    backend = get_backend(cell.target)
    assert isinstance(backend, WebBackend)
    places = backend.places()
    return str(Path(places["runtime"]) / "node_modules/onnxruntime-web/dist"), places["browser"]


def _remove_unused(captured: CapturedFailure, folder: Path) -> None:
    """Remove what the script doesn't read from its folder."""
    kept = {SCRIPT, INPUTS, EXPECTED}
    if captured.step and captured.step.way.has_graph:
        graph = captured.step.graph
        kept |= {graph, *(Path(part).parts[0] for part in captured.step.weights)}
    elif captured.step and captured.step.does is not Does.BUILD:
        kept.add(WEIGHTS)
    for path in folder.iterdir():
        if path.name not in kept:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _small_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a script by name, or nothing if together they are large."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if sum(path.stat().st_size for path in found) > _LARGEST_INSIDE:
        return {}
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _checkpoint(source: ModelSource, planned: PlannedSuite) -> tuple[str, ...]:
    """Return the folder of the checkpoint, as the argument of its script."""
    if not source.checkpoint:
        return ()
    folder = planned.profile.folder
    revision = getattr(planned.profile.recipe, "weights_hash", "")
    if folder is None:
        folder = next((one for one in named_folders() if one.is_dir() and weights_hash(one) == revision), None)
    if folder is None:
        raise UsageError("the checkpoint isn't here", fix="Set HWCOMPAT_CHECKPOINTS to its folder.")
    return (str(folder.resolve()),)
