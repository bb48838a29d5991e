"""What the nodes of a fleet say of themselves before anything runs, and what of it a user has to know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hardware.errors import UsageError
from hardware.evidence.revisions import PREFIX, modified_parts
from hardware.evidence.versions import ABSENT, moved_versions
from hardware.plain_text import one_line, size_text

_COMPARED = ("python", "torch", "transformers", "openvino", "hwcompat")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node: its `name` in the fleet, what it offers by resource, and its report; `silent` says why it gave none.

    `machine` is the label of the machine that it is on, `missing` are packages that suites can't do without, `absent`
    by target why it can't be there, `free_memory_bytes` is `None` where nothing tells.
    """

    name: str
    offers: Mapping[str, float]
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    free_memory_bytes: int | None = None
    silent: str = ""

    @classmethod
    def of(cls, name: str, offers: Mapping[str, float], report: Mapping[str, Any]) -> Node:
        """The node that a report of `hardware/testing/on_request.py` tells of."""
        if "error" in report:
            return cls(name=name, offers=offers, silent=one_line(str(report["error"])))
        free = report["free_memory_bytes"]
        return cls(
            name=name,
            offers=offers,
            machine=one_line(str(report["machine"])),
            versions={str(key): str(value) for key, value in report["versions"].items()},
            missing=tuple(map(str, report["missing"])),
            absent={str(one["target"]): str(one["reason"]) for one in report["targets"] if not one["expected"]},
            free_memory_bytes=int(free) if free is not None else None,
        )

    @property
    def offered(self) -> str:
        """`cpu 2, openvino 1`: what it offers, without what Ray adds itself."""
        own = {name: count for name, count in self.offers.items() if not name.startswith(("node:", "object_store"))}
        return ", ".join(f"{name} {count:g}" for name, count in sorted(own.items()) if name != "memory") or "nothing"

    def text(self) -> str:
        """The node in a line."""
        if self.silent:
            return f"node {self.name} offers {self.offered} and doesn't report: {self.silent}"
        versions = ", ".join(f"{name} {self.versions.get(name, ABSENT)}" for name in _COMPARED[:3])
        return (
            f"node {self.name} on {self.machine} offers {self.offered}: {versions}, "
            f"{size_text(self.free_memory_bytes)} of memory free"
        )


def notes_on(nodes: Sequence[Node], here: Mapping[str, str], wanted: Sequence[str]) -> Iterator[str]:
    """What is said before the start: each node that offers what is `wanted`, what is of another version there than
    `here`, and what it offers and can't have."""
    for node in nodes:
        if not set(wanted) & set(node.offers):
            continue
        yield node.text()
        if node.silent:
            continue
        moved = [
            f"{name} {node.versions.get(name, ABSENT)} (here {here.get(name, ABSENT)})"
            for name in _COMPARED
            if node.versions.get(name, ABSENT) != here.get(name, ABSENT)
        ]
        parts = {name: one for name, one in here.items() if name.startswith(PREFIX)}
        moved += moved_versions(node.versions, parts)
        if modified := modified_parts(node.versions):
            yield f"node {node.name} runs a modified checker ({', '.join(modified)}): what it measures doesn't count"
        if moved:
            yield f"node {node.name} runs with {', '.join(moved)}: what it measures holds for these versions"
        for target in wanted:
            if target in node.offers and target in node.absent:
                yield f"node {node.name} offers {target}, which can't be there: {node.absent[target]}"


def refuse_unready(nodes: Sequence[Node], wanted: Sequence[str]) -> None:
    """Raise `UsageError` for nodes that offer what is `wanted` and lack what suites need, or that don't report."""
    unready = [
        f"{node.name} lacks {', '.join(node.missing)}"
        if node.missing
        else f"{node.name} doesn't report ({node.silent})"
        for node in nodes
        if set(wanted) & set(node.offers) and (node.missing or node.silent)
    ]
    if unready:
        raise UsageError(
            f"not every node can run suites: {'; '.join(unready)}",
            fix="Install what is missing in the environment that the node was started from, or start it without "
            "these resources.",
        )
