"""Whether two ways of decoding chose the same tokens, and what it means where they didn't."""

from __future__ import annotations

import numpy as np

from ..backends.base import Generation
from .measurement import Ambiguous
from .parity import is_meant, scale_of


def same_tokens(got: Generation, want: Generation, tolerance: float) -> bool:
    """Whether `got` chose the tokens of `want`, which float64 decoded.

    Raises `Ambiguous` where they part at a step at which float64 found its two best tokens closer together than the
    tolerance: either choice is right there.
    """
    if got.tokens.shape != want.tokens.shape or not is_meant(got.logits):
        return False
    different = got.tokens != want.tokens
    scale = scale_of(want.logits)
    close = False
    for row in np.flatnonzero(different.any(axis=1)):
        step = int(np.flatnonzero(different[row])[0])
        best = np.sort(want.logits[row, step])[-2:]
        if (best[1] - best[0]) / scale > 2 * tolerance:
            return False
        close = True
    if close:
        raise Ambiguous("tokens differ where float64's two best are closer together than the tolerance")
    return True
