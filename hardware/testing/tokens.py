"""At which steps two ways of decoding chose other tokens, and what it means where they did."""

from __future__ import annotations

import numpy as np

from ..backends.base import Generation
from ..compare import is_meant, scale_of
from .measurement import Ambiguous


def different_tokens(got: Generation, want: Generation, tolerance: float) -> list[str]:
    """Where `got` first chose another token than `want`, which float64 decoded, in words: one for each row.

    Raises `Ambiguous` where they part only at steps at which float64 found the two tokens closer together than the
    tolerance: either choice is right there.
    """
    if got.tokens.shape != want.tokens.shape:
        return [f"tokens of shape {got.tokens.shape}, float64's {want.tokens.shape}"]
    if not is_meant(got.logits):
        return ["logits that are no numbers"]
    different = got.tokens != want.tokens
    scale = scale_of(want.logits)
    found = []
    for row in np.flatnonzero(different.any(axis=1)):
        step = int(np.flatnonzero(different[row])[0])
        chosen, right = int(got.tokens[row, step]), int(want.tokens[row, step])
        if not (want.logits[row, step, right] - want.logits[row, step, chosen]) / scale <= 2 * tolerance:
            found.append(f"row {row}, step {step}: token {chosen}, float64's {right}")
    if different.any() and not found:
        raise Ambiguous("tokens differ where float64's logits of both are closer together than the tolerance")
    return found
