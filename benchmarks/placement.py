"""Measure how close placements come to their bound, and planning time: `python -m benchmarks.placement`.

Problems are seeded. The heuristic is compared with the exact solution for small ones, and with the bound for large
ones, up to 10,000 workloads on 50 devices. `--out` stores the figures; `page` prints docs/measured/placement.md.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from hwcompat.plugins.placement.place import place
from hwcompat.plugins.placement.placement_device import Device, Figure
from hwcompat.plugins.placement.workloads import Workload, WorkloadMode
from reports.text import markdown_table

GIB = 2**30
LARGE = ((100, 8), (1_000, 20), (10_000, 50))

Question = tuple[list[Workload], list[Device], WorkloadMode]


def _problem(seed: int, count: int, devices: int, kind: str) -> Question:
    """Draw a problem; `kind` says how times are drawn and whether memory and rules constrain it."""
    draw = random.Random(f"{kind} {seed}")
    speeds = {f"d{number}": draw.uniform(0.5, 2.0) for number in range(devices)}
    together = kind == "memory"
    size = {name: draw.choice((8, 16, 24, 80)) for name in speeds}
    if together:  # A third more memory than needed.
        wanted = count * 0.55 * 4 / 3 / sum(size.values())
        size = {name: value * wanted for name, value in size.items()}
    workloads = []
    for number in range(count):
        work = draw.lognormvariate(0, 1.2) if kind == "heavy-tailed" else draw.uniform(0.2, 3.0)
        spread = (0.2, 5.0) if kind == "unrelated" else (0.95, 1.05)
        seconds = {name: Figure(value=work / speed * draw.uniform(*spread)) for name, speed in speeds.items()}
        ruled = {name: "a rule" for name in speeds if kind == "rules" and draw.random() < 0.6}
        if len(ruled) == len(speeds):
            ruled.popitem()
        memory = int(draw.uniform(0.1, 1.0) * GIB) if together else 0
        workloads.append(Workload(name=f"w{number}", memory_bytes=memory, seconds=seconds, forbidden=ruled))
    places = [Device(name=name, target="cpu", memory_total=Figure(value=value * GIB)) for name, value in size.items()]
    return workloads, places, WorkloadMode.TOGETHER if together else WorkloadMode.IN_TURN


_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")

KINDS = ("uniform", "heavy-tailed", "unrelated", "rules", "memory")


@click.group(help=__doc__)
def main() -> None:
    """Measure placements or print their tables."""


@main.command()
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False))
def run(seeds: int, out: Path | None) -> None:
    """Measure, print and store the figures."""
    rows = [*_small(seeds * 4), *_large(seeds)]
    for row in rows:
        click.echo(json.dumps(row))
    if out:
        out.write_text(json.dumps({"date": f"{datetime.now(UTC):%Y-%m-%d}", "rows": rows}, indent=1) + "\n")


@main.command()
@click.argument("kept", type=click.Path(path_type=Path, dir_okay=False, exists=True))
def page(kept: Path) -> None:
    """Print docs/measured/placement.md."""
    plain = json.loads(kept.read_text(encoding="utf-8"))
    heads = ["workloads", "devices", "drawn", "questions", "placed", "gap: median", "worst", "ms a workload: median"]
    rows = [
        [
            f"{row['workloads']:,}",
            str(row["devices"]),
            row["kind"],
            str(row["questions"]),
            f"{100 * row['placed']:.2f} %",
            f"{100 * row['gap_median']:.2f} %",
            f"{100 * row['gap_worst']:.2f} %",
            f"{row['ms_each']:.3f}",
        ]
        for row in plain["rows"]
    ]
    scarce = [row for row in plain["rows"] if "memory" not in row["kind"]]
    worst = max(100 * row["gap_worst"] for row in scarce)
    click.echo(_HEAD.format(worst=worst, date=plain["date"]) + markdown_table(heads, rows))


def _small(seeds: int) -> Iterator[dict[str, object]]:
    """Compare the heuristic with the exact solution."""
    for kind in KINDS:
        questions = [_problem(seed, 24, 4, kind) for seed in range(seeds)]
        yield _row(f"{kind}, heuristic to the best", questions, _to_the_best)


def _large(seeds: int) -> Iterator[dict[str, object]]:
    for count, devices in LARGE:
        for kind in KINDS:
            yield _row(kind, [_problem(seed, count, devices, kind) for seed in range(seeds)], _to_the_bound)


def _to_the_best(question: Question) -> tuple[float, float, float]:
    workloads, devices, mode = question
    best = place(workloads, devices, mode=mode, small=10**6, limit_s=20)
    started = time.perf_counter()
    found = place(workloads, devices, mode=mode, small=0)
    taken = time.perf_counter() - started
    return found.makespan_s / best.makespan_s - 1, len(found.assignments) / len(workloads), taken


def _to_the_bound(question: Question) -> tuple[float, float, float]:
    workloads, devices, mode = question
    started = time.perf_counter()
    found = place(workloads, devices, mode=mode)
    taken = time.perf_counter() - started
    return found.gap or 0.0, len(found.assignments) / len(workloads), taken


def _row(
    kind: str, questions: list[Question], measured: Callable[[Question], tuple[float, float, float]]
) -> dict[str, object]:
    gaps, placed, times = zip(*(measured(one) for one in questions), strict=True)
    count = len(questions[0][0])
    return {
        "kind": kind,
        "workloads": count,
        "devices": len(questions[0][1]),
        "questions": len(questions),
        "placed": statistics.fmean(placed),
        "gap_median": statistics.median(gaps),
        "gap_worst": max(gaps),
        "ms_each": 1000 * statistics.median(times) / count,
    }


if __name__ == "__main__":
    main()
