"""Decoding: inputs of each token, the parts of a model that decode, and ONNX graphs that decode as torch does."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny
from transformers import GenerationMixin, GPT2Config, GPT2LMHeadModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.utils import ModelOutput

from generators.models.inputs import make_inputs
from hardware.backends.base import ModelInput, Unsupported
from hardware.compare import compare
from hardware.export import decoding_graphs
from hardware.export.decoding_graphs import decode, tensors_in, without_torch_modules
from hardware.export.exported import ENCODER, PROMPT, STEP
from hardware.export.onnx_decoding_graphs import axes_of, export_onnx_decoding, graph_files, with_sizes
from hardware.export.onnx_export import export_onnx
from hardware.export.traceable import growing_caches
from hardware.export.weight_compression import in_float16, with_int8_weights_in
from hardware.model.calls import in_dtype, to_arrays, without_cache
from hardware.model.greedy_decoding import _grow_token_inputs, _uncached, greedy
from hardware.model.positions import host_positions

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def filled_cache(*sizes: int) -> DynamicCache:
    cache = DynamicCache()
    cache.update(torch.zeros(*sizes), torch.zeros(*sizes), 0)
    return cache


def test_types_of_tokens_that_the_library_extends_only_with_a_cache_are_extended_without_one() -> None:
    class Model:
        def _update_model_kwargs_for_generation(self, outputs: Any, known: dict[str, Any]) -> dict[str, Any]:
            mask = known["attention_mask"]
            return {**known, "attention_mask": torch.cat([mask, mask[:, -1:]], dim=1)}

    model, ones = Model(), torch.ones(2, 3, dtype=torch.int64)
    known = {"attention_mask": ones, "moe_mm_token_type_ids": ones, "protein_input_ids": ones}
    with _grow_token_inputs(model):
        grown = model._update_model_kwargs_for_generation(None, known)
    assert grown["moe_mm_token_type_ids"].shape == (2, 4)
    assert grown["protein_input_ids"].shape == (2, 3)
    assert model._update_model_kwargs_for_generation(None, known)["moe_mm_token_type_ids"].shape == (2, 3)


def test_without_a_cache_every_pass_gets_its_own_copy_of_the_sound() -> None:
    class Keeps(torch.nn.Module):
        """Keeps what each pass was given."""

        def __init__(self) -> None:
            super().__init__()
            self.given: list[dict[str, Any]] = []

        def forward(self, **given: Any) -> None:
            self.given.append(given)

        def _update_model_kwargs_for_generation(self, *_: Any) -> dict[str, Any]:
            return {}

    model, sound, other = Keeps(), torch.ones(2, 3), torch.zeros(2, 3)
    tokens, encoded = torch.ones(2, 4, dtype=torch.int64), [torch.ones(2)]
    with _uncached(model, {"input_ids": tokens, "input_features": sound}):
        model(input_ids=tokens, input_features=other)
        model(input_ids=tokens, input_features=None)
        model(input_ids=tokens, encoder_outputs=encoded)
    model(input_ids=tokens)
    first, second, third, after = model.given
    assert first["input_features"] is other, "what the loop gives takes precedence"
    assert torch.equal(second["input_features"], sound)
    assert second["input_features"] is not sound
    assert "input_features" not in third, "the encoder has processed it"
    assert third["encoder_outputs"] is not encoded
    assert torch.equal(third["encoder_outputs"][0], encoded[0])
    assert "input_features" not in after


def test_the_smallest_number_is_the_same_in_two_precisions_and_complex_tables_stay_complex() -> None:
    both = {}
    for dtype in (torch.float32, torch.float64):
        logits = torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype)
        logits[:, 1] = torch.finfo(dtype).min
        both[dtype] = to_arrays({"logits": logits})
    assert compare(both[torch.float32], both[torch.float64]).max_rel_error == 0
    kept = to_arrays({"logits": torch.tensor([[1.0, 2.0, 3.0]])})
    assert compare(kept, both[torch.float64]).max_rel_error > 1
    model = torch.nn.Linear(2, 2)
    model.register_buffer("turns", torch.tensor([1j, 1.0]))
    assert in_dtype(model, torch.bfloat16).weight.dtype == torch.bfloat16
    assert model.get_buffer("turns").tolist() == [1j, 1.0]


def test_decoding_says_whether_a_cache_was_used() -> None:
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

    class Decoder(torch.nn.Module):
        def forward(self, x: Any, use_cache: bool = True) -> Any:
            return x

    assert without_cache(Decoder()) == {"use_cache": False}
    assert without_cache(torch.nn.Linear(1, 1)) == {}, "it takes no such argument"


def test_the_part_that_decodes_its_encoder_and_its_cache_are_found() -> None:
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
    for model, decoder, encoders in ((captions, captions.text, [captions.vision]), (text, text, [])):
        assert (decoding_graphs.decoder_of(model), decoding_graphs.encoders_of(model)) == (decoder, encoders)
    cache = filled_cache(1, 2, 3, 4)
    found = tensors_in({"input_ids": torch.zeros(1, 3), "past_key_values": cache, "use_cache": True})
    assert set(found) == {"input_ids", "past.layers.0.keys", "past.layers.0.values"}
    assert found["past.layers.0.keys"] is cache.layers[0].keys


def test_a_state_that_is_overwritten_in_place_is_an_output_of_its_graph() -> None:
    class Decoder(torch.nn.Module):
        def forward(self, input_ids: Any, past_key_values: Any) -> Any:
            past_key_values.layers[0].keys.copy_(torch.ones(1, 1, 2, 1))
            return ModelOutput(logits=input_ids * 2.0, past_key_values=past_key_values)

    call = {"input_ids": torch.ones(1, 3), "past_key_values": filled_cache(1, 1, 2, 1)}
    values = tensors_in(call)
    assert set(decoding_graphs.compute_call(Decoder(), call, values)) == {"logits", "present.layers.0.keys"}
    assert float(values["past.layers.0.keys"].sum()) == 0


def test_a_sliding_cache_keeps_all_keys_while_it_is_traced() -> None:
    keys = torch.ones(1, 1, 5, 2)
    with growing_caches():
        layer = DynamicSlidingWindowLayer(sliding_window=3)
        layer.update(keys, keys)
        assert (layer.keys.shape[-2], layer.get_seq_length(), layer.get_mask_sizes(1)) == (5, 5, (6, 0))
    layer = DynamicSlidingWindowLayer(sliding_window=3)
    layer.update(keys, keys)
    assert layer.keys.shape[-2] == 2


def test_no_part_of_a_model_computes_in_torch_while_its_graphs_decode() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
    with without_torch_modules(model, model[1]):
        model[1](torch.ones(1))
        torch.nn.Linear(1, 1)(torch.ones(1))
        with pytest.raises(Unsupported, match="0 would run in torch"):
            model(torch.ones(1))
    model(torch.ones(1))


def test_positions_that_a_model_computes_itself_are_computed_beside_the_graph() -> None:
    class Counts(torch.nn.Module):
        def compute_3d_position_ids(self, input_ids: Any, inputs_embeds: Any, attention_mask: Any = None) -> Any:
            return (attention_mask.cumsum(1) - 1).expand(3, -1, -1)

    class CountsText(torch.nn.Module):
        def compute_3d_position_ids(self, input_ids: Any, image_grid_thw: Any, past_key_values: Any) -> Any:
            if image_grid_thw is not None:
                raise ValueError("no token types")
            return input_ids.expand(3, -1, -1)

    given = {"input_ids": torch.ones(2, 5), "attention_mask": torch.ones(2, 5), "pixel_values": torch.ones(1)}
    for counts in (Counts(), CountsText()):
        assert host_positions(torch.nn.Sequential(counts), given)["position_ids"].shape == (3, 2, 5)
    assert host_positions(torch.nn.Identity(), given) == {}
    assert host_positions(torch.nn.Sequential(CountsText()), {**given, "image_grid_thw": torch.ones(2, 3)}) == {}


# Graphs as ONNX files


def decoder(model_type: str = "gpt2") -> tuple[ModelInput, dict[str, Any]]:
    model, _, recipe = tiny(model_type)
    facts = {"task": recipe.task, "generates": recipe.generate, "masked_by": recipe.masked_by}
    inputs = make_inputs(recipe.inputs, recipe.recorded["seed"], recipe.recorded["lengths"])
    return ModelInput(model=model, identity=model_type, **facts), inputs


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of gpt2 that computes a token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HWCOMPAT_CACHE", str(tmp_path_factory.mktemp("cache")))
        files = graph_files(export_onnx_decoding(*decoder()))
    assert set(files) == {PROMPT, STEP}
    assert not any(any(axes) for axes in axes_of(files[PROMPT]).values())
    return files[STEP]


def test_a_token_takes_a_cache_of_any_length(step: Path) -> None:
    files = graph_files(export_onnx_decoding(*decoder("t5")))
    assert set(files) == {ENCODER, PROMPT, STEP}
    for file in (step, files[STEP]):
        assert any(name.startswith("past") for name, axes in axes_of(file).items() if any(axes))
    assert not any(any(axes) for axes in axes_of(files[PROMPT]).values())


def test_axes_get_sizes_and_what_follows_from_them_is_computed(step: Path, tmp_path: Path) -> None:
    dims = {one.name: one.type.tensor_type.shape.dim for one in onnx.load(str(step)).graph.input}

    def sized(length: int) -> Path:
        shapes = {name: tuple(axis.dim_value or length for axis in axes) for name, axes in dims.items()}
        return with_sizes(step, shapes, tmp_path)

    assert sized(5) == sized(5) != sized(6)
    assert not any(any(axes) for axes in axes_of(sized(5)).values())
    assert "Shape" not in {node.op_type for node in onnx.load(str(sized(5))).graph.node}


def test_graphs_that_do_not_decode_as_the_module_does_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, example = decoder()
    with monkeypatch.context() as patch:
        patch.setattr(decoding_graphs, "grown_axes", lambda *_: {})  # a step for one length alone
        with pytest.raises(Unsupported, match="decoding with the"):
            export_onnx_decoding(subject, example)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the size of tensor a must match")

    with monkeypatch.context() as patch:
        patch.setattr("hardware.model.greedy_decoding.greedy", broken)
        with pytest.raises(Unsupported, match="RuntimeError: the size of tensor a must match"):
            export_onnx_decoding(subject, example)
        assert export_onnx(subject, example).static, "its forward pass is exported"
    head = subject.model.lm_head

    def in_torch(_: Any) -> dict[str, Any]:
        return {"logits": head(torch.ones(1, 1, head.in_features)).detach().numpy()}

    with pytest.raises(Unsupported, match="lm_head would run in torch during decoding") as caught:
        decode(subject.model, {PROMPT: in_torch, STEP: in_torch}, example, steps=2)
    assert caught.value.error_type == "silent_offload"


def test_cached_graphs_are_not_used_for_a_cache_that_was_changed_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, example = decoder()
    before = export_onnx_decoding(subject, example)
    made_at = (before.folder / "verified.json").stat().st_mtime_ns
    assert export_onnx_decoding(subject, example) == before
    assert (before.folder / "verified.json").stat().st_mtime_ns == made_at, "an export of the same module is kept"
    right = DynamicLayer.update
    monkeypatch.setattr(
        DynamicLayer, "update", lambda self, keys, values, *rest, **more: right(self, keys / 2, values, *rest, **more)
    )
    again = export_onnx_decoding(subject, example)
    assert (again.folder / "verified.json").stat().st_mtime_ns != made_at


def test_fewer_bits_give_nearly_the_same(tmp_path: Path) -> None:
    """A product with a matrix, and one with a constant of three axes."""
    helper, from_array, random = onnx.helper, onnx.numpy_helper.from_array, np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["values", "matrix"], ["inner"], name="first"),
        helper.make_node("MatMul", ["inner", "cube"], ["result"], name="second"),
    ]
    given, result = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3, size])
        for name, size in (("values", 64), ("result", 8))
    )
    sizes = {"matrix": (64, 64), "cube": (2, 64, 8)}
    constants = [from_array(random.normal(size=size).astype(np.float32), name) for name, size in sizes.items()]
    graph, file = helper.make_graph(nodes, "product", [given], [result], constants), tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    values = np.random.default_rng(1).normal(size=(2, 3, 64)).astype(np.float32)

    def results(file: Path) -> Any:
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        return session.run(None, {"values": values})[0]

    want = results(file)
    for make, limit in ((with_int8_weights_in, 0.05), (in_float16, 0.01)):
        folder = tmp_path / make.__name__
        folder.mkdir()
        made = make(file, folder)
        assert 1e-5 < np.abs(results(made) - want).max() / want.std() < limit
        types = {one.name: one.data_type for one in onnx.load(str(made)).graph.initializer}
        if make is in_float16:
            assert onnx.TensorProto.FLOAT not in types.values()
        else:
            assert onnx.TensorProto.INT8 in types.values()
            assert types["cube"] == onnx.TensorProto.FLOAT, "its scales would be taken for blocks"
