"""Find the suite that measures an expired cell again: its model's name or path, and whether it is here.

A cell names a model type, or a user's model by a slug. The path behind a slug is in the commands of its runs, or on
the current command line. Evidence never decides which code runs: you must pass a module on the command line.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hwcompat.generators.compatibility.rules import RuleSet
from hwcompat.generators.compatibility.verdict import Reason
from hwcompat.generators.model_profile import Profile, checkpoint_slug, profile_of
from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.models.classification import classify_type, graph_path, kind_of
from hwcompat.generators.models.model_libraries import catalog_of, is_known, lacking
from hwcompat.generators.models.recipe_store import refusal_of
from hwcompat.generators.plan import PlanChoice, PlannedSuite, plan_suite
from hwcompat.hardware.backends.factory import known_targets
from hwcompat.hardware.cell import GRAPH_TASK, MODULE_TASK, PIECES_TASK, Cell, label_of, model_of_weights
from hwcompat.hardware.errors import HwCompatError, ModelError, echo
from hwcompat.hardware.expected_targets import why_absent
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.checkpoints import weights_hash

from .expired_cells import ExpiredCell


def why_not_here(one: ExpiredCell, inventory: HardwareInfo, names: Sequence[str]) -> tuple[Reason, ...]:
    """Return why a cell can't be measured again on this machine, as far as that is known without building anything;
    empty if it can. `names` are the models that the command line names."""
    if one.why_not:
        return one.why_not
    target = one.cell.target
    if target.name not in known_targets():
        return (Reason.of("text", text=f"no backend for {target} is installed"),)
    if absent := why_absent(target, inventory):
        return (Reason.of("text", text=f"{target} isn't available here: {absent}"),)
    try:
        name_of(one, names)
    except HwCompatError as error:
        return (Reason.of("text", text=str(error)),)
    return ()


def name_of(one: ExpiredCell, names: Sequence[str]) -> str:
    """Return the name of a cell's model: its type, or the path of a user's model.

    Raises `ModelError` if that is unknown or absent.
    """
    cell = one.cell
    is_module = cell.task == MODULE_TASK
    if one.weights == "tiny" or (one.weights == "config" and not is_module and not _in_commands(one)):
        return _type_of(cell)
    for name in (*names, *_in_commands(one)):
        if _may_mean(name, cell.model) and (name in names or not is_module) and _is_here(name):
            return name
        if one.weights == "config" and not is_module and _is_here(name) and cell.model in models_in_cells(name):
            return name  # the type, or the folder with the configuration, whose real widths ran
    raise ModelError(
        f"the path of {cell.model} is unknown here",
        why=_why_unnamed(one),
        fix=f"Pass it: --model {'package.module:factory' if is_module else 'PATH'}.",
    )


def plan_again(
    one: ExpiredCell,
    names: Sequence[str],
    devices: Iterable[Target],
    rules: RuleSet,
    inventory: HardwareInfo,
    *,
    template_folder: Path | None = None,
) -> PlannedSuite:
    """Return the suite of an expired cell, rendered with the current version; a missing recipe is derived.

    `devices` are those that the command line names: one of the cell's target is used and required. Raises
    `ModelError` or `BrokenInput` if there is none.
    """
    name = name_of(one, names)
    profile = _profile(one, name)
    named = next((device for device in devices if device.kind == one.cell.target), None)
    choice = PlanChoice(target=named or one.device, required=named is not None)
    planned = plan_suite(profile, choice, one.cell.precision, rules, inventory, template_folder=template_folder)
    if planned.cell != one.cell:
        raise ModelError(f"{echo(name)} is {planned.cell} now", why="another model was measured under this name")
    return planned


def _profile(one: ExpiredCell, name: str) -> Profile:
    cell = one.cell
    primary = (is_known(name) and classify_type(name).task == cell.task) or cell.task == PIECES_TASK
    dims = "real" if one.weights == "config" and cell.task != MODULE_TASK else "tiny"
    dims = "pieces" if cell.task == PIECES_TASK else dims
    profile = profile_of(name, None if primary else cell.task, dims=dims, inputs=_inputs_of(one))
    if profile.recipe.subject != one.weights:
        raise ModelError(
            f"{echo(name)} would run as {profile.recipe.subject}, not as {one.weights}",
            why=profile.note or "its weights aren't available here",
        )
    return profile


def _type_of(cell: Cell) -> str:
    if not is_known(cell.model):
        raise ModelError(f"no installed library has the model type {cell.model}")
    primary = classify_type(cell.model).task == cell.task
    if refusal := refusal_of(cell.model, None if primary else cell.task):
        raise ModelError(f"{cell.model} no longer has a suite", why=f"{refusal.obstacle}: {refusal.reason}")
    if missing := lacking(catalog_of(cell.model).library):
        raise ModelError(missing)
    return cell.model


def _inputs_of(one: ExpiredCell) -> Path | None:
    """Return the inputs that the newest run of a graph file's cell was given; None if it drew them. Raises
    `ModelError` if they are unknown."""
    if one.cell.task != GRAPH_TASK or not one.runs:
        return None
    run = one.runs[0]
    for name in _named_in(run.command, "--inputs"):
        return Path(name).expanduser()
    if any(line.conditions.get("inputs") == "given" for line in one.lines if line.run_id == run.run_id):
        raise ModelError(
            f"the inputs of {one.cell} are unknown here",
            why="its run took them from a project file",
            fix="Run it once with --inputs on the command line.",
        )
    return None


def _in_commands(one: ExpiredCell) -> tuple[str, ...]:
    """Return the models that the runs' commands name, those of the newest run first."""
    return tuple(dict.fromkeys(name for run in one.runs for name in _named_in(run.command, "--model")))


def _named_in(command: str, option: str) -> Iterator[str]:
    try:
        words = shlex.split(command)
    except ValueError:  # an unclosed quote: evidence may come from anywhere
        return
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--":
            return
        if word == option and following:
            yield following
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")


def _may_mean(name: str, model: str) -> bool:
    """Whether a name, of an existing or deleted model, is called `model` in a cell."""
    with contextlib.suppress(HwCompatError):  # a missing graph file, or no name at all
        if _slug_of(name) == label_of(model):
            return True
    return Path(name).name == label_of(model)


def _is_here(name: str) -> bool:
    try:
        return bool(kind_of(name)) or is_known(name) or classify(name).path is not None
    except (HwCompatError, OSError, RuntimeError):
        return False


def _why_unnamed(one: ExpiredCell) -> str:
    commands = [run.command for run in one.runs]
    gone = [name for name in _in_commands(one) if _may_mean(name, one.cell.model)]
    if gone and one.cell.task == MODULE_TASK:
        return f"it is code ({echo(gone[0])}), and code named only in evidence isn't run"
    if gone:
        return f"its run names {echo(gone[0])}, which doesn't exist here"
    if any("--config" in command for command in commands):
        return "its run took it from a project file; pass that file with --config"
    if not commands:
        return "its run line is missing"
    return f"the command of its run doesn't name it: {one_line(commands[0])}"


def models_in_cells(name: str) -> frozenset[str]:
    """Return possible models in a cell for a user's `name`: its type, or the slug.

    Raises `ModelError` or `BrokenInput` if no model has the name.
    """
    if is_known(name):
        return frozenset({name})
    known = classify(name)
    if known.path is not None and any(Path(known.path).glob("*.safetensors")):
        return frozenset({model_of_weights(_slug_of(name), weights_hash(Path(known.path)))})
    return frozenset({_slug_of(name), known.model_type})


def _slug_of(name: str) -> str:
    """Return the model in the cells of a checkpoint, a module or a file. Only reads folders."""
    return checkpoint_slug(graph_path(name).name if kind_of(name) == "graph" else name)
