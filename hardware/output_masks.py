"""The valid positions of outputs, given by the inputs that are masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]


def masks_of(masked_by: Mapping[str, str], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the masks for `compare`: by output, 1 for a valid position.

    `masked_by` names the input that is the mask of an output. An output with several positions for each position of
    the mask (return, state and action of a step) has their number as a factor: `attention_mask * 3`; an output with
    the positions of an image before those of the text has their number as a summand: `17 + attention_mask`.
    """
    import numpy as np

    found = {}
    for output, named in masked_by.items():
        before, _, rest = named.rpartition(" + ")
        name, _, times = rest.partition(" * ")
        if name in inputs:
            mask = inputs[name].repeat(int(times or 1), axis=1)
            found[output] = np.pad(mask, ((0, 0), (int(before or 0), 0)), constant_values=1)
    return found


def covering(mask: Array, array: Any) -> npt.NDArray[np.bool_]:
    """Return `mask` as booleans over the first two axes of `array`, True beyond its last position."""
    import numpy as np

    missing = max(0, array.shape[1] - mask.shape[1])
    return np.pad(mask.astype(bool), ((0, 0), (0, missing)), constant_values=True)
