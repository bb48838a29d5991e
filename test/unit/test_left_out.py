"""What no check asks of a model is found by looking at what ran, and stands in words in its recipe."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from generators.recipes.probe import left_out, run_whole


class Whole(torch.nn.Linear):
    """What the library saves by itself."""

    def save_pretrained(self, folder: str) -> None:
        raise NotImplementedError


class Composed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.codec, self.spare = Whole(3, 3), torch.nn.Sequential(Whole(3, 3)), torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return {"logits": self.text(x)}

    def generate(self, **given: Any) -> Any:
        raise NotImplementedError


def found(**changes: Any) -> Any:
    return SimpleNamespace(**{"inputs": {"x": np.ones((2, 3), dtype=np.float32)}, "unknown_masks": (), **changes})


def test_whole_models_that_nothing_runs_are_named_and_their_parts_and_single_layers_are_not():
    model = Composed()
    reached, used_cache = run_whole(model, found(), "none")
    assert (reached, used_cache) == ({"", "text"}, True)
    assert left_out(model, found(), reached, {}) == "codec.0, which no check runs"
    assert not left_out(model, found(), {*reached, "codec.0"}, {})


def test_all_that_is_left_out_is_said_and_what_fails_is_left_to_the_suite():
    model = Composed()
    _, used_cache = run_whole(model, found(), "causal")
    assert used_cache
    told = {"left_out": "rotary positions"}
    said = left_out(model, found(unknown_masks=("pixel_mask", "odd_mask")), {"text", "codec.0"}, told)
    assert said == "rotary positions; padding by pixel_mask, odd_mask"
