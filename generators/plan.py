"""Plan suites from options: a cell, a stored prediction and a suite's text for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwcompat.generators.compatibility.rule_facts import facts_here
from hwcompat.generators.compatibility.rules import RuleSet, predict
from hwcompat.generators.compatibility.selection import Selection, select
from hwcompat.generators.compatibility.verdict import Basis, Fault, Level, Reason, Verdict
from hwcompat.generators.compatibility.vocabulary import computing, not_computed
from hwcompat.generators.model_profile import Profile
from hwcompat.generators.models.given_recipe import GivenRecipe
from hwcompat.generators.suites.render import render, render_given
from hwcompat.generators.suites.suite_files import PlannedSuite as PlannedSuite
from hwcompat.hardware.backends.factory import GROUPS, backend_class, resolve_target
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import ModelMissing, UsageError
from hwcompat.hardware.expected_targets import TargetStatus
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.tolerances import OwnTolerance

ToleranceFor = Callable[[Cell], OwnTolerance | None]


@dataclass(frozen=True, kw_only=True)
class PlanChoice:
    """A device to run on. `required` if the user named it; `selection` if `auto` chose it."""

    target: Target
    required: bool
    selection: Selection | None = None


def choose_targets(
    devices: Sequence[str],
    profile: Profile,
    precision: str,
    statuses: Sequence[TargetStatus],
    predicted: Callable[[Target], Verdict] | None = None,
) -> tuple[PlanChoice, ...]:
    """Return the targets that `auto`, `all` (may be here), `known` (here or not) and names mean, each once.

    `predicted` returns the rules' verdict of the model on a target, so that `auto` skips targets where it is
    predicted to fail. Raises `UsageError` with a suggestion for an unknown name.
    """
    found: dict[Target, PlanChoice] = {}
    recipe = profile.recipe
    for device in devices or ["auto"]:
        if device.lower() == "auto":
            needed = profile.memory_needed(precision)
            chosen = select(
                recipe.family,
                recipe.architecture,
                recipe.traits,
                recipe.task,
                statuses,
                needed,
                predicted,
                precision=precision,
            )
            choices = [PlanChoice(target=Target.parse(chosen.target), required=False, selection=chosen)]
        elif device.lower() in GROUPS:
            taken = [status for status in statuses if status.expected or device.lower() == "known"]
            targets = [Target.parse(status.target) for status in taken]
            choices = [PlanChoice(target=t, required=False) for t in targets if not backend_class(t.name).SIMULATED]
        else:
            choices = [PlanChoice(target=resolve_target(device), required=True)]
        for choice in choices:
            before = found.setdefault(choice.target, choice)
            if choice.required and not before.required:  # named and chosen: the name makes it required
                found[choice.target] = choice
    _refuse_two_of_a_kind(found)
    return tuple(found.values())


def _refuse_two_of_a_kind(targets: Iterable[Target]) -> None:
    """Reject two devices of one kind in a run, because a cell has no index."""
    kinds: dict[Target, Target] = {}
    for target in targets:
        other = kinds.setdefault(target.kind, target)
        if other != target:
            raise UsageError(
                f"{other} and {target} can't be tested in one run",
                why="they are two devices of one kind, and evidence doesn't distinguish them",
                fix="Test each in a separate run, with a different --machine NAME.",
            )


def refuse_uncomputed(uncomputed: Sequence[tuple[PlanChoice, str]], *, alone: bool) -> tuple[str, ...]:
    """Return why targets that don't compute in a precision are left out, each reason once.

    Raises `UsageError` if nothing else was requested (`alone`), because nothing would be measured on the target.
    """
    left = {not_computed(choice.target, precision): precision for choice, precision in uncomputed}
    if left and alone:
        others = {precision: ", ".join(computing(precision)) for precision in left.values()}
        fix = " ".join(
            f"Targets that support {name}: {names}." if names else f"No target supports {name}."
            for name, names in others.items()
        )
        raise UsageError(f"no suite for {'; '.join(left)}", fix=fix)
    return tuple(left)


def predicted_for(
    profile: Profile, precision: str, rules: RuleSet, inventory: HardwareInfo
) -> Callable[[Target], Verdict]:
    """Return a function that gives the rules' verdict of a model for a target."""

    def predicted(target: Target) -> Verdict:
        own = profile.precision(precision)
        cell = Cell(model=profile.cell_model, task=profile.recipe.task, target=target.kind, precision=own)
        return predict(cell, facts_here(profile.recipe, cell, inventory, device=target), rules)

    return predicted


def plan_suite(
    profile: Profile,
    choice: PlanChoice,
    precision: str,
    rules: RuleSet,
    inventory: HardwareInfo,
    *,
    template_folder: Path | None = None,
    tolerance_for: ToleranceFor = lambda _cell: None,
    suites: Path | None = None,
) -> PlannedSuite:
    """Return the suite for one model on one target: predicted, then rendered.

    `tolerance_for` gives a repository's own tolerance for a cell; `suites` is the folder that the suite will be in.
    """
    own = profile.precision(precision)
    cell = Cell(model=profile.cell_model, task=profile.recipe.task, target=choice.target, precision=own)
    if profile.missing:
        return _missing(profile, cell, choice)
    verdict = predicted_for(profile, precision, rules, inventory)(choice.target)
    tolerance = tolerance_for(cell)
    return PlannedSuite(
        profile=profile,
        cell=cell,
        device=choice.target,
        verdict=verdict,
        text=_text(profile, cell, verdict, template_folder, tolerance, suites),
        required=choice.required,
        selection=choice.selection,
        tolerance=tolerance,
    )


def _missing(profile: Profile, cell: Cell, choice: PlanChoice) -> PlannedSuite:
    """Return the entry of a model whose weights aren't here: it has no suite and no prediction."""
    reason = Reason.of("weights_missing", message=profile.missing)
    verdict = Verdict(
        cell=cell.id, level=Level.UNKNOWN, basis=Basis.PREDICTED, fault=Fault.HARNESS, reasons=(reason,)
    )
    return PlannedSuite(
        profile=profile, cell=cell, device=choice.target, verdict=verdict, text="", required=choice.required
    )


def without_missing(
    planned: Sequence[PlannedSuite], refused: Sequence[str], unmet: Sequence[str]
) -> tuple[Sequence[PlannedSuite], Sequence[str], Sequence[str]]:
    """Return the suites of present models, and the other models as refused. Raises `ModelMissing` if none is here."""
    absent = {suite.profile.asked: suite.profile.missing for suite in planned if suite.profile.missing}
    left = [suite for suite in planned if not suite.profile.missing]
    if absent and not left:
        raise ModelMissing(f"the weights of {', '.join(absent)} are missing", why=next(iter(absent.values())))
    return left, [*refused, *(f"{name}: {why}" for name, why in absent.items())], [*unmet, *absent]


def _text(
    profile: Profile,
    cell: Cell,
    verdict: Verdict,
    template_folder: Path | None,
    tolerance: OwnTolerance | None,
    suites: Path | None,
) -> str:
    folder = _from_suites(profile.folder, suites)
    if isinstance(profile.recipe, GivenRecipe):
        return render_given(
            profile.recipe,
            cell,
            verdict.rule_ids,
            template_folder=template_folder,
            tolerance=tolerance,
            folder=folder,
            inputs_folder=_from_suites(profile.inputs, suites),
        )
    is_cached = profile.folder is not None and not Path(profile.asked).expanduser().is_dir()
    return render(
        profile.recipe,
        cell,
        verdict.rule_ids,
        template_folder=template_folder,
        tolerance=tolerance,
        folder="" if is_cached else folder,
        hub_id=profile.asked if is_cached else "",
    )


def _from_suites(folder: Path | None, suites: Path | None) -> str:
    """Return the relative path from a suite to a checkpoint's folder; empty if only the file system's root is
    above both, because a suite names no folders of one machine."""
    if folder is None or suites is None:
        return ""
    there, here = folder.resolve(), suites.resolve()
    if there.drive != here.drive or len(Path(os.path.commonpath([there, here])).parts) < 2:
        return ""
    return Path(os.path.relpath(there, here)).as_posix()
