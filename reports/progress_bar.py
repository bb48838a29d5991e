"""The progress bar of a terminal while suites run: what runs, outcomes so far, and the remaining time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from hardware.evidence.record import Outcome
from hardware.testing.progress import Pace, Progress, ProgressLines, counted
from hardware.testing.suite_file import SuiteFile

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


def progress_on(stream: TextIO) -> Progress:
    """Return a bar on a terminal; lines elsewhere and in CI, where terminals are logs."""
    return ProgressBar(stream) if stream.isatty() and not os.environ.get("CI") else ProgressLines(stream)


class ProgressBar(Progress):
    """A line that is redrawn. It respects NO_COLOR and narrow terminals, as rich does."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        self._bar: Bar = Bar(
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[outcomes]}", table_column=Column(no_wrap=True)),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=Console(file=stream),
            transient=True,
            auto_refresh=False,  # no thread may draw it, because the runner forks
        )
        self._task = self._bar.add_task("", total=0, outcomes="", left="")
        self._pace = Pace()
        self._counts: Counter[Outcome] = Counter()
        self._running: dict[str, str] = {}

    def planned(self, suites: int) -> None:
        self._pace.all += suites
        self._bar.update(self._task, total=self._pace.all)
        self._bar.start()

    def began(self, suite: SuiteFile, check: str) -> None:
        self._pace.began(suite.cell.id)
        self._running[suite.cell.id] = check
        self._show()

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        self._pace.ended(suite.cell.id)
        self._running.pop(suite.cell.id, None)
        self._counts.update(outcomes)
        self._bar.advance(self._task)
        self._show()

    def closed(self) -> None:
        self._bar.stop()

    def _show(self) -> None:
        times = self._pace.running
        running = "  ".join(f"{cell.split('/')[0]} {check} {times[cell]}" for cell, check in self._running.items())
        left = f"{self._pace.left} left" if self._pace.left else ""
        outcomes = counted(self._counts) if self._counts else ""
        self._bar.update(self._task, description=running, outcomes=outcomes, left=left)
        self._bar.refresh()
