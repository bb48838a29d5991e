"""Whether a model fits into devices, and what its variants need: fewer bits, a shorter context, a smaller batch.

Works on stored estimates and imports no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.memory_fit import (
    AvailableMemory,
    Fit,
    MemoryEstimate,
    as_quantized,
    beside_model,
    fit,
)
from hwcompat.generators.compatibility.selection import LAST_RESORT
from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.recipes.memory_answer import MemoryAnswer, memory_answer
from hwcompat.hardware.backends.factory import declarations_of, resolve_target
from hwcompat.hardware.errors import BackendUnavailable
from hwcompat.hardware.inventory.target_status import NumberedCard, TargetStatus
from hwcompat.hardware.target import Target

_HALVINGS = 3
"""How often a batch is halved; a context is as often (`memory_request`)."""


@dataclass(frozen=True, kw_only=True)
class MemoryVariant:
    """A way to run the model: its differences from the request (none: the request itself) and its estimate."""

    differences: tuple[str, ...]
    estimate: MemoryEstimate

    def parts(self, *, on_host: bool) -> dict[str, int]:
        """Return the bytes of each part. Inputs and the workspace of kernels count as activations."""
        found = self.estimate if on_host else self.estimate.on_accelerator
        return {
            "weights": found.weights,
            "activations": found.activations + found.inputs + found.workspace,
            "cache": found.cache,
            "gradients": found.gradients,
            "optimizer": found.optimiser,
        }

    def fits(self, room: AvailableMemory) -> bool:
        """Return whether the variant fits into a device of known memory."""
        return sum(self.parts(on_host=room.is_host).values()) <= (room.available or 0)


@dataclass(frozen=True, kw_only=True)
class ModelFit:
    """A model's variants, the request first, and the answer of the request for each device."""

    model: str
    reads_text: bool
    variants: tuple[MemoryVariant, ...]
    fits: tuple[Fit, ...]
    notes: tuple[str, ...]

    @property
    def on_host(self) -> bool:
        """Whether all devices use the host's memory."""
        return all(one.room.is_host for one in self.fits)


def rooms_here(
    statuses: Iterable[TargetStatus],
    named: Sequence[str],
    cards_of: Callable[[str], Sequence[NumberedCard]] = lambda _vendor: (),
    used: Callable[[str, int], int | None] = lambda _vendor, _card: None,
) -> Iterator[AvailableMemory]:
    """Yield the memory of the named targets, or of all that are here and whose memory is known, without what torch
    takes there beside a model. It is that of one device, the smallest unless a name has an index into `cards_of`
    a vendor; `used` tells what programs hold on a card with a number in the inventory now, which counts as free.

    Raises `BackendUnavailable` for a named target that isn't here or whose memory isn't known, and `UsageError` for
    an unknown one.
    """
    wanted = [resolve_target(name) for name in named]
    for one in statuses:
        asked: list[Target | None] = [each for each in wanted if each.name == one.target]
        for target in asked or ([] if wanted else [None]):
            vendor, index = declarations_of(one.target).VENDOR, target.index if target else None
            cards = cards_of(vendor)
            card = cards[index] if index is not None and index < len(cards) else None
            lacks = index is not None and bool(cards) and card is None
            size = card.memory_bytes if card else one.memory_bytes
            if target and not (one.expected and size and not lacks):
                there = f"this machine has {len(cards)}" if lacks else "the size of its memory is unknown"
                raise BackendUnavailable(
                    f"can't compare with the memory of {target}",
                    why=there if one.expected else one.reason,
                    fix="Name a size: --memory 24GiB",
                )
            if one.expected and size:
                shown = card or (cards[0] if len(cards) == 1 else None)
                found = room_of(replace(one, memory_bytes=size), name=str(target or one.target))
                yield replace(found, used=used(vendor, shown.index) if shown else None)


def room_of(status: TargetStatus, *, name: str = "", why_unknown: str = "") -> AvailableMemory:
    """Return the memory of a target's device that models can have: without what torch takes beside them."""
    beside = beside_model(status.target) if status.memory_bytes else None
    taken = beside.ends[1] if beside else 0
    return AvailableMemory(
        name=name or status.target,
        available=None if status.memory_bytes is None else max(status.memory_bytes - taken, 0),
        why_unknown=why_unknown,
        is_host=status.target == LAST_RESORT,
        beside=beside,
    )


def fit_model(name: str, request: Mapping[str, Any], rooms: Sequence[AvailableMemory]) -> ModelFit:
    """Return whether a model fits into each device, and its variants: smaller ones only if it doesn't fit them all.

    `name` is a model type, a folder or a cached Hub id; `request` is how it is run, as in
    `generators.recipes.memory.memory_request.memory_of`. Raises `ModelError` if no estimate can be made.
    """
    found = classify(name)
    answer = memory_answer(found, request)
    if any(not fit(answer.estimates[0], (), answer.anatomy, room).fits for room in rooms):
        answer = memory_answer(found, {**request, "least_room": 0})
    base, *others = answer.estimates
    return ModelFit(
        model=Path(name).resolve().name if Path(name).is_dir() and found.path else found.model,
        reads_text=answer.reads_text,
        variants=tuple(variants(answer)),
        fits=tuple(fit(base, others, answer.anatomy, room) for room in rooms),
        notes=answer.notes,
    )


def variants(answer: MemoryAnswer) -> Iterator[MemoryVariant]:
    """Yield the request, its quantized variants, then the smaller requests of the answer, the last one also in four
    bits."""
    base, *others = answer.estimates
    yield MemoryVariant(differences=(), estimate=base)
    can_quantize = base.request.mode != "training" and answer.anatomy.linear > 0
    for bits in (8, 4) if can_quantize else ():
        yield MemoryVariant(differences=(f"int{bits}",), estimate=as_quantized(base, answer.anatomy, bits))
    for one in others:
        if one.request == replace(base.request, batch=1):
            others = [*_smaller_batches(base, one), *others]
    for one in others:
        yield MemoryVariant(differences=_differences(base, one), estimate=one)
    for one in others[-1:] if can_quantize else ():
        yield MemoryVariant(
            differences=(*_differences(base, one), "int4"), estimate=as_quantized(one, answer.anatomy, 4)
        )


def _differences(base: MemoryEstimate, other: MemoryEstimate) -> tuple[str, ...]:
    asked = other.request
    texts = {"precision": asked.precision, "context": f"{asked.context:,} tokens", "batch": f"batch {asked.batch}"}
    return tuple(text for name, text in texts.items() if getattr(asked, name) != getattr(base.request, name))


def _smaller_batches(base: MemoryEstimate, one: MemoryEstimate) -> Iterator[MemoryEstimate]:
    """Yield estimates for half of the batch and so on: memory grows linearly with the number of examples."""
    for halvings in range(1, _HALVINGS + 1):
        batch = base.request.batch >> halvings
        if batch > 1:
            share = (batch - 1) / (base.request.batch - 1)
            parts = {name: round(low + share * (base.parts[name] - low)) for name, low in one.parts.items()}
            yield MemoryEstimate(request=replace(base.request, batch=batch), **parts)
