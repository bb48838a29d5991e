"""What to try instead where nothing on a target helps: other hardware, and models like it; from rules and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from generators.compatibility.operators.covered import coverage
from generators.compatibility.verdict import Level, Verdict
from generators.compatibility.vocabulary import vocabulary
from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.target import Target

from .advice import asks_for_alternatives
from .finding import Finding
from .remedy import Remedy

if TYPE_CHECKING:
    from hardware.detection import HardwareInfo

_MOST_FINDINGS = 10
_MOST_MODELS = 12
"""Predictions take a moment: the worst findings get suggestions, from the models that are nearest to theirs."""

_OPERATOR = re.compile(r"\baten(?:\.|::)(\w{1,80})")


def with_alternatives(
    findings: Sequence[Finding], verdicts: Iterable[Verdict], inventory: HardwareInfo
) -> list[Finding]:
    """The findings, those that ask for it with other hardware and models like theirs. Nothing is run.

    `verdicts` are what the cells came to: a model is replaced only where its own cell is rated low or none.
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
        texts = tuple(one.text for one in more)
        found.append(
            replace(
                finding,
                recommendations=(*finding.recommendations, *texts),
                remedies=(*finding.remedies, *more),
            )
        )
    return found


def other_targets(finding: Finding) -> tuple[Remedy, ...]:
    """Targets whose tables have every operator of torch that a finding names; none where it names none."""
    if finding.error_type != "unsupported_operator":
        return ()
    names = [f"aten.{name}" for name in dict.fromkeys(_OPERATOR.findall(finding.message))]
    if not names:
        return ()
    having = [
        target
        for target in vocabulary().hardware_types
        if target != finding.hardware_type.partition(":")[0] and _has(target, names)
    ]
    if not having:
        return ()
    return (
        Remedy(do=f"Use other hardware: by the tables of operators {', '.join(names)} is on {', '.join(having)}."),
    )


def _has(target: str, names: Sequence[str]) -> bool:
    return len(coverage(Target(name=target), names).supported) == len(names)


def _poor(finding: Finding, by_cell: Mapping[str, Verdict]) -> Verdict | None:
    if not asks_for_alternatives(finding.error_type) or finding.model_name is None or len(finding.cells) != 1:
        return None
    verdict = by_cell.get(finding.cells[0])
    return verdict if verdict is not None and verdict.level in (Level.LOW, Level.UNSUPPORTED) else None


def _suggested(verdict: Verdict, inventory: HardwareInfo) -> list[Remedy]:
    from generators.compatibility.facts import facts_here
    from generators.compatibility.rules import load_rules, predict
    from generators.compatibility.selection import suggest
    from generators.models.store import load_recipe, stored_recipes

    cell = Cell.parse(verdict.cell)
    try:
        recipe = load_recipe(cell.model, cell.task)
    except HwCompatError:
        recipe = None
    if recipe is None:  # a checkpoint's slug, or a type of another version: rules know nothing of it
        return []
    rules = load_rules()

    def predicted(target: Target) -> Verdict:
        asked = replace(cell, target=target)
        return predict(asked, facts_here(recipe, asked, inventory), rules)

    family = [one for one in stored_recipes() if one.family == recipe.family and one.model_type != recipe.model_type]
    family.sort(key=lambda one: (one.architecture != recipe.architecture, one.model_type))
    found = suggest(verdict, facts_here(recipe, cell, inventory), rules, predicted, family[:_MOST_MODELS])
    hardware = [f"{Cell.parse(one.cell).target} ({one.level}, {one.basis})" for one in found.hardware]
    models = [f"{Cell.parse(one.cell).model} ({one.level}, {one.basis})" for one in found.models]
    said = []
    if hardware:
        said.append(Remedy(do=f"Use other hardware for {cell.model}: {', '.join(hardware)}."))
    if models:
        said.append(Remedy(do=f"Use a similar model on {cell.target}: {', '.join(models)}."))
    return said
