"""`hwcompat explain CELL`: the rules and facts behind a prediction, what was measured, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hwcompat.generators.compatibility.explanation import Chain, explain
from hwcompat.generators.compatibility.imported import contradicted
from hwcompat.generators.compatibility.judge import judge
from hwcompat.generators.compatibility.published_rows import shipped_verdicts
from hwcompat.generators.compatibility.rule_facts import Facts, facts_here
from hwcompat.generators.compatibility.rules import load_rules, predict
from hwcompat.generators.compatibility.verdict import Level, Verdict, is_final
from hwcompat.generators.compatibility.vocabulary import vocabulary
from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.models.model_libraries import is_known
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import load_recipe, refusal_of
from hwcompat.generators.options import Options
from hwcompat.generators.project.project_reader import read_project
from hwcompat.generators.suites.render import checks_of, exercised_by
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.command_line import terminal_width
from hwcompat.hardware.errors import ModelError, UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.plain_text import WIDTH, json_text, labelled, printable
from hwcompat.hardware.testing.checks import all_checks

from .progress_bar import working_on
from .reason_text import reason_text, texts, with_texts

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo


_FUNCTIONS = 12
"""Functions with missing branches that a text names."""


@dataclass(frozen=True, kw_only=True)
class Exercised:
    """The branches of the modeling code that a suite's compared passes enter on the CPU, those missing by function
    and the number of those that aren't counted by reason (empty without a figure), and the checks that the suite
    doesn't have."""

    text: str
    missing: dict[str, list[str]]
    left_out: dict[str, int]
    not_asked: dict[str, str]

    @classmethod
    def by(cls, cell: Cell, recipe: Recipe) -> Exercised:
        """Return what the suite of a recipe exercises in a cell."""
        asked, text = checks_of(recipe, cell), exercised_by(recipe, cell)
        rest = {one.name: one.says for one in all_checks() if one not in asked}
        known = recipe.branches if text else {}
        return cls(
            text=text,
            missing=dict(known.get("missing", {})),
            left_out=dict(known.get("left_out", {})),
            not_asked=rest,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "branches": self.text,
            "missing": self.missing,
            "left_out": self.left_out,
            "not_asked": self.not_asked,
        }

    def lines(self) -> list[tuple[str, str]]:
        """Return labeled lines."""
        found = [("Exercises", self.text)] if self.text else []
        for index, (function, ways) in enumerate(list(self.missing.items())[:_FUNCTIONS]):
            found.append(("" if index else "Not entered", f"{function}: {'; '.join(ways)}"))
        if len(self.missing) > _FUNCTIONS:
            found.append(("", f"and branches of {len(self.missing) - _FUNCTIONS} other functions (--format json)"))
        for index, (reason, count) in enumerate(self.left_out.items()):
            found.append(("" if index else "Not counted", f"{count} branches: {reason}"))
        if self.not_asked:
            found.append(("Not asked", f"checks that aren't in this suite: {', '.join(self.not_asked)}"))
        found.append(("", "Only a tiny model is tested, no larger size."))
        return found


def report_explanation(asked: Options, text: str) -> int:
    """Print the chain; return the exit code. Raises `UsageError` if it isn't a cell."""
    cell = _cell(text)
    inventory = inventory_here()
    with working_on("judging the evidence"):
        measured = measured_verdict(asked, cell, inventory)
    if measured is None:
        _refuse_unknown(cell)
    imported = shipped_verdicts(cell.model).get(cell.id)
    if measured and imported:
        measured = contradicted(measured, imported)
    has_backend = cell.target.name in vocabulary().targets
    recipe = load_recipe(cell.model, cell.task) if has_backend and is_known(cell.model) else None
    exercised = None if recipe is None else Exercised.by(cell, recipe)
    facts = _facts(cell, inventory) if has_backend else Facts(task=cell.task, precision=cell.precision)
    rules = load_rules()
    predicted = predict(cell, facts, rules)
    chain = explain(cell.target, facts, rules)
    if asked.format_ == "json":
        answer = {
            "schema_version": 1,
            "cell": cell.id,
            "predicted": predicted.to_dict(),
            "measured": measured and measured.to_dict(),
            "imported": imported and imported.to_dict(),
            "chain": chain.to_dict(),
            "exercised": exercised and exercised.to_dict(),
        }
        click.echo(json_text(with_texts(answer)))
    else:
        text = chain_text(cell, predicted, measured, chain, exercised, imported, width=terminal_width())
        click.echo(printable(text, keep="\n"))
    return 0


def _cell(text: str) -> Cell:
    cell = Cell.parse(text)
    known = (*vocabulary().targets, *{Cell.parse(one).target.name for one in shipped_verdicts(cell.model)})
    if cell.target.name not in known:
        raise UsageError(
            f"unknown device {echo(cell.target.name)}",
            fix=did_you_mean(cell.target.name, known) or f"Known: {', '.join(vocabulary().targets)}.",
        )
    return cell


def _refuse_unknown(cell: Cell) -> None:
    """Raise for a cell that neither rules nor evidence cover."""
    found = classify(cell.model)
    if found.confidence == "low":
        raise UsageError(
            f"{echo(cell.model)} is not a known model type",
            why="rules apply to model types; use hwcompat explain --model NAME for a checkpoint",
        )
    recipe = load_recipe(cell.model, cell.task)
    if recipe is None and (primary := load_recipe(cell.model)):
        raise UsageError(
            f"there is no recipe of {cell.model} for the task {echo(cell.task)}",
            fix=did_you_mean(cell.task, [primary.task]) or f"Its primary task is {primary.task}.",
        )


def _facts(cell: Cell, inventory: HardwareInfo) -> Facts:
    try:
        known = load_recipe(cell.model, cell.task) or classify(cell.model)
    except ModelError:  # a checkpoint, or a user's own module or graph, that was measured
        from hwcompat.generators.models.classifier import classify_model

        known = classify_model(cell.label, tasks=[cell.task])
    return facts_here(known, cell, inventory)


def measured_verdict(asked: Options, cell: Cell, inventory: HardwareInfo) -> Verdict | None:
    """Return the verdict of a cell from the requested evidence; None if there is none."""
    if not asked.has_evidence:
        return None
    limits = read_project(asked.config).limits_of([cell.id]) if asked.config else {}
    verdicts = judge(read_latest(asked.evidence), inventory, own_limits=limits, cells=[cell.id])
    said = (one for one in verdicts if one.level is not Level.UNKNOWN or one.fault is not None or is_final(one))
    return next(said, None)


def chain_text(
    cell: Cell,
    predicted: Verdict,
    measured: Verdict | None,
    chain: Chain,
    exercised: Exercised | None = None,
    imported: Verdict | None = None,
    *,
    width: int = WIDTH,
) -> str:
    """Return the chain behind a cell's prediction as indented lines, with what was measured here and by others, and
    what its suite exercises."""
    said = [("Predicted", f"{predicted.level} ({predicted.basis})")]
    if measured:
        cleared = [one for one in measured.reasons if one.code == "cleared"]
        shown = "; ".join(texts([one for one in measured.reasons if one not in cleared][:2]))
        against = texts([one for one in measured.reasons if one.code == "contradicted"])
        said.append(("Measured", f"{measured.level} ({measured.basis}): {shown}"))
        said += [("", text) for text in against if text not in shown]
        said += [("Flaky", text) for text in texts(cleared)]
    if imported:
        said.append(("Imported", f"{imported.level} ({imported.basis})"))
        said += [("", text) for text in texts(imported.reasons)]
    if (refusal := refusal_of(cell.model, cell.task)) is not None:
        said.append(("No recipe", refusal.cause))
    for link in chain.links:
        level = f"at most {link.rule.level}" if link.rule.limit else str(link.rule.level)
        said.append((link.role.capitalize(), f"{level}: {link.rule.reason}"))
        said += [("", f"because {asked.text}") for asked in link.asked]
        said.append(("", f"rule {link.rule.id.partition('@')[0]} in {link.rule.file}, see {link.rule.source}"))
    if not chain.links:
        said.append(("Rules", reason_text(predicted.reasons[0])))
    said += [("Changed by" if i == 0 else "", text) for i, text in enumerate(chain.changes)]
    said += [] if exercised is None else exercised.lines()
    return "\n".join([cell.id, *labelled(said, width=width)])
