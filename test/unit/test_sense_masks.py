"""Masks over images and sounds: found by trying, given where they are heard, named where their form isn't known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from generators.models.inputs import make_inputs
from generators.models.recipe_store import load_recipe
from generators.recipes.input_layouts import with_sense_masks

IMAGE = {"pixel_values": {"kind": "pixels", "shape": [3, 8, 8]}}
LENGTHS = (16, 9)


class Seeing(torch.nn.Module):
    """Looks at the mean of an image where its mask is true; `read` says what it makes of the mask."""

    config = SimpleNamespace(patch_size=4)

    def __init__(self, read: Any) -> None:
        super().__init__()
        self.read = read

    def forward(self, pixel_values: Any, pixel_mask: Any = None, bool_masked_pos: Any = None) -> Any:
        shown = torch.ones_like(pixel_values[:, 0]) if pixel_mask is None else self.read(pixel_mask)
        return {"logits": (pixel_values * shown[:, None]).mean(dim=(2, 3))}


def patches(mask: Any) -> Any:
    return mask.to(torch.float32).reshape(-1, 2, 2).repeat_interleave(4, 1).repeat_interleave(4, 2)


@pytest.mark.parametrize(
    ("read", "shape"), [(lambda mask: mask.to(torch.float32).reshape(-1, 8, 8), [8, 8]), (patches, [2, 2])]
)
def test_the_axes_of_a_mask_are_those_that_the_model_takes(read: Any, shape: list[int]) -> None:
    specs, unknown = with_sense_masks(Seeing(read), IMAGE, LENGTHS, ())
    assert specs["pixel_mask"] == {"kind": "shown", "shape": shape}
    assert not unknown


def test_a_mask_that_must_be_of_booleans_is() -> None:
    specs, _ = with_sense_masks(Seeing(lambda mask: (~mask).logical_not().float()), IMAGE, LENGTHS, ())
    assert specs["pixel_mask"] == {"kind": "shown", "shape": [8, 8], "boolean": True}


def test_a_mask_that_is_not_read_is_not_given() -> None:
    assert with_sense_masks(Seeing(torch.ones_like), IMAGE, LENGTHS, ()) == (IMAGE, ())


def test_a_mask_that_must_be_given_and_is_not_read_stays_as_it_is() -> None:
    specs = {**IMAGE, "pixel_mask": {"kind": "ones", "shape": [8, 8]}}
    assert with_sense_masks(Seeing(torch.ones_like), specs, LENGTHS, ()) == (specs, ())


def test_a_mask_of_another_form_is_named() -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("another shape")

    specs, unknown = with_sense_masks(Seeing(refuse), IMAGE, LENGTHS, ())
    assert (specs, unknown) == (IMAGE, ("pixel_mask",))
    assert with_sense_masks(Seeing(refuse), IMAGE, LENGTHS, {"pixel_mask"}) == (IMAGE, ())


def test_a_mask_by_a_name_that_nothing_says_anything_of_is_named() -> None:
    class Odd(torch.nn.Module):
        def forward(self, pixel_values: Any, weather_mask: Any = None) -> Any:
            return {"logits": pixel_values.mean(dim=(2, 3))}

    assert with_sense_masks(Odd(), IMAGE, LENGTHS, ()) == (IMAGE, ("weather_mask",))


def test_a_sound_is_masked_where_its_row_is_padded() -> None:
    class Hearing(torch.nn.Module):
        def forward(self, input_values: Any, attention_mask: Any = None) -> Any:
            return {"logits": (input_values * attention_mask).mean(dim=1, keepdim=True)}

    sound = {"input_values": {"kind": "waveform", "step": 4, "extra": 2}}
    specs, unknown = with_sense_masks(Hearing(), sound, LENGTHS, ())
    assert specs["attention_mask"] == {"kind": "heard", "step": 4, "extra": 2}
    assert not unknown
    arrays = make_inputs(specs, 0, LENGTHS)
    assert arrays["attention_mask"].shape == arrays["input_values"].shape
    assert arrays["attention_mask"].sum(axis=1).tolist() == [66, 38]


def test_a_mask_may_lie_over_frames_that_were_merged() -> None:
    class Merging(torch.nn.Module):
        def forward(self, input_features: Any, attention_mask: Any = None) -> Any:
            merged = input_features.unflatten(1, (-1, 2)).mean(dim=2)
            return {"logits": (merged * attention_mask[..., None]).mean(dim=1)}

    sound = {"input_features": {"kind": "frames", "step": 8, "bins": 3}}
    specs, _ = with_sense_masks(Merging(), sound, LENGTHS, ())
    assert specs["attention_mask"] == {"kind": "heard", "step": 4, "extra": 0}


def test_a_narrower_picture_is_padded_beside_it_and_one_place_never() -> None:
    specs = {"m": {"kind": "shown", "shape": [1, 4, 6]}, "n": {"kind": "shown", "shape": [1], "boolean": True}}
    arrays = make_inputs(specs, 0, (5, 5, 5))
    assert arrays["m"][0].all()
    assert (arrays["m"][1:] == np.array([1, 1, 1, 0, 0, 0])).all()
    assert arrays["n"].all()
    assert arrays["n"].dtype == bool


def test_padding_that_no_gain_makes_audible_is_left_away_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from generators.models.classifier import classify_type
    from generators.recipes import derive

    asked = []
    plain = derive.measured

    def noisy(*args: Any, pad_senses: bool) -> Any:
        asked.append(pad_senses)
        found = plain(*args, pad_senses=pad_senses)
        return replace(found, sensitivity={**found.sensitivity, "float32_error": 1.0}) if pad_senses else found

    monkeypatch.setattr(derive, "measured", noisy)
    recipe = load_recipe("detr")
    assert recipe is not None
    chosen = derive.task_class("detr", None)
    best = derive._loudest(recipe.config, recipe.config_class, chosen, classify_type("detr"), gains=(1.0, 0.7))
    assert asked == [True, True, False, False]
    assert isinstance(best, tuple), best
    assert best[1].unknown_masks == ("pixel_mask",)
    assert "pixel_mask" not in best[1].specs
