"""Where two ways of decoding part, said so that a reader sees it, or left undecided where float64 is."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.backends.base import Generation
from hardware.testing.capability_checks import different_tokens
from hardware.testing.measurement import Ambiguous

LOGITS = np.random.default_rng(0).standard_normal((2, 3, 8))


def generation(tokens: list[list[int]] | None = None, logits: np.ndarray = LOGITS) -> Generation:
    chosen = LOGITS.argmax(axis=-1) if tokens is None else np.array(tokens)
    return Generation(tokens=chosen, logits=logits, start=np.zeros((2, 1), dtype=np.int64))


def test_the_same_tokens_leave_nothing_to_say() -> None:
    assert different_tokens(generation(), generation(), 1e-5) == []


def test_the_first_other_token_of_a_row_is_named() -> None:
    tokens = generation().tokens.copy()
    tokens[1, 1:] = (tokens[1, 1:] + 1) % 8
    right = int(generation().tokens[1, 1])
    said = different_tokens(generation(tokens.tolist()), generation(), 1e-5)
    assert said == [f"row 1, step 1: token {(right + 1) % 8}, float64's {right}"]


def test_other_lengths_and_logits_that_are_no_numbers_are_different() -> None:
    assert "shape (1, 3)" in different_tokens(generation([[1, 2, 3]]), generation(), 1e-5)[0]
    assert different_tokens(generation(logits=np.full_like(LOGITS, np.nan)), generation(), 1e-5)


def test_a_choice_that_float64_does_not_make_is_undecided_unless_another_is_wrong() -> None:
    logits = LOGITS.copy()
    logits[0, 0] = 0.0
    logits[0, 0, 3] = logits[0, 0, 5] = 4.0
    want = Generation(tokens=logits.argmax(axis=-1), logits=logits, start=np.zeros((2, 1), dtype=np.int64))
    tokens = want.tokens.copy()
    tokens[0, 0] = 5
    with pytest.raises(Ambiguous, match="logits of both"):
        different_tokens(generation(tokens.tolist(), logits), want, 1e-5)
    tokens[1, 2] = (tokens[1, 2] + 1) % 8
    assert len(different_tokens(generation(tokens.tolist(), logits), want, 1e-5)) == 1


def test_a_token_far_below_two_that_are_equally_good_is_wrong() -> None:
    logits = LOGITS.copy()
    logits[0, 0] = 0.0
    logits[0, 0, 3] = logits[0, 0, 5] = 4.0
    want = Generation(tokens=logits.argmax(axis=-1), logits=logits, start=np.zeros((2, 1), dtype=np.int64))
    tokens = want.tokens.copy()
    tokens[0, 0] = 1
    assert different_tokens(generation(tokens.tolist(), logits), want, 1e-5) == [
        "row 0, step 0: token 1, float64's 3"
    ]
