"""Gradients that a backend computes of a module, and which modules have them only in training mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from generators.recipes.probe import lost_gradients, trains_only
from hardware.backends._torch import _loss, loss_gradients
from hardware.backends._torch_checks import loss_weights

ONES = np.ones((1, 2), dtype=np.float32)


def test_the_loss_weighs_each_number_as_the_references_loss_does() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"rows": values * self.scale, "number": values.sum() * self.scale}

    model, tensors = Two(), {"values": torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)}
    outputs = [one.detach().numpy() for one in model(**tensors).values()]
    plain = sum(float((loss_weights(one.shape) * one).sum()) for one in outputs)
    assert plain == pytest.approx(float(_loss(model, tensors, {}).detach()), rel=1e-5)


def test_padding_behind_an_image_weighs_nothing_in_a_gradient() -> None:
    class Both(torch.nn.Linear):
        """Gives an image's two positions and a text's three, the last of which is padding."""

        def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": super().forward(x)}

    def gradients(padding: float, masked_by: str) -> np.ndarray:
        torch.manual_seed(0)
        model, x = Both(4, 3), torch.ones(1, 5, 4)
        x[:, 4] = padding
        inputs = {"x": x, "attention_mask": torch.tensor([[1, 1, 0]])}
        return loss_gradients(model, inputs, {"logits": masked_by})["weight"]

    assert np.array_equal(gradients(1.0, "2 + attention_mask"), gradients(5.0, "2 + attention_mask"))
    assert not np.array_equal(gradients(5.0, "2 + attention_mask"), gradients(5.0, "another"))


def test_what_a_model_cached_without_gradients_does_not_hide_them() -> None:
    class Keeping(torch.nn.Linear):
        """Keeps its doubled weight as long as it isn't trained."""

        kept: torch.Tensor | None = None

        def train(self, mode: bool = True) -> Keeping:
            self.kept = None if mode else self.kept
            return super().train(mode)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.kept = 2 * self.weight if self.kept is None else self.kept
            return x @ self.kept.T

    model, inputs = Keeping(3, 2).eval(), {"x": torch.ones(2, 3)}
    with torch.no_grad():
        model(**inputs)
    once, twice = (loss_gradients(model, inputs) for _ in range(2))
    assert abs(once["weight"]).max() > 0
    assert (once["weight"] == twice["weight"]).all()
    assert not model.training


@pytest.mark.parametrize(("words", "learns"), [("use `model.train()` for that", True), ("shapes differ", False)])
def test_training_mode_is_for_models_whose_error_asks_for_it(words: str, learns: bool) -> None:
    class Refusing(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            assert self.training, words
            return {"logits": super().forward(x)}

    model = Refusing(2, 2).eval()
    assert trains_only(model, {"x": ONES}) is learns
    assert not lost_gradients(model, {"x": ONES}, {}, training=True)
    assert words in lost_gradients(model, {"x": ONES}, {}, training=False)[0]
    assert set(loss_gradients(model, {"x": torch.ones(1, 2)}, training=True)) == {"weight", "bias"}
    assert not model.training
    with pytest.raises(AssertionError, match=words[:6]):
        loss_gradients(model, {"x": torch.ones(1, 2)})


def test_training_mode_is_for_models_that_cache_a_computed_parameter() -> None:
    class Keeping(torch.nn.Linear):
        kept: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            if self.kept is None or self.training:
                self.kept = self.weight * 2
            return {"logits": torch.nn.functional.linear(x, self.kept, self.bias)}

    class Anew(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": super().forward(x)}

    assert trains_only(Keeping(2, 2).eval(), {"x": ONES})
    assert not trains_only(Anew(2, 2).eval(), {"x": ONES})
