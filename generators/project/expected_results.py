"""Expected results as a CSV, one cell a line, in the words of PyTorch's dynamo benchmarks: read as a lock.

The words are those of `benchmarks/dynamo/common.py`, and `check_accuracy.py` there compares two such files. A file of
torch-xpu-ops has a column for each precision instead of `accuracy`; its names are then cells without a precision.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from hwcompat.generators.compatibility.verdict import Level
from hwcompat.hardware import safe_read
from hwcompat.hardware.cell import PRECISIONS
from hwcompat.hardware.errors import BrokenInput, HwCompatError, UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.record import CheckLine, Outcome

from .project_file import Expectation
from .project_reader import exact_cell

PASS = "pass"
_WRONG_NUMBERS = ("numerical_mismatch", "non_finite", "relation_broken")
WORDS = (PASS, "fail_accuracy", "fail_to_run", "timeout", "OOM")
_LARGEST_FILE = 1_000_000
_MOST_PROBLEMS = 20


def word_of(level: Level, lines: Sequence[CheckLine]) -> str:
    """Return the word for a measured cell: a level that works is a pass; of others the first failure decides.

    An operator that ran on the host without a failed check is `fail_to_run`: the device didn't run the model.
    """
    if level in (Level.HIGH, Level.MEDIUM):
        return PASS
    failed = next((line for line in lines if line.outcome.is_failure), None)
    if failed is None:
        return "fail_to_run"
    breakdown = {Outcome.TIMEOUT: "timeout", Outcome.OUT_OF_MEMORY: "OOM"}.get(failed.outcome)
    return breakdown or ("fail_accuracy" if failed.error_type in _WRONG_NUMBERS else "fail_to_run")


def read_expected(path: Path) -> dict[str, Expectation]:
    """Return the expectations of a CSV by cell.

    Raises `BrokenInput` if the file can't be read or isn't a table of results, `UsageError` with all its problems.
    """
    try:
        text = safe_read.read_text(path, longest=_LARGEST_FILE).removeprefix("\ufeff")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [(reader.line_num, row) for row in reader if any(row) and not row[0].startswith("#")]
    except (OSError, ValueError, csv.Error) as error:
        why = safe_read.reason_of(error)
        raise BrokenInput(f"the expected results {echo(str(path))} can't be read", why=why) from error
    heading = rows[0][1] if rows else []
    columns = [name for name in heading if name not in ("name", "graph_breaks")]
    if heading[:1] != ["name"] or not (columns == ["accuracy"] or (columns and set(columns) <= {*PRECISIONS})):
        why = "its first line must be name,accuracy or name and precisions, such as name,float32,bfloat16"
        raise BrokenInput(f"{echo(path.name)} has no table of expected results", why=why)
    found: dict[str, Expectation] = {}
    problems: list[str] = []
    for line, row in rows[1:]:
        if len(row) != len(heading):
            problems.append(f"line {line}: {len(row)} values, not {len(heading)}")
            continue
        for column, word in zip(heading, row, strict=True):
            if column in columns and (word or column == "accuracy"):
                name = row[0] if column == "accuracy" else f"{row[0]}/{column}"
                try:
                    one = _expectation(name, word, line, path.name)
                except HwCompatError as error:
                    problems.append(f"line {line}: {str(error).rstrip('.')}")
                    continue
                if found.setdefault(one.cell, one) is not one:
                    problems.append(f"line {line}: {one.cell} is already in line {found[one.cell].line}")
    if problems:
        why = "; ".join(problems[:_MOST_PROBLEMS])
        raise UsageError(f"{path.name} has {len(problems)} problem{'s' * (len(problems) > 1)}", why=why)
    if not found:
        raise UsageError(f"{path.name} expects nothing", why="a lock without cells would always pass")
    return found


def _expectation(name: str, word: str, line: int, file: str) -> Expectation:
    """Return what a line expects of one cell. Raises `UsageError` for an unknown word or another name."""
    if word not in WORDS:
        hint = did_you_mean(word, WORDS) or f"Known: {', '.join(WORDS)}."
        raise UsageError(f"{echo(word)} can't be expected", fix=hint)
    level = Level.HIGH if word == PASS else Level.UNSUPPORTED
    return Expectation(cell=exact_cell(name), level=level, line=line, word=word, file=file)
