"""Memory fit: what is said of devices, what is reckoned without data, and that it agrees with torch's allocator."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from generators.compatibility.memory_fit import (
    MemoryAnatomy,
    MemoryEstimate,
    MemoryRequest,
    Room,
    changes,
    fit,
    parse_size,
)
from hardware.errors import ModelError, UsageError

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"
GB = 10**9
ANATOMY = MemoryAnatomy(
    parameters=7 * GB, linear=6 * GB, largest=GB // 10, block=GB // 5, beside=GB // 2
)  # about a model of seven billion


def estimate(weights: int, *, activations: int = 0, cache: int = 0, **asked) -> MemoryEstimate:
    request = {"mode": "generation", "precision": "bfloat16", "batch": 1, "context": 4096} | asked
    nothing = dict.fromkeys(("gradients", "optimiser", "inputs", "workspace"), 0)
    return MemoryEstimate(
        request=MemoryRequest(**request), weights=weights, activations=activations, cache=cache, **nothing
    )


def room(size: int) -> Room:
    return Room(name="a device", available=size)


@pytest.mark.parametrize(
    ("text", "size"), [("24GiB", 24 * 2**30), ("80 GB", 80 * GB), ("1.5gb", 1_500_000_000), ("4096", 4096)]
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-3GB", "24 apples", "24GiBB", "1e9", "nan"])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="not a size") as refused:
        parse_size(text)
    assert "24GiB" in refused.value.fix


def test_what_fits_needs_no_change_and_says_where_it_is_tight():
    roomy, tight = (fit(estimate(10 * GB), [], ANATOMY, room(size * GB)) for size in (20, 10))
    assert (roomy.fits, roomy.is_tight, roomy.change, roomy.missing) == (True, False, None, 0)
    assert (tight.fits, tight.is_tight) == (True, True)


def test_unknown_memory_is_not_guessed():
    answer = fit(estimate(GB), [], ANATOMY, Room(name="openvino", available=None, why_unknown="nothing tells"))
    assert answer.fits is None
    assert "unknown" in answer.text
    assert "nothing tells" in answer.text


def test_smaller_batch_goes_first_and_is_the_largest_that_fits():
    base = estimate(10 * GB, activations=8 * GB, batch=8)
    one = estimate(10 * GB, activations=GB, batch=1)
    answer = fit(base, [one], ANATOMY, room(15 * GB))
    assert answer.missing == 3 * GB
    assert answer.change is not None
    assert (answer.change.kind, answer.change.what) == ("batch", "take a batch of 5")
    assert answer.change.needed == 15 * GB


def test_half_precision_goes_before_eight_bits_and_eight_before_four():
    base, half = estimate(28 * GB, precision="float32"), estimate(14 * GB)
    kinds = [fit(base, [half], ANATOMY, room(size)).change.kind for size in (20 * GB, 9 * GB, 6 * GB)]
    assert kinds == ["precision", "int8", "int4"]


def test_bytes_of_quantised_weights_are_those_of_the_arithmetic():
    found = {one.kind: one.needed for one in changes(estimate(14 * GB), [], ANATOMY, GB)}
    # What isn't linear stays in two bytes, and the largest matrix is widened; four bits have 2 bytes for each 128.
    assert found["int8"] == 2 * GB + GB // 5 + 6 * GB
    assert found["int4"] == 2 * GB + GB // 5 + 3 * GB + 6 * GB // 64


def test_training_is_not_quantised_nor_offloaded():
    kinds = {one.kind for one in changes(estimate(14 * GB, mode="training"), [], ANATOMY, GB)}
    assert kinds == {"two devices"}


def test_on_the_host_nothing_is_moved_to_the_host_nor_to_a_second_one():
    said = [one.what for one in changes(estimate(20 * GB), [], ANATOMY, 5 * GB, on_host=True)]
    assert any("offload its layers to disk" in what for what in said)
    assert not any("host" in what or "two" in what for what in said)


def test_where_one_change_is_not_enough_several_are_said_the_fewest_first():
    base = estimate(4 * GB, activations=40 * GB, mode="training", precision="float32", batch=8)
    others = [
        estimate(4 * GB, activations=10 * GB, mode="training", precision="float32"),
        estimate(2 * GB, activations=20 * GB, mode="training", batch=8),
        estimate(2 * GB, activations=5 * GB, mode="training"),
        estimate(2 * GB, activations=1 * GB, mode="training", context=1024),
    ]
    assert fit(base, others, ANATOMY, room(8 * GB)).change.what == "take a batch of 1, run it in bfloat16"
    shortest = fit(base, others, ANATOMY, room(3 * GB)).change
    assert shortest.what == "take a batch of 1, run it in bfloat16, shorten the context to 1024 tokens"
    assert (shortest.kind, shortest.needed) == ("several", 3 * GB)
    on_two = fit(base, others, ANATOMY, room(5 * GB // 2)).change
    assert on_two.what.endswith("part its layers between two such devices")


def test_nothing_helps_is_said():
    answer = fit(estimate(14 * GB, activations=9 * GB), [], ANATOMY, room(GB))
    assert answer.change is None
    assert "No change that" in answer.text


@pytest.mark.parametrize(("model_type", "mode"), [("llama", "training"), ("resnet", "inference")])
def test_estimate_agrees_with_the_allocator(model_type, mode):
    from benchmarks.memory.measuring import measured
    from generators.models.recipe_store import load_recipe
    from generators.recipes.build_model import build
    from generators.recipes.memory.memory_estimate import Skeleton, built

    recipe = load_recipe(model_type)
    assert recipe is not None
    model = (recipe.config_class, recipe.model_class, recipe.config)
    asked = MemoryRequest(mode=mode, precision="float32", batch=24, context=16)
    found = Skeleton(lambda: build(*model)).estimate(asked, recipe.inputs, [16] * 24)
    request = {"inputs": recipe.inputs, "length": 16, "batch": 24, "precision": "float32", "mode": mode}
    real, _ = measured(built(lambda: build(*model)), request)
    assert found.total == pytest.approx(real, rel=0.1)


def test_seventy_billion_parameters_are_counted_without_being_allocated():
    import psutil

    from generators.recipes.memory.memory_request import memory_of

    before = psutil.Process().memory_info().rss
    said = memory_of(str(CONFIGS / "llama-3-70b"), None, {"batch": 2, "context": 1024})
    assert psutil.Process().memory_info().rss - before < GB
    published = tomllib.loads((CONFIGS / "sources.toml").read_text())["llama-3-70b"]["parameters"]
    assert said["anatomy"]["parameters"] == published
    found = MemoryEstimate.from_dict(said["estimates"][0])
    assert found.weights == pytest.approx(2 * published, rel=1e-3)
    # Keys and values of two texts of 1,025 tokens, for 8 heads of 128 in 80 layers, in two bytes.
    assert found.cache == pytest.approx(2 * 2 * 1025 * 8 * 128 * 80 * 2, rel=0.01)


def test_text_longer_than_the_positions_is_refused_with_what_is_possible():
    from generators.recipes.memory.memory_request import memory_of

    with pytest.raises(ModelError, match="no more than 512") as refused:
        memory_of(str(CONFIGS / "bert-large"), None, {"context": 1000})
    assert "--context 512" in refused.value.fix
    with pytest.raises(ModelError, match="no estimate is made for more than"):
        memory_of(str(CONFIGS / "bert-large"), None, {"context": 512, "batch": 2**20})


def written(folder: Path, **changed) -> str:
    """A folder with the configuration of a small Llama."""
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 256,
        "max_position_embeddings": 512,
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | changed))
    return str(folder)


@pytest.mark.parametrize("changed", [{"num_hidden_layers": -3}, {"vocab_size": -1}, {"hidden_size": 0}])
def test_sizes_that_no_model_has_are_refused_by_name(tmp_path, changed):
    from generators.recipes.memory.memory_request import memory_of

    with pytest.raises(ModelError, match="describes no model") as refused:
        memory_of(written(tmp_path, **changed), None, {})
    assert refused.value.why == "its {} is {}".format(*next(iter(changed.items())))


def test_weights_that_are_quantised_are_counted_so(tmp_path):
    from generators.recipes.memory.memory_request import memory_of

    asked = {"mode": "inference", "precision": "bfloat16", "least_room": 1}
    plain = memory_of(written(tmp_path / "plain"), None, asked)
    said = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    packed = memory_of(written(tmp_path / "packed", quantization_config=said), None, asked)
    weights = [one["estimates"][0]["weights"] for one in (plain, packed)]
    linear = plain["anatomy"]["linear"]
    assert linear == 2 * (4 * 64 * 64 + 3 * 64 * 128)
    assert weights[0] - weights[1] == 2 * linear - linear // 2 - linear * 2 // 128
    assert packed["anatomy"]["linear"] == 0  # nothing is left to quantise
    assert any("4 bits" in note for note in packed["notes"])
    unnamed = memory_of(written(tmp_path / "odd", quantization_config={"quant_method": "new"}), None, asked)
    assert unnamed["estimates"][0]["weights"] == weights[0]
    assert any("as if they were not" in note for note in unnamed["notes"])


def test_a_precision_that_is_not_counted_is_said(tmp_path):
    from generators.recipes.memory.memory_request import memory_of

    said = memory_of(written(tmp_path, dtype="float64"), None, {"mode": "inference"})
    assert said["estimates"][0]["precision"] == "float32"
    assert any("float64" in note for note in said["notes"])


def test_weights_of_another_model_beside_a_configuration_are_said(tmp_path):
    import numpy as np
    from safetensors.numpy import save_file

    from generators.recipes.memory.memory_request import memory_of, weights_of_another

    folder = written(tmp_path)
    save_file({"one": np.zeros((10, 10), np.float32), "two": np.zeros(5, np.float32)}, tmp_path / "model.safetensors")
    assert any("hold 105 numbers" in note for note in memory_of(folder, None, {"mode": "inference"})["notes"])
    assert weights_of_another(tmp_path, 104) == ""
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    assert "can't be read" in weights_of_another(tmp_path, 104)


def test_what_kernels_hold_is_that_of_the_processor_that_is_asked_about():
    """Half precision has no kernels of oneDNN's below AVX-512, and channels lie in blocks of half as many."""
    import torch

    from generators.recipes.memory import kernel_workspace

    given, weight = torch.ones(2, 4, 8, 8, device="meta"), torch.ones(4, 4, 3, 3, device="meta")
    args = (given, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    held = {}
    for kind in ("AVX2", "AVX512"):
        with kernel_workspace.on_processor(kind):
            held[kind] = kernel_workspace.workspace_of("convolution", args, [given])
            assert kernel_workspace._block() == {"AVX2": 8, "AVX512": 16}[kind]
    assert held["AVX2"] != held["AVX512"]


def test_a_measured_point_is_estimated_for_its_own_processor(monkeypatch):
    from types import SimpleNamespace

    from benchmarks.memory import estimating
    from generators.recipes.memory import kernel_workspace

    blocks = SimpleNamespace(estimate=lambda *_: SimpleNamespace(parts={"workspace": kernel_workspace._block()}))
    monkeypatch.setattr(estimating, "_skeleton", lambda _: blocks)
    monkeypatch.setattr(estimating, "_rival", lambda *_: 0)
    point = {"config_class": "", "model_class": "", "config": {}, "inputs": {}, "mode": "inference"}
    point |= {"precision": "float32", "batch": 2, "length": 16}
    said = estimating.with_estimates([{**point, "cpu": kind} for kind in ("AVX2", "AVX512")])
    assert [(one["cpu"], one["parts"]["workspace"]) for one in said] == [("AVX2", 8), ("AVX512", 16)]


def test_an_estimate_that_cannot_be_kept_is_told_and_kept_where_it_can_be(monkeypatch, caplog):
    from generators.models.classifier import classify_type
    from generators.recipes import memory_answer as asking

    said = {"estimates": [estimate(10 * GB).to_dict()], "anatomy": vars(ANATOMY), "notes": []}
    asked = []

    def child(*arguments: object) -> dict[str, object]:
        asked.append(arguments)
        return said

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(asking, "memory_in_child", child)
    with monkeypatch.context() as patch:
        patch.setattr(asking, "write_whole", full)
        assert asking.memory_answer(classify_type("bert"), {}).estimates == (estimate(10 * GB),)
    assert "No space left" in caplog.text
    for _ in range(2):
        assert asking.memory_answer(classify_type("bert"), {}).estimates == (estimate(10 * GB),)
    assert len(asked) == 2
