"""`--try-remedies`: what may turn a failing cell is tried in children, and the smallest change that did is told."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from generators.models.classifier import classify_type
from hardware.backends.factory import resolve_target
from hardware.cell import Cell
from hardware.detection import detect, targets
from hardware.errors import HwCompatError, NothingMatched, echo
from hardware.evidence.latest import read_latest
from hardware.evidence.store import read_folder
from hardware.evidence.writer import new_run_id, now
from hardware.front_door import note, terminal_width
from hardware.own_commands import own_command
from hardware.paths import DEFAULT_EVIDENCE, OUTPUT
from hwcompat.plugins.triage.remedies.trying import CellTried, Workplace, try_cell
from reports.delivery import print_or_write
from reports.request import Request
from reports.wording import reason_text

from .remedies_view import error_type_of, remedies_json, remedies_markdown, remedies_text

FOLDER = OUTPUT / "remedies"
"""Where tries leave their evidence: one folder for each run, apart from the user's evidence."""

NOT_TURNED = 1
_SHOWN = 5


def try_remedies(request: Request) -> int:
    """Try them, print or write what came of it, and return the exit code.

    0 where every cell was turned, or works as it is; 5 where no remedy applies to any of them; 1 otherwise. Raises
    `UsageError` for what is no cell, `NothingMatched` (5) for a pattern that fits no failing cell of the evidence.
    """
    evidence = _evidence(request.evidence)
    cells = asked_cells(request.remedies, evidence)
    folder = FOLDER / new_run_id()
    place = Workplace(folder=folder, evidence=evidence, command=_command(request))
    here = [one.target for one in targets(detect()) if one.expected]
    found = []
    for cell in cells:
        note(f"{cell.id}: baseline, then each fix")
        found.append(try_cell(cell, place, here=here, error_type_of=error_type_of, on_note=note, words=reason_text))
    if request.format == "json":
        print_or_write(remedies_json(found, str(folder), now()) + "\n", request.output_dir, "remedies.json")
    elif request.format == "markdown":
        print_or_write(remedies_markdown(found, str(folder)) + "\n", request.output_dir, "remedies.md")
    else:
        print_or_write(remedies_text(found, str(folder), terminal_width()) + "\n", request.output_dir, "remedies.txt")
    return exit_code(found)


def exit_code(found: Sequence[CellTried]) -> int:
    """0 where a remedy turned every cell that doesn't work as it is, 5 where nothing applies to any, else 1."""
    if all(one.works or one.smallest for one in found):
        return 0
    if not any(one.works or one.tried or one.problem for one in found):
        return NothingMatched.exit_code
    return NOT_TURNED


def _evidence(named: Path | None) -> Path | None:
    """The user's evidence, which is only read: it tells where the model of a cell lies, and which cells failed."""
    if named is not None:
        read_folder(named)  # says what is wrong with it
        return named
    return DEFAULT_EVIDENCE if DEFAULT_EVIDENCE.is_dir() else None


def asked_cells(texts: Sequence[str], evidence: Path | None) -> tuple[Cell, ...]:
    """The cells that are named, and the failing ones of the evidence that fit a pattern, each once."""
    lines = read_latest(evidence).checks if evidence else ()
    known = {line.cell_id for line in lines}
    failing = sorted({line.cell_id for line in lines if line.outcome.is_failure})
    found: dict[str, Cell] = {}
    for text in texts:
        if any(sign in text for sign in "*?["):
            fitting = [cell for cell in failing if fnmatchcase(cell, text)]
            if not fitting:
                raise _no_such(text, failing, evidence)
            found |= {id_: Cell.parse(id_) for id_ in fitting if _is_cell(id_)}
            continue
        cell = Cell.parse(text)
        if cell.id not in known:
            resolve_target(str(cell.target))
            classify_type(cell.model)
        found[cell.id] = cell
    return tuple(found.values())


def _no_such(pattern: str, failing: Sequence[str], evidence: Path | None) -> NothingMatched:
    shown = ", ".join(echo(cell) for cell in failing[:_SHOWN])
    where = f"of {evidence}" if evidence else "since there is no evidence"
    return NothingMatched(
        f"{echo(pattern)} fits no failing cell {where}",
        why="a pattern chooses among cells that were measured and failed",
        fix=f"Failing are: {shown}." if shown else "Name a cell, as bert/fill-mask/cpu/float32.",
    )


def _is_cell(id_: str) -> bool:
    try:
        Cell.parse(id_)
    except HwCompatError:
        return False
    return True


def _command(request: Request) -> str:
    """What goes into the evidence of each try."""
    named = [word for text in request.remedies for word in ("--try-remedies", text)]
    return own_command("hardware_compatibility_reporter", named)
