"""The loss whose gradients are compared: a weighted sum of all outputs, the same on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..output_masks import covering

if TYPE_CHECKING:
    from .base import Array


def loss_weights(shape: tuple[int, ...], mask: Array | None = None) -> Array:
    """What each element of an output of this shape weighs: the cosine of its index, so that no two count alike,
    divided by their number.

    What an output holds where its `mask` is 0 means nothing and weighs nothing: there a mask of large numbers
    swallows the scores in one precision and not in another.
    """
    import numpy as np

    size = int(np.prod(shape))
    weights: Array = np.cos(0.7 * np.arange(size, dtype=np.float64)).reshape(shape) / max(1, size)
    if mask is None:
        return weights
    meant = covering(mask, weights)
    weighed: Array = weights * meant.reshape(*meant.shape, *[1] * (weights.ndim - meant.ndim))
    return weighed
