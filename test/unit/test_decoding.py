"""Decoding with images: what is told of each token grows with the text, and what is ruled out compares."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from hardware.backends.base import Generation
from hardware.compare import compare
from hardware.model.calls import in_dtype, to_arrays
from hardware.model.greedy_decoding import _told_of_each_token, _whole_passes, greedy
from hardware.output_masks import masks_of
from hardware.testing.capability_checks import replay_inputs


def test_what_is_told_of_each_token_is_told_of_decoded_ones_and_other_texts_stay() -> None:
    mask = np.array([[1, 1, 1], [0, 1, 1]])
    given = {
        "input_ids": np.array([[5, 60, 7], [1, 60, 8]]),
        "attention_mask": mask,
        "position_ids": np.array([[2, 3, 4], [2, 2, 3]]),
        "mm_token_type_ids": np.array([[0, 1, 0], [0, 1, 0]]),
        "cross_attention_mask": np.ones((2, 3, 1, 4), dtype=np.int64),
        "qformer_input_ids": np.array([[5, 6, 7], [1, 2, 8]]),
        "pixel_values": np.ones((2, 3, 4), dtype=np.float32),
    }
    decoded = Generation(tokens=np.array([[9, 9], [9, 9]]), logits=np.zeros((2, 2, 3)), start=given["input_ids"])
    found = replay_inputs(given, decoded, "causal")
    assert found["input_ids"].shape == found["mm_token_type_ids"].shape == (2, 5)
    assert found["cross_attention_mask"].shape == (2, 5, 1, 4)
    assert found["position_ids"].tolist() == [[2, 3, 4, 5, 6], [2, 2, 3, 4, 5]]
    assert found["qformer_input_ids"] is given["qformer_input_ids"]
    assert found["pixel_values"] is given["pixel_values"]


def test_a_library_that_lets_types_of_tokens_grow_only_with_a_cache_is_helped() -> None:
    class Model:
        def _update_model_kwargs_for_generation(self, outputs: Any, known: dict[str, Any]) -> dict[str, Any]:
            mask = known["attention_mask"]
            return {**known, "attention_mask": torch.cat([mask, mask[:, -1:]], dim=1)}

    model, ones = Model(), torch.ones(2, 3, dtype=torch.int64)
    known = {"attention_mask": ones, "moe_mm_token_type_ids": ones, "protein_input_ids": ones}
    with _told_of_each_token(model):
        grown = model._update_model_kwargs_for_generation(None, known)
    assert grown["moe_mm_token_type_ids"].shape == (2, 4)
    assert grown["protein_input_ids"].shape == (2, 3)
    assert model._update_model_kwargs_for_generation(None, known)["moe_mm_token_type_ids"].shape == (2, 3)


class Listens(torch.nn.Module):
    """Keeps what each pass was given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[dict[str, Any]] = []

    def forward(self, **given: Any) -> None:
        self.given.append(given)

    def _update_model_kwargs_for_generation(self, *_: Any) -> dict[str, Any]:
        return {}


def test_without_a_cache_every_pass_hears_the_sound_and_writes_into_none_of_anothers() -> None:
    model, sound, other = Listens(), torch.ones(2, 3), torch.zeros(2, 3)
    tokens, encoded = torch.ones(2, 4, dtype=torch.int64), [torch.ones(2)]
    with _whole_passes(model, {"input_ids": tokens, "input_features": sound}):
        model(input_ids=tokens, input_features=other)
        model(input_ids=tokens, input_features=None)
        model(input_ids=tokens, encoder_outputs=encoded)
    model(input_ids=tokens)
    first, second, third, after = model.given
    assert first["input_features"] is other, "what the loop gives is what counts"
    assert torch.equal(second["input_features"], sound)
    assert second["input_features"] is not sound
    assert "input_features" not in third, "the encoder has heard it"
    assert third["encoder_outputs"] is not encoded
    assert torch.equal(third["encoder_outputs"][0], encoded[0])
    assert "input_features" not in after


def test_what_is_ruled_out_by_the_smallest_number_is_the_same_in_two_precisions_and_nowhere_else() -> None:
    both = {}
    for dtype in (torch.float32, torch.float64):
        logits = torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype)
        logits[:, 1] = torch.finfo(dtype).min
        both[dtype] = to_arrays({"logits": logits})
    assert compare(both[torch.float32], both[torch.float64]).max_rel_error == 0
    kept = to_arrays({"logits": torch.tensor([[1.0, 2.0, 3.0]])})
    assert compare(kept, both[torch.float64]).max_rel_error > 1


def test_a_mask_may_stand_behind_the_positions_of_an_image() -> None:
    found = masks_of({"logits": "2 + attention_mask"}, {"attention_mask": np.array([[0, 1]])})
    assert found["logits"].tolist() == [[1, 1, 0, 1]]


def test_a_complex_table_keeps_its_imaginary_part_in_every_precision() -> None:
    model = torch.nn.Linear(2, 2)
    model.register_buffer("turns", torch.tensor([1j, 1.0]))
    assert in_dtype(model, torch.bfloat16).weight.dtype == torch.bfloat16
    assert model.get_buffer("turns").tolist() == [1j, 1.0]


def test_decoding_says_whether_a_cache_was_used() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    model = GPT2LMHeadModel(config).eval()
    tensors = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    found = {wish: greedy(model, tensors, steps=3, use_cache=wish) for wish in (True, False)}
    assert {wish: one.used_cache for wish, one in found.items()} == {True: True, False: False}
    assert "prepare_inputs_for_generation" not in vars(model)
    plain = model.prepare_inputs_for_generation

    @functools.wraps(plain)
    def forgetting(ids: Any, **given: Any) -> dict[str, Any]:
        return {**plain(ids, **given), "input_ids": ids, "past_key_values": None}

    model.prepare_inputs_for_generation = forgetting  # type: ignore[method-assign]
    assert not greedy(model, tensors, steps=3, use_cache=True).used_cache
