"""Output about planned, written, compared or verified suites: lines of text, or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.cell import GRAPH_TASK
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.plain_text import WIDTH, json_text, labelled, printable

if TYPE_CHECKING:
    from hwcompat.generators.compatibility.rules import RuleSet
    from hwcompat.generators.compatibility.selection import Selection
    from hwcompat.generators.plan import PlannedSuite
    from hwcompat.generators.suites.suite_files import FolderState
    from hwcompat.generators.suites.verify import Publication, Verification
    from hwcompat.hardware.expected_targets import TargetStatus

SCHEMA_VERSION = 1


def cells_text(planned: Sequence[PlannedSuite], format_: str) -> str:
    """Return the cells of planned suites, one on each line; as JSON with their predictions."""
    if format_ == "json":
        return json_text({"schema_version": SCHEMA_VERSION, "cells": [_planned(suite) for suite in planned]})
    return printable("\n".join(suite.cell.id for suite in planned), keep="\n")


def explained_text(planned: Sequence[PlannedSuite], format_: str, *, width: int = WIDTH) -> str:
    """Return why each planned suite has its target and prediction."""
    from hwcompat.generators.compatibility.rules import load_rules
    from hwcompat.hardware.basic_detection import inventory_here
    from hwcompat.hardware.expected_targets import targets

    rules = load_rules()
    if format_ == "json":
        cells = [_planned(suite) | _why(suite, rules) for suite in planned]
        return json_text({"schema_version": SCHEMA_VERSION, "cells": cells})
    statuses = targets(inventory_here()) if any(suite.selection for suite in planned) else ()
    texts = (explanation(suite, rules, statuses, width=width) for suite in planned)
    return printable("\n\n".join(texts), keep="\n")


def explanation(
    suite: PlannedSuite, rules: RuleSet, statuses: Sequence[TargetStatus] = (), *, width: int = WIDTH
) -> str:
    """Return the choice of a suite's target and the rules behind its prediction, one labeled line each, without a
    newline at the end. `statuses` are those of the machine's targets."""
    from hwcompat.generators.models.recipe import Recipe

    from .reason_text import texts

    recipe, found = suite.profile.recipe, suite.profile.classification
    made = recipe.name if not isinstance(recipe, Recipe) else f"recipe of {recipe.library} {recipe.library_version}"
    traits = "".join(f", {trait}" for trait in found.traits)
    said = [
        ("Model", f"{found.model_type}: family {found.family}, architecture {found.architecture}{traits}"),
        ("Known from", f"{found.source} ({found.confidence} confidence)"),
        ("Weights", f"{recipe.subject}, {recipe.parameters:,} parameters, {made}"),
    ]
    if suite.cell.task == GRAPH_TASK:
        numbers = f"{recipe.parameters:,} floating-point numbers, computes in {suite.cell.precision}"
        said = [("Model", f"the file {made}: {numbers}")]
    if suite.profile.note:
        said.append(("Note", suite.profile.note))
    if suite.profile.apart:
        said.append(("Settings", f"in no suite of {found.model_type}: {', '.join(suite.profile.apart)}"))
    if suite.selection:
        said += selection_texts(suite.selection, statuses)
    said.append(("Predicted", f"{suite.verdict.level} ({suite.verdict.basis})"))
    said += [("Reason", reason) for reason in texts(suite.verdict.reasons)]
    said += [("Condition", condition) for condition in texts(suite.verdict.conditions)]
    for rule_id in suite.verdict.rule_ids:
        rule = rules.rule(rule_id)
        said.append(("Rule", f"{rule_id}, see {rule.source}"))
    if not suite.verdict.rule_ids:
        said.append(("Rule", "no rule applies, so there is no prediction"))
    return "\n".join([suite.cell.id, *labelled(said, width=width)])


def selection_texts(selection: Selection, statuses: Sequence[TargetStatus]) -> list[tuple[str, str]]:
    """Return, with labels, why `auto` selected a target, and why it didn't select each other target that may be
    available. `statuses` are those of the machine's targets."""
    from hwcompat.generators.compatibility.selection import StepResult
    from hwcompat.hardware.backends.factory import backend_class

    *others, taken = selection.steps
    usable = [step for step in others if step.result is not StepResult.NOT_HERE]
    absent = [step.target for step in others if step.result is StepResult.NOT_HERE]
    considered = {step.target.partition(":")[0] for step in selection.steps}
    unlisted = [
        one.target
        for one in statuses
        if one.expected
        and one.target not in considered
        and not one.device_name.startswith("emulated")
        and not backend_class(one.target).SIMULATED
    ]
    said = [("Selected", f"auto selected {taken.target}: {taken.reason}")]
    said += [("", f"not {step.target}: {step.reason}") for step in usable]
    if unlisted:
        why = f"the priority list `{selection.list_name}` doesn't name it; select it with --device"
        said.append(("", f"not {', '.join(unlisted)}: {why}"))
    if absent:
        said.append(("", f"not available: {', '.join(absent)} ({as_runnable('hwcompat devices list')} shows why)"))
    return said


def written_text(folder: Path, said: Mapping[str, str], format_: str, command: str) -> str:
    """Return the suites in `folder`; `said` has each file's prediction, JSON the command that runs them."""
    if format_ == "json":
        files = []
        for name, text in said.items():
            level, _, basis = text.partition(", ")
            files.append({"path": str(folder / name), "predicted": {"level": level, "basis": basis}})
        return json_text({"schema_version": SCHEMA_VERSION, "suites": files, "run": command})
    return "\n".join(printable(f"{folder / name}  ({text})") for name, text in said.items())


def compared_text(state: FolderState, format_: str) -> str:
    """Return a folder's suites compared with those that would be generated now."""
    if format_ == "json":
        files = [{"name": one.path.name, "state": str(one.state), "reason": one.reason} for one in state.files]
        return json_text({"schema_version": SCHEMA_VERSION, "suites": files, "notes": list(state.notes)})
    return "\n".join(map(printable, state.lines))


def verified_text(found: Verification, format_: str) -> str:
    """Return which suites compile, are collected, pass, and fail when their model is broken."""
    if format_ == "json":
        return json_text({"schema_version": SCHEMA_VERSION, "suites": _verified(found)})
    return printable(as_runnable(found.text()), keep="\n")


def published_text(found: Publication, format_: str) -> str:
    """Return what was verified, and which suites were published or kept back."""
    if format_ == "json":
        names = ("published", "kept_back", "taken_away", "edited")
        became = {name: list(getattr(found, name)) for name in names}
        return json_text(
            {
                "schema_version": SCHEMA_VERSION,
                "suites": _verified(found.verification),
                "folder": str(found.folder),
                **became,
            }
        )
    return printable(as_runnable(found.text()), keep="\n")


def _planned(suite: PlannedSuite) -> dict[str, Any]:
    return {"cell": suite.cell.id, "predicted": suite.verdict.to_dict()}


def _why(suite: PlannedSuite, rules: RuleSet) -> dict[str, Any]:
    found = suite.profile.classification
    steps = suite.selection.steps if suite.selection else ()
    return {
        "model": {
            "type": found.model_type,
            "family": found.family,
            "architecture": found.architecture,
            "traits": list(found.traits),
            "source": found.source,
            "confidence": found.confidence,
        },
        "subject": str(suite.profile.recipe.subject),
        "parameters": suite.profile.recipe.parameters,
        "note": suite.profile.note,
        "settings_apart": list(suite.profile.apart),
        "targets": [{"target": str(step.target), "reason": step.reason} for step in steps],
        "rules": [{"id": id_, "source": rules.rule(id_).source} for id_ in suite.verdict.rule_ids],
    }


def _verified(found: Verification) -> list[dict[str, Any]]:
    names = ("compiles", "collected", "passes", "mutant", "caught_by", "skipped", "problem")
    return [
        {
            "name": one.path.name,
            "cell": one.cell.id if one.cell else None,
            **{name: getattr(one, name) for name in names},
        }
        for one in found.suites
    ]
