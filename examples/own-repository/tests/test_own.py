"""The repository's own tests, beside the generated ones in tests/hwcompat."""

from __future__ import annotations

import numpy as np
from search import rank


def test_the_most_similar_document_comes_first():
    documents = np.array([[0.0, 1.0], [2.0, 0.1], [1.0, 1.0]])
    assert rank(np.array([1.0, 0.0]), documents) == [1, 2, 0]


def test_length_does_not_count():
    assert rank(np.array([1.0, 1.0]), np.array([[9.0, 0.0], [0.1, 0.1]])) == [1, 0]
