"""The graphs that decode: which part of a model they are of, its cache, and what is counted beside them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hardware.backends.base import Unsupported
from hardware.export import decoding_graphs, optimum_exporter
from hardware.export.decoding_graphs import none_of_it_in_torch
from hardware.model.calls import without_cache
from hardware.model.positions import host_positions


def test_states_of_a_cache_are_found_by_name() -> None:
    import torch
    from transformers.cache_utils import DynamicCache

    cache = DynamicCache()
    cache.update(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    call = {"input_ids": torch.zeros(1, 3), "past_key_values": cache, "use_cache": True}
    found = decoding_graphs.tensors_in(call)
    assert set(found) == {"input_ids", "past.layers.0.keys", "past.layers.0.values"}
    assert found["past.layers.0.keys"] is cache.layers[0].keys


def test_the_part_that_decodes_and_its_encoder_are_found() -> None:
    import torch
    from transformers import GenerationMixin

    class Text(torch.nn.Module, GenerationMixin):
        def forward(self, input_ids: Any, past_key_values: Any = None) -> Any:
            return input_ids

    class Captions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vision, self.text = torch.nn.Identity(), Text()

        def forward(self, pixel_values: Any) -> Any:
            return pixel_values

    captions, text = Captions(), Text()
    text.config = SimpleNamespace(is_encoder_decoder=False)
    assert (decoding_graphs.decoder_of(captions), decoding_graphs.encoders_of(captions)) == (
        captions.text,
        [captions.vision],
    )
    assert (decoding_graphs.decoder_of(text), decoding_graphs.encoders_of(text)) == (text, [])


def test_no_part_of_a_model_computes_in_torch_while_its_graphs_decode() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
    with none_of_it_in_torch(model, model[1]):
        model[1](torch.ones(1))
        torch.nn.Linear(1, 1)(torch.ones(1))
        with pytest.raises(Unsupported, match="0 would run in torch"):
            model(torch.ones(1))
    model(torch.ones(1))


def test_positions_that_a_model_counts_by_hand_are_computed_beside_the_graph() -> None:
    import torch

    class Counts(torch.nn.Module):
        def compute_3d_position_ids(self, input_ids: Any, inputs_embeds: Any, attention_mask: Any = None) -> Any:
            return (attention_mask.cumsum(1) - 1).expand(3, -1, -1)

    given = {"input_ids": torch.ones(2, 5), "attention_mask": torch.ones(2, 5), "pixel_values": torch.ones(1)}
    assert host_positions(torch.nn.Sequential(Counts()), given)["position_ids"].shape == (3, 2, 5)
    assert host_positions(torch.nn.Identity(), given) == {}


def test_a_count_that_another_part_makes_is_left_to_the_model() -> None:
    import torch

    class Counts(torch.nn.Module):
        def compute_3d_position_ids(self, input_ids: Any, image_grid_thw: Any, past_key_values: Any) -> Any:
            if image_grid_thw is not None:
                raise ValueError("no token types")
            return input_ids.expand(3, -1, -1)

    given = {"input_ids": torch.ones(2, 5)}
    assert host_positions(torch.nn.Sequential(Counts()), given)["position_ids"].shape == (3, 2, 5)
    assert host_positions(torch.nn.Sequential(Counts()), {**given, "image_grid_thw": torch.ones(2, 3)}) == {}


def test_an_exporter_gets_a_copy_with_the_very_same_weights() -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    copied = optimum_exporter._copy_of(model)
    copied.forward = None
    assert copied.weight is model.weight
    assert model(torch.ones(1, 2)).shape == (1, 2)


def test_a_state_that_is_written_over_in_place_is_an_output_of_its_graph() -> None:
    import torch
    from transformers.cache_utils import DynamicCache
    from transformers.utils import ModelOutput

    cache = DynamicCache()
    cache.update(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1), 0)

    class Decoder(torch.nn.Module):
        def forward(self, input_ids: Any, past_key_values: Any) -> Any:
            past_key_values.layers[0].keys.copy_(torch.ones(1, 1, 2, 1))
            return ModelOutput(logits=input_ids * 2.0, past_key_values=past_key_values)

    call = {"input_ids": torch.ones(1, 3), "past_key_values": cache}
    values = decoding_graphs.tensors_in(call)
    assert set(decoding_graphs.compute_call(Decoder(), call, values)) == {"logits", "present.layers.0.keys"}
    assert float(values["past.layers.0.keys"].sum()) == 0


def test_a_pass_without_a_cache_is_asked_only_of_models_that_take_the_wish() -> None:
    import torch

    class Decoder(torch.nn.Module):
        def forward(self, x: Any, use_cache: bool = True) -> Any:
            return x

    assert without_cache(Decoder()) == {"use_cache": False}
    assert without_cache(torch.nn.Linear(1, 1)) == {}
