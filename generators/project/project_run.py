"""A run of a project: what is planned of it, what is kept, and how its result is judged and locked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from generators.compatibility.verdict import Words
from generators.job import JobResult
from generators.plan import PlannedSuite
from hardware.cells import Shard, choose_cells
from hardware.detection import HardwareInfo

from .finding import ProjectOutcome
from .lock import levels_to_lock, update_expected
from .outcome import judge_project, runs_of
from .planning import Override, left_out, plan_project
from .project_file import Project
from .reading import read_project


@dataclass(frozen=True, kw_only=True)
class ProjectRun:
    """A project with all its suites, and those that patterns and a shard keep; `override` beats the file.

    `left_by` are the options that the others were left out by.
    """

    project: Project
    override: Override
    planned: tuple[PlannedSuite, ...]
    kept: tuple[PlannedSuite, ...]
    left_by: str = "--select, --skip or --shard"

    @property
    def timeouts(self) -> dict[str, float]:
        """Seconds for a check by cell id, where the file says something."""
        found = {suite.cell.id: self.project.timeout_for(suite.cell) for suite in self.kept}
        return {cell: seconds for cell, seconds in found.items() if seconds is not None}

    def judge(self, result: JobResult, *, today: date, allow_fallback: bool, words: Words) -> ProjectOutcome:
        """What the result means to the project on the day `today`."""
        kept = {suite.cell.id for suite in self.kept}
        absent = left_out(self.project, self.planned, kept, self.override, self.left_by)
        runs = runs_of(result, allow_fallback=allow_fallback)
        return judge_project(self.project, runs, today, words=words, left_out=absent)

    def with_lock_of(self, result: JobResult, *, today: date) -> tuple[ProjectRun, tuple[str, ...]]:
        """Write what was measured into the lock; returns the run under the new file, and what is new in it.

        What wasn't measured, models that ran in place of a missing checkpoint, and cells of which a failure is
        accepted stay as they are. Raises as `update_expected`.
        """
        accepted = self.judge(result, today=today, allow_fallback=False, words=str).accepted
        stand_ins = {one.written.planned.cell.id for one in result.cells if one.written.planned.profile.stands_in_for}
        runs = runs_of(result, allow_fallback=False)
        levels = levels_to_lock({cell: run for cell, run in runs.items() if cell not in stand_ins}, accepted)
        changes = update_expected(self.project.path, levels)
        return replace(self, project=read_project(self.project.path)), changes


def plan_run(
    project: Project,
    inventory: HardwareInfo,
    override: Override,
    *,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    shard: Shard | None = None,
    template_folder: Path | None = None,
    on_note: Callable[[str], None] = lambda _text: None,
) -> ProjectRun:
    """Plan a run of the project; `on_note` as in `plan_job`. Raises as `plan_project` and `choose_cells` do."""
    planned = plan_project(project, inventory, override, template_folder=template_folder, on_note=on_note)
    kept = set(choose_cells([suite.cell.id for suite in planned], select=select, skip=skip, shard=shard))
    return ProjectRun(
        project=project,
        override=override,
        planned=planned,
        kept=tuple(suite for suite in planned if suite.cell.id in kept),
    )
