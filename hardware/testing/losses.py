"""Labels for the logits of a model, and the loss that follows from both, computed by NumPy in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..compare import Array

if TYPE_CHECKING:
    import torch

NOT_COUNTED = -100
"""The label that a loss leaves out, by the convention of torch and transformers."""


def labels_for(inputs: Mapping[str, Array], logits: Array, kind: str) -> Array:
    """Return labels for logits: those of the text where that fits, without padding; the last three of the second row
    don't count."""
    if kind == "row":
        return np.asarray(np.arange(len(logits)) % logits.shape[-1])
    text = next((inputs[name] for name in ("decoder_input_ids", "input_ids") if name in inputs), None)
    if text is None or text.shape != logits.shape[:2]:
        text = np.arange(logits.shape[0] * logits.shape[1]).reshape(logits.shape[:2])
    labels = text % logits.shape[-1]
    mask = inputs.get("attention_mask")
    if mask is not None and mask.shape == labels.shape:
        labels[mask == 0] = NOT_COUNTED
    labels[1:, -3:] = NOT_COUNTED
    return np.asarray(labels)


def log_softmax(logits: Array) -> Array:
    """Return the natural logarithm of the probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def cross_entropy(logits: Array, labels: Array, kind: str) -> float:
    """Return the mean cross entropy of labels that count (not `NOT_COUNTED`), in natural logarithms."""
    if kind == "next":
        logits, labels = logits[:, :-1], labels[:, 1:]
    scores = log_softmax(logits).reshape(-1, logits.shape[-1])
    flat = labels.reshape(-1)
    counted = flat != NOT_COUNTED
    return float(-scores[counted, flat[counted]].mean())


def torch_cross_entropy(logits: torch.Tensor, labels: Array, kind: str) -> torch.Tensor:
    """Return `cross_entropy` as a tensor with a gradient."""
    import torch

    of = torch.from_numpy(labels)
    if kind == "next":
        logits, of = logits[:, :-1], of[:, 1:]
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), of.reshape(-1), ignore_index=NOT_COUNTED
    )


def shifted_right(labels: Array, start: int, padding: int) -> Array:
    """Return a decoder's tokens for labels: `start`, then the labels but the last; `padding` if not counted."""
    begun = np.full((len(labels), 1), start)
    tokens = np.concatenate([begun, labels[:, :-1]], axis=1)
    return np.where(tokens == NOT_COUNTED, padding, tokens)
