"""Whether a model runs on a device, from rules and evidence, with the cause and what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.generators.compatibility.imported import reference_tests
from hwcompat.generators.compatibility.judge import judge, published_or, strongest_of
from hwcompat.generators.compatibility.matrix import beside_published
from hwcompat.generators.compatibility.published_rows import shipped_verdicts
from hwcompat.generators.compatibility.rule_facts import facts_here
from hwcompat.generators.compatibility.rules import load_rules, predict
from hwcompat.generators.compatibility.selection import Suggestion, select, suggest
from hwcompat.generators.compatibility.verdict import Basis, Fault, Level, Reason, Verdict
from hwcompat.generators.model_profile import checkpoint_slug, why_missing
from hwcompat.generators.models.architectures import UNKNOWN
from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.models.checkpoint import read_checkpoint
from hwcompat.generators.models.classification import Classification, graph_path, kind_of
from hwcompat.generators.models.given_recipe import GivenRecipe
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import Refusal, load_recipe, refusal_of, stored_recipes
from hwcompat.generators.recipes.on_demand import check_checkpoint, derive_given
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.cell import Cell, model_of_weights
from hwcompat.hardware.errors import BrokenInput, HwCompatError, ModelError, ModelRefused
from hwcompat.hardware.evidence.error_types import facts_of_error_types
from hwcompat.hardware.expected_targets import targets
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.checkpoints import weights_hash

from .advice import measuring_command, recommend, suggested
from .diagnose import Diagnosis, diagnose, identify
from .finding import ANY_TARGET, Finding, worst_first
from .reason_text import FAULT_WORDS, explained, reason_text, texts

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo
    from hwcompat.hardware.evidence.latest import Latest
    from hwcompat.hardware.evidence.record import CheckLine
    from hwcompat.hardware.expected_targets import TargetStatus

    from .memory_check import MemoryCheck

CHECKPOINT = "checkpoint"
NOTHING = "nothing was measured"
REFUSED = "the model: its files can't be run"


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """The answer for one model on one target: what was measured, here or by others, and what rules predict.

    `cause` says why the level is what it is, `change` what to do next, `command` what measures it. `absent` is the
    reason why the target isn't on this machine, empty if it may be, and `absence` its error type. `suggestion` is
    what to try instead of a low or unsupported pair. `memory` says whether it fits, if requested. `refused` is the
    error type if `hwcompat run` refuses the model.
    """

    model: str
    measured: Verdict
    predicted: Verdict
    cause: str
    change: str
    findings: tuple[Finding, ...] = ()
    absent: str = ""
    absence: str = ""
    command: str = ""
    suggestion: Suggestion | None = None
    notes: tuple[str, ...] = ()
    memory: MemoryCheck | None = None
    nothing_measured: bool = False
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "model": self.model,
            "verdict": self.measured.to_dict(),
            "predicted": self.predicted.to_dict(),
            "cause": self.cause,
            "change": self.change,
            **({"suggestions": _suggestion_dict(self.suggestion)} if self.suggestion else {}),
            "notes": list(self.notes),
            **({"memory": self.memory.to_dict()} if self.memory else {}),
        }

    @property
    def text(self) -> str:
        """Return the answer: the first line has verdict, cause and change, the others what that rests on."""
        verdict, predicted = self.measured, self.predicted
        basis = "" if verdict.level is Level.UNKNOWN else f" ({verdict.basis})"
        first = f"{verdict.cell}: {verdict.level}{basis}. Cause: {self.cause} Change: {self.change}"
        lines = [one_line(first, longest=1200)]
        refused = self.refused
        lines += (
            [f"fault: {REFUSED if refused and verdict.fault is Fault.MODEL else FAULT_WORDS[verdict.fault]}"]
            if verdict.fault
            else []
        )
        if (verdict.level is Level.UNKNOWN or verdict.basis is Basis.IMPORTED) and not refused:
            said = str(predicted.level)
            said += "" if predicted.level is Level.UNKNOWN else f" ({predicted.basis})"
            lines.append(f"prediction: {said}: {'; '.join(texts(predicted.reasons))}")
        reasons, conditions = explained(verdict)
        if not self.nothing_measured:
            lines += [f"because: {reason}" for reason in reasons if reason.rstrip(".") not in self.cause]
        lines += [f"condition: {condition}" for condition in conditions]
        lines += [f"checks: {', '.join(finding.checks)}" for finding in self.findings[:1] if finding.checks]
        lines += [f"also: {text}" for finding in self.findings[:1] for text in finding.recommendations[1:]]
        if self.suggestion:
            lines += [*suggested(self.suggestion, Cell.parse(verdict.cell)), *self.suggestion.reasons]
        lines += [f"note: {note}" for note in self.notes]
        lines += self.memory.lines if self.memory else ()
        return "\n".join([lines[0], *(f"  {one_line(line, longest=1200)}" for line in lines[1:])]) + "\n"


def check_model(
    name: str, device: str | None, latest: Latest, inventory: HardwareInfo, memory: MemoryCheck | None = None
) -> ModelCheck:
    """Return the answer for a model on `device` (None, `auto`: the first of its list that is here and large enough).

    `latest` are the latest results of the evidence; `memory` is the memory that the model needs, if requested. Raises
    `ModelError` for an unknown model and `UsageError` for an unknown device.
    """
    found = classify(name)
    statuses, rules, files = targets(inventory), load_rules(), _files_of(name, found)

    def cell_on(target: Target) -> Cell:
        return Cell(model=files.cell_model, task=found.task, target=target, precision=files.precision)

    def predicted_on(target: Target) -> Verdict:
        asked = cell_on(target)
        if files.refused:
            return _refused_verdict(asked, files.refused)
        return predict(asked, facts_here(files.known, asked, inventory), rules)

    needed = memory.estimate.total if memory and memory.estimate else None
    target, notes = _target(device, found, statuses, needed, lambda one: published_or(predicted_on(one)))
    cell, predicted = cell_on(target), predicted_on(target)
    checks, others = _of_these_weights(found, cell, latest.checks)
    asked = {cell.id: CHECKPOINT if files.is_checkpoint else ""}  # a type has the weights of its newest plan
    (measured,) = judge(replace(latest, checks=tuple(checks)), inventory, weights_asked=asked, cells=[cell.id])
    own = [line for line in checks if line.cell_id == cell.id]
    planned = bool(own) or cell.id in latest.plans
    if not files.refused:
        measured = _beside_published(measured, cell, planned)
    found_out = diagnose(own, latest.versions, {cell.id: predicted.to_dict()})
    findings = _most_relevant_first(measured, target.name, found_out)
    absent = next((s.reason for s in statuses if s.target == target.name and not s.expected), "")
    command = measuring_command(name, device or str(target))
    refusal = None if files.is_checkpoint or planned else refusal_of(found.model_type)
    explained = bool(refusal or findings or (planned and measured.reasons))
    nothing = measured.level is Level.UNKNOWN and not explained
    if refused := files.refused if measured.level is Level.UNKNOWN else None:
        measured, nothing = _refused_verdict(cell, refused), False
    cause, change = _cause_and_change(measured, findings, absent, nothing, refusal, files, command)
    present, facts = strongest_of(measured, predicted), facts_here(files.known, cell, inventory)
    poor = present.level in (Level.LOW, Level.UNSUPPORTED)
    return ModelCheck(
        model=name,
        measured=measured,
        predicted=predicted,
        cause=cause,
        nothing_measured=nothing,
        change=change,
        findings=findings,
        absent=absent,
        absence=_absence(absent).error_type if absent else "",
        command=command,
        suggestion=suggest(present, facts, rules, lambda target: published_or(predicted_on(target)), stored_recipes())
        if poor
        else None,
        notes=(*notes, *_notes(name, found, others), *files.remarks, *_opinions(latest, inventory, cell)),
        memory=memory,
        refused=_error_type_of(refused) if refused else "",
    )


def _beside_published(measured: Verdict, cell: Cell, planned: bool) -> Verdict:
    """Return what counts for the cell beside what others measured. That nothing was planned then is no reason."""
    published = shipped_verdicts(cell.model).get(cell.id)
    if published is None:
        return measured
    return beside_published(measured if planned else replace(measured, reasons=()), published, None)


@dataclass(frozen=True, kw_only=True)
class _Files:
    """What `hwcompat run` would find for a model: its name in cells, `missing` weights, why it's `refused`, notes."""

    cell_model: str
    known: Classification | Recipe | GivenRecipe
    is_checkpoint: bool = True
    precision: str = "float32"
    missing: str = ""
    refused: HwCompatError | None = None
    remarks: tuple[str, ...] = ()


def _files_of(name: str, found: Classification) -> _Files:
    """Check a model's files with the functions that `hwcompat run` uses before it computes."""
    known = _stored_recipe(found) or found
    if kind_of(name) == "graph":
        return _graph_file(name, found)
    if found.path is None or not _has_weights(found):
        is_checkpoint = found.path is not None or found.confidence == "low"
        own_code = kind_of(name) == "module"
        return _Files(
            cell_model=checkpoint_slug(name) if is_checkpoint else found.model_type,
            known=known,
            is_checkpoint=is_checkpoint,
            missing=why_missing(name, "", found) if is_checkpoint and not own_code else "",
        )
    try:
        remarks, refused = check_checkpoint(found.path), None
    except (BrokenInput, ModelError) as error:
        remarks, refused = (), error
    return _Files(cell_model=_checkpoint_model(name, found), known=known, refused=refused, remarks=remarks)


def _graph_file(name: str, found: Classification) -> _Files:
    file = graph_path(name)
    slug = checkpoint_slug(file.name)
    try:
        recipe = derive_given("graph", str(file))
    except (BrokenInput, ModelError) as error:
        return _Files(cell_model=slug, known=found, refused=error)
    return _Files(
        cell_model=model_of_weights(slug, str(recipe.weights_hash)), known=recipe, precision=recipe.computes_in
    )


def _error_type_of(error: HwCompatError) -> str:
    return error.error_type if isinstance(error, ModelRefused) else "config_invalid"


def _checkpoint_model(name: str, found: Classification) -> str:
    """Return a checkpoint's name in cells, with the hash of its weights if they are here."""
    slug = checkpoint_slug(name)
    try:
        return model_of_weights(slug, weights_hash(Path(found.path))) if found.path and _has_weights(found) else slug
    except HwCompatError:  # nothing was measured with weights that can't be read
        return slug


def _refused_verdict(cell: Cell, error: HwCompatError) -> Verdict:
    """Return the verdict of a model that `hwcompat run` refuses, with the reason."""
    reason = Reason.of("model_refused", message=f"{error.what}: {error.why}" if error.why else error.what)
    fault = Fault(facts_of_error_types()[_error_type_of(error)].get("fault", "model"))
    return Verdict(cell=cell.id, level=Level.UNKNOWN, basis=Basis.PREDICTED, fault=fault, reasons=(reason,))


def _has_weights(found: Classification) -> bool:
    return found.path is not None and any(Path(found.path).glob("*.safetensors"))


def _notes(name: str, found: Classification, others: int) -> Iterator[str]:
    if others:
        yield f"{others} results in the evidence are from another configuration with these weights"
    if found.confidence == "low" and not kind_of(name):
        yield f"{name} is not in the local cache and was classified by its name only ({found.source})"


def _opinions(latest: Latest, inventory: HardwareInfo, cell: Cell) -> Iterator[str]:
    for one in reference_tests(latest.others, inventory):
        if (one.model, one.target) == (cell.model, str(cell.target)):
            yield reason_text(one.reason)


def without_transformers(name: str, device: str | None, error: HwCompatError) -> ModelCheck:
    """Return the answer if no model can be looked up: unknown, with a remedy."""
    target = Target(name="cpu") if device in (None, "auto") else resolve_target(str(device))
    cell = Cell(model=checkpoint_slug(name), task=UNKNOWN, target=target)
    verdict = Verdict(
        cell=cell.id, level=Level.UNKNOWN, basis=Basis.PREDICTED, reasons=(Reason.of("text", text=str(error)),)
    )
    return ModelCheck(
        model=name,
        measured=verdict,
        predicted=verdict,
        cause=f"{error.what}: {error.why}." if error.why else f"{error.what}.",
        change=error.fix or "install the missing package.",
        command=measuring_command(name, device or "auto"),
    )


def _target(
    device: str | None,
    found: Classification,
    statuses: Sequence[TargetStatus],
    memory_needed: int | None,
    predicted: Callable[[Target], Verdict],
) -> tuple[Target, tuple[str, ...]]:
    if device is not None and device != "auto":
        return resolve_target(device), ()
    chosen = select(found.family, found.architecture, found.traits, found.task, statuses, memory_needed, predicted)
    steps = "; ".join(f"{step.target}: {step.reason}" for step in chosen.steps)
    return Target.parse(chosen.target), (f"auto selected from the priority list {chosen.list_name}: {steps}",)


def _of_these_weights(found: Classification, cell: Cell, checks: Sequence[CheckLine]) -> tuple[list[CheckLine], int]:
    """Return the lines without those of another checkpoint with the folder's name, and the number of those."""
    if found.path is None:
        return list(checks), 0
    folder = Path(found.path)
    try:
        checkpoint = read_checkpoint(folder, needs_weights=True)
        here = weights_hash(folder), checkpoint.config_hash
    except HwCompatError:  # without weights nothing was measured
        here = "", ""
    kept = [line for line in checks if line.cell_id != cell.id or (line.model_revision, line.config_hash) == here]
    return kept, len(checks) - len(kept)


def _stored_recipe(found: Classification) -> Recipe | None:
    try:
        return load_recipe(found.model_type, found.task)
    except HwCompatError:  # rules work without a recipe, and a run would report what is wrong with it
        return None


def _most_relevant_first(measured: Verdict, target: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sort findings worst first; without valid results an edited suite or an absent target comes first."""
    if measured.level is not Level.UNKNOWN:
        return worst_first(findings)
    return tuple(
        sorted(
            worst_first(findings),
            key=lambda one: (one.error_type != "suite_edited", one.hardware_type not in (target, ANY_TARGET)),
        )
    )


def _absence(absent: str) -> Diagnosis:
    return identify(absent, recorded="device_absent")


def _cause_and_change(
    measured: Verdict,
    findings: Sequence[Finding],
    absent: str,
    nothing: bool,
    refusal: Refusal | None,
    files: _Files,
    command: str,
) -> tuple[str, str]:
    """Return why the level is what it is, and what to do next. If the device is absent, measuring again doesn't
    help."""
    unknown = measured.level is Level.UNKNOWN
    cell = Cell.parse(measured.cell)
    advice = findings[0].recommendations if findings else ()
    if unknown and absent and not advice:
        found = _absence(absent)
        advice = recommend(found.error_type, str(cell.target), cause=found.cause, command=command)
    if measured.level is Level.HIGH and measured.basis is Basis.MEASURED:
        change = "nothing."
    elif measured.basis in (Basis.EXPIRED, Basis.IMPORTED) and not unknown:
        again = " again with these versions" if measured.basis is Basis.EXPIRED else ""
        where = " on a machine that has the device" if absent else ""
        change = f"measure it{again}{where}: {command}"
    elif advice:
        change = advice[0]
    elif unknown:
        change = f"measure it: {command}"
    else:
        change = f"use it under its conditions. The matrix shows other targets for {files.known.family}."
    if files.refused and unknown:
        return f"{reason_text(measured.reasons[0])}.", files.refused.fix or change
    if files.missing and nothing:
        return "its weights are not on this machine.", files.missing
    if refusal and unknown:
        return f"{refusal.cause}.", f"{refusal.remedy}."
    if findings and measured.level is not Level.HIGH:
        return f"{findings[0].message.rstrip('.')}.", change
    if nothing:
        why = f", and the device isn't available: {absent}" if absent else ""
        return f"{NOTHING}{why}.", change
    return f"{(explained(measured)[0] or ('no reason was recorded',))[0].rstrip('.')}.", change


def _suggestion_dict(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "hardware": [verdict.to_dict() for verdict in suggestion.hardware],
        "models": [verdict.to_dict() for verdict in suggestion.models],
        "reasons": list(suggestion.reasons),
    }
