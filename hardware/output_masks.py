"""Which positions of an output mean something: those of an input that is a mask, which `masked_by` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]


def masks_of(masked_by: Mapping[str, str], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The masks that `compare` takes: by output, 1 where a position means something.

    `masked_by` names the input that is the mask, for an output that has several positions for each of the mask's
    (a step's return, state and action) with their number behind it: `attention_mask * 3`; for one that has those of
    an image in front of the text's with their number before it: `17 + attention_mask`.
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
    """`mask` as booleans over the first two axes of `array`, true behind its own last position."""
    import numpy as np

    missing = max(0, array.shape[1] - mask.shape[1])
    return np.pad(mask.astype(bool), ((0, 0), (0, missing)), constant_values=True)
