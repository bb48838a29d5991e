"""At which token two ways of decoding part, or that it is undecided because float64 doesn't choose either."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.backends.base import Generation
from hardware.testing.capability_checks import different_tokens
from hardware.testing.measurement import Ambiguous

LOGITS = np.random.default_rng(0).standard_normal((2, 3, 8))
UNDECIDED = LOGITS.copy()
UNDECIDED[0, 0] = 0.0
UNDECIDED[0, 0, [3, 5]] = 4.0


def generation(logits: np.ndarray = LOGITS, tokens: np.ndarray | None = None) -> Generation:
    chosen = logits.argmax(axis=-1) if tokens is None else tokens
    return Generation(tokens=chosen, logits=logits, start=np.zeros((2, 1), dtype=np.int64))


def differences(wrong: dict[tuple[int, int], int], logits: np.ndarray) -> list[str]:
    """Compare a generation with float64's after some of its tokens, by row and step, were replaced."""
    tokens = logits.argmax(axis=-1)
    for place, token in wrong.items():
        tokens[place] = token
    return different_tokens(generation(logits, tokens), generation(logits), 1e-5)


def test_the_first_other_token_of_a_row_is_named() -> None:
    assert differences({}, LOGITS) == []
    right = LOGITS.argmax(axis=-1)[1, 1:]
    found = differences({(1, 1): (right[0] + 1) % 8, (1, 2): (right[1] + 1) % 8}, LOGITS)
    assert found == [f"row 1, step 1: token {(right[0] + 1) % 8}, float64's {right[0]}"]


def test_other_lengths_and_logits_that_are_no_numbers_are_different() -> None:
    short = generation(tokens=np.array([[1, 2, 3]]))
    assert "shape (1, 3)" in different_tokens(short, generation(), 1e-5)[0]
    nan = generation(np.full_like(LOGITS, np.nan), LOGITS.argmax(axis=-1))
    assert different_tokens(nan, generation(), 1e-5)


def test_a_choice_that_float64_does_not_make_is_undecided_unless_another_is_wrong() -> None:
    with pytest.raises(Ambiguous, match="logits of both"):
        differences({(0, 0): 5}, UNDECIDED)
    assert len(differences({(0, 0): 5, (1, 2): (UNDECIDED.argmax(axis=-1)[1, 2] + 1) % 8}, UNDECIDED)) == 1
    assert differences({(0, 0): 1}, UNDECIDED) == ["row 0, step 0: token 1, float64's 3"]
