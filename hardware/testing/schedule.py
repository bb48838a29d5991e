"""Decide which suites share a child, and which children may run at the same time. Nothing is started here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..backends.factory import backend_class
from ..cell import OPERATOR_TASK
from ..inventory.system.processor import usable_cores
from ..target import Target
from .suite_file import SuiteFile

_TOGETHER = 20
"""Suites of operators that share a child on a device of their own: its start takes longer than most of them."""
REAL_WEIGHTS = "real weights"
"""The place that suites of checkpoints share: two at once would halve the memory for each."""


@dataclass(frozen=True, kw_only=True)
class SuiteGroup:
    """Suites that one child runs, in this order. Each of its `places` can hold one child at a time.

    `ends_on_failure` if the next suite gets a new child after one that failed, which may have broken the device.
    """

    suites: tuple[SuiteFile, ...]
    fork: bool
    places: frozenset[str]
    ends_on_failure: bool = False


def groups_of(suites: Sequence[SuiteFile], forkable: Collection[Target]) -> list[SuiteGroup]:
    """Return groups in the order of their first suites; the suites of one checkpoint are one group, as are several
    suites of operators on a device that bears one child at a time.

    Weights are then opened once. `forkable` are the targets whose children may be forked; a group is forked as a
    whole or not at all. Suites in float32 come first: results in other precisions rest on them.
    """
    found: dict[tuple[str, bool], list[SuiteFile]] = {}
    counts: Counter[Target] = Counter()
    for suite in sorted(suites, key=lambda one: one.cell.precision != "float32"):
        fork = suite.cell.target in forkable
        key = suite.model_revision or str(suite.path)
        if _is_grouped(suite):
            key = f"{suite.cell.target} {counts[suite.cell.target] // _TOGETHER}"
            counts[suite.cell.target] += 1
        found.setdefault((key, fork), []).append(suite)
    return [
        SuiteGroup(suites=tuple(members), fork=fork, places=_places(members), ends_on_failure=_is_grouped(members[0]))
        for (_, fork), members in found.items()
    ]


def _is_grouped(suite: SuiteFile) -> bool:
    return suite.cell.task == OPERATOR_TASK and not _is_shared(suite.cell.target)


def _places(suites: Sequence[SuiteFile]) -> frozenset[str]:
    """Return what a child of these suites needs for itself: unshared devices, and memory for a checkpoint."""
    places = {str(suite.cell.target) for suite in suites if not _is_shared(suite.cell.target)}
    return frozenset(places | {REAL_WEIGHTS for suite in suites if suite.model_revision})


def _is_shared(target: Target) -> bool:
    return backend_class(target.name).is_shared(target)


def next_group(waiting: Sequence[SuiteGroup], taken: Collection[str]) -> int | None:
    """Return the index of the first group whose places are all free, or None."""
    for number, group in enumerate(waiting):
        if group.places.isdisjoint(taken):
            return number
    return None


def default_jobs(suites: Sequence[SuiteFile], cores: int | None = None) -> int:
    """Return how many children to run at a time: one a core, as far as suites can run side by side."""
    shared = sum(_is_shared(suite.cell.target) and not suite.model_revision for suite in suites)
    alone = {place for suite in suites for place in _places([suite])}
    return max(1, min(cores or usable_cores(), shared + len(alone)))


def threads_for(jobs: int, cores: int, asked: str) -> int:
    """Return the threads of each of `jobs` children, so that all fit the cores; 0 keeps the runtime's own number.

    `asked` is the user's OMP_NUM_THREADS, which is never exceeded.
    """
    if jobs <= 1:
        return 0
    share = max(1, cores // jobs)
    return min(share, int(asked)) if re.fullmatch(r"[1-9][0-9]{0,5}", asked) else share
