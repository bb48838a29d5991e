"""Ranks documents by how similar their embeddings are to a query's."""

from __future__ import annotations

import numpy as np


def rank(query: np.ndarray, documents: np.ndarray) -> list[int]:
    """Row numbers of `documents` (count, width), the most similar to `query` (width,) first, by cosine."""
    norms = np.linalg.norm(documents, axis=1) * np.linalg.norm(query)
    return [int(row) for row in np.argsort(-(documents @ query) / norms, kind="stable")]
