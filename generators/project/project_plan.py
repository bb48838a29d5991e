"""Plan a run of a project: select its suites, under the command line's options, and judge and lock its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from hwcompat.generators.chosen_models import choose_models, tasks_of
from hwcompat.generators.compatibility.verdict import Level, Words
from hwcompat.generators.model_profile import profile_of
from hwcompat.generators.models.given_recipe import FACTORY, factory_parts
from hwcompat.generators.options import Options
from hwcompat.generators.plan import PlannedSuite
from hwcompat.generators.run import JobResult, plan_job
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.cell_selection import Shard, choose_cells
from hwcompat.hardware.errors import HwCompatError, OutputError, UsageError, echo
from hwcompat.hardware.files import write_whole
from hwcompat.hardware.inventory.hardware_info import HardwareInfo

from .expected_results import read_expected
from .project_file import Project, ProjectModel
from .project_finding import ProjectOutcome
from .project_outcome import CellRun, judge_project, runs_of
from .project_reader import parse_project, read_project, read_text
from .toml_table import positions

_DEPENDS_ON_MACHINE = {"auto", "all"}


_HEADER = re.compile(r"\s*\[\s*expected\s*\]\s*(#.*)?")
_VALUE = re.compile(r"""(=\s*)(["'])[a-z]+\2""")


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """The new text of a project file, and its changes, one line per cell."""

    text: str
    changes: tuple[str, ...]


def levels_to_lock(runs: Mapping[str, CellRun], accepted: Mapping[str, str]) -> dict[str, Level]:
    """Return the levels that a run measured, by cell, without cells that have an accepted failure."""
    return {
        cell: run.verdict.level
        for cell, run in runs.items()
        if run.is_measured and not any(line.evidence_id in accepted for line in run.lines)
    }


def with_expected(text: str, path: Path, levels: Mapping[str, Level]) -> LockChange:
    """Return the text of a project file with these levels in its lock; other cells and comments stay.

    Raises `UsageError` if the table isn't written as [expected] with one cell per line.
    """
    project = parse_project(text, path)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    changes: list[str] = []
    for cell, level in levels.items():
        before = project.expected.get(cell)
        if before is not None and before.level != level:
            place = before.line - 1
            changed, count = _VALUE.subn(rf"\g<1>\g<2>{level}\g<2>", lines[place], count=1)
            if count != 1:
                raise _not_by_line(path)
            lines[place] = changed
            changes.append(f"{cell}: {before.level} -> {level}")
    new = [f'"{cell}" = "{level}"{newline}' for cell, level in sorted(levels.items()) if cell not in project.expected]
    changes += [f"{line.strip()} is new" for line in new]
    if new:
        _insert(lines, new, text, path, newline)
    changed_text = "".join(lines)
    again = parse_project(changed_text, path).expected
    if any(again[cell].level is not level for cell, level in levels.items()):
        raise _not_by_line(path)
    return LockChange(text=changed_text, changes=tuple(changes))


def _insert(lines: list[str], new: list[str], text: str, path: Path, newline: str) -> None:
    span = positions(text).get(("expected",))
    if span is None:
        lines += [newline, f"[expected]{newline}", *new]
    elif _HEADER.fullmatch(lines[span.first - 1].strip()):
        lines[span.last : span.last] = new
    else:
        raise _not_by_line(path)


def _not_by_line(path: Path) -> UsageError:
    return UsageError(
        f"the lock of {path.name} can't be updated",
        why="it needs one cell per line below a header [expected]",
        fix='Write [expected] on its own line, followed by lines such as "bert/fill-mask/cpu/float32" = "high".',
    )


def update_expected(path: Path, levels: Mapping[str, Level]) -> tuple[str, ...]:
    """Write levels into the lock of a project file atomically, and return the changes.

    Raises `UsageError` or `BrokenInput` for an invalid file, `OutputError` if it can't be written.
    """
    change = with_expected(read_text(path), path, levels)
    if not change.changes:
        return ()
    target = path.resolve()
    try:
        write_whole(target, change.text, mode=target.stat().st_mode & 0o777)
    except OSError as error:
        raise OutputError(f"{path} can't be written", why=error.strerror or str(error)) from error
    return change.changes


@dataclass(frozen=True, kw_only=True)
class ProjectRun:
    """A project with all its suites, and those that patterns and a shard keep. The command line's options, `asked`,
    override the file; `names` are its models, empty for those of the file.

    `left_by` are the options that left the other suites out.
    """

    project: Project
    asked: Options
    names: tuple[str, ...]
    planned: tuple[PlannedSuite, ...]
    kept: tuple[PlannedSuite, ...]
    left_by: str = "--select, --skip or --shard"

    @property
    def timeouts(self) -> dict[str, float]:
        """Time limits of a check in seconds by cell id, as far as the file sets them."""
        found = {suite.cell.id: self.project.timeout_for(suite.cell) for suite in self.kept}
        return {cell: seconds for cell, seconds in found.items() if seconds is not None}

    @property
    def left_out(self) -> dict[str, str]:
        """Cells of the lock and of accepted failures that the command line left out, with the options that did.

        A cell that isn't planned for another reason is missing and not among these.
        """
        cells = [suite.cell for suite in self.planned]
        ids, kept = {cell.id for cell in cells}, {suite.cell.id for suite in self.kept}
        named = [*self.project.expected, *(entry.cell for entry in self.project.accepted)]
        found = {
            id_: self.left_by if id_ in ids else self._overriding(id_, cells) for id_ in named if id_ not in kept
        }
        return {id_: options for id_, options in found.items() if options}

    def _overriding(self, id_: str, planned: Sequence[Cell]) -> str:
        cell, asked = Cell.parse(id_), self.asked
        given = {
            "--model": (self.names, cell.label in {one.label for one in planned}),
            "--device": (asked.devices, cell.target in {one.target for one in planned}),
            "--tasks": (asked.tasks, cell.task in {one.task for one in planned}),
            "--precision": (asked.precisions, cell.precision in {one.precision for one in planned}),
            self.left_by: (not self.project.models and (asked.select or asked.skip or asked.shard), False),
        }
        return " and ".join(option for option, (values, is_there) in given.items() if values and not is_there)

    def judge(self, result: JobResult, *, today: date, allow_fallback: bool, words: Words) -> ProjectOutcome:
        """Return the findings for the result on the day `today`."""
        runs = runs_of(result, allow_fallback=allow_fallback)
        return judge_project(self.project, runs, today, words=words, left_out=self.left_out)

    def with_lock_of(self, result: JobResult, *, today: date) -> tuple[ProjectRun, tuple[str, ...]]:
        """Write the measured levels into the lock; return the run under the new file, and the changes.

        Cells that weren't measured, that ran a tiny model in place of a missing checkpoint, or that have an accepted
        failure stay unchanged. Raise as `update_expected` does.
        """
        accepted = self.judge(result, today=today, allow_fallback=False, words=str).accepted
        replaced = {one.written.planned.cell.id for one in result.cells if one.written.planned.profile.stands_in_for}
        runs = runs_of(result, allow_fallback=False)
        levels = levels_to_lock({cell: run for cell, run in runs.items() if cell not in replaced}, accepted)
        changes = update_expected(self.project.path, levels)
        return replace(self, project=read_project(self.project.path)), changes


def with_lock_file(asked: Options, project: ProjectRun | None, planned: Sequence[PlannedSuite]) -> ProjectRun | None:
    """Return the run with the lock of `--expected` in place of the project file's; without a project file, one with
    nothing else. Raises as `read_expected` does."""
    if asked.expected is None:
        return project
    expected = read_expected(asked.expected)
    if project is not None:
        return replace(project, project=replace(project.project, expected=expected))
    lock = Project(path=asked.expected, models=(), targets=(), precisions=(), expected=expected)
    suites = tuple(planned)
    names = tuple(dict.fromkeys(suite.cell.label for suite in suites))
    return ProjectRun(project=lock, asked=asked, names=names, planned=suites, kept=suites)


def plan_asked(
    asked: Options,
    config: Path,
    inventory: HardwareInfo,
    *,
    read_list: Callable[[], Iterable[str]],
    on_note: Callable[[str], None] = lambda _text: None,
) -> ProjectRun:
    """Plan a run of the project file `config` under the options of the command line; `on_note` as in `plan_job`.

    `--architectures` without names or a priority narrows the models of the file. Raise as `read_project`,
    `choose_models` and `plan_run` do.
    """
    project = read_project(config)
    names: tuple[str, ...] = ()
    if asked.models or asked.priority or asked.architectures:
        names = choose_models(
            asked.models or (() if asked.priority else [model.name for model in project.models]),
            priority=asked.priority,
            architectures=asked.architectures,
            read_list=read_list,
        ).names
    return plan_run(project, asked, names, inventory, on_note=on_note)


def plan_run(
    project: Project,
    asked: Options,
    names: tuple[str, ...],
    inventory: HardwareInfo,
    *,
    on_note: Callable[[str], None] = lambda _text: None,
) -> ProjectRun:
    """Plan all suites of the project in the order of the file, and keep those that were selected. Models in `names`
    that the file doesn't name get the file's defaults.

    Raises `UsageError` with all models that can't be planned, for a cell that two entries ask for, and for a pattern
    that matches no cell; and as `choose_cells` does.
    """
    planned: dict[str, tuple[PlannedSuite, ProjectModel]] = {}
    problems: list[str] = []
    for model in _models(project, asked, names):
        try:
            suites = _suites(project, model, asked, inventory, on_note)
        except HwCompatError as error:
            problems.append(_at(model.line, str(error)))
            continue
        for suite in suites:
            _, first = planned.setdefault(suite.cell.id, (suite, model))
            if first is not model:
                problems.append(_at(model.line, f"{suite.cell.id} is already in line {first.line}"))
    every = tuple(suite for suite, _ in planned.values())
    if not (problems or names or asked.devices or asked.tasks or asked.precisions):
        problems += _idle_patterns(project, [suite.cell for suite in every])
    if problems:
        raise UsageError(
            f"{project.name} has entries that can't be planned", why="; ".join(text.rstrip(".") for text in problems)
        )
    shard = Shard.parse(asked.shard) if asked.shard else None
    kept = choose_cells(tuple(planned), select=asked.select or (), skip=asked.skip or (), shard=shard)
    left = tuple(suite for suite in every if suite.cell.id in kept)
    return ProjectRun(project=project, asked=asked, names=names, planned=every, kept=left)


def _models(project: Project, asked: Options, names: Collection[str]) -> Iterator[ProjectModel]:
    known = {model.name for model in project.models}
    chosen = [model for model in project.models if not names or model.name in names]
    chosen += [
        ProjectModel(name=name, targets=project.targets, precisions=project.precisions, line=0)
        for name in names
        if name not in known
    ]
    for model in chosen:
        yield replace(
            model,
            targets=asked.devices or model.targets,
            precisions=asked.precisions or model.precisions,
            tasks=asked.tasks or model.tasks,
        )


def _suites(
    project: Project, model: ProjectModel, asked: Options, inventory: HardwareInfo, on_note: Callable[[str], None]
) -> tuple[PlannedSuite, ...]:
    name = _located(project, model.name, asked.allow_code) if model.line else model.name
    inputs = asked.inputs or (Path(_located(project, model.inputs)) if model.inputs else None)
    profiles = [
        profile_of(
            name,
            task,
            model.revision,
            dims=asked.dims,
            length=asked.length,
            allow_tiny=asked.allow_tiny,
            inputs=inputs,
        )
        for task in tasks_of(name, model.tasks)
    ]
    return plan_job(
        profiles,
        model.targets,
        model.precisions,
        inventory,
        template_folder=asked.template_dir,
        tolerance_for=project.tolerance_for,
        on_note=on_note,
    )


def _located(project: Project, name: str, allow_code: bool = False) -> str:
    """Return the path of a folder of the repository for its name, or the name itself.

    Raises `UsageError` for a folder outside the repository, also through a link or the working folder, and for code
    without `allow_code` or outside the repository.
    """
    if FACTORY.fullmatch(name):
        _require_own_code(project, name, allow_code)
        return name
    inside = project.root / name
    elsewhere = Path.cwd() != project.root and Path(name).exists()
    if inside.exists() or name.startswith("./"):
        if not inside.resolve().is_relative_to(project.root):
            raise UsageError(
                f"{echo(name)} is outside the repository", why="models of a project file must be inside it"
            )
        return name if Path.cwd() == project.root else str(inside)
    if elsewhere:
        raise UsageError(
            f"{echo(name)} isn't in the repository",
            why=f"it is in the working directory, but {project.name} is in another folder",
            fix="Name it with --model instead.",
        )
    return name


def _require_own_code(project: Project, name: str, allow_code: bool) -> None:
    if not allow_code:
        raise UsageError(
            f"{echo(name)} is code, which a project file alone doesn't run",
            why="whoever changes the file would choose it",
            fix="Add --allow-code if you trust this repository.",
        )
    if Path.cwd() != project.root:
        raise UsageError(f"{echo(name)} is imported from the folder of {project.name}", fix="Run the command there.")
    path = project.root.joinpath(*factory_parts(name)[0].split("."))
    files = [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()]
    if not any(one.resolve().is_relative_to(project.root) for one in files):
        raise UsageError(
            f"the code of {echo(name)} isn't in the repository", why="models of a project file must be inside it"
        )


def _idle_patterns(project: Project, cells: Sequence[Cell]) -> list[str]:
    """Return the patterns that match no cell, unless the cells depend on the machine."""
    if any(_DEPENDS_ON_MACHINE & set(model.targets) for model in project.models):
        return []
    entries = [("timeout", one.line, one.cells, "") for one in project.timeouts]
    entries += [("tolerance", one.line, one.cells, one.precision) for one in project.tolerances]
    return [
        _at(line, f"the pattern {echo(pattern)} of [[{kind}]] matches no cells")
        for kind, line, pattern, precision in entries
        if not any(cell.matches(pattern) and precision in ("", cell.precision) for cell in cells)
    ]


def _at(line: int, text: str) -> str:
    return f"line {line}: {text}" if line else text
