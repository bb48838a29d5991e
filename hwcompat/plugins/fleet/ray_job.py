"""Run written suites on a Ray cluster: one bundle, with predictions stored before the start; one task for each cell,
or for the suites of one checkpoint; their evidence is merged as it arrives."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hwcompat.generators.options import Options
from hwcompat.generators.run import (
    JobInterrupted,
    JobResult,
    WrittenSuite,
    read_written,
    result_of_runs,
    suite_environment,
)
from hwcompat.generators.suites.bundle import packed
from hwcompat.hardware.applied_fix import refuse_changes
from hwcompat.hardware.command_line import note
from hwcompat.hardware.errors import BrokenInput, UsageError
from hwcompat.hardware.evidence.record import CheckLine, RunLine
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.evidence.writer import EvidenceWriter, machine_label, new_run_id, now
from hwcompat.hardware.expected_targets import node_resources
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.inventory.system.processor import usable_cores
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hwcompat.hardware.testing.runner import Limits, close, terminate_interrupts
from hwcompat.hardware.testing.schedule import groups_of
from hwcompat.reports.progress_bar import progress_on

from . import ray_node
from .nodes import Demand, FleetNode, demand_of, notes_on, refuse_unready
from .ray_cluster import alive_nodes, connected
from .ray_evidence import done_before, longest_first, take_in
from .ray_tasks import Work, do_all

_REPORT_S = 120.0


def run_on_ray(
    options: Options, written: Sequence[WrittenSuite], inventory: HardwareInfo, limits: Limits, command: str
) -> JobResult:
    """Run the suites on the cluster and judge each cell.

    A cell is `not_run`, with its reason in a run of this machine, if no node has the resource of its target or its
    nodes were lost; the others run. Raises `UsageError` if Ray isn't installed, no cluster answers, or a node can't
    run suites; `JobInterrupted` after the results so far were recorded.
    """
    refuse_changes()
    _refuse_indices(written)
    run = _RayRun(options, written, inventory, limits, command)
    cores = usable_cores()
    with connected(options.address, node_resources(inventory, cores), cores) as ray, terminate_interrupts():
        try:
            run.follow(ray)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
    run.progress.closed()
    run.write_not_run(interrupted=interrupted)
    result = result_of_runs(written, run.runs, options.evidence, inventory, earlier=run.earlier)
    if interrupted:
        raise JobInterrupted(result)
    return result


class _RayRun:
    """One run on a cluster, and the state of each cell so far: `runs` has the run with its latest results (`earlier`
    those of an earlier start), `_not_run` why it has none."""

    def __init__(
        self, options: Options, written: Sequence[WrittenSuite], inventory: HardwareInfo, limits: Limits, command: str
    ) -> None:
        self._options = options
        self._written = written
        self._suites = [read_written(one) for one in written]
        self._predicted = {one.planned.cell.id: one.planned.verdict.to_dict() for one in written}
        self._inventory = inventory
        self._versions = versions_of(inventory)
        self._limits = limits
        self._command = command
        self._not_run: dict[str, tuple[str, str]] = {}
        self.progress = progress_on(sys.stderr)
        self.runs: dict[str, str] = {}
        self.earlier: set[str] = set()
        on_disk = {one.path.name: one.path.read_bytes() for one in written}
        planned = [one.planned for one in written]
        _, self._bundle = packed(ray_node.FOLDER, planned, self._versions, on_disk)

    def follow(self, ray: Any) -> None:
        """Query the nodes, skip cells that are done or that no node can run, and merge the results."""
        ray.cloudpickle.register_pickle_by_value(ray_node)
        sent = (hashlib.sha256(self._bundle).hexdigest(), [ray.put(self._bundle)])
        wanted = sorted({str(one.cell.target) for one in self._suites})
        nodes = _reported(ray, sent, [one for one in alive_nodes(ray) if set(wanted) & set(one.offers)])
        alive = alive_nodes(ray)  # some may have gone meanwhile
        nodes = [node for node in nodes if node.id in {one.id for one in alive}]
        note(*notes_on(nodes, self._versions, wanted))
        refuse_unready(nodes, wanted)
        evidence = self._options.evidence
        if self._options.resume:
            there = {node.machine: node.versions for node in nodes}
            self.runs |= done_before(evidence, self._suites, self._command, there, self._versions)
            self.earlier |= set(self.runs.values())
            note(f"{len(self.runs)} cell(s) are done, running {len(self._suites) - len(self.runs)}")
        works = list(self._works(sent, alive))
        works = [works[place] for place in longest_first([work.key for work in works], evidence)]
        by_id = {suite.cell.id: suite for suite in self._suites}

        def on_lost(node: FleetNode) -> None:
            note(f"node {node.name} was lost: its cells run on other nodes with the same resources")

        self.progress.planned(sum(len(work.key) for work in works))
        for done in do_all(ray, ray_node.run_on_node, works, on_lost):
            own = [by_id[cell] for cell in done.key]
            error_type, why = "node_lost", done.lost
            lines: Mapping[str, Sequence[CheckLine]] = {}
            if not done.lost:
                try:
                    run_id, lines = take_in(done.value, own, self._predicted, evidence)
                    self.runs |= dict.fromkeys(done.key, run_id)
                except BrokenInput as error:
                    error_type, why = "broken_evidence", one_line(str(error))
            for suite in own:
                if why:
                    self._not_run[suite.cell.id] = (error_type, why)
                    note(f"{suite.cell.id} is not_run: {why}")
                self.progress.ended(suite, Counter(line.outcome for line in lines.get(suite.cell.id, ())))

    def _works(self, sent: tuple[str, list[Any]], nodes: Sequence[FleetNode]) -> Iterator[Work]:
        """Return a task for each suite, or for those of one checkpoint on one target, that a node can run."""
        left = [one for one in self._suites if one.cell.id not in self.runs]
        settings = {
            "do": "run",
            "command": self._command,
            "checkpoints": suite_environment([one.planned for one in self._written])[CHECKPOINTS_VARIABLE],
            "timeout_s": self._limits.timeout_s,
            "timeouts_s": dict(self._limits.by_cell),
            "pytest_arguments": list(self._options.pytest_arguments),
        }
        targets = list(dict.fromkeys(one.cell.target for one in left))
        beside = {node.id: node.at_a_time(targets) for node in nodes}
        for target in targets:
            own = [one for one in left if one.cell.target == target]
            demand = demand_of(target, nodes)
            if not any(demand.fits(node.offers) for node in nodes):
                why = _why_no_node(demand, nodes, self._options.address)
                self._not_run |= {one.cell.id: ("no_node", why) for one in own}
                note(f"{len(own)} cell(s) are not_run: {why}")
                continue
            for group in groups_of(own, ()):
                cells = tuple(suite.cell.id for suite in group.suites)
                yield Work(key=cells, demand=demand, arguments=(sent, {**settings, "cells": list(cells)}, beside))

    def write_not_run(self, *, interrupted: bool) -> None:
        """Write the cells that no node ran, if there are any, as `not_run` in a run of this machine."""
        left = [one for one in self._suites if one.cell.id not in self.runs]
        if not left:
            return
        run = RunLine(
            run_id=new_run_id(),
            started_at=now(),
            command=self._command,
            machine=machine_label(),
            inventory=self._inventory.to_dict(),
            versions=self._versions,
            plan=tuple(one.planned(self._predicted[one.cell.id]) for one in left),
        )
        writer = EvidenceWriter(self._options.evidence, run.run_id)
        try:
            writer.write(run)
            counts: Counter[str] = Counter()
            for one in left:
                why = self._not_run.get(one.cell.id, ("interrupted", "the run was interrupted"))
                counts.update(str(line.outcome) for line in close(one, [], writer, *why))
            writer.end("interrupted" if interrupted else "finished", counts)
        finally:
            writer.close()
        self.runs |= {suite.cell.id: run.run_id for suite in left}


def _reported(ray: Any, sent: tuple[str, list[Any]], nodes: Sequence[FleetNode]) -> list[FleetNode]:
    """Return the reports of all nodes, requested at once; one without an answer for two minutes is marked as such."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(ray_node.run_on_node)
    reports = {
        node.id: remote.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
        ).remote(sent, {"do": "report"}, {})
        for node in nodes
    }
    if reports:
        ray.wait(list(reports.values()), num_returns=len(reports), timeout=_REPORT_S)
    found = []
    for node in nodes:
        try:
            found.append(node.reporting(ray.get(reports[node.id], timeout=1)))
        except (ray.exceptions.RayError, KeyError, TypeError, ValueError) as error:
            why = str(getattr(error, "cause", None) or error) or type(error).__name__
            found.append(node.reporting({"error": why}))
            ray.cancel(reports[node.id], force=True)
    return found


def _why_no_node(demand: Demand, nodes: Sequence[FleetNode], address: str | None) -> str:
    target = demand.target
    if any(node.offers.get(target, 0) >= 1 for node in nodes):
        lacking = "CPU" if demand.cpus else "GPU"
        return f"every node that offers {target} has {lacking} 0: start it with --num-{lacking.lower()}s"
    there = "; ".join(f"{node.name} ({node.offered})" for node in nodes)
    start = (
        f'ray start --address={address or "HOST:6379"} --resources "$(hwcompat devices list --format ray)", '
        f"or --resources '{{\"{target}\": 1}}'"
    )
    return f"no node offers {target}. Nodes: {there}. Start one on a machine with {target}: {start}"


def _refuse_indices(written: Sequence[WrittenSuite]) -> None:
    named = next((str(one.planned.device) for one in written if one.planned.device.index is not None), "")
    if named:
        raise UsageError(
            f"{named} is a device of one machine",
            why="Ray assigns the devices of nodes",
            fix="Pass the target without an index.",
        )
