"""From the command line to the run of a project: what was asked for beside `--config` beats the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from generators.chosen import choose_models
from generators.options import Options
from hardware.cells import Shard
from hardware.detection import HardwareInfo

from .planning import Override
from .project_run import ProjectRun, plan_run
from .reading import read_project


def plan_asked(
    asked: Options,
    config: Path,
    inventory: HardwareInfo,
    *,
    read_list: Callable[[], Iterable[str]],
    on_note: Callable[[str], None] = lambda _text: None,
) -> ProjectRun:
    """The run of the project file `config`, under the options of the command line; `on_note` as in `plan_job`.

    `--architectures` without names or a priority narrows the models of the file. Raises as `read_project`,
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
    override = Override(
        models=names,
        targets=asked.devices,
        tasks=asked.tasks,
        precisions=asked.precisions,
        dims=asked.dims,
        allow_tiny=asked.allow_tiny,
    )
    return plan_run(
        project,
        inventory,
        override,
        select=asked.select,
        skip=asked.skip,
        shard=Shard.parse(asked.shard) if asked.shard else None,
        template_folder=asked.template_dir,
        on_note=on_note,
    )
