"""`Facts`: all that a rule may look at, as plain values with `None` for what isn't known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from hardware.cell import Cell
from hardware.detection import HardwareInfo
from hardware.evidence.versions import versions_of

Value = str | int | tuple[str, ...] | None

TEXT_FIELDS = ("model_type", "family", "architecture", "task", "precision", "platform")
LIST_FIELDS = ("traits", "operators")
NUMBER_FIELDS = ("parameters", "memory_bytes")
VERSION_PREFIX = "versions."


class RecipeLike(Protocol):
    """What is needed of a recipe; `parameters` is a count, `operators` are aten operator names."""

    @property
    def model_type(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def traits(self) -> Sequence[str]: ...
    @property
    def task(self) -> str: ...
    @property
    def parameters(self) -> int | None: ...
    @property
    def operators(self) -> Sequence[str]: ...


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a model and of where it is to run.

    `parameters` is a count and `memory_bytes` what the model needs. `None` (for `operators` an empty tuple
    too) means not known, and no condition on it holds.
    """

    model_type: str | None = None
    family: str | None = None
    architecture: str | None = None
    traits: tuple[str, ...] = ()
    task: str | None = None
    parameters: int | None = None
    memory_bytes: int | None = None
    precision: str | None = None
    operators: tuple[str, ...] | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    platform: str | None = None

    def value(self, name: str) -> Value:
        """The fact that a rule calls `name`; `versions.torch` is the version of a package."""
        if name.startswith(VERSION_PREFIX):
            return self.versions.get(name.removeprefix(VERSION_PREFIX))
        found: Value = getattr(self, name)
        return found


def facts_of(
    recipe: RecipeLike,
    cell: Cell,
    versions: Mapping[str, str],
    *,
    platform: str | None = None,
    memory_bytes: int | None = None,
) -> Facts:
    """The facts of a recipe asked about in `cell`; the cell's task and precision are the ones that count."""
    return Facts(
        model_type=recipe.model_type,
        family=recipe.family,
        architecture=recipe.architecture,
        traits=tuple(recipe.traits),
        task=cell.task,
        parameters=recipe.parameters,
        memory_bytes=memory_bytes,
        precision=cell.precision,
        operators=tuple(recipe.operators),
        versions=dict(versions),
        platform=platform,
    )


def facts_here(recipe: RecipeLike, cell: Cell, inventory: HardwareInfo) -> Facts:
    """The facts of a recipe or a classification, asked about in `cell` on the machine of `inventory`.

    The one way in which predictions get their facts, so that the same question has the same answer everywhere.
    """
    return facts_of(recipe, cell, versions_of(inventory), platform=inventory.host.system)
