"""How well a fleet is put to use: what Ray's scheduling costs a cell, what a second worker brings, and that a killed
node loses and doubles nothing.

    python -m benchmarks.fleet scheduling        10,000 cells that sleep, on nodes of a local cluster
    python -m benchmarks.fleet workers           the catalogue with one worker and with two
    python -m benchmarks.fleet killed            a node killed in the middle: which cell ran where

Each prints JSON; docs/FLEETS.md tells what it came to.
"""

from __future__ import annotations

import gzip
import heapq
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from benchmarks.fleet_nodes import LocalCluster
from hardware.evidence.store import Evidence, read_folder
from hardware.target import Target
from hwcompat.plugins.fleet.nodes import demand_of
from hwcompat.plugins.fleet.ray_cluster import alive_nodes, connected
from hwcompat.plugins.fleet.ray_tasks import Work, do_all

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "evidence" / "cpu.jsonl.gz"


@click.group(help=__doc__)
def main() -> None:
    """The commands below."""


@main.command("scheduling")
@click.option("--cells", default=10_000, show_default=True)
@click.option("--nodes", default=5, show_default=True, help="Raylets; together they offer the slots.")
@click.option("--slots", default=50, show_default=True, help="Cells at a time on all nodes.")
@click.option("--seed", default=1, show_default=True)
def scheduling_command(cells: int, nodes: int, slots: int, seed: int) -> None:
    """Sleeps as long as measured cells took, through the code that submits real ones: the longest first, as a run
    does whose cells ran before."""
    drawn = sorted(random.Random(seed).choices(measured_durations(), k=cells), reverse=True)
    with _cluster([{"cpu": slots // nodes}] * nodes, cpus=slots // nodes) as cluster:
        os.environ.update(cluster.variables)
        with connected(cluster.address, {}, 1) as ray:
            _all(ray, [0.2] * 4 * slots)  # every worker has started
            empty, _ = _all(ray, [0.0] * cells)
            makespan, keys = _all(ray, drawn)
    bound = max(sum(drawn) / slots, max(drawn))
    _say(
        cells=cells, nodes=nodes, slots=slots, seed=seed, done=len(keys), doubled=sum(n > 1 for n in keys.values()),
        mean_cell_s=sum(drawn) / cells, longest_cell_s=max(drawn), overhead_ms_a_cell=1000 * empty / cells,
        makespan_s=makespan, bound_s=bound, in_order_s=in_order(drawn, slots),
        over_bound_percent=100 * (makespan / bound - 1),
    )  # fmt: skip


def in_order(durations: Sequence[float], slots: int) -> float:
    """Seconds until all is done where each slot that is free takes the next, and nothing costs anything: what no
    scheduler can beat that doesn't know how long cells take."""
    free = [0.0] * slots
    for one in durations:
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def measured_durations() -> list[float]:
    """Seconds that each cell of the kept evidence of cpu took: the sum of its checks."""
    found: Counter[tuple[str, str]] = Counter()
    with gzip.open(KEPT, "rt", encoding="utf-8") as file:
        for line in file:
            one = json.loads(line)
            if one["kind"] == "check":
                found[one["run_id"], one["cell_id"]] += one["duration_s"]
    return sorted(found.values())


def _sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


def _all(ray: Any, durations: Sequence[float]) -> tuple[float, Counter[int]]:
    """Seconds until all was done, and how often each was."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    demand = demand_of(Target.parse("cpu"), alive_nodes(ray))
    works = [Work(key=number, demand=demand, arguments=(one,)) for number, one in enumerate(durations)]
    started = time.monotonic()
    keys = Counter(done.key for done in do_all(ray, _sleep, works) if not done.lost)
    return time.monotonic() - started, keys


@main.command("workers")
@click.option("--priority", default="high", show_default=True)
@click.option("--rounds", default=1, show_default=True, help="Pairs, one after the other.")
def workers_command(priority: str, rounds: int) -> None:
    """The catalogue on cpu with one worker and with two, one thread each; start-up left out."""
    told = []
    for _ in range(rounds):
        one, two = (_catalogue(priority, workers) for workers in (1, 2))
        alone = {cell: end - start for _, cell, start, end in one}
        told.append({"cells": len(two), "speed_up": speed_up(alone, two), "one_s": _span(one), "two_s": _span(two)})
    _say(priority=priority, rounds=told)


Ran = tuple[str, str, float, float]
"""A cell that ran: its worker, its id, and when it began and ended, in seconds."""


def _catalogue(priority: str, workers: int) -> list[Ran]:
    with _cluster([{"cpu": workers}], cpus=workers) as cluster, tempfile.TemporaryDirectory() as folder:
        code = _driver(cluster, Path(folder), "--priority", priority, "--device", "cpu").wait()
        found = read_folder(Path(folder) / "evidence")
        runners = {path.stem.rpartition("-")[0]: path.stem.rpartition("-")[2] for path in _files_of_runs(folder)}
    if code not in (0, 1):
        raise click.ClickException(f"the run ended with {code}")
    ends = {end.run_id: end.ended_at for end in found.ends}
    return sorted(
        (
            (runners[run.run_id], run.plan[0].cell_id, _seconds(run.started_at), _seconds(ends[run.run_id]))
            for run in found.runs
        ),
        key=lambda one: one[2],
    )


def _files_of_runs(folder: str) -> list[Path]:
    """The files that runners wrote themselves, each named by the runner's process."""
    every = sorted((Path(folder) / "evidence").glob("*.jsonl"))
    return [path for path in every if json.loads(path.open(encoding="utf-8").readline())["kind"] == "run"]


def speed_up(alone: Mapping[str, float], ran: Sequence[Ran]) -> float:
    """How much faster than one worker: what the cells took it that began after each of the workers had its first
    one behind it, by the time that they took now."""
    firsts = {node: next(end for other, _, _, end in ran if other == node) for node in {one[0] for one in ran}}
    begin = max(firsts.values())
    later = [one for one in ran if one[2] >= begin]
    return sum(alone[cell] for _, cell, _, _ in later) / (max(end for *_, end in later) - begin)


def _span(ran: Sequence[Ran]) -> float:
    return max(end for *_, end in ran) - min(start for _, _, start, _ in ran)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


@main.command("killed")
def killed_command() -> None:
    """Ten cells of two targets on four nodes, the first of which is killed when it has a cell."""
    models = [word for name in ("bert", "gpt2", "vit", "t5", "roberta") for word in ("--model", name)]
    nodes = [{"cpu": 1}, {"cpu": 1}, {"simulated": 1}, {"simulated": 1}]
    with _cluster(nodes) as cluster, tempfile.TemporaryDirectory() as folder:
        evidence = Path(folder) / "evidence"
        driver = _driver(cluster, Path(folder), *models, "--device", "cpu", "--device", "simulated")
        doomed = cluster.nodes[0]
        while not _ended(evidence) or not (begun := doomed.begun()):
            if driver.poll() is not None:
                raise click.ClickException("the run ended before the node had a cell")
            time.sleep(0.05)
        cluster.kill(doomed)
        code = driver.wait()
        found = read_folder(evidence)
    home = {run.run_id for run in found.runs}
    _say(
        exit_code=code,
        cells=[{"cell": run.plan[0].cell_id, "node": run.node[:8], "run": run.run_id} for run in found.runs],
        outcomes=dict(Counter(str(line.outcome) for line in found.checks)),
        times_a_check_has_a_line=sorted(set(Counter((one.cell_id, one.check_name) for one in found.checks).values())),
        lost_with_the_node=[{"cell": cell, "run": run_id} for run_id, cell in begun.items() if run_id not in home],
    )


def _ended(evidence: Path) -> bool:
    found: Evidence | None = read_folder(evidence) if evidence.is_dir() else None
    return bool(found and found.ends)


@contextmanager
def _cluster(nodes: Sequence[Mapping[str, float]], cpus: int = 1) -> Iterator[LocalCluster]:
    cluster = LocalCluster({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
    try:
        for resources in nodes:
            cluster.add_node(resources, cpus)
        yield cluster
    finally:
        cluster.close()


def _driver(cluster: LocalCluster, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    where = [
        word
        for option, name in (("--output-dir", "suites"), ("--evidence", "evidence"), ("--report-dir", "reports"))
        for word in (option, str(folder / name))
    ]
    command = [sys.executable, "run_test_generation.py", *words, *where, "--run", "--distributed", "ray"]
    return subprocess.Popen(
        [*command, "--address", cluster.address],
        cwd=ROOT,
        env={**os.environ, **cluster.variables},
        stdout=subprocess.DEVNULL,
    )


def _say(**found: object) -> None:
    versions = {"python": sys.version.split()[0], "ray": _ray_version(), "cores": len(os.sched_getaffinity(0))}
    click.echo(json.dumps({"measured": time.strftime("%Y-%m-%d"), **versions, **found}, indent=2))


def _ray_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("ray")


if __name__ == "__main__":
    main()
