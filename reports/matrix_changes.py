"""Compare a matrix that was kept as JSON with the present one: cell by cell, worse first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.matrix import SCHEMA, SCHEMA_VERSION, Matrix
from hwcompat.generators.compatibility.verdict import Basis, Level
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.plain_text import json_text
from hwcompat.hardware.plain_values import json_values

from .document import Block, Heading, Table, document
from .html.page import document_page
from .reason_text import texts
from .saved_reports import read_kept

CHANGES_SCHEMA = Path(__file__).with_name("schemas") / "matrix_changes.json"
CHANGES_SCHEMA_VERSION = 1

_MAKE_ANEW = "Create it again: hwcompat matrix --format json > FILE"


class MatrixChangeKind(StrEnum):
    """How a cell changed, in display order."""

    WORSE = "worse"
    EXPIRED = "expired"
    CHANGED = "changed"
    BETTER = "better"
    NEW = "new"
    GONE = "gone"

    @property
    def meaning(self) -> str:
        """What the kind means for a cell."""
        return _MEANINGS[self]


_MEANINGS = {
    MatrixChangeKind.WORSE: "the level is lower or now unknown, or an unknown level is now unsupported",
    MatrixChangeKind.EXPIRED: "the level was measured and now has a weaker basis",
    MatrixChangeKind.CHANGED: "the same level has another basis",
    MatrixChangeKind.BETTER: "the level is higher, known or measured now",
    MatrixChangeKind.NEW: "not in the baseline",
    MatrixChangeKind.GONE: "only in the baseline",
}


@dataclass(frozen=True, kw_only=True)
class MatrixState:
    """A cell's level and its basis; `unknown` has none."""

    level: Level
    basis: Basis | None

    @classmethod
    def of(cls, level: str, basis: str | None) -> MatrixState:
        known = Level(level)
        return cls(level=known, basis=None if known is Level.UNKNOWN or basis is None else Basis(basis))

    def __str__(self) -> str:
        return str(self.level) if self.basis is None else f"{self.level} ({self.basis})"


@dataclass(frozen=True, kw_only=True)
class MatrixChange:
    """A cell that has changed, with the reasons of the present verdict."""

    cell: str
    kind: MatrixChangeKind
    before: MatrixState | None
    now: MatrixState | None
    reasons: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Sort key, the worst first: by kind, then by the present level, then by how far it fell."""
        level = _rank(self.now.level) if self.now else 0
        before = _rank(self.before.level) if self.before else 0
        return list(MatrixChangeKind).index(self.kind), level, -before, self.cell


def _rank(level: Level) -> int:
    """Return the rank of a level; `unknown` is above `unsupported`, because it may still work."""
    return {Level.UNSUPPORTED: 0, Level.UNKNOWN: 1, Level.LOW: 2, Level.MEDIUM: 3, Level.HIGH: 4}[level]


@dataclass(frozen=True, kw_only=True)
class MatrixChanges:
    """The changes from the matrix of `since` to that of `timestamp`, worst first; `same` cells haven't changed."""

    since: str
    timestamp: str
    changes: tuple[MatrixChange, ...]
    same: int

    @property
    def counts(self) -> Mapping[MatrixChangeKind, int]:
        """The number of cells for each kind of change."""
        counted = Counter(change.kind for change in self.changes)
        return {kind: counted[kind] for kind in MatrixChangeKind}

    def met(self, words: Sequence[str]) -> dict[str, int]:
        """Return the number of cells for each word of `--fail-on`, without zeros."""
        found = {word: sum(FAIL_ON[_OLDER.get(word, word)](change) for change in self.changes) for word in words}
        return {word: number for word, number in found.items() if number}

    def to_dict(self, fail_on: Sequence[str] = ()) -> dict[str, Any]:
        """Return the JSON object that `schemas/matrix_changes.json` describes."""
        return {
            "schema_version": CHANGES_SCHEMA_VERSION,
            "since": self.since,
            "timestamp": self.timestamp,
            "same": self.same,
            "counts": json_values(self.counts),
            "changes": json_values(self.changes),
            "fail_on": {word: self.met(fail_on).get(word, 0) for word in fail_on},
        }


def _lost_measurement(change: MatrixChange) -> bool:
    before, now = change.before, change.now
    return before is not None and before.basis is Basis.MEASURED and (now is None or now.basis is not Basis.MEASURED)


def _fell_to(level: Level) -> Callable[[MatrixChange], bool]:
    def has_come(change: MatrixChange) -> bool:
        was = change.before is not None and change.before.level is level
        return change.now is not None and change.now.level is level and not was

    return has_come


_OLDER = {"none": "unsupported", "declared": "assumed"}
"""Words of the first edition, in older files and command lines."""

FAIL_ON: Mapping[str, Callable[[MatrixChange], bool]] = {
    "worse": lambda change: change.kind is MatrixChangeKind.WORSE,
    "expired": _lost_measurement,
    "unsupported": _fell_to(Level.UNSUPPORTED),
    "unknown": lambda change: change.kind is MatrixChangeKind.WORSE and _fell_to(Level.UNKNOWN)(change),
    "changed": lambda change: True,
}
"""The words of `--fail-on`: cells that are worse; that are no longer measured; that don't work any more or from the
start; that are no longer known; and any change."""


def check_words(words: Sequence[str]) -> None:
    """Raise `UsageError` for an unknown word of `--fail-on`."""
    for word in words:
        if _OLDER.get(word, word) not in FAIL_ON:
            known = f"Known: {', '.join(FAIL_ON)}."
            hint = did_you_mean(word, tuple(FAIL_ON))
            raise UsageError(f"--fail-on doesn't accept {echo(word)}", fix=f"{hint} {known}".strip())


def compare_matrix(
    before: Mapping[str, Any], now: Matrix, targets: Sequence[str] = (), models: Sequence[str] = ()
) -> MatrixChanges:
    """Compare `now` with a matrix as JSON, in the named `targets` or `models` only if there are any."""
    then = {
        verdict["cell"]: MatrixState.of(verdict["level"], verdict["basis"])
        for id_, row in before["models"].items()
        if not models or id_.partition("/")[0] in models
        for column, verdict in row["compatibility"].items()
        if not targets or column in targets
    }
    present = {verdict.cell: verdict for row in now.rows for verdict in row.verdicts.values()}
    changes = []
    for cell in sorted({*then, *present}):
        old, verdict = then.get(cell), present.get(cell)
        new = MatrixState.of(verdict.level, verdict.basis) if verdict else None
        kind = _kind(old, new)
        if kind is not None:
            reasons = texts(verdict.reasons) if verdict else ()
            changes.append(MatrixChange(cell=cell, kind=kind, before=old, now=new, reasons=reasons))
    return MatrixChanges(
        since=before["timestamp"],
        timestamp=now.timestamp,
        changes=tuple(sorted(changes, key=lambda change: change.order)),
        same=len({*then, *present}) - len(changes),
    )


def _kind(before: MatrixState | None, now: MatrixState | None) -> MatrixChangeKind | None:
    if before is None or now is None:
        return MatrixChangeKind.NEW if before is None else MatrixChangeKind.GONE
    if before == now:
        return None
    if before.level is not now.level:
        # A cell of which nothing is known any more is worse, whatever was known.
        if now.level is Level.UNKNOWN or _rank(now.level) < _rank(before.level):
            return MatrixChangeKind.WORSE
        if before.basis is not Basis.MEASURED or now.basis is Basis.MEASURED:
            return MatrixChangeKind.BETTER
    if before.basis is Basis.MEASURED:
        return MatrixChangeKind.EXPIRED
    return MatrixChangeKind.BETTER if now.basis is Basis.MEASURED else MatrixChangeKind.CHANGED


def read_baseline(path: Path) -> dict[str, Any]:
    """Read a matrix that was kept as JSON and validate it. Raises `BrokenInput`."""
    return read_kept(path, SCHEMA, "matrix", _MAKE_ANEW, renew=_renewed)


def _renewed(value: Any) -> Any:
    """Convert a matrix of schema version 2 to version 3: its words, and groups with counts instead of levels."""
    if isinstance(value, list):
        return [_renewed(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _renewed(one) for name, one in value.items()}
    if found.get("schema_version") == SCHEMA_VERSION - 1:
        found["schema_version"] = SCHEMA_VERSION
    for name in ("level", "basis"):
        if isinstance(found.get(name), str):
            found[name] = _OLDER.get(found[name], found[name])
    if "counts" in found and "level" in found and "levels" not in found:
        found |= {"levels": {}, "level": found["level"] if found.get("basis") == "assumed" else None}
    return found


FORMATS = ("table", "text", "markdown", "json", "html")
_TITLE = "Changes of the compatibility matrix"


def changes_text(found: MatrixChanges, format: str, *, fail_on: Sequence[str] = (), width: int = 100) -> str:
    """Return the changes as text that ends in a newline. Raises `UsageError` for another format."""
    if format not in FORMATS:
        raise UsageError(f"changes can't be written as {format}", fix="Use --format table, markdown, json or html.")
    if format == "json":
        return json_text(found.to_dict(fail_on)) + "\n"
    if format == "html":
        shares = {str(kind): number for kind, number in found.counts.items()}
        return document_page(_TITLE, _blocks(found, fail_on), {**shares, "same": found.same})
    return document(_blocks(found, fail_on), format, width)


def _blocks(found: MatrixChanges, fail_on: Sequence[str]) -> Iterator[Block]:
    counts = ", ".join(f"{number} {kind}" for kind, number in found.counts.items() if number) or "nothing changed"
    since = found.since[:19].replace("T", " ")
    yield Heading(level=1, text=_TITLE)
    yield f"Compared with the matrix of {since} UTC: {counts}; {found.same} cells are the same."
    for kind in MatrixChangeKind:
        own = [change for change in found.changes if change.kind is kind]
        if not own:
            continue
        yield Heading(level=2, text=f"{str(kind).capitalize()} ({len(own)})")
        yield f"{kind.meaning[0].upper()}{kind.meaning[1:]}."
        if kind in (MatrixChangeKind.NEW, MatrixChangeKind.GONE):
            yield Table(
                headings=("model/task/precision", "targets"),
                rows=[(row, ", ".join(targets)) for row, targets in _rows_of_models(own).items()],
            )
        else:
            rows = [(one.cell, f"{one.before} → {one.now}", "; ".join(one.reasons)) for one in own]
            yield Table(headings=("cell", "level", "why"), rows=rows)
    met = (f"{word}: {number} cell{'' if number == 1 else 's'}" for word, number in found.met(fail_on).items())
    if words := ", ".join(met):
        yield f"Failed on {words}."


def _rows_of_models(changes: Sequence[MatrixChange]) -> dict[str, list[str]]:
    """Return `bert/fill-mask/float32`, and the targets whose cells are new or gone."""
    found: dict[str, list[str]] = {}
    for change in changes:
        model, task, target, precision = (*change.cell.split("/", 3), "", "", "")[:4]
        found.setdefault(f"{model}/{task}/{precision}", []).append(target)
    return found
