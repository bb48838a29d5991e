"""Find the differences between two runs of a cell and the possible cause of a change, and decide from several runs
whether a cell is flaky or a model got slower."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwcompat.generators.compatibility.run_summary import RunState, RunSummary, is_to_come
from hwcompat.hardware.evidence.record import EDITED, CheckLine, RunLine, WeightsKind
from hwcompat.hardware.evidence.versions import ABSENT, comparable_versions
from hwcompat.hardware.inventory_diff import Difference, compare_inventories
from hwcompat.hardware.inventory_file import inventory_problem
from hwcompat.hardware.plain_values import json_values

from ..speed_text import CellSpeed, is_slower, speed_of

MEASUREMENTS = 5
"""Number of measurements on each side that a statement about speed needs."""

MEASURED = "medians of 30 calls with the 10th and 90th percentile"

_AGREEING = 2
_UNSURE = "; what the machine itself got slower isn't known"
_HARDWARE = ("cpu", "memory", "device")
_IN_VERSIONS = ("driver_version", "firmware_version")
_REAL_SIZES = (WeightsKind.CONFIG, WeightsKind.CHECKPOINT)
_OF_THE_SUITE = ("recorded", "left_out", "dimensions", "exercised")
_OTHER_CONDITIONS = (EDITED, "tolerance", "device")


@dataclass(frozen=True, kw_only=True)
class Differing:
    """Something that differs between two runs of a cell. `details` differ with it and follow from it."""

    kind: str
    name: str
    before: str
    after: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = f" (with it: {'; '.join(self.details)})" if self.details else ""
        if self.kind == "suite":  # the hash of a suite says nothing, and each cell has its own
            return f"the suite{more}"
        return f"{self.name} {self.before}, now {self.after}{more}"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What may have caused the change of a cell from one run to another.

    `candidates` affect the cell's evidence; `others` differ too, and the target declares that it doesn't depend on
    them.
    """

    before: str
    after: str
    candidates: tuple[Differing, ...]
    others: tuple[Differing, ...]

    @property
    def single(self) -> Differing | None:
        """The candidate, if there is only one."""
        return self.candidates[0] if len(self.candidates) == 1 else None

    def __str__(self) -> str:
        if self.single is not None:
            return f"only this differs: {self.single}"
        if self.candidates:
            return f"one or more of these differ: {'; '.join(map(str, self.candidates))}"
        if self.others:
            differing = "; ".join(map(str, self.others))
            return f"nothing that the target depends on differs; other differences: {differing}"
        return "no recorded difference: the cell may be flaky; run it again to find out"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "before_run": self.before,
            "after_run": self.after,
            "single": json_values(self.single),
            "candidates": json_values(self.candidates),
            "others": json_values(self.others),
            "text": str(self),
        }


@dataclass(frozen=True, kw_only=True)
class Slower:
    """The medians of a check's forward pass in milliseconds, each with the smallest and largest of five; with
    `run --measure` of 30 calls, each with the 10th and 90th percentile."""

    check: str
    before: tuple[float, float, float]
    now: tuple[float, float, float]
    of: str = "medians of five"
    is_sure: bool = True
    """Whether what the machine itself got slower is known, or each side has five runs."""

    def __str__(self) -> str:
        times = [f"{median:.3g} ms ({low:.3g} to {high:.3g})" for median, low, high in (self.before, self.now)]
        return f"a forward pass of {self.check} took {' -> '.join(times)}, {self.of}{'' if self.is_sure else _UNSURE}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        names = ("median_ms", "smallest_ms", "largest_ms")
        sides = {"before": self.before, "now": self.now}
        return {
            "check": self.check,
            **{side: dict(zip(names, three, strict=True)) for side, three in sides.items()},
        }


@dataclass
class Hardware:
    """Differences between the inventories of two runs; each pair is compared once."""

    _known: dict[tuple[str, str], tuple[Difference, ...]] = field(default_factory=dict)

    def between(self, before: RunLine, after: RunLine) -> tuple[Difference, ...]:
        """Return all differences except versions, which runs list themselves; none if a run has no inventory."""
        key = (before.run_id, after.run_id)
        if key not in self._known:
            self._known[key] = _inventory_differences(before, after)
        return self._known[key]


def _inventory_differences(before: RunLine, after: RunLine) -> tuple[Difference, ...]:
    if inventory_problem(before.inventory) or inventory_problem(after.inventory):
        return ()
    try:
        found = compare_inventories(before.inventory, after.inventory).differences
    except (AttributeError, KeyError, TypeError, ValueError):  # untrusted evidence may have any shape
        return ()
    return tuple(one for one in found if one.area not in ("version", "torch"))


def cause_of(before: RunSummary, after: RunSummary, hardware: Hardware) -> Cause:
    """Return what differs between the runs of two summaries of one cell."""
    versions = {**before.versions, **after.versions}
    moved = _versions(before.run.versions, after.run.versions)
    recorded = list(_of_lines(before, after))
    candidates = [
        *(one for one in moved if one.name in versions),
        *_suite(before, after),
        *recorded,
        *_machine(before.run, after.run, hardware),
    ]
    others = [one for one in moved if one.name not in versions]
    if before.run.jobs != after.run.jobs:
        others.append(_differing("setting", "jobs", before.run.jobs, after.run.jobs))
    return Cause(
        before=before.run.run_id,
        after=after.run.run_id,
        candidates=tuple(_folded(candidates)),
        others=tuple(others),
    )


def _differing(kind: str, name: str, before: object, after: object) -> Differing:
    return Differing(kind=kind, name=name, before=str(before), after=str(after))


def _versions(before: Mapping[str, str], after: Mapping[str, str]) -> list[Differing]:
    before, after = comparable_versions(before, after)
    names = sorted({*before, *after})
    pairs = [(name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names]
    return [_differing("version", name, old, new) for name, old, new in pairs if old != new]


def version_differences(before: RunLine, after: RunLine) -> list[Differing]:
    """Return all versions that differ between two runs, by name."""
    return _versions(before.versions, after.versions)


def _suite(before: RunSummary, after: RunSummary) -> Iterator[Differing]:
    old, new = before.planned, after.planned
    if old.suite_hash != new.suite_hash:
        other = old.recipe and new.recipe and old.recipe != new.recipe
        either = old.made_from and new.made_from and old.made_from != new.made_from
        details = ["its recipe"] if other else ["its recipe or templates"] if either else []
        yield Differing(
            kind="suite", name="suite", before=old.suite_hash, after=new.suite_hash, details=tuple(details)
        )
    if set(old.checks) != set(new.checks):
        yield _differing("checks", "checks", len(old.checks), len(new.checks))
    if old.subject != new.subject:
        yield _differing("weights", "kind of weights", old.subject, new.subject)


_FIELDS: tuple[tuple[str, str, Callable[[CheckLine], object]], ...] = (
    ("configuration", "configuration", lambda line: line.config_hash and line.config_hash[:16]),
    ("weights", "weights", lambda line: line.model_revision and line.model_revision[:16]),
    ("tolerance", "tolerance", lambda line: line.tolerance),
    ("device", "requested device", lambda line: line.requested_target),
    ("device", "accelerator", lambda line: line.accelerator),
    ("precision", "computed in", lambda line: line.actual_dtype),
)


def _of_lines(before: RunSummary, after: RunSummary) -> Iterator[Differing]:
    """Yield differences that only lines record. What a run that failed early didn't record doesn't differ."""
    for kind, name, value in _FIELDS:
        old, new = _values(before, value), _values(after, value)
        if old and new and old != new:
            yield _differing(kind, name, old, new)
    old_conditions, new_conditions = _conditions(before), _conditions(after)
    if old_conditions and new_conditions:
        for name in sorted({*old_conditions, *new_conditions}):
            then, now = old_conditions.get(name, ABSENT), new_conditions.get(name, ABSENT)
            if then != now:
                yield _differing("suite's own" if name in _OF_THE_SUITE else "condition", name, then, now)


def _values(one: RunSummary, value: Callable[[CheckLine], object]) -> str:
    found = {str(value(line)) for line in one.checks.values() if value(line)}
    return ", ".join(sorted(found))


def _conditions(one: RunSummary) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for line in one.checks.values():
        for name, value in line.conditions.items():
            if name not in _OTHER_CONDITIONS:
                found.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(values)) for name, values in found.items()}


def _machine(before: RunLine, after: RunLine, hardware: Hardware) -> Iterator[Differing]:
    # Drivers and firmware are compared as versions.
    parts = [
        one
        for one in hardware.between(before, after)
        if one.area in _HARDWARE and not one.name.endswith(_IN_VERSIONS)
    ]
    details = tuple(f"{one.area} {one.name} {one.before}, now {one.after}" for one in parts)
    if before.machine != after.machine:
        yield Differing(
            kind="machine",
            name="machine",
            before=before.machine or "unnamed",
            after=after.machine or "unnamed",
            details=details,
        )
    elif details:
        yield Differing(
            kind="hardware",
            name=f"hardware of machine {before.machine}:",
            before="one",
            after="another",
            details=details,
        )
    if before.isolation != after.isolation:
        yield _differing("setting", "isolation", before.isolation, after.isolation)


_FOLLOWS = {"configuration": "suite", "checks": "suite", "suite's own": "suite", "tolerance": "hwcompat"}
"""By kind of difference, the kind that it follows from if both differ."""


def _folded(found: Sequence[Differing]) -> Iterator[Differing]:
    """Return the differences without those that follow from another one, which become its details, and without
    conditions that repeat a version."""
    moved = {(one.before, one.after) for one in found if one.kind == "version"}
    found = [one for one in found if one.kind != "condition" or (one.before, one.after) not in moved]
    own = {one.kind if one.kind != "version" else one.name: one for one in found}
    below: dict[str, list[str]] = {}
    for one in found:
        if (source := _FOLLOWS.get(one.kind, "")) in own:
            below.setdefault(source, []).append("its configuration" if one.kind == "configuration" else str(one))
    for one in found:
        if _FOLLOWS.get(one.kind, "") in own:
            continue
        more = below.get(one.kind if one.kind != "version" else one.name, [])
        yield Differing(
            kind=one.kind, name=one.name, before=one.before, after=one.after, details=(*one.details, *more)
        )


def same_conditions(one: RunSummary, history: Sequence[RunSummary], hardware: Hardware) -> list[RunSummary]:
    """Return the summaries of a cell whose runs don't differ in anything recorded, oldest first.

    Runs dated ahead are left out, because their time isn't known.
    """
    found = []
    for other in sorted(history, key=lambda showing: (showing.moment, showing.run.run_id)):
        if is_to_come(other.run):
            continue
        cause = cause_of(other, one, hardware)
        if not cause.candidates and not cause.others:
            found.append(other)
    return found


def alternation(now: RunSummary, history: Sequence[RunSummary], hardware: Hardware) -> tuple[RunSummary, ...]:
    """Return the runs in which a cell alternated between green and failed although nothing differs between them; none
    if it isn't flaky."""
    decided = [one for one in same_conditions(now, history, hardware) if one.state is not RunState.UNKNOWN]
    switches = sum(one.state is not other.state for one, other in itertools.pairwise(decided))
    return tuple(decided) if switches >= 2 else ()


def slowdown(before: RunSummary, now: RunSummary, history: Sequence[RunSummary], hardware: Hardware) -> Slower | None:
    """Return whether a model of real size got slower after something changed; None if it didn't or it isn't known.

    Each side is its run and those without differences from it, green and without parallel jobs. With `run --measure`
    two runs of each side are needed, and each of the newest five must be slower than each of the five before
    (`is_slower`). Otherwise a run measured a forward pass once, and each of five must have taken longer than each of
    the five before: the medians differ by more than both ranges.
    """
    if now.planned.subject not in _REAL_SIZES or before.planned.subject != now.planned.subject:
        return None
    if not cause_of(before, now, hardware).candidates:
        return None
    sides = [same_conditions(one, history, hardware) for one in (before, now)]
    measured = [_speeds(side, one) for side, one in zip(sides, (before, now), strict=True)]
    if min(map(len, measured)) >= _AGREEING:
        return _measured_slowdown(*measured)
    for check in now.planned.checks:
        old, new = (_latencies(check, side) for side in sides)
        if len(old) == len(new) == MEASUREMENTS:
            if min(new) <= max(old):
                return None
            return Slower(check=check, before=_summary(old), now=_summary(new))
    return None


def _speeds(side: Sequence[RunSummary], own: RunSummary) -> list[CellSpeed]:
    """Return the newest five speeds of a side, the side's own run included."""
    runs = {one.run.run_id: one for one in (*side, own) if one.state is RunState.GREEN and one.run.jobs == 1}
    found = [speed_of(one.checks.values()) for one in runs.values()]
    return [one for one in found if one is not None and one.latency is not None][-MEASUREMENTS:]


def _measured_slowdown(old: Sequence[CellSpeed], new: Sequence[CellSpeed]) -> Slower | None:
    """Return how much slower each of the newer runs is than each of the older ones; None if one isn't."""
    if not all(is_slower(one, other) for one in old for other in new):
        return None
    spreads = [one.latency.three for one in (old[-1], new[-1]) if one.latency is not None]
    is_sure = "eager" in new[-1].series
    return Slower(check="one row", before=spreads[0], now=spreads[1], of=MEASURED, is_sure=is_sure)


def _latencies(check: str, side: Sequence[RunSummary]) -> list[float]:
    """Return the newest five forward passes of a check with the newest shape, in milliseconds."""
    found: list[tuple[tuple[object, ...], float]] = []
    for one in side:
        line = one.checks.get(check)
        if line is not None and line.latency_ms is not None and one.state is RunState.GREEN and one.run.jobs == 1:
            found.append(((line.batch, line.sequence_length), line.latency_ms))
    return [took for shape, took in found if shape == found[-1][0]][-MEASUREMENTS:]


def _summary(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)
