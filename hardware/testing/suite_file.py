"""Read the constants of a suite file without importing it: its cell, weights and checks."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cell import Cell
from ..errors import BrokenInput, HwCompatError
from ..evidence.modeling_files import modeling_fingerprint
from ..evidence.record import PlannedCell
from ..evidence.revisions import suite_revisions
from ..safe_read import read_bytes, reason_of

STAMP = "# generated: sha256 "
"""The beginning of a suite's last line. The hash of the text before it follows, so that edits are detected."""


_BEFORE_REVISIONS = "templates of before revisions were declared"
_LONGEST = 4 * 1024 * 1024

LIBRARIES = ("transformers", "diffusers")
"""The libraries of the models' classes in suites."""


@dataclass(frozen=True, kw_only=True)
class SuiteFile:
    """A generated suite: `cell`, `subject`, the names of its `checks` in file order, the hash of its bytes, the
    `library` of its model's classes with their names, the digest of its `recipe`, and the `revisions` of its
    templates. `missing` is why there is no file: the model isn't available."""

    path: Path
    cell: Cell
    subject: str
    checks: tuple[str, ...]
    suite_hash: str
    model_revision: str | None = None
    config_hash: str | None = None
    architecture: str | None = None
    recipe: str | None = None
    revisions: str | None = None
    library: str = "transformers"
    library_names: tuple[str, ...] = ()
    edited: bool = False
    missing: str = ""

    def planned(
        self, verdict: dict[str, object] | None = None, selection: dict[str, object] | None = None
    ) -> PlannedCell:
        """Return this suite as an entry of a run's plan."""
        return PlannedCell(
            cell_id=self.cell.id,
            checks=self.checks,
            suite=self.path.name,
            suite_hash=self.suite_hash,
            subject=self.subject,
            verdict=verdict,
            selection=selection,
            recipe=self.recipe,
            modeling=modeling_fingerprint(self.cell),
        )

    @property
    def outdated(self) -> str:
        """The revisions of its templates if they aren't today's; empty if it names none, as a suite of custom
        templates."""
        same = self.revisions is None or self.revisions == suite_revisions(self.checks)
        return "" if same else str(self.revisions)


@dataclass(frozen=True, kw_only=True)
class Carried:
    """One suite of a bundle with the prediction that was stored when it was packed.

    `required` is True if its device was named then, so that a run elsewhere isn't a success.
    """

    suite: SuiteFile
    verdict: Mapping[str, Any]
    required: bool
    selection: Mapping[str, Any] | None = None

    def planned(self) -> PlannedCell:
        """Return this suite as an entry of a run's plan."""
        return self.suite.planned(dict(self.verdict), dict(self.selection) if self.selection else None)


def read_suite(path: Path) -> SuiteFile | None:
    """Return the suite in a file, or None if the file isn't a suite (it has no CELL).

    Raises `BrokenInput` if the file can't be read or parsed, or if its CELL isn't a cell.
    """
    try:
        data = read_bytes(path, longest=_LONGEST)
    except (OSError, ValueError) as error:
        raise BrokenInput(f"the suite {path.name} cannot be read", why=reason_of(error)) from error
    try:
        tree = ast.parse(data, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        raise BrokenInput(
            f"the suite {path.name} is not valid Python",
            why=str(error) or "it is nested too deeply",
            fix="Generate it again with --force.",
        ) from error
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    cell_id = constants.get("CELL")
    if not isinstance(cell_id, str):
        return None
    try:
        cell = Cell.parse(cell_id)
    except HwCompatError as error:
        raise BrokenInput(f"the suite {path.name} has an invalid CELL", why=str(error)) from error
    checks = [
        node.name.removeprefix("test_")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    imported = {
        node.module: tuple(alias.name for alias in node.names)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module in LIBRARIES
    }
    library = next(iter(imported), LIBRARIES[0])
    return SuiteFile(
        path=path,
        cell=cell,
        subject=str(constants.get("WEIGHTS", constants.get("SUBJECT", "tiny"))),
        checks=tuple(checks),
        suite_hash=hashlib.sha256(data).hexdigest()[:16],
        **_texts(constants),
        library=library,
        library_names=imported.get(library, ()),
        edited=is_edited(data.decode("utf-8", errors="replace")),
    )


def _texts(constants: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of a suite that are texts or missing, by name."""
    names = ("model_revision", "config_hash", "architecture", "recipe", "revisions")
    found = {name: constants.get(name.upper()) for name in names}
    texts = {name: one if isinstance(one, str) else None for name, one in found.items()}
    if texts["revisions"] is None and "MADE_FROM" in constants:
        texts["revisions"] = _BEFORE_REVISIONS
    return texts


def stamp(body: str) -> str:
    """Return `body` with a last line that contains its hash, by which edits are detected."""
    return f"{body}\n\n{STAMP}{_digest(body)}\n"


def is_edited(text: str) -> bool:
    """Whether a suite's text isn't what was generated: its hash is missing or wrong."""
    body, separator, digest = text.rpartition(f"\n\n{STAMP}")
    return not separator or digest.strip() != _digest(body)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]
