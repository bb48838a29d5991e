"""`Facts`: everything that a rule may use, as plain values, with None for what isn't known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hwcompat.generators.models.classification import Classification
from hwcompat.generators.models.code_facts import code_facts
from hwcompat.generators.models.given_recipe import GivenRecipe
from hwcompat.generators.models.priority import openvino_exporters
from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.backends.factory import declarations_of
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.inventory.target_status import numbered
from hwcompat.hardware.target import Target

from .operators import coverage, registration

Value = str | int | float | tuple[str, ...] | None

VERSION_PREFIX = "versions."
CUDA = "cuda"

_NUMBER = re.compile(r"\d+\.\d+")


Described = Recipe | GivenRecipe | Classification
"""Descriptions of a model: `parameters` is a count, `operators` are aten operator names."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about a model and the target that it is to run on.

    `parameters` is a count and `memory_bytes` what the model needs. None (for `operators` also an empty tuple) means
    unknown, and no condition on it holds.

    From the recipe: `decodes` (`none causal seq2seq`), `senses` (the kinds of its inputs), `mask_heard` (how far
    dropping the mask moves the output), `float32_error` and `bfloat16_error` (errors against float64 on the CPU), all
    relative to the output's scale. From the type's code (`code_facts.py`): `padding_error`; `cache` (`right wrong
    fails`); `traced` (`any_length own_sizes no`) and `step_traced` (`yes no`); `trace_operators` and `largest_rank`,
    which a converter meets; `host_functions`, which work on host tensors wherever the weights are; `onnx_export`
    (`yes no`: whether an export gives torch's numbers on the host) and `onnx_operators` of that export. For some
    targets: `operators_missing`, the model's operators that the target's table lacks, and `exporter`,
    `optimum-intel` if that has one for the type, else `none`.

    For devices of torch, from the lists of its kernels: `registered` (`all some`: whether each operator has a kernel
    there) and `operators_on_host`, which the runtime computes on the host. `half_precision` is `works` if the
    recipe's model computes in bfloat16 on the CPU, else `fails`. `capability` is the CUDA compute capability of the
    target's card, the lowest of this machine's if it names none.
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
    operators_missing: tuple[str, ...] | None = None
    operators_on_host: tuple[str, ...] | None = None
    registered: str | None = None
    half_precision: str | None = None
    capability: float | None = None
    senses: tuple[str, ...] = ()
    decodes: str | None = None
    cache: str | None = None
    trace_operators: tuple[str, ...] | None = None
    largest_rank: int | None = None
    host_functions: tuple[str, ...] | None = None
    onnx_export: str | None = None
    onnx_operators: tuple[str, ...] | None = None
    exporter: str | None = None
    traced: str | None = None
    step_traced: str | None = None
    padding_error: float | None = None
    mask_heard: float | None = None
    float32_error: float | None = None
    bfloat16_error: float | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    platform: str | None = None

    def value(self, name: str) -> Value:
        """Return the fact that a rule calls `name`; `versions.torch` is the version of a package."""
        if name.startswith(VERSION_PREFIX):
            return self.versions.get(name.removeprefix(VERSION_PREFIX))
        found: Value = getattr(self, name)
        return found


def _fields(*kinds: str) -> tuple[str, ...]:
    return tuple(name for name, kind in Facts.__annotations__.items() if kind.startswith(kinds))


TEXT_FIELDS, LIST_FIELDS, NUMBER_FIELDS = _fields("str"), _fields("tuple"), _fields("int", "float")
"""The facts that a rule uses by name, besides versions."""


def facts_of(
    recipe: Described,
    cell: Cell,
    versions: Mapping[str, str],
    *,
    platform: str | None = None,
    capability: float | None = None,
    of_code: Mapping[str, Any] | None = None,
) -> Facts:
    """Return the facts of a recipe for `cell`; the cell's task and precision count. `of_code` is what
    `facts_of_code` returns for the recipe, for many cells."""
    tiny = recipe if isinstance(recipe, Recipe) else None
    return Facts(
        model_type=recipe.model_type,
        family=recipe.family,
        architecture=recipe.architecture,
        traits=tuple(recipe.traits),
        task=cell.task,
        parameters=recipe.parameters,
        precision=cell.precision,
        operators=tuple(recipe.operators),
        versions=dict(versions),
        platform=platform,
        capability=capability,
        **{**_of_kernels(recipe, cell.target), **(_of_recipe(tiny, cell) if tiny else {})},
        **(facts_of_code(recipe) if of_code is None else of_code),
    )


def _of_kernels(recipe: Described, target: Target) -> dict[str, Any]:
    found = registration(target, recipe.operators)
    if found is None:
        return {}
    return {
        "registered": found.answer,
        "operators_missing": found.missing,
        "operators_on_host": found.on_host,
    }


def _of_recipe(recipe: Recipe, cell: Cell) -> dict[str, Any]:
    backend = declarations_of(cell.target.name)
    return {
        "decodes": recipe.generate,
        **({"operators_missing": _missing(recipe, cell.target)} if backend.OPERATORS_TRIED else {}),
        "half_precision": _half_precision(recipe.sensitivity),
        "exporter": _exporter(recipe) if backend.OPTIMUM_EXPORTS else None,
        "senses": tuple(sorted({str(spec["kind"]) for spec in recipe.inputs.values()})),
        "mask_heard": recipe.sensitivity.get("mask_dropped"),
        "float32_error": recipe.sensitivity.get("float32_error"),
        "bfloat16_error": recipe.sensitivity.get("bfloat16_error"),
    }


def _half_precision(measured: Mapping[str, float]) -> str | None:
    if "float32_error" not in measured:
        return None
    return "works" if "bfloat16_error" in measured else "fails"


def _missing(recipe: Recipe, target: Target) -> tuple[str, ...] | None:
    """Return the operators that the target's table lacks; None instead of an empty tuple, which no rule may use."""
    return tuple(coverage(target, recipe.operators).missing)


def _exporter(recipe: Recipe) -> str | None:
    known = openvino_exporters()
    return None if known is None else "optimum-intel" if recipe.model_type in known else "none"


def facts_of_code(recipe: Described) -> dict[str, Any]:
    """Return what is known about the modeling code of a recipe, which is the same for all targets."""
    if not isinstance(recipe, Recipe) or recipe.subject != "tiny":
        return {}
    known = code_facts(recipe.model_type, recipe.task)
    if known is None or known.recipe != recipe.digest:
        return {}
    decodes = recipe.generate != "none"
    return {
        "padding_error": known.padding_error,
        "cache": known.cache if decodes else None,
        "traced": known.traced or None,
        "trace_operators": known.trace_operators,
        "largest_rank": known.largest_rank or None,
        "host_functions": known.host_functions,
        "onnx_export": known.onnx or None,
        "onnx_operators": known.onnx_operators or None,
        "step_traced": ("no" if known.step_fails else "yes") if decodes else None,
    }


def facts_here(
    recipe: Described,
    cell: Cell,
    inventory: HardwareInfo,
    *,
    device: Target | None = None,
    versions: Mapping[str, str] | None = None,
    of_code: Mapping[str, Any] | None = None,
) -> Facts:
    """Return the facts of a recipe or a classification for `cell` on the machine of `inventory`, on the card of
    `device` (by default the cell's target). `versions` are the inventory's, `of_code` the recipe's, for many cells.

    Every prediction gets its facts here, so that the same question has the same answer everywhere.
    """
    return facts_of(
        recipe,
        cell,
        versions_of(inventory) if versions is None else versions,
        platform=inventory.host.system,
        capability=_capability(inventory, device or cell.target) if cell.target.name == CUDA else None,
        of_code=of_code,
    )


def _capability(inventory: HardwareInfo, target: Target) -> float | None:
    vendor = declarations_of(CUDA).VENDOR
    cards = [one for one in inventory.accelerators if one.vendor == vendor and not one.simulated]
    if target.index is not None and target.index < len(known := numbered(inventory, vendor)):
        cards = [known[target.index]]
    found = [float(text) for one in cards if _NUMBER.fullmatch(text := one.compute_capability or "")]
    return min(found, default=None)
