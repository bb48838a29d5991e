"""Diagnose recorded checks: exact error types with grades, and one finding for each root cause."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from hwcompat.generators.compatibility.operators.operator_names import last_way
from hwcompat.hardware.cell import GRAPH_TASK, PIECES_TASK
from hwcompat.hardware.evidence.record import EDITED, PRODUCTS, CheckLine, Outcome, Stage, WeightsKind
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.tolerances import tolerance_for

from .advice import FAULT_KNOWN, FILE, measuring_command, remedies_for
from .error_patterns import Around, Diagnosis, ErrorType, error_types, identify
from .failure_place import WRONG_RESULTS
from .finding import ANY_TARGET, Confidence, Finding, Severity, signature

__all__ = ["COMPONENT", "Diagnosis", "command_again", "diagnose", "error_types", "identify", "own_frames"]

COMPONENT = "compatibility_test"

_EARLY = (Stage.IMPORT, Stage.CONFIG, Stage.BUILD, Stage.EXPORT, Stage.CONVERT, Stage.COMPILE, Stage.LOAD)
_REFUSAL = re.compile(r"(?:Unsupported|NotApplicable|Ambiguous|ReferenceNotFinite): ")
_TEST_RUNNER = re.compile(r"[/\\](?:pluggy|_pytest)[/\\]")

_COPIES = frozenset({"aten._to_copy", "aten.lift_fresh", "aten._local_scalar_dense"})
"""No target lacks these: if they run on the host, the model's code requested it."""

_BY_OUTCOME = {
    Outcome.CRASHED: "crash",
    Outcome.TIMEOUT: "timeout",
    Outcome.OUT_OF_MEMORY: "out_of_memory",
    Outcome.AMBIGUOUS: "ambiguous",
    Outcome.PASSED_ON_FALLBACK: "device_absent",
    Outcome.SKIPPED: "skipped",
    Outcome.NOT_RUN: "not_reached",
}


@dataclass(frozen=True, kw_only=True)
class _Sighting:
    """A line that isn't a plain pass, with its diagnosis and target."""

    line: CheckLine
    diagnosis: Diagnosis
    target: str


def diagnose(
    checks: Sequence[CheckLine],
    versions: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    predictions: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    faults: Container[str] = (),
) -> list[Finding]:
    """Return one finding for each root cause of the lines, worst first, otherwise in the order of the lines.

    `versions` by run and stored `predictions` by cell, if known, identify known issues of others. Pure: timestamps
    are those of the lines. `faults` are the ids of cells whose fault is known. Lines that are a consequence of
    another finding (checks not reached after a crash) are added to its evidence.
    """
    left = _left_to_host(checks)
    known: dict[tuple[object, ...], Diagnosis] = {}
    sightings = [
        found
        for line in checks
        for found in (
            _sighting(
                line,
                known,
                left=left.get((line.run_id, line.cell_id), ()),
                rules=frozenset(predictions.get(line.cell_id, {}).get("rule_ids") or ()),
                versions=versions.get(line.run_id, {}),
            ),
            _edited_suite(line),
        )
        if found is not None
    ]
    causes = [one for one in sightings if not _kind(one).consequence]
    broken = {(one.line.run_id, one.line.cell_id): one for one in causes if one.line.outcome.is_breakdown}
    groups: dict[tuple[str, ...], list[_Sighting]] = {}
    for one in causes:
        groups.setdefault(_key(one), []).append(one)
    for one in sightings:
        if _kind(one).consequence:
            cause = broken.get((one.line.run_id, one.line.cell_id))
            groups.setdefault(_key(cause or one), []).append(one)
    findings = [_finding(group, faults) for group in groups.values()]
    return sorted(findings, key=lambda finding: -finding.severity.rank)


def _left_to_host(checks: Sequence[CheckLine]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return, by run and cell, the operators that any check saw on the host: they have one cause."""
    found: dict[tuple[str, str], set[str]] = {}
    for line in checks:
        if line.error_type == "silent_offload":
            found.setdefault((line.run_id, line.cell_id), set()).update(line.offloaded_ops)
    return {cell: tuple(sorted(names)) for cell, names in found.items()}


def _sighting(
    line: CheckLine,
    known: dict[tuple[object, ...], Diagnosis],
    *,
    left: tuple[str, ...],
    rules: frozenset[str],
    versions: Mapping[str, str],
) -> _Sighting | None:
    """Diagnose a line; `left` are the operators that its cell left to the host, `known` caches diagnoses."""
    if line.outcome is Outcome.PASSED:
        return None
    recorded = line.error_type or _BY_OUTCOME.get(line.outcome, "")
    message = line.error_message
    substituted = line.outcome is Outcome.PASSED_ON_FALLBACK or recorded == "same_device"
    if substituted:
        message = line.substitution_reason or message
    target = line.requested_target if substituted else line.actual_target or line.requested_target
    around = Around(
        check=line.check_name,
        stage=line.stage or "",
        target=_kind_of(target),
        precision=line.precision,
        operators=left if recorded == "silent_offload" else (),
        rules=rules,
        versions=versions,
    )
    facts = (around.check, around.stage, around.target, around.precision, around.operators, around.rules)
    key = (message, recorded, line.traceback, id(around.versions), *facts)
    if key not in known:
        known[key] = identify(message, recorded=recorded, log=line.traceback, around=around)
    diagnosis = known[key]
    if error_types()[diagnosis.error_type].quiet:
        return None
    if substituted:
        # The device was requested, so that this is more than a remark.
        severity = max(diagnosis.severity, Severity.WARNING, key=lambda one: one.rank)
        name = "device_absent" if diagnosis.error_type == "same_device" else diagnosis.error_type
        diagnosis = replace(diagnosis, error_type=name, severity=severity)
    return _Sighting(line=line, diagnosis=diagnosis, target=around.target)


def _edited_suite(line: CheckLine) -> _Sighting | None:
    """Return that the suite was edited, besides what the check itself shows: its verdict rests on nothing."""
    if not line.conditions.get(EDITED):
        return None
    kind = error_types()["suite_edited"]
    diagnosis = Diagnosis(error_type=kind.name, severity=kind.severity, confidence=Confidence.HIGH)
    return _Sighting(line=line, diagnosis=diagnosis, target=_kind_of(line.requested_target))


def _kind_of(target: str) -> str:
    """Return a target without the index of its device; other texts unchanged."""
    return re.sub(r"(?::\d+|\.\d+)$", "", target)


def _kind(one: _Sighting) -> ErrorType:
    return error_types()[one.diagnosis.error_type]


def _key(one: _Sighting) -> tuple[str, ...]:
    """Return what two sightings of one root cause have in common."""
    kind = _kind(one)
    group = kind.group or kind.name
    cause = one.diagnosis.cause or signature(last_way(_detail(one.line)))
    match kind.scope:
        case "machine":
            return (group, cause)
        case "target":
            return (group, one.target)
        case "cause":
            # Models of one architecture share code that copies to the host; others have their own.
            copied = kind.name == "silent_offload" and _COPIES.issuperset(one.diagnosis.cause.split(", "))
            return (group, one.target, cause, (one.line.architecture or "") if copied else "")
        case _:
            return (group, one.target, one.line.model, one.line.precision)


def _finding(group: Sequence[_Sighting], faults: Container[str]) -> Finding:
    order = list(error_types())
    causes = [one for one in group if not _kind(one).consequence] or list(group)
    first = min(causes, key=lambda one: (-one.diagnosis.severity.rank, order.index(one.diagnosis.error_type)))
    models = {one.line.model for one in group}
    targets = {one.target for one in causes}
    model = models.pop() if len(models) == 1 else None
    target = first.target if len(targets) == 1 else ANY_TARGET
    diagnosis = first.diagnosis
    precisions = {one.line.precision for one in group}
    known = all(one.line.cell_id in faults for one in group)
    return Finding(
        hardware_type=target,
        error_type=diagnosis.error_type,
        severity=diagnosis.severity,
        confidence=diagnosis.confidence,
        message=_message(first, group),
        component=COMPONENT,
        timestamp=min(one.line.started_at for one in group),
        model_name=model,
        cause=diagnosis.cause,
        remedies=remedies_for(
            diagnosis,
            target,
            command=command_again(first.line, diagnosis.error_type),
            cell=first.line.cell_id,
            facts=[
                *(precisions if len(precisions) == 1 else ()),
                *([FAULT_KNOWN] if known else ()),
                *([FILE] if all(one.line.task == GRAPH_TASK for one in group) else ()),
            ],
        ),
        traceback="" if diagnosis.error_type == "suite_edited" else own_frames(first.line),
        cells=tuple(dict.fromkeys(one.line.cell_id for one in group)),
        checks=tuple(dict.fromkeys(one.line.check_name for one in group)),
        evidence_ids=tuple(dict.fromkeys(one.line.evidence_id for one in group)),
    )


def command_again(line: CheckLine, error_type: str = "") -> str:
    """Return the command that runs the line's cell again; empty for a checkpoint, whose folder isn't recorded."""
    if line.subject == WeightsKind.CHECKPOINT:
        return ""
    return measuring_command(
        line.model,
        line.requested_target,
        task=line.task,
        precision=line.precision,
        force=error_type == "suite_edited",
    )


def _message(first: _Sighting, group: Sequence[_Sighting]) -> str:
    """Return problem, cause and figures on one line; cells and checks are fields of their own."""
    line, kind = first.line, _kind(first)
    detail = _figures(group) or one_line(_detail(line))
    named = first.diagnosis.cause
    # Operators on the host are listed after it anyway.
    head = kind.says + (f" ({named})" if named and kind.name != "silent_offload" else "")
    head += _stage(first)
    if kind.name == "suite_edited" or detail == kind.says:
        return head
    return one_line(f"{head}: {detail or 'no message'}", longest=600)


def _stage(one: _Sighting) -> str:
    """Return the stage if it helps: not after the model ran, nor if the device is the problem."""
    kind = _kind(one)
    if one.line.stage not in _EARLY or one.line.substitution_reason or kind.group == "device":
        return ""
    return "" if kind.name in ("export_failed", "suite_edited") else f" (stage: {one.line.stage})"


def _detail(line: CheckLine) -> str:
    """Return the message without the name of our own exception and without pytest's description of an assertion."""
    said = (line.error_message, line.substitution_reason)
    # A failure on a substitute has its own reason; anything else is about the absent device.
    text = next(filter(None, said if line.outcome.is_failure else reversed(said)), "")
    return _REFUSAL.sub("", text).partition("\n +")[0]


def own_frames(line: CheckLine) -> str:
    """Return the line's traceback without frames of pytest and pluggy; empty for a refusal."""
    if _REFUSAL.match(line.error_message) or line.outcome is Outcome.PASSED_ON_FALLBACK:
        return ""
    kept: list[str] = []
    foreign = False
    for number, text in enumerate(line.traceback.splitlines()):
        if text.startswith("  File "):
            foreign = _TEST_RUNNER.search(text) is not None
        elif number == 0 and '", line ' in text:  # a traceback that was cut begins within a frame
            foreign = True
        elif not text.startswith("    "):
            foreign = False
        if not foreign:
            kept.append(text)
    return "\n".join(kept)


def _of_products(measured: Sequence[tuple[float, CheckLine]]) -> str:
    """Return how many of these errors the precision of the device's float32 products explains, by the tolerance of
    that precision; empty if it explains none."""
    narrow = {line.conditions.get(PRODUCTS, "") for _, line in measured} & {"tf32", "float16", "bfloat16"}
    if len(narrow) != 1:
        return ""
    (precision,) = narrow
    explained = [
        line
        for error, line in measured
        if line.conditions.get(PRODUCTS) == precision
        and error <= tolerance_for(Target.parse(line.requested_target), precision).limit
    ]
    count = f"{len(explained)} of {len(measured)} failures"
    return f"; float32 products are computed in {precision} there, which explains {count}" if explained else ""


def _figures(group: Sequence[_Sighting]) -> str:
    """Return the largest error of wrong results as text; empty if none was measured."""
    wrong = [one.line for one in group if one.diagnosis.error_type in WRONG_RESULTS]
    # A check may fail by another assertion: an error within the tolerance explains nothing.
    measured = [
        (line.max_rel_error, line)
        for line in wrong
        if line.max_rel_error is not None and (line.tolerance is None or not line.max_rel_error <= line.tolerance)
    ]
    offloaded = {name for one in group for name in one.line.offloaded_ops}
    if measured:
        error, line = max(measured, key=lambda pair: (pair[0] != pair[0], pair[0]))
        allowed = "" if line.tolerance is None else f", tolerance {line.tolerance:.2g}"
        figures = f"error {error:.2g} of the output's scale in {line.check_name}{allowed}"
        named = one_line(_detail(line)) if line.task == PIECES_TASK else figures  # which piece is wrong
        return named + _of_products(measured)
    if offloaded and group[0].diagnosis.error_type == "silent_offload":
        return f"on the host: {', '.join(sorted(offloaded)[:8])}"
    return ""
