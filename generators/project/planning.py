"""From a project file to planned suites: its models on its targets, unless the command line says something else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from generators.chosen import tasks_of
from generators.job import plan_job
from generators.plan import PlannedSuite
from generators.profile import Profile, profile_of
from hardware.cell import Cell
from hardware.detection import HardwareInfo
from hardware.errors import HwCompatError, UsageError, echo

from .project_file import Project, ProjectModel

_DEPENDS_ON_MACHINE = {"auto", "all"}


@dataclass(frozen=True, kw_only=True)
class Override:
    """What the command line or the environment says instead of the file; empty where it says nothing.

    `models` may name models that the file doesn't: they get the file's defaults. `dims` and
    `allow_tiny` are what the options of these names say.
    """

    models: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    dims: str = "tiny"
    allow_tiny: bool = False

    def __bool__(self) -> bool:
        return bool(self.models or self.targets or self.tasks or self.precisions)


def plan_project(
    project: Project,
    inventory: HardwareInfo,
    override: Override,
    *,
    template_folder: Path | None = None,
    on_note: Callable[[str], None] = lambda _text: None,
) -> tuple[PlannedSuite, ...]:
    """Every suite of the project, in the order of the file; `on_note` as in `plan_job`.

    Raises `UsageError` with all models that can't be planned, for a cell that two entries ask for, and for a pattern
    that fits no cell.
    """
    planned: dict[str, tuple[PlannedSuite, ProjectModel]] = {}
    problems: list[str] = []
    for model in _models(project, override):
        try:
            profiles = _profiles(project, model, override)
            suites = _suites(project, model, profiles, inventory, template_folder, on_note)
        except HwCompatError as error:
            problems.append(_at(model.line, str(error)))
            continue
        for suite in suites:
            _, first = planned.setdefault(suite.cell.id, (suite, model))
            if first is not model:
                problems.append(_at(model.line, f"{suite.cell.id} is asked for already in line {first.line}"))
    cells = [suite.cell for suite, _ in planned.values()]
    if not problems and not override:
        problems += _idle_patterns(project, cells)
    if problems:
        raise UsageError(f"{project.name} cannot be planned", why="; ".join(text.rstrip(".") for text in problems))
    return tuple(suite for suite, _ in planned.values())


def left_out(
    project: Project, planned: Sequence[PlannedSuite], kept: Collection[str], override: Override, left_by: str
) -> dict[str, str]:
    """Cells of the lock and of accepted failures that the command line left out, with the options that did.

    `planned` are all suites, `kept` the ids of those that run, `left_by` the options that chose among them. A cell
    that nobody left out and that isn't planned either is missing: it isn't among these.
    """
    cells = [suite.cell for suite in planned]
    named = [*project.expected, *(entry.cell for entry in project.accepted)]
    ids = {cell.id for cell in cells}
    found = {}
    for id_ in dict.fromkeys(named):
        if id_ in kept:
            continue
        if id_ in ids:
            found[id_] = left_by
        elif options := _overriding(Cell.parse(id_), cells, override):
            found[id_] = " and ".join(options)
    return found


def _overriding(cell: Cell, planned: Sequence[Cell], override: Override) -> list[str]:
    given = {
        "--model": (override.models, cell.label in {one.label for one in planned}),
        "--device": (override.targets, cell.target in {one.target for one in planned}),
        "--tasks": (override.tasks, cell.task in {one.task for one in planned}),
        "--precision": (override.precisions, cell.precision in {one.precision for one in planned}),
    }
    return [option for option, (values, is_there) in given.items() if values and not is_there]


def _models(project: Project, override: Override) -> Iterable[ProjectModel]:
    known = {model.name for model in project.models}
    chosen = list(project.models)
    if override.models:
        chosen = [model for model in project.models if model.name in override.models]
        chosen += [
            ProjectModel(name=name, targets=project.targets, precisions=project.precisions, line=0)
            for name in override.models
            if name not in known
        ]
    for model in chosen:
        yield replace(
            model,
            targets=override.targets or model.targets,
            precisions=override.precisions or model.precisions,
            tasks=override.tasks or model.tasks,
        )


def _suites(
    project: Project,
    model: ProjectModel,
    profiles: Sequence[Profile],
    inventory: HardwareInfo,
    template_folder: Path | None,
    on_note: Callable[[str], None],
) -> tuple[PlannedSuite, ...]:
    return plan_job(
        profiles,
        model.targets,
        model.precisions,
        inventory,
        template_folder=template_folder,
        tolerance_for=project.tolerance_for,
        on_note=on_note,
    )


def _profiles(project: Project, model: ProjectModel, override: Override) -> list[Profile]:
    name = _located(project, model.name) if model.line else model.name
    return [
        profile_of(name, task, model.revision, dims=override.dims, allow_tiny=override.allow_tiny)
        for task in tasks_of(name, model.tasks)
    ]


def _located(project: Project, name: str) -> str:
    """A model's name as it is looked up: a folder of the repository by its path, anything else as it is.

    Raises `UsageError` for a folder that doesn't lie in the repository, wherever a link or the working folder leads.
    """
    inside = project.root / name
    elsewhere = Path.cwd() != project.root and Path(name).exists()
    if inside.exists() or name.startswith("./"):
        if not inside.resolve().is_relative_to(project.root):
            raise UsageError(f"{echo(name)} leads out of the repository", why="models of a project lie inside it")
        return name if Path.cwd() == project.root else str(inside)
    if elsewhere:
        raise UsageError(
            f"{echo(name)} is not in the repository",
            why=f"it lies in the working folder, and {project.name} lies elsewhere",
            fix="Name it with --model instead.",
        )
    return name


def _idle_patterns(project: Project, cells: Sequence[Cell]) -> list[str]:
    """A pattern that fits nothing is a mistake, unless which cells there are depends on the machine."""
    if any(_DEPENDS_ON_MACHINE & set(model.targets) for model in project.models):
        return []
    idle = [
        _at(entry.line, f"the pattern {echo(entry.cells)} of [[timeout]] fits no cell")
        for entry in project.timeouts
        if not any(cell.matches(entry.cells) for cell in cells)
    ]
    idle += [
        _at(entry.line, f"the pattern {echo(entry.cells)} of [[tolerance]] fits no cell")
        for entry in project.tolerances
        if not any(cell.matches(entry.cells) and entry.precision in ("", cell.precision) for cell in cells)
    ]
    return idle


def _at(line: int, text: str) -> str:
    return f"line {line}: {text}" if line else text
