"""The explanation of a planned suite: the choice of the target, and the rules behind its prediction."""

from __future__ import annotations

from generators.compatibility.rules import RuleSet
from generators.models.classifier import Classification
from generators.models.given import GivenRecipe
from generators.models.recipe import Recipe
from generators.plan import PlannedSuite
from hardware.plain_text import WIDTH, labelled

from .wording import texts


def explanation(suite: PlannedSuite, rules: RuleSet, *, width: int = WIDTH) -> str:
    """Lines of a label and a text for one suite, without a line break at the end."""
    recipe, found = suite.profile.recipe, suite.profile.classification
    said = [
        ("Model", f"{found.model_type}: {_kind(found)}"),
        ("Known from", f"{found.source} ({found.confidence} confidence)"),
        ("Weights", f"{recipe.subject}, {recipe.parameters:,} parameters" + _made(recipe)),
    ]
    if suite.profile.note:
        said.append(("Note", suite.profile.note))
    if suite.selection:
        *passed, taken = suite.selection.steps
        said.append(("Chosen", f"{taken.target}: {taken.reason}"))
        said += [("Passed over", f"{step.target}: {step.reason}") for step in passed]
    said.append(("Predicted", f"{suite.verdict.level} ({suite.verdict.basis})"))
    said += [("Reason", reason) for reason in texts(suite.verdict.reasons)]
    said += [("Condition", condition) for condition in texts(suite.verdict.conditions)]
    for rule_id in suite.verdict.rule_ids:
        rule = rules.rule(rule_id)
        said.append(("Rule", f"{rule_id}, see {rule.source}"))
    if not suite.verdict.rule_ids:
        said.append(("Rule", "no rule applies, so nothing is predicted"))
    return "\n".join([suite.cell.id, *labelled(said, width=width)])


def _kind(found: Classification) -> str:
    """`family text, architecture encoder-only`, and the traits if the type has any."""
    traits = f", {', '.join(found.traits)}" if found.traits else ""
    return f"family {found.family}, architecture {found.architecture}{traits}"


def _made(recipe: Recipe | GivenRecipe) -> str:
    return (
        f", recipe of {recipe.library} {recipe.library_version}" if isinstance(recipe, Recipe) else f", {recipe.name}"
    )
