"""All gradients of a model are compared as one vector, one parameter at a time, and nothing gets lost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.testing.parity import ReferenceNotFinite, compare_gradients

RANDOM = np.random.default_rng(0)
WANT = {name: RANDOM.standard_normal(shape) for name, shape in (("a", (3, 4)), ("b", (5,)), ("c", ()))}


def changed(name: str, value: float) -> dict[str, np.ndarray]:
    got = {key: array.copy() for key, array in WANT.items()}
    got[name].flat[0] = value
    return got


def test_the_error_is_that_of_one_long_vector():
    got = {name: array * 1.01 for name, array in WANT.items()}
    got["b"][2] += 0.3
    long, other = (np.concatenate([one[name].ravel() for name in sorted(WANT)]) for one in (got, WANT))
    apart = long - other
    expected = max(np.linalg.norm(apart) / np.linalg.norm(other), np.abs(apart).max() / np.abs(other).max())
    assert compare_gradients(got, WANT).max_rel_error == pytest.approx(expected, rel=1e-12)
    assert compare_gradients(WANT, WANT).max_rel_error == 0.0


@pytest.mark.parametrize("name", sorted(WANT))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_an_infinite_error_wherever_it_is(name, value):
    assert compare_gradients(changed(name, value), WANT).max_rel_error == math.inf
    with pytest.raises(ReferenceNotFinite):
        compare_gradients(WANT, changed(name, value))


@pytest.mark.parametrize("got", [{}, {"a": WANT["a"]}, {**WANT, "d": WANT["b"]}, {**WANT, "b": WANT["b"][:4]}])
def test_other_parameters_or_shapes_are_an_infinite_error(got):
    assert compare_gradients(got, WANT).max_rel_error == math.inf


def test_gradients_that_are_all_zero_prove_nothing():
    zero = {name: np.zeros_like(array) for name, array in WANT.items()}
    with pytest.raises(ReferenceNotFinite, match="zero"):
        compare_gradients(zero, zero)
    assert compare_gradients(zero, WANT).max_rel_error >= 1.0


def test_what_a_model_keeps_of_a_pass_without_gradients_does_not_take_gradients_away() -> None:
    import torch

    from hardware.backends._torch import loss_gradients

    class Keeping(torch.nn.Linear):
        """Keeps its doubled weight as long as it isn't trained."""

        kept: torch.Tensor | None = None

        def train(self, mode: bool = True) -> Keeping:
            self.kept = None if mode else self.kept
            return super().train(mode)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.kept = 2 * self.weight if self.kept is None else self.kept
            return x @ self.kept.T

    model = Keeping(3, 2).eval()
    inputs = {"x": torch.ones(2, 3)}
    with torch.no_grad():
        model(**inputs)
    once, twice = (loss_gradients(model, inputs) for _ in range(2))
    assert abs(once["weight"]).max() > 0
    assert (once["weight"] == twice["weight"]).all()
    assert not model.training
