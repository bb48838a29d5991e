"""Run suites with and without breaks: each round is one isolated run of the runner, with several suites at a time.

Its evidence is of broken models, so it is in a folder of its own and never mixed with that of a job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hwcompat.hardware.evidence.record import CheckLine, RunLine
from hwcompat.hardware.evidence.store import lines_by_cell, read_run
from hwcompat.hardware.evidence.writer import EvidenceWriter, new_run_id, now
from hwcompat.hardware.testing.progress import Progress
from hwcompat.hardware.testing.runner import Limits, run_suites
from hwcompat.hardware.testing.suite_file import SuiteFile

from .orders import ORDERS_VARIABLE, Made, Order, write_orders

PLUGIN = "hwcompat.generators.mutants.mutation_plugin"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The results of one suite: the lines of its checks in the order of the file, and what was broken."""

    lines: tuple[CheckLine, ...]
    made: Made


def run_round(
    suites: Sequence[SuiteFile],
    orders: Mapping[Path, Order],
    folder: Path,
    *,
    limits: Limits,
    jobs: int,
    progress: Progress | None = None,
) -> list[Ran]:
    """Run each suite once as ordered, `jobs` at a time; all output is below `folder`.

    The suites have different cells. `orders` are by the suites' files; a suite without an order runs unchanged, and
    in a broken suite the checks after the first failure don't run.
    """
    run_id = new_run_id()
    own = folder / run_id
    own.mkdir(parents=True)
    reports = {suite.path: own / f"{number}.json" for number, suite in enumerate(suites)}
    with_reports = {path: replace(order, report=str(reports[path].resolve())) for path, order in orders.items()}
    write_orders(own / "orders.json", with_reports)
    writer = EvidenceWriter(own / "evidence", run_id)
    arguments = ("-p", PLUGIN, *(["-x"] if any(order.mutants for order in orders.values()) else []))
    run = RunLine(
        run_id=run_id,
        started_at=now(),
        command=f"pytest {' '.join(arguments)}",
        machine="",
        inventory={},
        versions={},
        plan=tuple(suite.planned() for suite in suites),
        jobs=jobs,
    )
    try:
        with _orders_in_environment(own / "orders.json"):
            run_suites(
                run,
                suites,
                writer,
                limits=limits,
                jobs=jobs,
                pytest_arguments=arguments,
                progress=progress or Progress(),
            )
    finally:
        writer.close()
    lines = lines_by_cell(read_run(writer.folder, run_id).checks)
    return [Ran(lines=_of(suite, lines.get(suite.cell.id, ())), made=_made(reports[suite.path])) for suite in suites]


def _of(suite: SuiteFile, lines: Sequence[CheckLine]) -> tuple[CheckLine, ...]:
    places = {check: place for place, check in enumerate(suite.checks)}
    return tuple(sorted(lines, key=lambda line: places.get(line.check_name, len(places))))


def _made(report: Path) -> Made:
    return Made.from_dict(json.loads(report.read_text(encoding="utf-8"))) if report.is_file() else Made()


@contextmanager
def _orders_in_environment(orders: Path) -> Iterator[None]:
    """Pass the path of the orders to child processes through the environment."""
    before = os.environ.get(ORDERS_VARIABLE)
    os.environ[ORDERS_VARIABLE] = str(orders.resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[ORDERS_VARIABLE]
        else:
            os.environ[ORDERS_VARIABLE] = before
