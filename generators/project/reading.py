"""Reads and validates `hwcompat.toml`. All that is wrong with it is told at once, each thing with its line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardware import untrusted
from hardware.errors import BrokenInput, UsageError, echo
from hardware.plain_text import one_line

from .entries import (
    accepted_of,
    expected_of,
    model_of,
    precisions_of,
    seconds_of,
    targets_of,
    timeout_of,
    tolerance_of,
)
from .positions import Place, Span, positions
from .project_file import AcceptedFailure, Project
from .table import Problem, Table, TooManyProblems

SCHEMA = Path(__file__).with_name("schemas") / "hwcompat.json"
SCHEMA_VERSION = 1

TOP = ("schema_version", "defaults", "model", "timeout", "tolerance", "expected", "accepted_failure")
DEFAULTS = ("targets", "precisions", "timeout")

_LARGEST_FILE = 1_000_000


def schema() -> dict[str, Any]:
    """The published JSON Schema of the project file."""
    loaded: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return loaded


def read_project(path: Path) -> Project:
    """The project that a file describes.

    Raises `BrokenInput` where it can't be read or isn't TOML, `UsageError` with all that is wrong in it.
    """
    return parse_project(read_text(path), path)


def read_text(path: Path) -> str:
    """The text of a project file. Raises `BrokenInput`."""
    try:
        if not path.is_file():
            raise BrokenInput(
                f"the project file {echo(str(path))} cannot be read",
                why="there is no such file" if not path.exists() else "it is no file",
                fix="Name it with --config FILE.",
            )
        return untrusted.read_text(path, longest=_LARGEST_FILE)
    except (OSError, ValueError) as error:
        why = untrusted.reason_of(error)
        raise BrokenInput(f"the project file {echo(str(path))} cannot be read", why=why) from error


def parse_project(text: str, path: Path) -> Project:
    """The project that a text describes; `path` is the file that holds it. Raises as `read_project` does."""
    try:
        values = untrusted.parsed_toml(text)
        spans = positions(text)
    except ValueError as error:
        why = one_line(str(error))
        raise BrokenInput(f"{echo(path.name)} is not TOML", why=why, fix="See docs/PROJECT_FILE.md.") from error
    problems: list[Problem] = []
    try:
        project = _Reading(values, spans, problems, text).project(path)
    except TooManyProblems:
        project = None
    if problems or project is None:
        problems.sort(key=lambda problem: problem.line)
        count = f"more than {len(problems)} problems" if project is None else f"{len(problems)} problems"
        count = "1 problem" if count == "1 problems" else count
        listed = "; ".join(str(problem).rstrip(".") for problem in problems)
        raise UsageError(f"{path.name} has {count}", why=listed)
    return project


class _Reading:
    """One pass over the values of a file."""

    def __init__(
        self, values: Mapping[str, Any], spans: Mapping[Place, Span], problems: list[Problem], text: str
    ) -> None:
        self._spans = spans
        self._problems = problems
        self._lines = text.splitlines()
        self._top = Table(values, (), spans, problems)

    def project(self, path: Path) -> Project:
        self._top.only(TOP)
        version = self._top.values.get("schema_version")
        if version is None:
            self._top.problem("", "schema_version is missing", f"Begin with: schema_version = {SCHEMA_VERSION}.")
        elif isinstance(version, bool) or version != SCHEMA_VERSION:
            self._top.problem(
                "schema_version", f"schema_version {version!r} is not known", f"This version reads {SCHEMA_VERSION}."
            )
        defaults = self._table("defaults")
        defaults.only(DEFAULTS)
        targets = targets_of(defaults) or ("auto",)
        precisions = precisions_of(defaults) or ("float32",)
        models = [model_of(table, targets, precisions) for table in self._tables("model")]
        timeouts = [timeout_of(table) for table in self._tables("timeout")]
        tolerances = [tolerance_of(table) for table in self._tables("tolerance")]
        if not self._top.values.get("model"):
            self._top.problem("", "no model is named", 'For example: [[model]] name = "bert".')
        return Project(
            path=path,
            models=tuple(one for one in models if one),
            targets=targets,
            precisions=precisions,
            expected=expected_of(self._table("expected")),
            timeout_s=seconds_of(defaults, "timeout"),
            timeouts=tuple(one for one in timeouts if one),
            tolerances=tuple(one for one in tolerances if one),
            accepted=self._accepted(),
        )

    def _table(self, name: str) -> Table:
        value = self._top.values.get(name, {})
        if not isinstance(value, dict):
            self._top.problem(name, f"{name} has to be a table, [{name}]")
            value = {}
        return Table(value, (name,), self._spans, self._problems)

    def _tables(self, name: str) -> list[Table]:
        value = self._top.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self._top.problem(name, f"{name} has to be a list of tables, each under [[{name}]]")
            value = []
        return [Table(item, (name, number), self._spans, self._problems) for number, item in enumerate(value)]

    def _accepted(self) -> tuple[AcceptedFailure, ...]:
        found: dict[tuple[str, str, str], AcceptedFailure] = {}
        for table in self._tables("accepted_failure"):
            one = accepted_of(table, self._lines)
            if one is None:
                continue
            before = found.setdefault((one.cell, one.check, one.error_type), one)
            if before is not one:
                table.problem("", f"{one.what} is accepted twice, first in {before.span}")
        return tuple(found.values())
