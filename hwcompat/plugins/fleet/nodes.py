"""The nodes of a fleet: their resources, the demand of a task, and notes before the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hwcompat.hardware.backends.factory import backend_class
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.evidence.revisions import PREFIX, modified_parts
from hwcompat.hardware.evidence.versions import ABSENT, moved_versions
from hwcompat.hardware.plain_text import one_line, size_text
from hwcompat.hardware.target import Target

_COMPARED = ("python", "torch", "transformers", "openvino", "hwcompat")


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The resources that one task needs of a node: the one named after its target, and Ray's own `CPU` and `GPU`."""

    target: str
    cpus: int = 0
    gpus: int = 0

    def fits(self, offers: Mapping[str, float]) -> bool:
        """Whether a node that offers this much can ever run it."""
        counted = {self.target: 1, "CPU": self.cpus, "GPU": self.gpus}
        return all(offers.get(name, 0) >= count for name, count in counted.items())

    def options(self) -> dict[str, Any]:
        """Return the demand as options of a task of Ray."""
        return {"resources": {self.target: 1}, "num_cpus": self.cpus, "num_gpus": self.gpus}


@dataclass(frozen=True, kw_only=True)
class FleetNode:
    """A node that is alive: its `id` in Ray, its resources, and its report; `no_report` says why there is none.

    `machine` is the label of its machine, `missing` are required packages that it lacks, `absent` by target why it
    can't be there, `free_memory_bytes` is `None` if unknown.
    """

    id: str
    offers: Mapping[str, float]
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    free_memory_bytes: int | None = None
    no_report: str = ""

    @property
    def name(self) -> str:
        """Its name in remarks."""
        return self.id[:8]

    def reporting(self, report: Mapping[str, Any]) -> FleetNode:
        """Return the node with the report of `hardware/testing/request_runner.py`."""
        if "error" in report:
            return replace(self, no_report=one_line(str(report["error"])))
        free = report["free_memory_bytes"]
        return replace(
            self,
            machine=one_line(str(report["machine"])),
            versions={str(key): str(value) for key, value in report["versions"].items()},
            missing=tuple(map(str, report["missing"])),
            absent={str(one["target"]): str(one["reason"]) for one in report["targets"] if not one["expected"]},
            free_memory_bytes=int(free) if free is not None else None,
        )

    def at_a_time(self, targets: Sequence[Target]) -> int:
        """Return how many cells of these targets it may run at a time."""
        demands = [(demand_of(target, (self,)), self.offers.get(str(target), 0)) for target in targets]
        shared = min(sum(count for demand, count in demands if demand.cpus), self.offers.get("CPU", 0))
        return max(1, int(shared + sum(count for demand, count in demands if not demand.cpus)))

    @property
    def offered(self) -> str:
        """Return its resources without those that Ray adds, such as `cpu 2, openvino 1`."""
        own = {name: count for name, count in self.offers.items() if not name.startswith(("node:", "object_store"))}
        return ", ".join(f"{name} {count:g}" for name, count in sorted(own.items()) if name != "memory") or "nothing"

    def text(self) -> str:
        """Return the node in a line."""
        if self.no_report:
            return f"node {self.name} offers {self.offered} and doesn't report: {self.no_report}"
        versions = ", ".join(f"{name} {self.versions.get(name, ABSENT)}" for name in _COMPARED[:3])
        return (
            f"node {self.name} on {self.machine} offers {self.offered}: {versions}, "
            f"{size_text(self.free_memory_bytes)} of memory free"
        )


def demand_of(target: Target, nodes: Sequence[FleetNode]) -> Demand:
    """Return the resources for suites of a target. A target that computes on the processor also needs a processor, so
    that several such targets share them; Ray assigns a GPU if a node that offers the target counts its GPUs."""
    backend = backend_class(target.name)
    counts_gpus = any(node.offers.get(str(target)) and node.offers.get("GPU") for node in nodes)
    gpus = int(backend.NEEDS_TORCH_BUILD and counts_gpus)
    return Demand(target=str(target), cpus=int(backend.is_shared(target)), gpus=gpus)


def notes_on(nodes: Sequence[FleetNode], here: Mapping[str, str], wanted: Sequence[str]) -> Iterator[str]:
    """Yield notes before the start: each node with a `wanted` resource, versions other than `here`, and offered
    resources that don't exist."""
    for node in nodes:
        if not set(wanted) & set(node.offers):
            continue
        yield node.text()
        if node.no_report:
            continue
        moved = [
            f"{name} {node.versions.get(name, ABSENT)} (here {here.get(name, ABSENT)})"
            for name in _COMPARED
            if node.versions.get(name, ABSENT) != here.get(name, ABSENT)
        ]
        parts = {name: one for name, one in here.items() if name.startswith(PREFIX)}
        moved += moved_versions(node.versions, parts)
        if modified := modified_parts(node.versions):
            yield f"node {node.name} runs a modified checker ({', '.join(modified)}): its results don't count"
        if moved:
            yield f"node {node.name} runs with {', '.join(moved)}: its results hold for these versions"
        for target in wanted:
            if target in node.offers and target in node.absent:
                yield f"node {node.name} offers {target}, which isn't available on it: {node.absent[target]}"


def refuse_unready(nodes: Sequence[FleetNode], wanted: Sequence[str]) -> None:
    """Raise `UsageError` for nodes with a `wanted` resource that lack packages for suites, or that don't report."""
    unready = [
        f"{node.name} lacks {', '.join(node.missing)}"
        if node.missing
        else f"{node.name} doesn't report ({node.no_report})"
        for node in nodes
        if set(wanted) & set(node.offers) and (node.missing or node.no_report)
    ]
    if unready:
        raise UsageError(
            f"not every node can run suites: {'; '.join(unready)}",
            fix="Install the packages in the environment from which the node was started, or start it without "
            "these resources.",
        )
