"""Images in patches, with grids, places and orders: shapes that vision towers take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from generators.models.inputs import make_inputs
from generators.recipes.modality_inputs import modality_spec
from hardware.errors import ModelError


def configured(**attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(model_type="some", **attributes)


def test_a_vision_tower_takes_patches_with_what_says_where_they_lie() -> None:
    config = configured(in_channels=3, patch_size=14, temporal_patch_size=2, spatial_merge_size=2)
    specs = {n: modality_spec(n, ("hidden_states", "grid_thw"), config) or {} for n in ("hidden_states", "grid_thw")}
    arrays = make_inputs(specs, 0, (4, 4))
    assert arrays["hidden_states"].shape == (arrays["grid_thw"].prod(axis=1).sum(), 3 * 2 * 14 * 14)
    assert modality_spec("hidden_states", ("hidden_states",), config) is None

    pooled = configured(patch_size=16, pooling_kernel_size=3)
    takes = ("pixel_values", "pixel_position_ids")
    arrays = make_inputs({name: modality_spec(name, takes, pooled) or {} for name in takes}, 0, (4, 4))
    assert arrays["pixel_values"].shape == (2, 36, 3 * 16**2)
    places = arrays["pixel_position_ids"]
    assert places.shape == (2, 36, 2)
    assert {tuple(place) for place in places[0]} == {(x, y) for x in range(6) for y in range(6)}


def test_an_order_of_patches_has_a_number_for_each() -> None:
    spec = modality_spec("noise", ("pixel_values", "noise"), configured(image_size=64, patch_size=16))
    assert spec == {"kind": "features", "shape": [16]}


def test_an_image_and_its_example_make_up_the_height_of_the_whole() -> None:
    takes = ("pixel_values", "prompt_pixel_values", "prompt_masks")
    config = configured(image_size=[128, 64], patch_size=16)
    assert {str(modality_spec(name, takes, config)) for name in takes} == {"{'kind': 'pixels', 'shape': [3, 64, 64]}"}


def test_tokens_are_an_image_only_where_nothing_else_is_taken() -> None:
    """ImageGPT's are colours; where pixels are taken that nobody knows the shape of, text alone proves little."""
    import torch

    from generators.models.catalog import TaskEntry
    from generators.recipes.input_specs import input_specs

    class OfColours(torch.nn.Module):
        config = configured(vocab_size=512)

        def forward(self, input_ids: Any) -> None: ...

    class OfMore(OfColours):
        def forward(self, input_ids: Any, unheard_of_pixels: Any) -> None: ...  # type: ignore[override]

    entry = TaskEntry(mapping="", task="image-classification", auto_class="", outputs=(), generate="none")
    assert list(input_specs(OfColours(), entry, "vision", "right", 16)) == ["input_ids"]
    with pytest.raises(ModelError, match="only text is known"):
        input_specs(OfMore(), entry, "vision", "right", 16)
