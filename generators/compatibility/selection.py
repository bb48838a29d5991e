"""Select a target for a model step by step with reasons, and suggest alternatives for a pair that doesn't work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.expected_targets import TargetStatus
from hwcompat.hardware.plain_text import size_text
from hwcompat.hardware.target import Target
from hwcompat.hardware.values import data_file

from .rule_facts import Described, Facts, facts_of
from .rules import RuleSet, predict
from .verdict import Basis, Level, Verdict
from .vocabulary import not_computed, vocabulary

_FILE = Path(__file__).with_name("priorities.toml")
_CLASSES = Path(__file__).parents[1] / "models" / "architectures.toml"
LAST_RESORT = "cpu"


class StepResult(StrEnum):
    """The result for one target of the list."""

    TAKEN = "taken"
    NOT_HERE = "not_here"
    NOT_PREFERRED = "not_preferred"
    NOT_COMPUTED = "not_computed"
    MEMORY_TOO_SMALL = "memory_too_small"
    PREDICTED_TO_FAIL = "predicted_to_fail"


@dataclass(frozen=True, kw_only=True)
class SelectionStep:
    """A target that was considered."""

    target: str
    result: StepResult
    reason: str


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The selected target (the last step's), the list that it is from, and every step before it."""

    target: str
    list_name: str
    steps: tuple[SelectionStep, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        steps = [{"target": s.target, "result": str(s.result), "reason": s.reason} for s in self.steps]
        return {"target": self.target, "list": self.list_name, "steps": steps}


def priority_list(family: str, architecture: str, traits: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the name of the most specific list and its targets in order.

    With several traits that have lists, the first trait's order counts, for targets that are in each list.
    """
    data = data_file(_FILE)
    named = {trait: tuple(data["trait"][trait]["targets"]) for trait in traits if trait in data["trait"]}
    if named:
        first = next(iter(named.values()))
        shared = tuple(target for target in first if all(target in targets for targets in named.values()))
        return " and ".join(named), shared
    for kind, name in (("architecture", architecture), ("family", family)):
        if name in data[kind]:
            return name, tuple(data[kind][name]["targets"])
    return "default", tuple(data["default"]["targets"])


def recommended_lists(name: str = "") -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the targets in the order in which they are tried, and why, by architecture, trait or family: of one, or
    of all. Raises `UsageError` for an unknown one, and for one without a list of its own the default list counts."""
    data = data_file(_FILE)
    kinds = ("architecture", "trait", "family")
    every = {one: entry for kind in kinds for one, entry in data[kind].items()} | {"default": data["default"]}
    by_architecture: dict[str, str] = {}
    for family, architecture in data_file(_CLASSES)["task"].values():
        by_architecture.setdefault(architecture, family)
    wanted = list(every)
    if name:
        known = sorted({*every, *by_architecture})
        if name.lower() not in known:
            fix = did_you_mean(name, known) or f"Known: {', '.join(known)}."
            raise UsageError(f"{echo(name)} is no architecture, trait or family", fix=fix)
        wanted = [name.lower()]
    found = {}
    for one in wanted:
        entry = every.get(one) or every.get(by_architecture.get(one, "")) or every["default"]
        found[one] = (tuple(entry["targets"]), str(entry["reason"]))
    return found


def select(
    family: str,
    architecture: str,
    traits: Sequence[str],
    task: str,
    statuses: Sequence[TargetStatus],
    memory_needed: int | None,
    predicted: Callable[[Target], Verdict] | None = None,
    *,
    precision: str = "float32",
) -> Selection:
    """Return the first target of the model's list that is here, computes in `precision`, is large enough and isn't
    predicted to fail; `cpu` if there is none.

    `memory_needed` is in bytes, None if it isn't known; `predicted` returns what rules predict for a target. A level
    that is only assumed excludes none. No list depends on `task` yet.
    """
    name, targets = priority_list(family, architecture, traits)
    steps: list[SelectionStep] = []
    for target in (*(t for t in targets if t != LAST_RESORT), LAST_RESORT):
        own = [status for status in statuses if Target.parse(status.target).name == target]
        for status in own:
            step = _consider(status, memory_needed, predicted, precision)
            steps.append(step)
            if step.result is StepResult.TAKEN:
                return Selection(target=step.target, list_name=name, steps=tuple(steps))
        if not own:
            steps.append(
                SelectionStep(
                    target=target, result=StepResult.NOT_HERE, reason=f"this machine has no target {target}"
                )
            )
    why = steps.pop().reason
    steps.append(SelectionStep(target=LAST_RESORT, result=StepResult.TAKEN, reason=f"no other target is left; {why}"))
    return Selection(target=LAST_RESORT, list_name=name, steps=tuple(steps))


def _consider(
    status: TargetStatus,
    memory_needed: int | None,
    predicted: Callable[[Target], Verdict] | None,
    precision: str,
) -> SelectionStep:
    if not status.expected:
        return SelectionStep(
            target=status.target, result=StepResult.NOT_HERE, reason=status.reason or "not available"
        )
    why_not = _not_preferred(status)
    if why_not:
        return SelectionStep(target=status.target, result=StepResult.NOT_PREFERRED, reason=why_not)
    if unasked := not_computed(Target.parse(status.target), precision):
        return SelectionStep(target=status.target, result=StepResult.NOT_COMPUTED, reason=unasked)
    where = status.device_name or status.target
    if memory_needed is None:
        reason = f"{where} is available; the memory that the model needs is unknown"
    elif status.memory_bytes is None:
        reason = f"{where} is available; its memory is unknown"
    else:
        sizes = f"{size_text(memory_needed)} needed, {size_text(status.memory_bytes)} available"
        if memory_needed > status.memory_bytes:
            return SelectionStep(target=status.target, result=StepResult.MEMORY_TOO_SMALL, reason=f"{where}: {sizes}")
        reason = f"{where} is available and large enough: {sizes}"
    verdict = predicted(Target.parse(status.target)) if predicted else None
    if verdict and verdict.level is Level.UNSUPPORTED and verdict.basis is Basis.PREDICTED:
        why = "; ".join(
            reason.text("text") for reason in verdict.reasons
        )  # reasons of a prediction are texts of rules
        return SelectionStep(
            target=status.target, result=StepResult.PREDICTED_TO_FAIL, reason=f"predicted unsupported: {why}"
        )
    return SelectionStep(target=status.target, result=StepResult.TAKEN, reason=reason)


def is_eligible(status: TargetStatus) -> bool:
    """Return whether a target may be here, on a device that makes it preferable to the processor."""
    return status.expected and not _not_preferred(status)


def _not_preferred(status: TargetStatus) -> str:
    target = Target.parse(status.target)
    for entry in data_file(_FILE)["needs_device"]:
        if entry["target"] != target.name:
            continue
        named = {target.variant, status.device_name.partition(" ")[0].partition(".")[0]}
        if named & set(entry.get("not_devices", ())) or ("devices" in entry and not named & set(entry["devices"])):
            return str(entry["reason"])
    return ""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Alternatives to a pair that doesn't work: other targets, or other models on the same target."""

    hardware: tuple[Verdict, ...]
    models: tuple[Verdict, ...]
    reasons: tuple[str, ...]


def suggest(
    present: Verdict,
    facts: Facts,
    rules: RuleSet,
    predicted: Callable[[Target], Verdict],
    models: Sequence[Described] = (),
    *,
    limit: int = 3,
) -> Suggestion:
    """Suggest other hardware for the model of a verdict, and models of its family that work better on its target.

    `present` is the verdict, predicted or measured, of the pair; `facts` are those of that pair, and `predicted`
    returns what rules predict for the model on other targets, each with its own facts; `models` are the candidates,
    those of the same architecture first. At most `limit` of each; an empty list has its reason.
    """
    cell = Cell.parse(present.cell)
    elsewhere = [Target(name=name) for name in _in_order(facts) if name != cell.target.name]
    hardware = [verdict for verdict in map(predicted, elsewhere) if _better(verdict, present)]
    hardware.sort(key=lambda verdict: -(verdict.level.rank or 0))
    others = [verdict for verdict in _similar(cell, facts, rules, models) if _better(verdict, present)]
    reasons = []
    if not hardware:
        reasons.append(f"no rule predicts a better level for {cell.model} on another target")
    if not others:
        family = facts.family or "unknown"
        reasons.append(f"no known {family} model has a better level on {cell.target}")
    return Suggestion(hardware=tuple(hardware[:limit]), models=tuple(others[:limit]), reasons=tuple(reasons))


def _similar(cell: Cell, facts: Facts, rules: RuleSet, models: Sequence[Described]) -> list[Verdict]:
    """Return predictions on the target of `cell` for the other models of the family, the same architecture first.

    Types have no size: their recipes describe tiny models.
    """
    family = [one for one in models if one.family == facts.family and one.model_type != facts.model_type]
    family.sort(key=lambda one: (one.architecture != facts.architecture, one.model_type))
    verdicts = []
    for one in family:
        asked = replace(cell, model=one.model_type, task=one.task)
        verdicts.append(predict(asked, facts_of(one, asked, facts.versions, platform=facts.platform), rules))
    return verdicts


def _in_order(facts: Facts) -> tuple[str, ...]:
    _, listed = priority_list(facts.family or "", facts.architecture or "", facts.traits)
    return tuple(dict.fromkeys((*listed, *vocabulary().hardware_types)))


def _better(verdict: Verdict, present: Verdict) -> bool:
    if not verdict.level.is_supported:
        return False
    return present.level is Level.UNKNOWN or (verdict.level.rank or 0) > (present.level.rank or 0)
