"""Remedies for a finding, from `recommendations/<error_type>.toml` and the diagnostic command of its target; other
hardware and similar models if nothing on the target helps."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.generators.compatibility.operators.operator_table import coverage
from hwcompat.generators.compatibility.verdict import Level, Verdict
from hwcompat.generators.compatibility.vocabulary import vocabulary
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.command_names import as_runnable, command_of
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.error_types import current_name
from hwcompat.hardware.target import Target

from .error_patterns import Diagnosis, KnownIssue
from .finding import Finding, Remedy

if TYPE_CHECKING:
    from hwcompat.generators.compatibility.selection import Suggestion
    from hwcompat.hardware.detection import HardwareInfo

# A file of advice: what helps for a `cause`, `first` anywhere, for a `target`, in `general`. An entry is a text, or
# a table: what to `do`, its `cost`, and `unless` for facts with which it doesn't apply: a target, a precision, or
# `fault known` if it only finds out whose fault it is. `file` has, in the same form, what helps for a graph file
# instead; `{cell}` is the cell's id. `device_in_question` adds the command that shows the device's
# state; `alternatives` adds other hardware and models.
_FOLDER = Path(__file__).with_name("recommendations")
_DIAGNOSTICS = Path(__file__).with_name("diagnostics.toml")
_FALLBACK = "unknown"
_COMMAND, _CELL = "{command}", "{cell}"

FAULT_KNOWN = "fault known"
FILE = "file"
EXAMPLE = "hwcompat run --model bert --device auto"


@functools.cache
def _advice(error_type: str) -> Mapping[str, Any]:
    path = _FOLDER / f"{error_type}.toml"
    if error_type not in advised_error_types():
        path = _FOLDER / f"{_FALLBACK}.toml"
    return tomllib.loads(as_runnable(path.read_text(encoding="utf-8")))


@functools.cache
def advised_error_types() -> tuple[str, ...]:
    """Return the error types that have a file of recommendations."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@functools.cache
def diagnostics() -> Mapping[str, Mapping[str, str]]:
    """Return each target's diagnostic `command`, or where to `look`, and its `minimum` versions."""
    return tomllib.loads(as_runnable(_DIAGNOSTICS.read_text(encoding="utf-8")))


def remedies(
    error_type: str,
    target: str,
    *,
    cause: str = "",
    command: str = "",
    cell: str = "",
    issues: Iterable[KnownIssue] = (),
    facts: Iterable[str] = (),
) -> tuple[Remedy, ...]:
    """Return what to do, the likeliest to help first: known issues, then for this cause, anywhere, for this target,
    and in general.

    If the device itself is in question, the target's minimum versions and its vendor's command follow. An unknown
    error type gets the advice for `unknown`; a variant of `target` is ignored. `command` runs the cell; without it an
    example is shown. `facts` leave out advice that doesn't apply: the precision, `FAULT_KNOWN`, and `FILE` for the
    `cell` of a graph file.
    """
    whole, facts = _advice(current_name(error_type)), tuple(facts)
    data = whole.get(FILE, whole) if FILE in facts else whole
    name = target.partition(":")[0]
    listed = [
        *(f"A known issue may explain it: {one.what} ({one.url}). Fix: {one.fixed}." for one in issues),
        *data.get("cause", {}).get(cause.lower(), ()),
        *data.get("first", ()),
        *data.get("target", {}).get(name, ()),
        *data.get("general", ()),
    ]
    vendor = diagnostics().get(name, {})
    if whole.get("device_in_question"):
        if "minimum" in vendor and FILE not in facts:  # versions of torch and of exporters
            listed.append(f"Check the versions: {vendor['minimum']}")
        if "command" in vendor:
            listed.append(f"Show the state of the device: `{vendor['command']}`")
        if "look" in vendor:
            listed.append(f"Show the state of the device: {vendor['look']}")
    without = {name, *facts}
    entries: list[Mapping[str, Any]] = [{"do": entry} if isinstance(entry, str) else entry for entry in listed]
    found = [
        Remedy(
            do=entry["do"].replace(_COMMAND, command or as_runnable(EXAMPLE)).replace(_CELL, cell or "CELL"),
            cost=entry.get("cost", {}),
        )
        for entry in entries
        if without.isdisjoint(entry.get("unless", ()))
    ]
    return tuple({one.text: one for one in found}.values())


def remedies_for(
    diagnosis: Diagnosis, target: str, *, command: str = "", cell: str = "", facts: Iterable[str] = ()
) -> tuple[Remedy, ...]:
    """Return the remedies for a diagnosis, with the known issues that may explain it."""
    return remedies(
        diagnosis.error_type,
        target,
        cause=diagnosis.cause,
        command=command,
        cell=cell,
        issues=diagnosis.issues,
        facts=facts,
    )


def recommend(error_type: str, target: str, *, cause: str = "", command: str = "") -> tuple[str, ...]:
    """Return the remedies as texts, each with its cost."""
    return tuple(one.text for one in remedies(error_type, target, cause=cause, command=command))


def asks_for_alternatives(error_type: str) -> bool:
    """Whether nothing on this target may help, so that other hardware or another model should be named."""
    return bool(_advice(current_name(error_type)).get("alternatives"))


def measuring_command(model: str, device: str, *, task: str = "", precision: str = "", force: bool = False) -> str:
    """Return the command that measures a cell, safe for a shell. `model` is the name that a user types."""
    words = ["--model", model]
    words += ["--task", task] if task else []
    words += ["--device", device]
    words += ["--precision", precision] if precision not in ("", "float32") else []
    return command_of("run", *words, *(["--force"] if force else []))


_MOST_FINDINGS = 10
_MOST_MODELS = 12
"""Predictions take a moment: only the worst findings get suggestions, from the nearest models."""

_OPERATOR = re.compile(r"\baten(?:\.|::)(\w{1,80})")


def with_alternatives(
    findings: Sequence[Finding], verdicts: Iterable[Verdict], inventory: HardwareInfo
) -> list[Finding]:
    """Return the findings, those that need it with other hardware and similar models. Nothing is run.

    `verdicts` are those of the cells: a model gets alternatives only if its own cell is low or unsupported.
    """
    by_cell = {one.cell: one for one in verdicts}
    left = _MOST_FINDINGS
    found = []
    for finding in findings:
        more = list(other_targets(finding))
        verdict = _poor(finding, by_cell)
        if verdict is not None and left:
            left -= 1
            more += _suggested(verdict, inventory)
        found.append(replace(finding, remedies=(*finding.remedies, *more)))
    return found


def other_targets(finding: Finding) -> tuple[Remedy, ...]:
    """Return targets whose tables have every operator of torch that a finding names; none if it names none."""
    if finding.error_type != "unsupported_operator":
        return ()
    names = [f"aten.{name}" for name in dict.fromkeys(_OPERATOR.findall(finding.message))]
    if not names:
        return ()
    having = [
        target
        for target in vocabulary().hardware_types
        if target != finding.hardware_type.partition(":")[0]
        and len(coverage(Target(name=target), names).supported) == len(names)
    ]
    if not having:
        return ()
    supported = f"{', '.join(names)} is supported on {', '.join(having)}"
    return (Remedy(do=f"Use other hardware: by the operator tables, {supported}."),)


def _poor(finding: Finding, by_cell: Mapping[str, Verdict]) -> Verdict | None:
    if not asks_for_alternatives(finding.error_type) or finding.model_name is None or len(finding.cells) != 1:
        return None
    verdict = by_cell.get(finding.cells[0])
    return verdict if verdict is not None and verdict.level in (Level.LOW, Level.UNSUPPORTED) else None


def _suggested(verdict: Verdict, inventory: HardwareInfo) -> list[Remedy]:
    from hwcompat.generators.compatibility.judge import published_or
    from hwcompat.generators.compatibility.rule_facts import facts_here
    from hwcompat.generators.compatibility.rules import load_rules, predict
    from hwcompat.generators.compatibility.selection import suggest
    from hwcompat.generators.models.recipe_store import load_recipe, stored_recipes

    cell = Cell.parse(verdict.cell)
    try:
        recipe = load_recipe(cell.model, cell.task)
    except HwCompatError:
        recipe = None
    if recipe is None:  # a checkpoint's slug or a type of another version, which rules don't know
        return []
    rules = load_rules()

    def predicted(target: Target) -> Verdict:
        asked = replace(cell, target=target)
        return published_or(predict(asked, facts_here(recipe, asked, inventory), rules))

    family = [one for one in stored_recipes() if one.family == recipe.family and one.model_type != recipe.model_type]
    family.sort(key=lambda one: (one.architecture != recipe.architecture, one.model_type))
    found = suggest(verdict, facts_here(recipe, cell, inventory), rules, predicted, family[:_MOST_MODELS])
    return [Remedy(do=f"Use {text}.") for text in suggested(found, cell)]


def suggested(found: Suggestion, cell: Cell) -> list[str]:
    """Return suggestions as text, each with its level and basis."""
    hardware = [f"{Cell.parse(one.cell).target} ({one.level}, {one.basis})" for one in found.hardware]
    models = [f"{Cell.parse(one.cell).model} ({one.level}, {one.basis})" for one in found.models]
    said = [f"other hardware for {cell.model}: {', '.join(hardware)}"] if hardware else []
    return said + ([f"a similar model on {cell.target}: {', '.join(models)}"] if models else [])
