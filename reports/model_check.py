"""Does this model run on that device? The answer from rules and evidence, with its cause and what to change."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from generators.compatibility.current import verdict_of
from generators.compatibility.facts import facts_here
from generators.compatibility.rules import load_rules, predict
from generators.compatibility.selection import select
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.models.architectures import UNKNOWN
from generators.models.classifier import Classification, classify
from generators.models.profile import checkpoint_slug
from generators.models.recipe import Recipe, load_recipe
from hardware.backends.factory import resolve_target
from hardware.cell import Cell
from hardware.detection import targets
from hardware.errors import HwCompatError
from hardware.target import Target

from .diagnosis import diagnose
from .finding import Finding, worst_first
from .text import one_line

if TYPE_CHECKING:
    from hardware.detection import HardwareInfo
    from hardware.evidence.record import CheckLine
    from hardware.evidence.store import Evidence
    from hardware.expected_targets import TargetStatus

CHECKPOINT = "checkpoint"


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """The answer for one model on one target: what was measured, and beside it what rules say.

    `cause` says why the level is what it is, `change` what to do next (a command where nothing was measured).
    `absent` is the reason why the target isn't on this machine, empty where it may be.
    """

    model: str
    measured: Verdict
    predicted: Verdict
    cause: str
    change: str
    findings: tuple[Finding, ...] = ()
    absent: str = ""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "model": self.model,
            "verdict": self.measured.to_dict(),
            "predicted": self.predicted.to_dict(),
            "cause": self.cause,
            "change": self.change,
            "notes": list(self.notes),
        }

    @property
    def text(self) -> str:
        """The first line has verdict, cause and change; the lines after it say what that rests on."""
        verdict, predicted = self.measured, self.predicted
        basis = "" if verdict.level is Level.UNKNOWN else f" ({verdict.basis})"
        first = f"{verdict.cell}: {verdict.level}{basis}. Cause: {self.cause} Change: {self.change}"
        lines = [one_line(first, longest=1200)]
        if verdict.level is Level.UNKNOWN:
            said = str(predicted.level)
            said += "" if predicted.level is Level.UNKNOWN else f" ({predicted.basis})"
            lines.append(f"rules say: {said}: {'; '.join(predicted.reasons)}")
        lines += [f"because: {reason}" for reason in verdict.reasons[1:]]
        lines += [f"condition: {condition}" for condition in verdict.conditions]
        lines += [f"also: {text}" for finding in self.findings[:1] for text in finding.recommendations[1:]]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([lines[0], *(f"  {one_line(line, longest=1200)}" for line in lines[1:])]) + "\n"


def check_model(
    name: str,
    device: str | None,
    evidence: Evidence,
    checks: Sequence[CheckLine],
    inventory: HardwareInfo,
) -> ModelCheck:
    """The answer for a model on `device` (None or `auto`: the first of its list that is here).

    `checks` are the lines of the evidence that speak now. Raises `ModelError` for an unknown model and
    `UsageError` for an unknown device.
    """
    found = classify(name)
    statuses = targets(inventory)
    target, notes = _target(device, found, statuses)
    is_checkpoint = found.path is not None or found.source.startswith("name")
    cell = Cell(model=checkpoint_slug(name) if is_checkpoint else found.model_type, task=found.task, target=target)
    predicted = predict(cell, facts_here(_stored_recipe(found) or found, cell, inventory), load_rules())
    measured = verdict_of(cell, evidence, checks, inventory, subject_required=CHECKPOINT if is_checkpoint else "tiny")
    findings = tuple(worst_first(diagnose([line for line in checks if line.cell_id == cell.id])))
    absent = next((s.reason for s in statuses if s.target == target.name and not s.expected), "")
    if found.confidence == "low":
        notes = (*notes, f"{name} is not in the local cache and was classified by its name alone ({found.source})")
    return ModelCheck(
        model=name,
        measured=measured,
        predicted=predicted,
        cause=_cause(measured, findings, absent),
        change=_change(measured, findings, name, device or str(target), found.family),
        findings=findings,
        absent=absent,
        notes=notes,
    )


def without_transformers(name: str, device: str | None, error: HwCompatError) -> ModelCheck:
    """The answer where no model can be looked up: unknown, for a reason that has a remedy."""
    target = Target(name="cpu") if device in (None, "auto") else resolve_target(str(device))
    cell = Cell(model=checkpoint_slug(name), task=UNKNOWN, target=target)
    verdict = Verdict(cell=cell.id, level=Level.UNKNOWN, basis=Basis.PREDICTED, reasons=(str(error),))
    return ModelCheck(
        model=name,
        measured=verdict,
        predicted=verdict,
        cause=f"{error.what}: {error.why}." if error.why else f"{error.what}.",
        change=error.fix or "install what is missing.",
    )


def _target(
    device: str | None, found: Classification, statuses: Sequence[TargetStatus]
) -> tuple[Target, tuple[str, ...]]:
    if device is not None and device != "auto":
        return resolve_target(device), ()
    chosen = select(found.family, found.architecture, found.traits, found.task, statuses, None)
    steps = "; ".join(f"{step.target}: {step.reason}" for step in chosen.steps)
    return Target.parse(chosen.target), (f"device chosen from the list for {chosen.list_name}: {steps}",)


def _stored_recipe(found: Classification) -> Recipe | None:
    try:
        return load_recipe(found.model_type, found.task)
    except HwCompatError:  # rules can do without a recipe; running would say what is wrong with it
        return None


def _cause(measured: Verdict, findings: Sequence[Finding], absent: str) -> str:
    if findings and measured.level is not Level.HIGH:
        return f"{findings[0].message.rstrip('.')}."
    if measured.level is Level.UNKNOWN and not measured.evidence_ids:
        where = f", and the device is not here: {absent}" if absent else ""
        return f"nothing was measured{where}."
    return f"{(measured.reasons or ('no reason was recorded',))[0].rstrip('.')}."


def _change(measured: Verdict, findings: Sequence[Finding], name: str, device: str, family: str) -> str:
    command = f"python run_test_generation.py --model {shlex.quote(name)} --device {shlex.quote(device)} --run"
    if measured.level is Level.UNKNOWN:
        return f"measure it with: {command}"
    if measured.basis is Basis.EXPIRED:
        return f"measure it again on these versions with: {command}"
    if measured.level is Level.HIGH:
        return "nothing."
    advice = findings[0].recommendations if findings else ()
    return advice[0] if advice else f"use it under its conditions; the matrix shows other targets for {family}."
