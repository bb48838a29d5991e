"""A verification as a command line asks for it, and what it says: a line for each suite, counts, the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from generators.options import Options
from hardware.errors import NothingMatched
from hardware.testing.progress import Progress
from hardware.testing.runner import Limits, default_memory_limit

from .verify import VerifiedSuite, verify_suites


@dataclass(frozen=True, kw_only=True)
class Verification:
    """All suites that were looked at, in the order of their files."""

    suites: tuple[VerifiedSuite, ...]

    @property
    def exit_code(self) -> int:
        """0 where every suite that could be verified is good, 1 where one isn't, 5 where none could be verified."""
        tried = [one for one in self.suites if not one.skipped]
        return int(not all(one.is_good for one in tried)) if tried else NothingMatched.exit_code

    def text(self) -> str:
        """A table, then what was wrong or left out, then the counts."""
        rows: list[tuple[str, ...]] = [("suite", "compiles", "collected", "passes", "fails when broken")]
        rows += [_row(one) for one in self.suites]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        said = [f"{one.path.name}: {one.problem}" for one in self.suites if one.problem]
        said += [f"{one.path.name}: skipped, {one.skipped}" for one in self.suites if one.skipped]
        return "\n".join([*table, *([""] if said else []), *said, "", *self._counts()])

    def _counts(self) -> list[str]:
        tried = [one for one in self.suites if not one.skipped]
        elsewhere = sum(one.cell is not None and one.cell.target.name != "cpu" for one in tried)
        counts = [
            f"{len(tried)} suite(s): {sum(one.compiles for one in tried)} compile, "
            f"{sum(one.collected for one in tried)} are collected, {sum(one.passes for one in tried)} pass on CPU, "
            f"{sum(bool(one.caught_by) for one in tried)} fail when broken; {len(self.suites) - len(tried)} skipped"
        ]
        if elsewhere:
            counts.append(
                f"{elsewhere} are for other targets: on CPU their numbers were verified, not their placement"
            )
        return counts


def verify_asked(asked: Options, paths: Sequence[Path], progress: Progress) -> Verification:
    """Verify these files as a command line asks for it. Raises `NothingMatched` where none of them is a suite."""
    limits = Limits(timeout_s=asked.timeout, memory_bytes=default_memory_limit())
    by_folder = asked.folder_to_verify() is not None  # the patterns have chosen already where models were chosen
    found = verify_suites(
        paths,
        limits=limits,
        select=asked.select if by_folder else (),
        skip=asked.skip if by_folder else (),
        jobs=asked.jobs,
        progress=progress,
    )
    return Verification(suites=found)


def _row(one: VerifiedSuite) -> tuple[str, ...]:
    if one.skipped:
        return (one.path.name, "yes", "-", "-", "-")
    steps = [one.compiles, one.collected, one.passes]
    texts = ["-" if number and not steps[number - 1] else "yes" if ok else "NO" for number, ok in enumerate(steps)]
    seen = f"{one.mutant}: {one.caught_by or 'NO'}" if one.mutant else "NO" if one.passes else "-"
    return (one.path.name, *texts, seen)
