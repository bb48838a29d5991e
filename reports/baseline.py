"""`--baseline FILE`: which findings are new since a report that was kept as JSON, and which are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.errors import BrokenInput, echo
from hardware.evidence.record import Outcome
from hardware.untrusted import read_json, reason_of

from .finding import SCHEMA_VERSION, Comparison, Confidence, Finding, Severity, State, signature
from .stack import STACK_COMPONENT

if TYPE_CHECKING:
    from .report import Report

LARGEST_BASELINE = 256 * 1024 * 1024

_READ = (SCHEMA_VERSION - 1, SCHEMA_VERSION)
"""Versions of reports whose findings can be read."""
_MAKE_ANEW = "Make it anew: python hardware_compatibility_reporter.py --collect-all --format json > FILE"
_TEXTS = ("cells", "checks", "evidence_ids", "recommendations")
_IDLE = (Outcome.NOT_RUN, Outcome.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The findings of a report that was kept. `name` is the file's name without its folders."""

    name: str
    timestamp: str
    findings: tuple[Finding, ...]


def compare(report: Report, baseline: Baseline) -> Comparison:
    """The report's findings against the baseline's.

    One is known if the baseline has the same problem (type, target, part, message without its figures) in a cell of
    it, or under its id. It is worse if it is graver, or if a cell or a check has it that hadn't.
    """
    before: dict[tuple[str, ...], list[Finding]] = {}
    for finding in baseline.findings:
        before.setdefault(_problem(finding), []).append(finding)
    states: dict[tuple[str, tuple[str, ...]], State] = {}
    met: set[int] = set()
    for finding in report.findings:
        same = [one for one in before.get(_problem(finding), ()) if _meets(finding, one)]
        met.update(id(one) for one in same)
        states[finding.id, finding.cells] = _state(finding, same)
    gone = [one for one in baseline.findings if id(one) not in met]
    ran = _ran(report)
    fixed = tuple(one for one in gone if _looked_at(one, report, ran))
    return Comparison(
        name=baseline.name,
        timestamp=baseline.timestamp,
        states=states,
        fixed=fixed,
        unseen=tuple(one for one in gone if one not in fixed),
    )


def _problem(finding: Finding) -> tuple[str, ...]:
    return (finding.error_type, finding.hardware_type, finding.component, signature(finding.message))


def _meets(finding: Finding, other: Finding) -> bool:
    return finding.id == other.id or not set(finding.cells).isdisjoint(other.cells)


def _state(finding: Finding, same: Sequence[Finding]) -> State:
    if not same:
        return State.NEW
    cells = {cell for one in same for cell in one.cells}
    checks = {check for one in same for check in one.checks}
    graver = finding.severity.rank > max(one.severity.rank for one in same)
    more = not (cells.issuperset(finding.cells) and checks.issuperset(finding.checks))
    return State.WORSE if graver or more else State.KNOWN


def _ran(report: Report) -> set[tuple[str, str]]:
    return {(line.cell_id, line.check_name) for line in report.checks if line.outcome not in _IDLE}


def _looked_at(finding: Finding, report: Report, ran: set[tuple[str, str]]) -> bool:
    """Whether what showed a finding was asked again, so that its absence says something."""
    if finding.cells:
        cells = {cell for cell, _ in ran}
        wanted = ((cell, check) for cell in finding.cells for check in finding.checks)
        return cells.issuperset(finding.cells) and all(one in ran for one in wanted)
    if finding.component == STACK_COMPONENT:
        return any(one.target == finding.hardware_type for one in report.stack)
    if finding.model_name:
        return finding.model_name in report.models_tested
    return finding.component in {one.name for one in report.components}


def read_kept(path: Path, name: str, fix: str) -> Any:
    """What a file of JSON holds that was kept to compare with. Raises `BrokenInput` with `name` and `fix`."""
    try:
        return read_json(path, longest=LARGEST_BASELINE)
    except OSError as error:
        raise BrokenInput(f"{name} can't be read", why=reason_of(error), fix=fix) from error
    except ValueError as error:
        raise BrokenInput(f"{name} is no JSON", why=reason_of(error), fix=fix) from error


def read_baseline(path: Path, renamed: Callable[[Any], Any] = lambda value: value) -> Baseline:
    """The findings of a report that was kept as JSON; `renamed` is applied to them first.

    Raises `BrokenInput` for what is no such report.
    """
    name = echo(path.name)
    data = read_kept(path, name, _MAKE_ANEW)
    if not isinstance(data, dict) or not isinstance(data.get("errors"), list):
        what = "it is a matrix" if isinstance(data, dict) and "compatibility" in data else "it has no list of errors"
        raise BrokenInput(f"{name} is no report", why=what, fix=_MAKE_ANEW)
    if data.get("schema_version") not in _READ:
        version = echo(str(data.get("schema_version")))
        raise BrokenInput(
            f"{name} is a report of schema version {version}",
            why=f"this version reads {' and '.join(map(str, _READ))}",
            fix=_MAKE_ANEW,
        )
    return Baseline(
        name=path.name,
        timestamp=str(data.get("timestamp", "")),
        findings=tuple(_finding(name, number, one) for number, one in enumerate(renamed(data["errors"]))),
    )


def _finding(name: str, number: int, data: Any) -> Finding:
    """One finding of a baseline; files may come from anywhere."""
    try:
        values = {key: value for key, value in data.items() if key not in ("id", "baseline", "remedies")}
        for key in _TEXTS:
            if not isinstance(values[key], list) or not all(isinstance(text, str) for text in values[key]):
                raise TypeError(f"{key} is no list of texts")
            values[key] = tuple(values[key])
        for key, value in values.items():
            if key not in _TEXTS and not isinstance(value, str) and (key != "model_name" or value is not None):
                raise TypeError(f"{key} is no text")
        values["severity"] = Severity(values["severity"])
        values["confidence"] = Confidence(values["confidence"])
        return Finding(**values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"errors[{number}]: {type(error).__name__}: {error}"
        raise BrokenInput(f"{name} is no report", why=echo(why), fix=_MAKE_ANEW) from error
