"""Numbers that are compared: gradients as one vector, codes, masks, inputs of replays, and known arithmetic."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from hardware.backends._onnx_probe import SIZE, overflows, precision_of, values_to_copy
from hardware.backends._qnn_runnable import _drawn
from hardware.backends._torch_checks import loss_weights
from hardware.backends.base import Generation
from hardware.compare import ReferenceNotFinite, compare, compare_gradients
from hardware.export.onnx_export import output_name
from hardware.export.verify_export import held_inputs
from hardware.model.greedy_decoding import told_of_each_token
from hardware.model.outputs import nested, ruled_out
from hardware.model.positions import positions_of, steps_within
from hardware.output_masks import masks_of
from hardware.testing.capability_checks import replay_inputs
from hardware.testing.reference import ReferenceStore
from hardware.testing.router_choices import RouterChoice, choices_of_whole_passes

RANDOM = np.random.default_rng(0)
WANT = {name: RANDOM.standard_normal(shape) for name, shape in (("a", (3, 4)), ("b", (5,)), ("c", ()))}


def changed(name: str, value: float) -> dict[str, np.ndarray]:
    got = {key: array.copy() for key, array in WANT.items()}
    got[name].flat[0] = value
    return got


def test_the_error_of_gradients_is_that_of_one_long_vector():
    got = {name: array * 1.01 for name, array in WANT.items()}
    got["b"][2] += 0.3
    long, other = (np.concatenate([one[name].ravel() for name in sorted(WANT)]) for one in (got, WANT))
    apart = long - other
    expected = max(np.linalg.norm(apart) / np.linalg.norm(other), np.abs(apart).max() / np.abs(other).max())
    assert compare_gradients(got, WANT).max_rel_error == pytest.approx(expected, rel=1e-12)
    assert compare_gradients(WANT, WANT).max_rel_error == 0.0
    for name in WANT:
        for value in (math.nan, math.inf, -math.inf):
            assert compare_gradients(changed(name, value), WANT).max_rel_error == math.inf
            with pytest.raises(ReferenceNotFinite):
                compare_gradients(WANT, changed(name, value))
    for other in ({}, {"a": WANT["a"]}, {**WANT, "d": WANT["b"]}, {**WANT, "b": WANT["b"][:4]}):
        assert compare_gradients(other, WANT).max_rel_error == math.inf
    zero = {name: np.zeros_like(array) for name, array in WANT.items()}
    with pytest.raises(ReferenceNotFinite, match="zero"):
        compare_gradients(zero, zero)
    assert compare_gradients(zero, WANT).max_rel_error >= 1.0


def test_masked_codes_are_not_compared():
    want, got = {"codes": np.array([[1, 2, 3]])}, {"codes": np.array([[1, 2, 9]])}
    assert compare(got, want).max_rel_error == math.inf
    assert compare(got, want, masks={"codes": np.array([[1, 1, 0]])}).max_rel_error == 0.0
    assert compare(got, want, masks={"codes": np.array([[0, 0, 1]])}).max_rel_error == math.inf
    behind_an_image = masks_of({"logits": "2 + attention_mask"}, {"attention_mask": np.array([[0, 1]])})
    assert behind_an_image["logits"].tolist() == [[1, 1, 0, 1]]


def test_no_two_elements_weigh_the_same_in_a_loss_and_masked_ones_nothing():
    weights = loss_weights((2, 3, 4))
    assert len(np.unique(weights.round(9))) == 24
    masked = loss_weights((2, 3, 4), np.array([[1, 1, 0], [1, 1, 1]]))
    assert not masked[0, 2].any()
    assert np.array_equal(masked[1], weights[1])


def test_an_arithmetic_is_recognized_by_what_it_loses():
    def in_float16(values):
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)

    def to_bits(values, half, kept):
        return ((values.view(np.uint32) + half) & kept).astype(np.uint32).view(np.float32)

    given = values_to_copy()
    for name, result in (
        ("float32", given),
        ("float16", in_float16(given)),
        ("float16", np.minimum(in_float16(given), 131_008)),  # as HTP has it: no infinity
        ("tf32", to_bits(given, 0x1000, 0xFFFFE000)),  # ten bits of mantissa, with float32's exponent
        ("bfloat16", to_bits(given, 0x8000, 0xFFFF0000)),
        ("unknown", np.round(given * 4) / 4),
    ):
        assert precision_of(result.astype(np.float32)) == name
    values = np.full((SIZE, SIZE), 300, np.float32)
    kept = np.sqrt(values @ (300 * np.eye(SIZE, dtype=np.float32)))
    assert not overflows(kept.astype(np.float16))
    assert overflows(np.full((SIZE, SIZE), np.inf, np.float16))


def test_inputs_of_each_token_grow_with_decoded_text_and_others_stay():
    given = {
        "input_ids": np.array([[5, 60, 7], [1, 60, 8]]),
        "attention_mask": np.array([[1, 1, 1], [0, 1, 1]]),
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


def test_only_numbers_that_no_token_depends_on_can_be_constants_of_an_export():
    tokens = np.ones((2, 5), np.int64)
    inputs = {
        "input_ids": tokens,
        "attention_mask": tokens,
        "mm_token_type_ids": tokens,
        "image_grid_thw": np.ones((2, 3), np.int64),
        "pixel_values": np.ones((8, 12), np.float32),
    }
    assert held_inputs(inputs) == {"image_grid_thw"}
    assert held_inputs({"image_sizes": tokens}) == frozenset()
    assert output_name("result.sample") == output_name("sample") == "sample"


@pytest.mark.parametrize("in_two_axes", [False, True])
def test_router_choices_of_single_steps_follow_those_of_the_prompt(in_two_axes):
    def router(tokens):
        array = np.array(tokens)[..., None]
        return RouterChoice(function="topk", indices=array if in_two_axes else array.reshape(-1, 1))

    def token(*indices):
        return RouterChoice(function="argmax", indices=np.array(indices))

    given = [router([[1, 2], [3, 4]]), token(0, 0), router([[5], [6]]), token(1, 1), router([[7], [8]]), token(2, 2)]
    found = choices_of_whole_passes(given, rows=2, steps=3)
    assert [one.function for one in found] == ["topk", "argmax"] * 3
    assert found[2].indices.ravel().tolist() == [1, 2, 5, 3, 4, 6]
    assert found[4].indices.ravel().tolist() == [1, 2, 5, 7, 3, 4, 6, 8]
    assert choices_of_whole_passes(given[:-1], rows=2, steps=3) is None
    assert choices_of_whole_passes(given, rows=2, steps=2) is None


def test_a_cached_reference_keeps_its_shapes_and_is_not_used_once_it_changed(tmp_path):
    store, inputs = ReferenceStore(tmp_path), {"x": np.ones(2, np.float32)}
    store.put("id", inputs, {"loss": np.array(3.0), "y": np.ones((2, 3)).T})
    kept = store.get("id", inputs)
    assert (kept["loss"].shape, kept["y"].shape) == ((), (3, 2))
    assert store.get("another", inputs) is None
    (file,) = tmp_path.glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert store.get("id", inputs) is None


def test_inputs_for_calibration_keep_their_ranges():
    example = {
        "values": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
        "ids": np.array([[3, 9, 4], [5, 3, 8]]),
        "mask": np.array([[1, 1, 0], [1, 1, 1]]),
    }
    assert all(_drawn(example, 0)[name] is one for name, one in example.items())
    first, again, other = (_drawn(example, number) for number in (1, 1, 2))
    scale = np.abs(first["values"]).max()
    assert 1 <= scale < 1.5
    np.testing.assert_allclose(np.sort(first["values"].ravel()), example["values"].ravel() * scale, rtol=1e-5)
    assert first["ids"].shape == (2, 3)
    assert (first["ids"].min() >= 3, first["ids"].max() <= 9) == (True, True)
    assert first["mask"] is example["mask"]
    assert all(np.array_equal(first[name], again[name]) for name in example)
    assert not np.array_equal(first["values"], other["values"])


def test_positions_of_a_model_limit_the_tokens_that_it_decodes():
    def model(decoder=None, **config):
        parts = {"sub_configs": {"text": None}, "text": SimpleNamespace(**config)}
        return SimpleNamespace(config=SimpleNamespace(decoder=decoder, **parts))

    text = {"vocab_size": 9, "max_position_embeddings": 20, "n_positions": 16}
    assert positions_of(model(**text)) == 16
    assert positions_of(model(vocab_size=9)) is None
    assert positions_of(SimpleNamespace()) is None
    both = model(SimpleNamespace(vocab_size=9, n_positions=5), **text)
    assert [positions_of(both, decoding=one) for one in (False, True)] == [16, 5]
    inputs = {"input_ids": np.ones((2, 12))}
    assert [steps_within(model(**text), inputs, steps) for steps in (2, 6)] == [2, 4]
    assert steps_within(model(**text), {"input_ids": np.ones((2, 16))}, 6) == 1
    assert steps_within(model(**text), {"pixel_values": np.ones((2, 3))}, 99) == 15
    assert steps_within(model(vocab_size=9), inputs, 99) == 99


def test_inputs_of_each_token_and_nested_arguments_are_recognized_by_name():
    for name, shape, of_each in (
        ("token_type_ids", (2, 5), True),
        ("cross_attention_mask", (2, 5, 1), True),
        ("input_ids", (2, 5), False),
        ("decoder_attention_mask", (2, 5), False),
        ("position_ids", (2, 5), False),
        ("token_type_ids", (2, 4), False),
    ):
        assert told_of_each_token(name, shape, (2, 5)) is of_each, name
    row = np.array([1, 2])
    given = {"a": row, "b.part": row, "c.0": row, "c.1": row, "d.*": row, "e.list": row}
    found = nested(given)
    assert (list(found), found["a"] is row) == ([*"abcde"], True)
    assert (found["b"]["part"] is row, len(found["c"]), found["d"], found["e"]) == (True, 2, [1, 2], [1, 2])
    smallest = np.array([np.finfo(np.float32).min, 1.0], np.float32)
    assert ruled_out(smallest).tolist() == [-np.inf, 1.0]
    assert ruled_out(row) is row
