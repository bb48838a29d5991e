"""One row of a batch by itself: its inputs without padding, and its part of the batch's outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ..compare import Array
from ..output_masks import covering


def row_alone(
    inputs: Mapping[str, Array],
    row: int,
    batch: int,
    *,
    unpadded: Mapping[str, str],
    without: Collection[str] = (),
    shared: Collection[str] = (),
) -> dict[str, Array]:
    """Return the inputs of one of `batch` rows as a batch of one.

    Inputs are split along their first axis; those that are `shared`, and one whose size isn't a multiple of `batch`,
    are the same for all rows. `unpadded` names, for an input, the mask by which its padding is removed, with the
    input's axis if that isn't the second one: `attention_mask @ 2`. `without` names inputs that aren't given, so that
    the model uses its defaults.
    """
    found = {name: array if name in shared else _share(array, row, batch) for name, array in inputs.items()}
    shown = dict(found)  # masks themselves lose their padding below
    for name, how in unpadded.items():
        mask, axis = _mask_and_axis(how)
        columns = shown[mask].astype(bool).reshape(-1, shown[mask].shape[-1]).any(axis=0)
        kept = np.repeat(columns, found[name].shape[axis] // columns.size)
        found[name] = np.compress(kept, found[name], axis=axis)
    return {name: array for name, array in found.items() if name not in without}


def _mask_and_axis(how: str) -> tuple[str, int]:
    mask, _, axis = how.partition(" @ ")
    return mask, int(axis or 1)


def _share(array: Array, row: int, batch: int, axis: int = 0) -> Array:
    if array.ndim <= axis or array.shape[axis] % batch:
        return array
    size = array.shape[axis] // batch
    return array.take(range(row * size, (row + 1) * size), axis=axis)


def repadded(
    inputs: Mapping[str, Array],
    side: str,
    fill: int,
    *,
    unpadded: Mapping[str, str],
    without: Collection[str] = (),
) -> dict[str, Array]:
    """Return inputs whose rows are padded on a `side`, tokens with `fill` and others with 0 (see `row_alone`)."""
    batch = len(inputs["input_ids"])
    rows = [row_alone(inputs, row, batch, unpadded=unpadded, without=without) for row in range(batch)]
    found = {}
    for name in rows[0]:
        parts = [row[name] for row in rows]
        if name in unpadded:
            _, axis = _mask_and_axis(unpadded[name])
            longest = max(part.shape[axis] for part in parts)
            parts = [_padded(part, side, longest, axis, fill if name == "input_ids" else 0) for part in parts]
        found[name] = inputs[name] if len(parts[0]) == len(inputs[name]) else np.concatenate(parts)
    return found


def _padded(part: Array, side: str, length: int, axis: int, value: int) -> Array:
    gap = length - part.shape[axis]
    ends = [(0, 0)] * part.ndim
    ends[axis] = (gap, 0) if side == "left" else (0, gap)
    return np.pad(part, ends, constant_values=value)


def share_of_row(
    whole: Mapping[str, Array], masks: Mapping[str, Array], row: int, batch: int, like: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the part of a batch's outputs that belongs to one row.

    `masks` mark the valid positions of outputs; `like` are the outputs of the row alone, whose shapes show the axes
    of the batch (two for similarities of every image with every text) and how much of an unmasked output, such as
    the frames of a sound, isn't padding. Single numbers and losses are of the batch, and left out.
    """
    found = {}
    for name, array in whole.items():
        alone = like.get(name)
        if alone is None or not array.ndim or name.endswith("loss"):
            continue
        if alone.ndim != array.ndim:  # an axis is lost for a batch of one
            found[name] = _share(array, row, batch)
            continue
        for axis in range(array.ndim):
            if array.shape[axis] == batch * alone.shape[axis]:
                array = _share(array, row, batch, axis)
        mask = masks.get(name)
        if mask is not None and array.ndim > 1 and array.shape[1] != alone.shape[1]:
            array = array[:, covering(_share(mask, row, batch), array).any(axis=0)]
        if array.ndim > 1 and array.shape[1] > alone.shape[1]:
            array = array[:, : alone.shape[1]]
        found[name] = array
    return found
