"""Models in pieces: what the pieces are, that their results are those of the reference, and what a fault gives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, T5Config, T5EncoderModel

from hardware.errors import ModelError
from hardware.evidence.versions import FAULT_VARIABLE
from hardware.testing import piece_test
from hardware.testing.model_pieces import _rows, filled_piece, outside_pieces, pieces_of, rows_of, without_weights
from hardware.testing.piece_test import PieceTest
from hardware.testing.reference import as_reference

CONFIG = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
WHOLE, DIVIDED = 10**6, 4_000


def make_model() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**CONFIG))


def make_mixture() -> MixtralForCausalLM:
    return MixtralForCausalLM(MixtralConfig(**CONFIG | {"num_local_experts": 5, "num_hidden_layers": 1}))


def case_of(most: int, target: str = "cpu", make: Callable[[], torch.nn.Module] = make_model) -> PieceTest:
    with without_weights():
        pieces = pieces_of(make(), most)
    ids = np.random.default_rng(0).integers(0, CONFIG["vocab_size"], (2, 7))
    cell = f"llama/pieces/{target}/float32"
    return PieceTest(cell, make, {"input_ids": ids}, gain=1.0, outputs=(), pieces=pieces)


def test_pieces_are_layers_and_what_has_weights_between_them() -> None:
    with without_weights():
        model = make_model()
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not model.model.rotary_emb.inv_freq.is_meta
    names = ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head"]
    assert list(pieces_of(model, WHOLE)) == names
    divided = pieces_of(model, DIVIDED)
    assert {"lm_head[0:125]", "lm_head[250:300]", "model.layers.0.self_attn", "model.layers.0.mlp.up_proj"} <= set(
        divided
    )
    assert sum(divided.values()) == sum(parameter.numel() for parameter in model.parameters())
    with pytest.raises(ModelError, match="can't be divided"):
        pieces_of(torch.nn.Sequential(torch.nn.Conv2d(8, 64, 3)), 100)


def test_parameters_beside_parts_are_refused_or_named() -> None:
    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = torch.nn.Parameter(torch.zeros(8, 50))
            self.act, self.out = torch.nn.ReLU(), torch.nn.Linear(50, 40)

    model = torch.nn.Sequential(Experts())
    assert outside_pieces(model, pieces_of(model, WHOLE)) == ()
    assert outside_pieces(model, pieces_of(model, 2_100)) == ("0.all",)
    with pytest.raises(ModelError, match=r"0 doesn't fit .* 2,440 parameters, and 300 fit"):
        pieces_of(model, 300)


def test_slices_have_weights_of_their_own() -> None:
    with without_weights():
        model = make_model()
    first, second = (filled_piece(model, piece, gain=1.0) for piece in ("lm_head[0:100]", "lm_head[100:200]"))
    assert first.weight.shape == (100, 32)
    assert not torch.equal(first.weight, second.weight)


@pytest.mark.parametrize("most", [WHOLE, DIVIDED])
def test_each_piece_matches_and_its_place_is_proven(most: int) -> None:
    with case_of(most) as case:
        want = case.reference(case.inputs)
        assert 0 < case.error(case.run(case.inputs), want) <= case.tolerance
        assert {name.rpartition(".")[0] for name in want.arrays} == set(case.pieces)
        assert case.execution().native
        assert "between the pieces" in case.execution().unseen
        assert case.facts()["conditions"]["peak_memory"]


def test_masks_that_a_piece_returns_are_equal_in_both_precisions() -> None:
    def make() -> T5EncoderModel:
        return T5EncoderModel(T5Config(vocab_size=50, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4))

    with without_weights():
        pieces = pieces_of(make(), WHOLE)
    inputs = {"input_ids": np.arange(14).reshape(2, 7), "attention_mask": np.array([[1] * 7, [1] * 4 + [0] * 3])}
    with PieceTest("t5/pieces/cpu/float32", make, inputs, gain=1.0, outputs=(), pieces=pieces) as case:
        want = case.reference(inputs)
        assert any(np.isneginf(one).any() for one in want.arrays.values())
        assert case.error(case.run(inputs), want) <= case.tolerance


def test_experts_that_do_not_fit_together_run_in_slices_that_sum_to_the_mixture() -> None:
    with case_of(13_000, make=make_mixture) as case:
        want = case.reference(case.inputs)
        experts = {piece: size for piece, size in case.pieces.items() if "experts" in piece}
        slices = [f"model.layers.0.mlp.experts[{part}]" for part in ("0:2", "2:4", "4:5")]
        assert experts == dict(zip(slices, (12_288, 12_288, 6_144), strict=True))
        assert 0 < case.error(case.run(case.inputs), want) <= case.tolerance
        module = make_mixture().eval().model.layers[0].mlp.experts
        case._filled = lambda piece: _rows(copy.deepcopy(module), piece)
        states, weights = torch.rand(6, 32, dtype=torch.float64), torch.rand(6, 2, dtype=torch.float64)
        chosen, calls = torch.tensor([[0, 2], [2, 0]] * 3), {}
        mixed = case._mixed(list(experts), states, chosen, weights, calls)
        assert torch.allclose(mixed, as_reference(module)(states, chosen, weights), rtol=1e-12)
        for piece in slices:
            start, stop = rows_of(piece)
            asked = calls[piece].inputs["input_1"][np.any(calls[piece].inputs["input_2"], axis=-1)]
            assert set(asked.ravel()) == set(range(stop - start)), "each expert computes, chosen or not"


def test_a_failed_cell_asks_the_device_for_the_precision_of_its_products(monkeypatch: pytest.MonkeyPatch) -> None:
    for fault, found in (("tf32:aten.mm", "tf32"), ("tail:aten.mm", "float32")):
        monkeypatch.setenv(FAULT_VARIABLE, fault)
        with case_of(WHOLE, "simulated") as case:
            assert case.error(case.run(case.inputs), case.reference(case.inputs)) > case.tolerance
            assert case.facts()["conditions"]["products"] == found


def test_a_wrong_piece_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = piece_test._with_arguments

    def broken(piece: torch.nn.Module, call: Any) -> torch.nn.Module:
        if isinstance(piece, torch.nn.Linear):
            piece.weight.data.mul_(1.01)
        return real(piece, call)

    monkeypatch.setattr(piece_test, "_with_arguments", broken)
    with case_of(WHOLE) as case:
        assert case.error(case.run(case.inputs), case.reference(case.inputs)) > case.tolerance
        assert case.measured.comparison is not None
        assert case.measured.comparison.worst == "lm_head.output_0"
