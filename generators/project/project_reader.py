"""Read and validate `hwcompat.toml`. All problems are reported at once, each with its line."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.verdict import Level
from hwcompat.generators.models.given_recipe import FACTORY, factory_parts
from hwcompat.hardware import safe_read
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.cell import PRECISIONS, Cell
from hwcompat.hardware.errors import BrokenInput, ModelError, UsageError, echo
from hwcompat.hardware.evidence.error_types import NUMBERS_CHANGED, former_names, known_error_types
from hwcompat.hardware.file_formats import by_suffix
from hwcompat.hardware.plain_text import one_line

from .project_file import AcceptedFailure, CellTimeout, Expectation, Project, ProjectModel, ProjectTolerance
from .toml_table import TableProblem, TomlTable, TooManyProblems, positions

SCHEMA = Path(__file__).with_name("schemas") / "hwcompat.json"
SCHEMA_VERSION = 1


_LARGEST_FILE = 1_000_000
LEVELS = tuple(str(level) for level in Level if level is not Level.UNKNOWN)
_LONGEST_TIMEOUT_S = 86_400
_NAME = re.compile(r"[A-Za-z0-9][\w.@+-]{0,95}(/[\w][\w.@+-]{0,95})*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,95}", re.ASCII)
_NUMBERS = re.compile(r"[0-9a-f]{12}")
_LINK = re.compile(r"https?://[^\s<>\"]+")


@functools.cache
def schema() -> dict[str, Any]:
    """Return the published JSON Schema of the project file."""
    loaded: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return loaded


def read_project(path: Path) -> Project:
    """Return the project of a file.

    Raises `BrokenInput` if it can't be read or isn't TOML, `UsageError` with all its problems.
    """
    return parse_project(read_text(path), path)


def read_text(path: Path) -> str:
    """Return the text of a project file. Raises `BrokenInput`."""
    try:
        if not path.is_file():
            raise BrokenInput(
                f"the project file {echo(str(path))} can't be read",
                why="it doesn't exist" if not path.exists() else "it isn't a file",
                fix="Name it with --config FILE.",
            )
        return safe_read.read_text(path, longest=_LARGEST_FILE)
    except (OSError, ValueError) as error:
        why = safe_read.reason_of(error)
        raise BrokenInput(f"the project file {echo(str(path))} can't be read", why=why) from error


def parse_project(text: str, path: Path) -> Project:
    """Return the project that a text describes; `path` is the file that holds it. Raise as `read_project` does."""
    try:
        values = safe_read.parsed_toml(text)
        spans = positions(text)
    except ValueError as error:
        why = one_line(str(error))
        raise BrokenInput(f"{echo(path.name)} isn't valid TOML", why=why, fix="See docs/PROJECT_FILE.md.") from error
    problems: list[TableProblem] = []
    try:
        project = _project(TomlTable(values, (), spans, problems), path, text.splitlines())
    except TooManyProblems:
        project = None
    if problems or project is None:
        problems.sort(key=lambda problem: problem.line)
        count = f"more than {len(problems)} problems" if project is None else f"{len(problems)} problems"
        count = "1 problem" if count == "1 problems" else count
        listed = "; ".join(str(problem).rstrip(".") for problem in problems)
        raise UsageError(f"{path.name} has {count}", why=listed)
    return project


def _project(top: TomlTable, path: Path, lines: list[str]) -> Project:
    top.only(tuple(schema()["properties"]))
    version = top.values.get("schema_version")
    if version is None:
        top.problem("", "schema_version is missing", f"Begin with: schema_version = {SCHEMA_VERSION}.")
    elif isinstance(version, bool) or version != SCHEMA_VERSION:
        top.problem(
            "schema_version", f"schema_version {version!r} is unknown", f"This version reads {SCHEMA_VERSION}."
        )
    defaults = _checked(top.inside("defaults"))
    targets = targets_of(defaults) or ("auto",)
    precisions = precisions_of(defaults) or ("float32",)
    models = [model_of(table, targets, precisions) for table in top.each("model")]
    timeouts = [timeout_of(table) for table in top.each("timeout")]
    tolerances = [tolerance_of(table) for table in top.each("tolerance")]
    if not top.values.get("model"):
        top.problem("", "it has no models", 'Add one, for example: [[model]] name = "bert".')
    accepted: dict[tuple[str, str, str], AcceptedFailure] = {}
    for table in top.each("accepted_failure"):
        if (one := accepted_of(table, lines)) is not None:
            before = accepted.setdefault((one.cell, one.check, one.error_type), one)
            if before is not one:
                table.problem("", f"{one.what} is accepted twice, first in {before.span}")
    return Project(
        path=path,
        models=tuple(one for one in models if one),
        targets=targets,
        precisions=precisions,
        expected=expected_of(top.inside("expected")),
        timeout_s=seconds_of(defaults, "timeout"),
        timeouts=tuple(one for one in timeouts if one),
        tolerances=tuple(one for one in tolerances if one),
        accepted=tuple(accepted.values()),
        rules=tuple(map(Path, top.parsed("rules", functools.partial(_rules_at, path.parent)) or ())),
    )


def _rules_at(root: Path, text: str) -> Path:
    """Return a file or folder of rules, relative to the project file. Raises `UsageError` for one outside."""
    if not text or "\0" in text:
        raise UsageError(f"{echo(text)} is not a file or folder")
    place = root / text
    for one in (place, *(place.glob("*.toml") if place.is_dir() else ())):
        if not one.resolve().is_relative_to(root.resolve()):
            raise UsageError(f"{echo(one.name if one is not place else text)} is outside the repository")
    return place


def _checked(table: TomlTable) -> TomlTable:
    """Return the table after noting each unknown key and each missing required one."""
    part = schema()["properties"][table.place[0]]
    part = part.get("items", part)
    table.only(tuple(part["properties"]))
    table.required(part.get("required", ()))
    return table


def targets_of(table: TomlTable) -> tuple[str, ...] | None:
    """Return the targets of a table by the names of their runtimes; `auto` and `all` stay until planning."""
    words = ("auto", "all")
    return table.parsed("targets", lambda text: text if text in words else resolve_target(text))


def precisions_of(table: TomlTable) -> tuple[str, ...] | None:
    """Return the precisions of a table."""
    return table.words("precisions", PRECISIONS, "a precision")


def model_of(table: TomlTable, targets: tuple[str, ...], precisions: tuple[str, ...]) -> ProjectModel | None:
    """Return one [[model]]; `targets` and `precisions` are the file's defaults."""
    from hwcompat.generators.models.catalog import task_entries

    _checked(table)
    name, revision, inputs = (table.text(field) for field in ("name", "revision", "inputs"))
    if inputs is not None and (not _NAME.fullmatch(inputs.removeprefix("./")) or ".." in inputs):
        table.problem("inputs", f"{echo(inputs)} must be a .npz file, or a folder of them, inside the repository")
    runs_code = name is not None and (found := by_suffix(name)) is not None and found.runs_code
    if name is not None and (runs_code or not _is_name(name)):
        table.problem(
            "name",
            f"{echo(name)} can't be a model of a project file: name a model type, a Hub id, a folder inside the "
            "repository, or its own code as package.module:factory; paths outside aren't allowed",
        )
        name = None
    if revision is not None and not _REVISION.fullmatch(revision):
        table.problem("revision", f"{echo(revision)} isn't a revision: name a branch, a tag or a commit")
    if revision is not None and name is not None and "/" not in name:
        table.problem("revision", f"{echo(name)} is a model type, but only Hub ids have revisions")
    tasks = table.words("tasks", sorted({entry.task for entry in task_entries()}), "a task")
    own_targets, own_precisions = targets_of(table), precisions_of(table)
    if name is None:
        return None
    return ProjectModel(
        name=name,
        revision=revision or "",
        inputs=inputs or "",
        tasks=tasks or (),
        targets=own_targets or targets,
        precisions=own_precisions or precisions,
        line=table.span().first,
    )


def _is_name(name: str) -> bool:
    if not FACTORY.fullmatch(name):
        return bool(_NAME.fullmatch(name.removeprefix("./"))) and ".." not in name
    try:
        factory_parts(name)
    except ModelError:
        return False
    return name.isprintable()


def seconds_of(table: TomlTable, field: str) -> float | None:
    """Return a time limit for one check in seconds."""
    seconds = table.number(field)
    if seconds is not None and not 0.1 <= seconds <= _LONGEST_TIMEOUT_S:
        table.problem(field, f"{field} = {seconds:g} must be between 0.1 and {_LONGEST_TIMEOUT_S} seconds")
    return seconds


def timeout_of(table: TomlTable) -> CellTimeout | None:
    """Return one [[timeout]]."""
    _checked(table)
    cells, seconds = table.text("cells"), seconds_of(table, "seconds")
    if cells is None or seconds is None:
        return None
    return CellTimeout(cells=cells, seconds=seconds, line=table.span().first)


def tolerance_of(table: TomlTable) -> ProjectTolerance | None:
    """Return one [[tolerance]]; a limit that would hide every error is a problem."""
    from hwcompat.hardware.testing.tolerances import too_wide

    _checked(table)
    cells, reason, limit = table.text("cells"), table.text("reason"), table.number("limit")
    precision = table.text("precision")
    if precision is not None:
        table.one_of("precision", precision, PRECISIONS, "a precision")
    if limit is not None and limit >= too_wide():
        table.problem(
            "limit",
            f"limit = {limit:g} must be below {too_wide():g} of the output's scale: with a wider limit, a model with "
            "doubled attention may pass",
        )
    if cells is None or reason is None or limit is None:
        return None
    return ProjectTolerance(
        cells=cells, precision=precision or "", limit=limit, reason=reason, line=table.span().first
    )


def exact_cell(text: str) -> str:
    """Return the id of a cell on a known target. Raises `UsageError` for a pattern and for another spelling."""
    if any(sign in text for sign in "*?["):
        raise UsageError(f"{echo(text)} is a pattern, but it must be one exact cell")
    cell = Cell.parse(text)
    written = replace(cell, target=resolve_target(str(cell.target))).id
    if written != text:
        raise UsageError(f"{echo(text)} isn't the canonical id of this cell", fix=f"Write {written}.")
    return written


def _cell_id(table: TomlTable, field: str, text: str) -> str | None:
    return table.tried(field, lambda: exact_cell(text))


def expected_of(table: TomlTable) -> dict[str, Expectation]:
    """Return the levels of [expected] by cell."""
    found: dict[str, Expectation] = {}
    for cell, level in table.values.items():
        known = _cell_id(table, cell, cell)
        if not isinstance(level, str):
            table.problem(cell, f'the level of {cell} must be text, such as "high"')
        elif level == Level.UNKNOWN:
            table.problem(cell, "unknown can't be expected, because it means that no check ran", "Remove the line.")
        elif table.one_of(cell, "unsupported" if level == "none" else level, LEVELS, "a level") and known:
            found[known] = Expectation(cell=known, level=Level(level), line=table.span(cell).first)
    return found


def accepted_of(table: TomlTable, lines: list[str]) -> AcceptedFailure | None:
    """Return one [[accepted_failure]]; `lines` are those of the file."""
    from hwcompat.hardware.testing.checks import all_checks

    _checked(table)
    cell, check, error_type = table.text("cell"), table.text("check"), table.text("error_type")
    reason, link, until = table.text("reason"), table.text("link"), table.day("until")
    if cell is not None:
        cell = _cell_id(table, "cell", cell)
    if "check" not in table.values and "error_type" not in table.values:
        table.problem(
            "", "[[accepted_failure]] has no check and no error_type: it would hide all failures of the cell"
        )
    if check is not None:
        table.one_of("check", check, [known.name for known in all_checks()], "a check")
    if error_type is not None:
        table.one_of("error_type", error_type, [*known_error_types(), *former_names()], "an error type")
    numbers = table.texts("numbers") or ()
    for one in numbers:
        if not _NUMBERS.fullmatch(one):
            table.problem("numbers", f"{echo(one)} isn't the hash of new numbers that a failed check states")
    if numbers and error_type != NUMBERS_CHANGED:
        table.problem("numbers", f"numbers are for {NUMBERS_CHANGED} alone")
    if error_type == NUMBERS_CHANGED and not numbers:
        table.problem("", f"{NUMBERS_CHANGED} is accepted with the `numbers` that the failed checks state")
    if link is not None and not _LINK.fullmatch(link):
        table.problem("link", f"{echo(link)} isn't a link: it must be the https:// address of the issue")
    if cell is None or reason is None or link is None or until is None:
        return None
    span = table.span()
    return AcceptedFailure(
        cell=cell,
        check=check or "",
        error_type=error_type or "",
        numbers=tuple(numbers),
        reason=reason,
        link=link,
        until=until,
        span=span,
        text="\n".join(lines[span.first - 1 : span.last]),
    )
