"""Publishes suites: those that proved themselves are written, each whole, the others are kept back with a reason."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from generators.planned_suite import PlannedSuite
from hardware.errors import NothingMatched, OutputError

from .files import State, prepare_folder, state_of, write_suite
from .verified import Verification
from .verify import VerifiedSuite


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What became of the suites that were asked for: `folder` holds those in `published`, and none in `kept_back`.

    `taken_away` names what lay in the folder under the name of a suite that is kept back. What a person edited there,
    `edited`, was verified as it lies there, and stays.
    """

    folder: Path
    verification: Verification
    published: tuple[str, ...]
    kept_back: tuple[str, ...]
    taken_away: tuple[str, ...]
    edited: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """That of the verification; 1 also where a suite is kept back because it can't be verified here."""
        return self.verification.exit_code or int(bool(self.kept_back))

    def text(self) -> str:
        """The verification, and below it what was written and what wasn't."""
        said = [self.verification.text(), f"{len(self.published)} published in {self.folder}"]
        if self.kept_back:
            said.append(f"{len(self.kept_back)} kept back: {', '.join(self.kept_back)}")
        if self.taken_away:
            said.append(f"taken away, since it no longer proves itself: {', '.join(self.taken_away)}")
        return "\n".join(said)


def publish_suites(
    planned: Sequence[PlannedSuite],
    folder: Path,
    *,
    force: bool,
    verify: Callable[[Sequence[Path]], Verification],
) -> Publication:
    """Write the suites that `verify` finds good into `folder`, after all of them were verified elsewhere.

    Interrupted before, it leaves the folder as it was. A file that was edited by hand is verified in its place and
    left alone unless `force`. Raises `OutputError`.
    """
    texts = {suite.file_name: suite.text for suite in planned}
    edited = [name for name, text in texts.items() if state_of(folder / name, text) is State.EDITED and not force]
    with tempfile.TemporaryDirectory(prefix="hwcompat-publish-") as name:
        staged = Path(name).resolve()
        for suite in planned:
            write_suite(staged, suite.file_name, suite.text)
        paths = [(folder if name in edited else staged) / name for name in texts]
        try:
            found = {one.path.name: one for one in verify(paths).suites}
        except NothingMatched:  # none of them holds a cell
            found = {}
    verification = Verification(suites=tuple(_of_cell(suite, found.get(suite.file_name)) for suite in planned))
    judged = {one.path.name: one for one in verification.suites if one.path.name not in edited}
    published = [name for name, one in judged.items() if one.is_good]
    kept_back = [name for name in judged if name not in published]
    if published:
        prepare_folder(folder)
    for name in published:
        write_suite(folder, name, texts[name], force=force)
    return Publication(
        folder=folder,
        verification=verification,
        published=tuple(published),
        kept_back=tuple(kept_back),
        taken_away=tuple(name for name in kept_back if _taken_away(folder / name, texts[name])),
        edited=tuple(edited),
    )


def _of_cell(suite: PlannedSuite, found: VerifiedSuite | None) -> VerifiedSuite:
    """What was found of a suite; wrong where it is another cell's, or none's: its template lost what says so."""
    if found is None:
        return VerifiedSuite(path=Path(suite.file_name), compiles=True, problem="it holds no CELL, so it is no suite")
    if found.cell is not None and found.cell != suite.cell:
        return replace(found, problem=f"it is of the cell {found.cell}, not of {suite.cell}")
    return found


def _taken_away(path: Path, text: str) -> bool:
    """Take away what was generated there earlier; what a person edited stays, also where it may be overwritten."""
    if state_of(path, text) in (State.NEW, State.EDITED):
        return False
    try:
        path.unlink()
    except OSError as error:
        raise OutputError(f"{path} can't be taken away", why=error.strerror or str(error)) from error
    return True
