"""Which of the measured cells a command line means: every option that chooses in a run chooses here as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from generators.chosen import choose_models
from generators.models.classifier import classify, kind_of
from generators.models.libraries import is_known
from generators.options import Options
from generators.profile import checkpoint_slug
from hardware.backends.factory import resolve_target
from hardware.cell import Cell, model_of_weights
from hardware.cells import Shard, choose_cells
from hardware.errors import NothingMatched
from hardware.target import Target
from hardware.testing.checkpoints import weights_hash

_ANY_DEVICE = ("auto", "all", "known")


def chosen_cells(
    asked: Options, cells: Sequence[str], *, read_list: Callable[[], Iterable[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of `cells` that the options mean, and the names of the models that they were chosen by.

    Raises `NothingMatched` where none fits, and what `choose_models` and `resolve_target` raise.
    """
    names: tuple[str, ...] = ()
    kept = [Cell.parse(id_) for id_ in cells]
    if asked.models or asked.priority or asked.architectures:
        measured = tuple(dict.fromkeys(cell.model for cell in kept if is_known(cell.model)))
        names = choose_models(
            asked.models or (() if asked.priority else measured),
            priority=asked.priority,
            architectures=asked.architectures,
            read_list=read_list,
        ).names
        wanted = {model for name in names for model in models_in_cells(name)}
        kept = [cell for cell in kept if cell.model in wanted or cell.label in wanted]
    targets = {device.kind for device in named_devices(asked)}
    kept = [cell for cell in kept if not targets or cell.target in targets]
    kept = [cell for cell in kept if not asked.precisions or cell.precision in asked.precisions]
    kept = [cell for cell in kept if not asked.tasks or "all" in asked.tasks or cell.task in asked.tasks]
    if not kept:
        raise NothingMatched(
            f"nothing that was asked for is among {len(cells)} measured cell(s)",
            why="--refresh measures again what was measured before",
            fix="Leave options out, or measure it for the first time with --run.",
        )
    shard = Shard.parse(asked.shard) if asked.shard else None
    return choose_cells([cell.id for cell in kept], select=asked.select, skip=asked.skip, shard=shard), names


def named_devices(asked: Options) -> tuple[Target, ...]:
    """The devices that were named; none where the words leave them open. Raises `UsageError` for an unknown one."""
    return tuple(resolve_target(device) for device in asked.devices if device.lower() not in _ANY_DEVICE)


def models_in_cells(name: str) -> frozenset[str]:
    """What may stand for a user's `name` in a cell: its type, or the slug of what they brought.

    Raises `ModelError` or `BrokenInput` for a name that stands for no model.
    """
    if is_known(name):
        return frozenset({name})
    known = classify(name)
    if known.path is not None and any(Path(known.path).glob("*.safetensors")):
        return frozenset({model_of_weights(slug_of(name), weights_hash(Path(known.path)))})
    return frozenset({slug_of(name), known.model_type})


def slug_of(name: str) -> str:
    """The model in the cells of a checkpoint, a module or a file; nothing is looked up for it but a folder."""
    return checkpoint_slug(Path(name).name if kind_of(name) == "graph" else name)
