"""Runs suites that were written on a Ray cluster: one bundle, sealed before anything starts; one task for each cell,
or for the suites of one checkpoint; their evidence taken in as it arrives."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generators.job import JobInterrupted, JobResult, WrittenSuite, read_written, result_of_runs, suite_environment
from generators.suites.bundle import packed
from hardware.changes import refuse_changes
from hardware.detection import HardwareInfo
from hardware.errors import BrokenInput, UsageError
from hardware.evidence.record import CheckLine, RunLine
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter, machine_label, new_run_id, now
from hardware.expected_targets import node_resources
from hardware.plain_text import one_line
from hardware.system.cpu import usable_cores
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hardware.testing.progress import Progress
from hardware.testing.runner import Limits, close, terminate_interrupts
from hardware.testing.schedule import groups_of
from hardware.testing.suite_file import SuiteFile

from . import ray_node
from .nodes import Node, notes_on, refuse_unready
from .ray_cluster import Demand, RayNode, alive_nodes, connected, demand_of
from .ray_evidence import done_before, longest_first, take_in
from .ray_tasks import Work, do_all

_REPORT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class RayRun:
    """What was asked of a cluster: its `address` (None: a node of this machine alone) and how suites run there."""

    address: str | None
    evidence: Path
    command: str
    limits: Limits
    resume: bool = False
    pytest_arguments: Sequence[str] = ()
    progress: Progress = field(default_factory=Progress)
    on_note: Callable[[str], None] = lambda _text: None


@dataclass(kw_only=True)
class _Ledger:
    """What is known of each cell so far: the run whose lines speak for it, or why it has none. `earlier`
    are runs of an earlier start."""

    runs: dict[str, str] = field(default_factory=dict)
    earlier: set[str] = field(default_factory=set)
    not_run: dict[str, tuple[str, str]] = field(default_factory=dict)


def run_on_ray(written: Sequence[WrittenSuite], inventory: HardwareInfo, asked: RayRun) -> JobResult:
    """Run the suites on the cluster and conclude for each cell.

    A cell for whose target no node has the resource, or whose nodes were lost, is `not_run` with its reason, in a run
    of this machine's own; others run. Raises `UsageError` where Ray isn't here, nothing answers, or a node can't run
    suites; `JobInterrupted` after what was there by then was recorded.
    """
    refuse_changes()
    _refuse_indices(written)
    suites = [read_written(one) for one in written]
    name = ray_node.FOLDER
    _, bundle = packed(
        name,
        [one.planned for one in written],
        versions_of(inventory),
        {one.path.name: one.path.read_bytes() for one in written},
    )
    ledger = _Ledger()
    cores = usable_cores()
    with connected(asked.address, node_resources(inventory, cores), cores) as ray, terminate_interrupts():
        try:
            _run(ray, written, suites, bundle, inventory, asked, ledger)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
    asked.progress.closed()
    left = [one for one in suites if one.cell.id not in ledger.runs]
    for suite in left:
        ledger.not_run.setdefault(suite.cell.id, ("interrupted", "the run was interrupted"))
    if left:
        run_id = _write_not_run(left, written, ledger.not_run, inventory, asked, interrupted=interrupted)
        ledger.runs |= {suite.cell.id: run_id for suite in left}
    result = result_of_runs(written, ledger.runs, asked.evidence, inventory, earlier=ledger.earlier)
    if interrupted:
        raise JobInterrupted(result)
    return result


def _run(
    ray: Any,
    written: Sequence[WrittenSuite],
    suites: Sequence[SuiteFile],
    bundle: bytes,
    inventory: HardwareInfo,
    asked: RayRun,
    ledger: _Ledger,
) -> None:
    """Ask the nodes, leave out what was done before and what no node can run, and take in what the others say."""
    ray.cloudpickle.register_pickle_by_value(ray_node)
    sent = (hashlib.sha256(bundle).hexdigest(), [ray.put(bundle)])
    alive = alive_nodes(ray)
    wanted = sorted({str(one.cell.target) for one in suites})
    nodes = _reported(ray, sent, [one for one in alive if set(wanted) & set(one.offers)])
    alive = alive_nodes(ray)  # some may have gone meanwhile
    nodes = [node for node in nodes if node.name in {_short(one) for one in alive}]
    versions = versions_of(inventory)
    for text in notes_on(nodes, versions, wanted):
        asked.on_note(text)
    refuse_unready(nodes, wanted)
    if asked.resume:
        there = {node.machine: node.versions for node in nodes}
        ledger.runs |= done_before(asked.evidence, suites, asked.command, there, versions)
        ledger.earlier |= set(ledger.runs.values())
        asked.on_note(f"{len(ledger.runs)} cell(s) are done, {len(suites) - len(ledger.runs)} run")
    left = [one for one in suites if one.cell.id not in ledger.runs]
    works = list(_works(left, written, sent, alive, asked, ledger))
    works = [works[place] for place in longest_first([work.key for work in works], asked.evidence)]
    by_id = {suite.cell.id: suite for suite in suites}
    sealed = {one.planned.cell.id: one.planned.verdict.to_dict() for one in written}

    def on_lost(node: RayNode) -> None:
        asked.on_note(f"node {_short(node)} was lost: what it had runs elsewhere, where another node offers the same")

    asked.progress.planned(sum(len(work.key) for work in works))
    for done in do_all(ray, ray_node.run_on_node, works, on_lost):
        own = [by_id[cell] for cell in done.key]
        error_type, why = "node_lost", done.lost
        lines: Mapping[str, Sequence[CheckLine]] = {}
        if not done.lost:
            try:
                run_id, lines = take_in(done.value, own, sealed, asked.evidence)
                ledger.runs |= dict.fromkeys(done.key, run_id)
            except BrokenInput as error:
                error_type, why = "broken_evidence", one_line(str(error))
        for suite in own:
            if why:
                ledger.not_run[suite.cell.id] = (error_type, why)
                asked.on_note(f"{suite.cell.id} is not_run: {why}")
            asked.progress.ended(suite, Counter(line.outcome for line in lines.get(suite.cell.id, ())))


def _short(node: RayNode) -> str:
    """What a node is called in remarks."""
    return node.id[:8]


def _reported(ray: Any, sent: tuple[str, list[Any]], nodes: Sequence[RayNode]) -> list[Node]:
    """What each node says of itself, all at once; one that is silent for two minutes is told as such."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(ray_node.run_on_node)
    asked = {
        node.id: remote.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
        ).remote(sent, {"do": "report"}, {})
        for node in nodes
    }
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_REPORT_S)
    found = []
    for node in nodes:
        name = _short(node)
        try:
            found.append(Node.of(name, node.offers, ray.get(asked[node.id], timeout=1)))
        except (ray.exceptions.RayError, KeyError, TypeError, ValueError) as error:
            why = one_line(str(getattr(error, "cause", None) or error) or type(error).__name__)
            found.append(Node(name=name, offers=node.offers, silent=why))
            ray.cancel(asked[node.id], force=True)
    return found


def _works(
    suites: Sequence[SuiteFile],
    written: Sequence[WrittenSuite],
    sent: tuple[str, list[Any]],
    nodes: tuple[RayNode, ...],
    asked: RayRun,
    ledger: _Ledger,
) -> Iterator[Work]:
    """A task for each suite, or for those of one checkpoint on one target; what no node can run is put into the
    ledger."""
    settings = {
        "do": "run",
        "command": asked.command,
        "checkpoints": suite_environment(written)[CHECKPOINTS_VARIABLE],
        "timeout_s": asked.limits.timeout_s,
        "timeouts_s": dict(asked.limits.by_cell),
        "pytest_arguments": list(asked.pytest_arguments),
    }
    missing: dict[str, list[str]] = {}
    beside = {node.id: _at_a_time(node, suites) for node in nodes}
    for target in dict.fromkeys(one.cell.target for one in suites):
        demand = demand_of((target,), nodes)
        for group in groups_of([one for one in suites if one.cell.target == target], ()):
            cells = tuple(suite.cell.id for suite in group.suites)
            if any(demand.fits(node.offers) for node in nodes):
                yield Work(key=cells, demand=demand, arguments=(sent, {**settings, "cells": list(cells)}, beside))
            else:
                missing.setdefault(str(target), []).extend(cells)
    for name, cells_of in missing.items():
        why = _why_no_node(
            name,
            demand_of((next(s.cell.target for s in suites if str(s.cell.target) == name),), nodes),
            nodes,
            asked.address,
        )
        ledger.not_run |= dict.fromkeys(cells_of, ("no_node", why))
        asked.on_note(f"{len(cells_of)} cell(s) are not_run: {why}")


def _at_a_time(node: RayNode, suites: Sequence[SuiteFile]) -> int:
    """How many of these suites a node may run at a time."""
    targets = {suite.cell.target for suite in suites}
    demands = [(demand_of((target,), (node,)), node.offers.get(str(target), 0)) for target in targets]
    shared = min(sum(count for demand, count in demands if demand.cpus), node.offers.get("CPU", 0))
    return max(1, int(shared + sum(count for demand, count in demands if not demand.cpus)))


def _why_no_node(target: str, demand: Demand, nodes: Sequence[RayNode], address: str | None) -> str:
    offering = [node for node in nodes if node.offers.get(target, 0) >= 1]
    if offering:
        lacking = "CPU" if demand.cpus else "GPU"
        return f"every node that offers {target} has {lacking} 0: start it with --num-{lacking.lower()}s"
    there = "; ".join(f"{_short(node)} ({Node(name='', offers=node.offers).offered})" for node in nodes)
    start = (
        f'ray start --address={address or "HOST:6379"} --resources "$(python -m hardware list --format ray)", '
        f"or --resources '{{\"{target}\": 1}}'"
    )
    return f"no node offers {target}. There are {there}. Start one where it is: {start}"


def _refuse_indices(written: Sequence[WrittenSuite]) -> None:
    named = next((str(one.planned.device) for one in written if one.planned.device.index is not None), "")
    if named:
        raise UsageError(
            f"{named} names a device of one machine",
            why="which device of which node a cell gets is for Ray to say",
            fix="Name the target alone.",
        )


def _write_not_run(
    suites: Sequence[SuiteFile],
    written: Sequence[WrittenSuite],
    why: Mapping[str, tuple[str, str]],
    inventory: HardwareInfo,
    asked: RayRun,
    *,
    interrupted: bool,
) -> str:
    """A run of this machine's own, in which the cells that nobody ran are `not_run`; returns its id."""
    planned = {one.planned.cell.id: one.planned for one in written}
    run = RunLine(
        run_id=new_run_id(),
        started_at=now(),
        command=asked.command,
        machine=machine_label(),
        inventory=inventory.to_dict(),
        versions=versions_of(inventory),
        plan=tuple(one.planned(planned[one.cell.id].verdict.to_dict()) for one in suites),
    )
    writer = EvidenceWriter(asked.evidence, run.run_id)
    try:
        writer.write(run)
        lines = [line for one in suites for line in close(one, [], writer, *why[one.cell.id])]
        writer.end("interrupted" if interrupted else "finished", Counter(str(line.outcome) for line in lines))
    finally:
        writer.close()
    return run.run_id
