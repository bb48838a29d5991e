"""Inputs in which models find something: pages of text, and sounds with a pitch."""

from __future__ import annotations

import numpy as np

from ..compare import Array

RATE_HZ = 16_000
"""The rate of drawn sounds."""
_LETTER = (9, 6)
"""Height and width of a letter on a drawn page, in pixels."""
_APART = ((2, 3), (1, 1))
"""Empty pixels above and below a letter, and on both sides of it."""


def page(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> Array:
    """Return images from `low` to `high` with rows of dark letters. Their channels, which are equal, are axis 1 or
    the last."""
    channels = 1 if len(shape) == 4 and shape[1] in (1, 3, 4) else len(shape) - 1
    *batch, height, width = (size for axis, size in enumerate(shape) if axis != channels)
    images = []
    for _ in range(batch[0] if batch else 1):
        tall, wide = (size + sum(apart) for size, apart in zip(_LETTER, _APART, strict=True))
        rows, columns = -(-height // tall), -(-width // wide)
        strokes = np.kron(rng.random((rows, columns, 3, 2)) < 0.5, np.ones((3, 3), bool))
        drawn = np.pad(strokes, ((0, 0), (0, 0), *_APART)).transpose(0, 2, 1, 3).reshape(rows * tall, columns * wide)
        images.append(np.where(drawn[:height, :width], 0.1, rng.uniform(0.7, 1)))
    gray = np.stack(images) if batch else images[0]
    return low + (high - low) * np.broadcast_to(np.expand_dims(gray, channels), shape)


def tones(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return sounds from -1 to 1 along the longest axis: a pitch as of a voice, with overtones and a little noise."""
    axis = int(np.argmax(shape))
    rows, length = [size for place, size in enumerate(shape) if place != axis], shape[axis]
    pitch = rng.uniform(100, 400, [*rows, 1, 1]) * np.arange(1, 6)[:, None]
    phase = 2 * np.pi * (pitch * np.arange(length) / RATE_HZ + rng.random(pitch.shape))
    sound = (np.sin(phase) / np.arange(2, 7)[:, None]).sum(-2) * rng.uniform(0.3, 0.6, [*rows, 1])
    return np.moveaxis(sound + rng.normal(0, 1e-3, sound.shape), -1, axis)
