"""All gradients of a model are compared as one vector, one parameter at a time, and nothing gets lost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.compare import ReferenceNotFinite, compare_gradients

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


def _gradients(padding: float, masked_by: str) -> dict[str, np.ndarray]:
    """Of a layer that gives an image's two positions and a text's three, the last of which is padding."""
    import torch

    from hardware.backends._torch import loss_gradients

    class Both(torch.nn.Linear):
        def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": super().forward(x)}

    torch.manual_seed(0)
    model, x = Both(4, 3), torch.ones(1, 5, 4)
    x[:, 4] = padding
    return loss_gradients(model, {"x": x, "attention_mask": torch.tensor([[1, 1, 0]])}, {"logits": masked_by})


def test_padding_behind_an_image_weighs_nothing_in_a_gradient() -> None:
    one, other = (_gradients(padding, "2 + attention_mask")["weight"] for padding in (1.0, 5.0))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, _gradients(5.0, "another")["weight"])


@pytest.mark.parametrize(("words", "learns"), [("use `model.train()` for that", True), ("shapes differ", False)])
def test_training_mode_is_for_those_whose_own_words_ask_for_it(words: str, learns: bool) -> None:
    import torch

    from generators.recipes.probe import lost_gradients, trains_only
    from hardware.backends._torch import loss_gradients

    class Refusing(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            assert self.training, words
            return {"logits": super().forward(x)}

    model, ones = Refusing(2, 2).eval(), np.ones((1, 2), dtype=np.float32)
    assert trains_only(model, {"x": ones}) is learns
    assert not lost_gradients(model, {"x": ones}, {}, training=True)
    assert words in lost_gradients(model, {"x": ones}, {}, training=False)[0]
    assert set(loss_gradients(model, {"x": torch.ones(1, 2)}, training=True)) == {"weight", "bias"}
    assert not model.training
    with pytest.raises(AssertionError, match=words[:6]):
        loss_gradients(model, {"x": torch.ones(1, 2)})


def test_training_mode_is_for_those_that_keep_what_they_computed_of_a_parameter() -> None:
    import torch

    from generators.recipes.probe import trains_only

    class Keeping(torch.nn.Linear):
        kept: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            if self.kept is None or self.training:
                self.kept = self.weight * 2
            return {"logits": torch.nn.functional.linear(x, self.kept, self.bias)}

    ones = np.ones((1, 2), dtype=np.float32)
    assert trains_only(Keeping(2, 2).eval(), {"x": ones})

    class Anew(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": super().forward(x)}

    assert not trains_only(Anew(2, 2).eval(), {"x": ones})
