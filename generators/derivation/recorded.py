"""The numbers that a recipe keeps: 16 of one output, chosen so that small faults move them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardware.compare import Array, Outputs, scale_of
from hardware.output_masks import covering

from .measure import SUBTLE

_COUNT = 16


def record(
    reference: Outputs,
    among: Sequence[str],
    masks: Mapping[str, Array],
    *,
    faults: Sequence[Outputs] = (),
    seed: int,
    lengths: Sequence[int],
    origin: str,
) -> dict[str, Any]:
    """16 numbers of one output at seeded positions where its mask is 1 and that aren't ruled out, and its scale.

    The output is the first of those `among` which all `faults` (outputs under each) move by `SUBTLE`, else the one
    that they move most. Where a fault moves none of the numbers by that, it gets one of its own: where it is loudest.
    """
    moves = {name: [_moves(one, reference, name, masks.get(name)) for one in faults] for name in among}
    least = {name: min((float(one.max(initial=0.0)) for one in moves[name]), default=0.0) for name in among}
    output = next((name for name in among if least[name] >= SUBTLE), max(among, key=lambda name: least[name]))
    array, mask = reference[output], masks.get(output)
    positions = _drawn(array, mask, np.random.default_rng(seed))
    for number, move in enumerate(moves[output], 1):
        if max(move[tuple(place)] for place in positions) < SUBTLE:
            positions[-number] = [int(place) for place in np.unravel_index(move.argmax(), move.shape)]
    kept = array if mask is None else array[covering(mask, array)]
    return {
        "output": output,
        "positions": positions,
        "values": [float(f"{array[tuple(place)]:.10g}") for place in positions],
        "scale": float(f"{scale_of(kept):.6g}"),
        "seed": seed,
        "lengths": list(lengths),
        "origin": origin,
    }


def _drawn(array: Array, mask: Array | None, rng: np.random.Generator) -> list[list[int]]:
    """Positions that mean something, drawn at random."""
    meant = np.argwhere(np.ones(array.shape[:1]) if mask is None else mask)
    positions: list[list[int]] = []
    for place in rng.integers(0, len(meant), _COUNT):
        while True:
            rest = [int(rng.integers(0, size)) for size in array.shape[meant.shape[1] :]]
            position = [*map(int, meant[place]), *rest]
            if not np.isneginf(array[tuple(position)]):
                break
        positions.append(position)
    return positions


def _moves(fault: Outputs, reference: Outputs, name: str, mask: Array | None) -> Array:
    """How far each entry of an output moves, relative to its scale; 0 where it means nothing, or isn't comparable."""
    got, want = fault.get(name), reference[name]
    if got is None or got.shape != want.shape:
        return np.zeros(want.shape)
    kept = want if mask is None else want[covering(mask, want)]
    with np.errstate(invalid="ignore"):
        moves = np.abs(got - want) / scale_of(kept)
    moves = np.where(np.isfinite(moves), moves, 0.0)
    if mask is not None:
        meant = covering(mask, want)
        moves = moves * meant.reshape(*meant.shape, *[1] * (want.ndim - meant.ndim))
    return np.asarray(moves)
