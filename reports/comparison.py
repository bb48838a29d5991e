"""What differs between two sides of evidence, runs, machines or folders: what they had above what they showed, worse
first. And since when what is broken now is broken, and by what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from generators.compatibility.levels import level_rules
from generators.compatibility.showings import Showing, State
from hardware.comparison import Difference
from hardware.evidence.record import Outcome, RunLine
from hardware.evidence.versions import expired_by
from hardware.plain_text import one_line

from .comparison_causes import (
    Cause,
    Differing,
    Hardware,
    Slower,
    alternation,
    cause_of,
    slowdown,
    version_differences,
)
from .finding import Severity

COMPARISON_SCHEMA = Path(__file__).with_name("schemas") / "comparison.json"
COMPARISON_SCHEMA_VERSION = 1

History = Mapping[str, Sequence[Showing]]
"""By cell id, what each run showed of it."""


class Kind(StrEnum):
    """How a cell changed, in the order in which changes are told."""

    WORSE = "worse"
    FLAKY = "flaky"
    SLOWER = "slower"
    CHANGED = "changed"
    NEVER = "never green"
    BETTER = "better"
    NEW = "new"
    GONE = "gone"

    @property
    def meaning(self) -> str:
        """What the word says of a cell."""
        return _MEANINGS[self]

    @property
    def severity(self) -> Severity:
        """What `--fail-on` makes of it."""
        return _SEVERITIES.get(self, Severity.INFO)


_MEANINGS = {
    Kind.WORSE: "it was green and isn't, another check fails, or what was known of it isn't any more",
    Kind.FLAKY: "it is green and fails by turns, in runs between which nothing that is recorded differs",
    Kind.SLOWER: "as green as before, and slower by more than both sides spread",
    Kind.CHANGED: "the state is the same, and something about it isn't",
    Kind.NEVER: "not green in any run that is here",
    Kind.BETTER: "it is green and wasn't, or checks that failed pass",
    Kind.NEW: "in the second alone",
    Kind.GONE: "in the first alone",
}
_SEVERITIES = {
    Kind.WORSE: Severity.ERROR,
    Kind.FLAKY: Severity.WARNING,
    Kind.SLOWER: Severity.WARNING,
    Kind.CHANGED: Severity.WARNING,
    Kind.GONE: Severity.WARNING,
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two that are compared: `name` is what somebody called it, `runs` are those that speak, newest first.

    `showings` has one of them for each cell, by its id.
    """

    name: str
    runs: tuple[RunLine, ...]
    showings: Mapping[str, Showing]

    @property
    def counts(self) -> dict[State, int]:
        """How many cells are in which state."""
        counted = Counter(one.state for one in self.showings.values())
        return {state: counted[state] for state in State}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        runs = [
            {"run_id": run.run_id, "started_at": run.started_at, "machine": run.machine, "command": run.command}
            for run in self.runs
        ]
        return {
            "name": self.name,
            "runs": runs,
            "counts": {str(state): number for state, number in self.counts.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Change:
    """A cell that isn't what it was: what one run showed before, and what another shows now.

    `cause` is what differs between the runs of the change itself, `alternating` the runs of a flaky cell; `remarks`
    say in words what else there is to know.
    """

    cell: str
    kind: Kind
    before: Showing | None
    now: Showing | None
    cause: Cause | None = None
    alternating: tuple[Showing, ...] = ()
    slower: Slower | None = None
    remarks: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Worst first: by kind, then by the present state, then by what it was."""
        now = -self.now.state.rank if self.now else 0
        return list(Kind).index(self.kind), now, self.before.state.rank if self.before else 0, self.cell

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the cell isn't green now, else why it wasn't."""
        return (self.now.reasons if self.now else ()) or (self.before.reasons if self.before else ())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "cell": self.cell,
            "kind": str(self.kind),
            "severity": str(self.kind.severity),
            "before": self.before and _showing_dict(self.before),
            "now": self.now and _showing_dict(self.now),
            "cause": self.cause and self.cause.to_dict(),
            "alternating": [
                {"run_id": one.run.run_id, "started_at": one.run.started_at, "state": str(one.state)}
                for one in self.alternating
            ],
            "slower": self.slower and self.slower.to_dict(),
            "remarks": list(self.remarks),
        }


def _showing_dict(one: Showing) -> dict[str, Any]:
    return {
        "run_id": one.run.run_id,
        "started_at": one.run.started_at,
        "machine": one.run.machine,
        "state": str(one.state),
        "level": str(one.level),
        "subject": one.planned.subject,
        "failing": list(one.failing),
        "reasons": list(one.reasons),
    }


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """Something that differs, with the cells that got worse where it does, and those where nothing else does."""

    differing: Differing
    cells: tuple[str, ...]
    alone: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**self.differing.to_dict(), "cells": list(self.cells), "alone": list(self.alone)}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sides, what differs between them, and the changes, worst first; `same` counts cells without one by state.

    With `last_green`, `before` holds the last run in which each cell that isn't green now was, and differences stand
    with the changes alone. `suites` are cells whose suites, weights or tolerances differ, by what it is.
    """

    last_green: bool
    before: Side
    now: Side
    inventory: tuple[Difference, ...]
    versions: tuple[Differing, ...]
    suites: Mapping[str, tuple[str, ...]]
    changes: tuple[Change, ...]
    same: Mapping[State, int]
    remarks: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Kind, int]:
        """How many cells changed in which way."""
        counted = Counter(change.kind for change in self.changes)
        return {kind: counted[kind] for kind in Kind}

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """What may be behind what got worse, that which stands alone for most cells first."""
        found: dict[Differing, list[Change]] = {}
        for change in self.changes:
            for one in change.cause.candidates if change.cause and change.kind is Kind.WORSE else ():
                found.setdefault(_plain(one), []).append(change)
        suspects = [
            Suspect(
                differing=one,
                cells=tuple(change.cell for change in changes),
                alone=tuple(change.cell for change in changes if change.cause and change.cause.single),
            )
            for one, changes in found.items()
        ]
        return tuple(sorted(suspects, key=lambda one: (-len(one.alone), -len(one.cells), str(one.differing))))

    def met(self, fail_on: str) -> int:
        """How many cells changed in a way of this severity or a worse one."""
        limit = Severity(fail_on).rank
        return sum(change.kind.severity.rank >= limit for change in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `schemas/comparison.json` describes."""
        return {
            "schema_version": COMPARISON_SCHEMA_VERSION,
            "last_green": self.last_green,
            "before": self.before.to_dict(),
            "now": self.now.to_dict(),
            "inventory": [
                {"area": one.area, "name": one.name, "before": one.before, "after": one.after}
                for one in self.inventory
            ],
            "versions": [one.to_dict() | {"expires": list(expired_by(one.name))} for one in self.versions],
            "suites": {kind: list(cells) for kind, cells in self.suites.items()},
            "suspects": [one.to_dict() for one in self.suspects],
            "same": {str(state): number for state, number in self.same.items()},
            "counts": {str(kind): number for kind, number in self.counts.items()},
            "changes": [change.to_dict() for change in self.changes],
            "remarks": list(self.remarks),
        }


def _plain(one: Differing) -> Differing:
    """Suites have a hash each, which says nothing: they differ together."""
    if one.kind != "suite":
        return Differing(kind=one.kind, name=one.name, before=one.before, after=one.after)
    return Differing(kind=one.kind, name=one.name, before="each cell's own", after="another")


def compare_sides(before: Side, now: Side, history: History) -> Comparison:
    """What differs `now` from `before`. `history` has what other runs showed of cells: without it none is flaky and
    none slower."""
    hardware = Hardware()
    changes, same, suites = [], Counter[State](), dict[str, list[str]]()
    for cell in sorted({*before.showings, *now.showings}):
        old, new = before.showings.get(cell), now.showings.get(cell)
        if old is None or new is None:
            changes.append(Change(cell=cell, kind=Kind.NEW if old is None else Kind.GONE, before=old, now=new))
            continue
        cause = cause_of(old, new, hardware)
        for one in cause.candidates:
            if one.kind in ("suite", "checks", "subject", "configuration", "weights", "tolerance"):
                suites.setdefault(one.name, []).append(cell)
        change = _change(cell, old, new, cause, history.get(cell, ()), hardware)
        if change is None:
            same[new.state] += 1
        else:
            changes.append(change)
    first, last = before.runs[0], now.runs[0]
    return Comparison(
        last_green=False,
        before=before,
        now=now,
        inventory=hardware.between(first, last),
        versions=tuple(version_differences(first, last)),
        suites={kind: tuple(cells) for kind, cells in suites.items()},
        changes=_worst_first(changes),
        same={state: same[state] for state in State},
        remarks=tuple(_remarks(before, now)),
    )


def compare_last_green(now: Side, history: History) -> Comparison:
    """Of each cell that isn't green `now`, the last run before in which it was, and what differs between that and the
    first run after it that showed what is so now."""
    hardware = Hardware()
    changes, same, greens = [], Counter[State](), dict[str, Showing]()
    for cell, new in sorted(now.showings.items()):
        own = history.get(cell, ())
        earlier = sorted((one for one in own if _is_before(one, new)), key=lambda one: (one.moment, one.run.run_id))
        green = next((one for one in reversed(earlier) if one.state is State.GREEN), None)
        alternating = alternation(new, own, hardware)
        if new.state is State.GREEN and not alternating:
            same[State.GREEN] += 1
            continue
        if green is None:
            changes.append(Change(cell=cell, kind=Kind.NEVER, before=None, now=new))
            continue
        greens[cell] = green
        since = [one for one in earlier[earlier.index(green) + 1 :] if one.state is new.state]
        first = next((one for one in since if one.is_whole), new)
        told = f"so since run {first.run.run_id}" if first.run.run_id != new.run.run_id else ""
        changes.append(
            Change(
                cell=cell,
                kind=Kind.FLAKY if alternating else Kind.WORSE,
                before=green,
                now=new,
                cause=None if alternating else cause_of(green, first, hardware),
                alternating=alternating,
                remarks=(told,) if told else (),
            )
        )
    runs = {one.run.run_id: one.run for one in sorted(greens.values(), key=lambda one: one.moment, reverse=True)}
    return Comparison(
        last_green=True,
        before=Side(name="last green", runs=tuple(runs.values()), showings=greens),
        now=now,
        inventory=(),
        versions=(),
        suites={},
        changes=_worst_first(changes),
        same={state: same[state] for state in State},
        remarks=tuple(_of_names(now)),
    )


def _is_before(one: Showing, new: Showing) -> bool:
    return (one.moment, one.run.run_id) < (new.moment, new.run.run_id)


def _worst_first(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: change.order))


def _change(
    cell: str, old: Showing, new: Showing, cause: Cause, history: Sequence[Showing], hardware: Hardware
) -> Change | None:
    """How the cell changed; None where it didn't."""
    if alternating := alternation(new, history, hardware):
        return Change(cell=cell, kind=Kind.FLAKY, before=old, now=new, alternating=alternating)
    kind, remarks = _kind(old, new)
    if kind is None and (slower := slowdown(old, new, history, hardware)):
        return Change(cell=cell, kind=Kind.SLOWER, before=old, now=new, cause=cause, slower=slower)
    if kind is None:
        return None
    return Change(cell=cell, kind=kind, before=old, now=new, cause=cause, remarks=tuple(remarks))


def _kind(old: Showing, new: Showing) -> tuple[Kind | None, list[str]]:
    if old.state is not new.state:
        return (Kind.BETTER if new.state is State.GREEN else Kind.WORSE), []
    if new.state is State.UNKNOWN:
        return None, []
    if new.state is State.GREEN:
        remarks = list(_worth_less(old, new))
        return (Kind.CHANGED if remarks else None), remarks
    broke = [name for name in new.failing if _passed(old, name)]
    mended = [name for name in old.failing if _passed(new, name)]
    remarks = [f"{', '.join(broke)} passed before"] if broke else []
    remarks += [f"{', '.join(mended)} passed now"] if mended else []
    if broke or mended:
        return (Kind.WORSE if broke else Kind.BETTER), remarks
    otherwise = [
        f"{name} {_told(old, name)}, now {_told(new, name)}"
        for name in new.failing
        if name in old.checks and _told(old, name) != _told(new, name)
    ]
    return (Kind.CHANGED if otherwise else None), otherwise


def _passed(one: Showing, check: str) -> bool:
    return check in one.checks and one.checks[check].outcome is Outcome.PASSED


def _told(one: Showing, check: str) -> str:
    line = one.checks[check]
    words = str(line.outcome).replace("_", " ")
    return f"{words} ({one_line(line.error_type, longest=60)})" if line.error_type else words


def _worth_less(old: Showing, new: Showing) -> Iterable[str]:
    """Why a cell that is green as before shows less than it did."""
    if missing := [name for name in old.planned.checks if name not in new.planned.checks]:
        yield f"not planned any more: {', '.join(missing)}"
    subjects = level_rules().subjects
    if old.planned.subject in subjects and not level_rules().proves_enough(new.planned.subject, old.planned.subject):
        yield f"measured on {new.planned.subject}, before on {old.planned.subject}"
    limits = [
        {name: line.tolerance for name, line in one.checks.items() if line.tolerance is not None}
        for one in (old, new)
    ]
    wider = [name for name, limit in limits[1].items() if limit > limits[0].get(name, limit)]
    if wider:
        yield f"held to more: {wider[0]} to {limits[1][wider[0]]:g}, before to {limits[0][wider[0]]:g}"
    if old.level is not new.level:
        more = [text for text in new.conditions if text not in old.conditions]
        yield f"the level was {old.level} and is {new.level}{': ' if more else ''}{'; '.join(more)}"


def _remarks(before: Side, now: Side) -> Iterable[str]:
    if before.runs[0].started_at > now.runs[0].started_at:
        yield "the first is later than the second: what is worse here may be what was mended since"
    for side in (before, now):
        if len(side.runs) > 1:
            yield (
                f"{side.name} is put together from {len(side.runs)} runs: what differs in inventory and versions is "
                f"that of the newest, {side.runs[0].run_id}; each change names what differs between its own two"
            )
        cut = sum(not one.is_whole for one in side.showings.values())
        if cut:
            yield f"{side.name} was cut off, or goes on: {cut} of its cells weren't reached, or not to their end"
    yield from _of_names(now, before)


def _of_names(*sides: Side) -> Iterable[str]:
    """A remark where runs that name one machine have processors that no machine has both of."""
    seen: dict[str, set[str]] = {}
    for side in sides:
        for run in side.runs:
            processor = run.inventory.get("cpu")
            model = processor.get("model") if isinstance(processor, Mapping) else None
            if run.machine and isinstance(model, str):
                seen.setdefault(run.machine, set()).add(model)
    for machine, models in seen.items():
        if len(models) > 1:
            yield f"two machines may have the name {machine}: its processors are {', '.join(sorted(models))}"
