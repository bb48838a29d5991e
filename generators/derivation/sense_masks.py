"""Masks over images and sounds: padding in what isn't text, where a model takes a mask of it and hears it.

Neither a signature nor a configuration says over which axes such a mask lies. The likely ones are tried on the model,
and the first that changes what comes out is right.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from generators.models.inputs import make_inputs
from hardware.compare import compare

from .measure import SUBTLE, run
from .modalities import Spec
from .scopes import attribute_of, roles

if TYPE_CHECKING:
    import torch


_MERGED = (1, 2, 4)
"""Frames that convolutions merge before attention reads a mask."""


def with_sense_masks(
    model: torch.nn.Module, specs: Mapping[str, Spec], lengths: Sequence[int], told: Collection[str]
) -> tuple[dict[str, Spec], tuple[str, ...]]:
    """`specs` with every mask over an image or a sound that `model` takes and hears, and the names of those that it
    may hear, but not as they are known here. Masks that it doesn't read aren't given; those `told` stay as they are.
    """
    found, unknown = dict(specs), []
    for name in inspect.signature(model.forward).parameters:
        if "mask" not in name or name in told or name in roles()["masks_not_given"]:
            continue
        if name in specs and specs[name]["kind"] != "ones":
            continue
        if name not in roles()["masks"]:
            unknown.append(name)
            continue
        covered = [specs[one] for one in roles()["masks"][name] if one in specs]
        taken = False
        for spec in (spec for one in covered for spec in _layouts(one, model)):
            moved = _moved(model, {**found, name: spec}, name, lengths)
            taken |= moved is not None
            if moved is not None and moved >= SUBTLE:
                found[name] = spec
                break
        else:
            if covered and not taken:
                unknown.append(name)
    return found, tuple(unknown)


def _moved(model: torch.nn.Module, specs: Mapping[str, Spec], name: str, lengths: Sequence[int]) -> float | None:
    """How far padding by the mask `name` moves the outputs from those without any; None where the model doesn't take
    it, or gives something that isn't finite."""
    padded = make_inputs(specs, 0, lengths)
    try:
        # Copies, because a codec keeps what it makes of its codes.
        plain = run(copy.deepcopy(model), {**padded, name: padded[name] | True})
        moved = compare(run(copy.deepcopy(model), padded), plain).max_rel_error
    except Exception:  # any error means the same: these aren't the mask's axes
        return None
    return moved if moved < math.inf else None


def _layouts(covered: Spec, model: torch.nn.Module) -> Iterator[Spec]:
    """The specifications that a mask over an input may have, the likeliest first: of whole numbers or of booleans."""
    if covered["kind"] in ("waveform", "frames", "tokens"):
        step, extra = covered.get("step", 1), covered.get("extra", 0)
        for merged in (one for one in _MERGED if one == 1 or (step % one == 0 and not extra)):
            plain = {"kind": "heard", "step": step // merged, "extra": extra}
            yield from (plain, {**plain, "boolean": True})
    for shape in _shapes(covered, model):
        plain = {"kind": "shown", "shape": shape}
        yield from (plain, {**plain, "boolean": True})


def _shapes(covered: Spec, model: torch.nn.Module) -> Iterator[list[int]]:
    if covered["kind"] == "flattened":
        yield [covered["side"] ** 2]
    shape = covered.get("shape", [])
    if covered["kind"] not in ("pixels", "features") or not all(isinstance(size, int) for size in shape):
        return
    if len(shape) > 2:
        images, sides = shape[:-3], shape[-2:]
        yield [*images, *sides]
        patch = attribute_of(getattr(model, "config", None), *roles()["config"]["patch"])
        if isinstance(patch, int):
            rows, columns = (side // patch for side in sides)
            yield from ([*images, rows, columns], [*images, rows * columns], [*images, rows * columns + 1])
    else:
        yield from ([size] for size in shape)
        yield list(shape)
