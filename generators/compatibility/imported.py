"""Results of others: published measurements, and tests of other projects.

transformers' own tests compare a model with none of our references and prove no placement, so that their pass is no
pass of ours, and their failure lowers no level. A disagreement is a finding.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.record import CheckLine, Origin, Outcome, RunLine
from hwcompat.hardware.evidence.store import Evidence, lines_by_cell
from hwcompat.hardware.evidence.versions import moved_versions, relevant_versions, versions_of
from hwcompat.hardware.inventory.hardware_info import HardwareInfo

from .fault import route_of
from .grade import check_reason
from .verdict import Basis, Level, Reason, Verdict, once

_REFERENCE_ORIGINS = (Origin.TRANSFORMERS,)


UNDECIDED = "undecided"
"""The condition of a published result that decides nothing, with why: the model's type isn't certain."""

_NAMED_FIRST = "Snapdragon X"
"""How the names of devices begin that come first of many: those that most people can have."""

_VERBS = {Level.MEDIUM: "works", Level.LOW: "works in part", Level.UNSUPPORTED: "fails"}


def imported_verdicts(lines: Iterable[CheckLine]) -> dict[str, Verdict]:
    """Return a verdict for each cell that imported results name.

    By one route, a device has `medium` if all passed, because no numbers were compared with our reference;
    `unsupported` if all failed, else `low`. Its best route counts, and over all devices the level is `low` if they
    differ. Later results replace earlier ones of the same source. Results that are open or uncertain are ignored, and
    so are published ones of checkpoints that were too large.
    """
    found: dict[str, Verdict] = {}
    for id_, own in lines_by_cell(lines).items():
        decisive = [line for line in newest(own) if decides(line)]
        try:
            cell = Cell.parse(id_)
        except HwCompatError:  # reported as broken evidence
            continue
        if decisive:
            found[cell.id] = _verdict(cell, decisive)
    return found


def decides(line: CheckLine) -> bool:
    """Whether an imported result counts for the level of its cell."""
    if "result" not in line.conditions:  # not a published table's row
        return line.outcome.is_failure or line.outcome is Outcome.PASSED
    if UNDECIDED in line.conditions or line.outcome is Outcome.OUT_OF_MEMORY:
        return False
    return line.outcome.is_failure or line.outcome in (Outcome.PASSED, Outcome.PASSED_ON_FALLBACK)


def newest(lines: Sequence[CheckLine]) -> list[CheckLine]:
    """Return the lines without those that a later import of the same source replaces."""
    last: dict[tuple[str, ...], str] = {}
    for line in lines:
        last[same_place(line)] = max(last.get(same_place(line), ""), line.started_at)
    return [line for line in lines if "result" not in line.conditions or last[same_place(line)] == line.started_at]


def same_place(line: CheckLine) -> tuple[str, ...]:
    """Return what two versions of a published result have in common: file, model, route, precision, mode, device."""
    names = ("file", "model", "route", "as", "mode")
    source, *rest = (line.conditions.get(name, "") for name in names)
    return (re.sub(r"==[^:]+|@[0-9a-f]{7,40}$", "", source), *rest, line.accelerator or "")


def _verdict(cell: Cell, lines: list[CheckLine]) -> Verdict:
    groups: dict[tuple[str, str, str, str], list[CheckLine]] = {}
    for line in lines:
        names = [line.conditions.get(name, "") for name in ("route", "as", "source")]
        groups.setdefault((line.accelerator or "", *names), []).append(line)  # type: ignore[arg-type]
    levels = {key: _level(own) for key, own in groups.items()}
    of_device: dict[str, Level] = {}
    for (device, *_), level in levels.items():
        of_device[device] = max(of_device.get(device, level), level, key=lambda one: one.rank or 0)
    found = set(of_device.values())
    failed = [line for line in lines if line.outcome.is_failure]
    sources = tuple(_reasons(cell, levels, lines))
    return Verdict(
        cell=cell.id,
        level=found.pop() if len(found) == 1 else Level.LOW,
        basis=Basis.IMPORTED,
        route=route_of(cell, lines),
        weights_run=lines[0].subject,
        reasons=(*(check_reason(line) for line in failed if "result" not in line.conditions), *sources),
        conditions=sources,
        evidence_ids=tuple(dict.fromkeys(line.evidence_id for line in lines)),
    )


def _level(lines: Sequence[CheckLine]) -> Level:
    """Return the level by one route on one device."""
    failed = sum(line.outcome.is_failure for line in lines)
    if failed == len(lines):
        return Level.UNSUPPORTED
    return Level.MEDIUM if all(line.outcome is Outcome.PASSED for line in lines) else Level.LOW


def _reasons(
    cell: Cell, levels: Mapping[tuple[str, str, str, str], Level], lines: Sequence[CheckLine]
) -> Iterator[Reason]:
    """Yield what each source measured by each route, with its devices, and for a failure the first message."""
    if not any("result" in line.conditions for line in lines):
        yield from once(
            Reason.of("imported", source=line.conditions.get("source"), accelerator_name=line.accelerator)
            for line in lines
        )
        return
    devices: dict[tuple[Level, str, str, str], list[str]] = {}
    for (device, route, precision, source), level in levels.items():
        devices.setdefault((level, route, precision, source), []).append(device or str(cell.target))
    for (level, route, precision, source), names in sorted(devices.items(), key=lambda one: -(one[0][0].rank or 0)):
        messages = (line.error_message for line in lines if line.conditions.get("route", "") == route)
        yield Reason.of(
            "published",
            verb=_VERBS[level],
            devices=tuple(sorted(names, key=lambda name: (not name.startswith(_NAMED_FIRST), name))),
            route=route if "." in route else route.replace("_", "-"),
            precision=precision,
            source=source,
            message=next(filter(None, messages), "") if level is not Level.MEDIUM else "",
        )


def contradicted(own: Verdict, other: Verdict) -> Verdict:
    """Return an own verdict with an imported one as a last reason, if one says that it works and the other doesn't.

    The level and its basis don't change.
    """
    if other.basis is not Basis.IMPORTED or own.basis not in (Basis.MEASURED, Basis.EXPIRED):
        return own
    works = [one.level in (Level.HIGH, Level.MEDIUM) for one in (own, other)]
    if Level.UNKNOWN in (own.level, other.level) or works[0] is works[1]:
        return own
    told = [Reason.of("contradicted", **one.parameters) for one in other.conditions if one.code == "published"]
    against = [one for one in told if (one.text("verb") == "works") is works[1]] or told
    return replace(own, reasons=once([*own.reasons, *against[:3]]))


@dataclass(frozen=True, kw_only=True)
class ReferenceTests:
    """The tests of one origin for a model type on one target and machine: the newest line of each.

    `moved` lists the versions that have changed since; then the lines don't describe this installation.
    """

    origin: Origin
    model: str
    target: str
    machine: str
    lines: tuple[CheckLine, ...]
    moved: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[Outcome, int]:
        """The number of tests by outcome."""
        return Counter(line.outcome for line in self.lines)

    @property
    def failures(self) -> tuple[CheckLine, ...]:
        """The tests that failed, sorted by name."""
        return tuple(line for line in self.lines if line.outcome.is_failure)

    @property
    def not_asked(self) -> Mapping[str, int]:
        """The number of tests that weren't run, by error type."""
        return Counter(line.error_type for line in self.lines if line.outcome is Outcome.NOT_RUN)

    @property
    def library(self) -> str:
        """The library that the tests are from: `transformers 5.5.4`."""
        return self.lines[-1].conditions.get("tests of", str(self.origin))

    @property
    def reason(self) -> Reason:
        """The counts of outcomes, with what limits them."""
        return Reason.of(
            "other_tests",
            origin=str(self.origin),
            counts=tuple(f"{self.counts[one]} {one}" for one in Outcome if self.counts.get(one)),
            not_run=tuple(f"{number} {name}" for name, number in sorted(self.not_asked.items())),
            moved=self.moved,
        )


def reference_tests(evidence: Evidence | None, inventory: HardwareInfo) -> tuple[ReferenceTests, ...]:
    """Return what other projects' tests show, by model, target and machine.

    The newest run's test file and versions count: lines of another file or version are left out if there are newer
    ones.
    """
    if evidence is None:
        return ()
    runs = {run.run_id: run for run in evidence.other_runs}
    grouped: dict[tuple[str, str, str, str], list[CheckLine]] = {}
    for line in sorted(evidence.other_checks, key=lambda line: line.started_at):
        run = runs.get(line.run_id)
        if run is not None and line.origin in _REFERENCE_ORIGINS and (line.cell_id, line.check_name) in _planned(run):
            place = (line.model, line.requested_target.partition(":")[0], run.machine, str(line.origin))
            grouped.setdefault(place, []).append(line)
    return tuple(_opinion(lines, runs, inventory) for _, lines in sorted(grouped.items()))


def _planned(run: RunLine) -> frozenset[tuple[str, str]]:
    return frozenset((cell.cell_id, check) for cell in run.plan for check in cell.checks)


def _opinion(lines: Sequence[CheckLine], runs: Mapping[str, RunLine], inventory: HardwareInfo) -> ReferenceTests:
    last = lines[-1]
    cell = Cell.parse(last.cell_id)
    wanted = relevant_versions(cell, runs[last.run_id].versions)
    newest = {
        line.check_name: line
        for line in lines
        if line.suite_hash == last.suite_hash and relevant_versions(cell, runs[line.run_id].versions) == wanted
    }
    return ReferenceTests(
        origin=last.origin,
        model=last.model,
        target=str(cell.target),
        machine=runs[last.run_id].machine,
        lines=tuple(newest[name] for name in sorted(newest)),
        moved=moved_versions(wanted, relevant_versions(cell, versions_of(inventory))),
    )


def with_reference_tests(verdicts: Sequence[Verdict], opinions: Sequence[ReferenceTests]) -> tuple[Verdict, ...]:
    """Return the verdicts with the results of reference tests of their model and target as a last reason.

    Levels, bases and evidence don't change.
    """
    found: dict[tuple[str, str], list[Reason]] = {}
    for one in opinions:
        found.setdefault((one.model, one.target), []).append(one.reason)
    return tuple(_with_opinion(verdict, found) for verdict in verdicts) if found else tuple(verdicts)


def _with_opinion(verdict: Verdict, found: Mapping[tuple[str, str], Sequence[Reason]]) -> Verdict:
    try:
        cell = Cell.parse(verdict.cell)
    except HwCompatError:  # not the id of a cell, so that it has no tests
        return verdict
    more = [reason for reason in found.get((cell.model, str(cell.target)), ()) if reason not in verdict.reasons]
    return replace(verdict, reasons=(*verdict.reasons, *more)) if more else verdict


def disagreements(
    verdicts: Sequence[Verdict], opinions: Sequence[ReferenceTests]
) -> tuple[tuple[ReferenceTests, tuple[str, ...]], ...]:
    """Return reference tests that failed where we measured `high`, each with the ids of those cells."""
    high: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.level is Level.HIGH and verdict.basis is Basis.MEASURED:
            cell = Cell.parse(verdict.cell)
            high.setdefault((cell.model, str(cell.target)), []).append(verdict.cell)
    return tuple(
        (one, tuple(cells))
        for one in opinions
        if one.failures and not one.moved and (cells := high.get((one.model, one.target), []))
    )
