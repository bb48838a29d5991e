"""The places that images, videos and sounds take in a text: the model says how many, and none is padded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from generators.models.inputs import make_inputs, placeholders
from generators.recipes.input_layouts import place_tokens, places
from hardware.errors import ModelError

PIXELS = {"kind": "pixels", "shape": [3, 4, 4]}
WIDTH = 8


def configured(**attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(model_type="some", **attributes)


class Sighted(torch.nn.Module):
    """Scatters five embeddings of an image over the embedded text, and two of a video."""

    config = configured(image_token_id=60, video_token_index=61)

    def forward(self, input_ids: Any, pixel_values: Any = None, pixel_values_videos: Any = None) -> Any:
        text = torch.zeros(*input_ids.shape, WIDTH)
        for token, given, count in ((60, pixel_values, 5), (61, pixel_values_videos, 2)):
            if given is not None:
                there = (input_ids == token)[..., None].expand_as(text)
                text = self.placed(text, there, torch.ones(len(given), count, WIDTH))
        return {"logits": text}

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        return text.masked_scatter(there, features)


class Checking(Sighted):
    """Checks, before it scatters them, that the places are as many as the features, as the library does."""

    def get_placeholder_mask(self, input_ids: Any, inputs_embeds: Any, image_features: Any) -> Any:
        raise ValueError("the places do not match")

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        return self.get_placeholder_mask(None, inputs_embeds=text, image_features=features)


class Embedding(Sighted):
    """Fails in a way of its own, and has a method that makes the embeddings."""

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        raise ValueError("these are too few")

    def get_image_features(self, pixel_values: Any) -> Any:
        return SimpleNamespace(pooler_output=torch.zeros(len(pixel_values), 5, WIDTH))


class Beside(Sighted):
    """Lets the text attend to the image from outside."""

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        return text + features.sum()


def drafts(*more: str) -> dict[str, dict[str, Any]]:
    return {"input_ids": {"kind": "tokens", "high": 50}} | {name: dict(PIXELS) for name in more}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model", [Sighted(), Checking(), Embedding()], ids=lambda one: type(one).__name__)
def test_an_image_takes_as_many_places_as_the_model_fills_and_none_is_padded(model: Any, side: str) -> None:
    specs = drafts("pixel_values")
    specs["input_ids"]["places"] = places(model, {"image": 60}, specs, side)
    specs["attention_mask"] = {"kind": "mask", "side": side}
    specs["token_type_ids"] = {"kind": "places", "token": 60, "elsewhere": True}
    assert placeholders(specs) == 5
    arrays = make_inputs(specs, 0, (12, 5))
    there = arrays["input_ids"] == 60
    assert there.shape == (2, 17)
    assert (there.sum(axis=1) == 5).all()
    assert arrays["attention_mask"].sum(axis=1).tolist() == [17, 10]
    assert arrays["attention_mask"][there].all()
    assert (arrays["token_type_ids"] == ~there).all()
    assert "get_placeholder_mask" not in vars(model)


def test_images_and_videos_stand_one_behind_the_other() -> None:
    specs = drafts("pixel_values", "pixel_values_videos")
    tokens = place_tokens(Sighted.config, specs)
    assert tokens == {"image": 60, "video": 61}
    assert places(Sighted(), tokens, specs, "left") == [[60, -10, -5], [61, -5, -3]]


def test_only_what_is_given_has_a_token() -> None:
    assert place_tokens(Sighted.config, ("input_ids", "pixel_values")) == {"image": 60}
    assert place_tokens(Sighted.config, ("pixel_values",)) == {}
    assert place_tokens(configured(image_token_id=None), drafts("pixel_values")) == {}


def test_cross_attention_takes_no_places() -> None:
    assert places(Beside(), {"image": 60}, drafts("pixel_values"), "left") == []


def test_a_model_that_does_not_say_how_many_is_refused_with_its_own_reason() -> None:
    class Silent(Sighted):
        def placed(self, text: Any, there: Any, features: Any) -> Any:
            raise ValueError("no such tile")

    with pytest.raises(ModelError, match="how many places") as refused:
        places(Silent(), {"image": 60}, drafts("pixel_values"), "left")
    assert "no such tile" in refused.value.why


def test_padded_places_hold_the_padding_token_and_positions_begin_behind_it() -> None:
    specs = {
        "input_ids": {"kind": "tokens", "high": 50, "padding": 50},
        "attention_mask": {"kind": "mask", "side": "left"},
        "position_ids": {"kind": "positions", "start": 2},
    }
    arrays = make_inputs(specs, 0, (6, 4))
    assert np.array_equal(arrays["input_ids"] == 50, arrays["attention_mask"] == 0)
    assert arrays["position_ids"].tolist() == [[2, 3, 4, 5, 6, 7], [2, 2, 2, 3, 4, 5]]
