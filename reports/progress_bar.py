"""Progress on a terminal while suites run: a bar with outcomes and the remaining time, and one line per worker."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from hwcompat.hardware.command_line import is_quiet
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.testing.progress import LOADING, Pace, Progress, ProgressLines, counted
from hwcompat.hardware.testing.suite_file import SuiteFile

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


_WIDEST = 100
_REDRAWN_S = 1.0


def progress_on(stream: TextIO) -> Progress:
    """Return a bar on a terminal; lines elsewhere and in CI, where terminals are logs; nothing with `--quiet`."""
    if is_quiet():
        return Progress()
    return ProgressBar(stream) if stream.isatty() and not os.environ.get("CI") else ProgressLines(stream)


@contextmanager
def working_on(text: str) -> Iterator[None]:
    """Show what a command does on standard error while it works, if that is a terminal."""
    if is_quiet() or not sys.stderr.isatty() or os.environ.get("CI"):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


class ProgressBar(Progress):
    """Lines of a fixed layout that are redrawn. They respect NO_COLOR and narrow terminals, as rich does."""

    def __init__(self, stream: TextIO, pace: Pace | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream, highlight=False)
        self._width = min(console.width, _WIDEST)
        self._live = Live(
            console=console,
            transient=True,
            auto_refresh=False,  # no thread may draw it, because the runner forks
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._pace = pace or Pace()
        self._drawn = 0.0
        self._counts: Counter[Outcome] = Counter()
        self._workers: list[tuple[str, str]] = []
        """The cell and the check of each worker; a free worker has empty texts."""

    def planned(self, suites: int) -> None:
        self._pace.all += suites
        self._live.start()
        self._show()

    def began(self, suite: SuiteFile, check: str) -> None:
        self._pace.began(suite.cell.id)
        self._workers[self._worker_of(suite.cell.id)] = (suite.cell.id, check)
        self._show()

    def waiting(self) -> None:
        if self._pace.running and self._pace.now() - self._drawn >= _REDRAWN_S:
            self._show()

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        self._pace.ended(suite.cell.id)
        self._workers[self._worker_of(suite.cell.id)] = ("", "")
        self._counts.update(outcomes)
        self._show()

    def unmeasured(self, suite: SuiteFile, why: str) -> None:
        self._live.console.print(f"{suite.cell.id}  speed not measured: {why}", markup=False)

    def closed(self) -> None:
        self._live.stop()

    def _worker_of(self, cell: str) -> int:
        """Return the worker that runs a cell, else the first free one, else a new one."""
        cells = [name for name, _ in self._workers]
        for name in (cell, ""):
            if name in cells:
                return cells.index(name)
        self._workers.append(("", ""))
        return len(cells)

    def _show(self) -> None:
        from rich.console import Group

        self._drawn = self._pace.now()
        self._live.update(Group(self._total(), self._worker_lines()), refresh=True)

    def _total(self) -> RenderableType:
        from rich.progress_bar import ProgressBar as Bar
        from rich.text import Text

        left = f"about {self._pace.left} left" if self._pace.left else ""
        outcomes = counted(self._counts) if self._counts else "" if self._workers else LOADING
        grid = self._grid(4, 2, 8, 4)
        bar = Bar(total=max(self._pace.all, 1), completed=self._pace.done)
        grid.add_row(bar, Text(f"{self._pace.done}/{self._pace.all}"), Text(outcomes), Text(left))
        return grid

    def _worker_lines(self) -> RenderableType:
        from rich.text import Text

        times = self._pace.running
        grid = self._grid(10, 6, 2)
        for cell, check in self._workers:
            grid.add_row(Text(f"  {cell}"), Text(check), Text(times.get(cell, "")))
        return grid

    def _grid(self, *ratios: int) -> Table:
        """Return a table whose columns keep their widths, whatever their texts are."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 1), expand=True)
        grid.width = self._width
        for ratio in ratios:
            grid.add_column(no_wrap=True, ratio=ratio)
        return grid
