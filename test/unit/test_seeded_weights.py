"""Seeded test weights: the same numbers for the same name everywhere, scaled so that faults are detected."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny

from hardware.testing.reference import identity_of
from hardware.testing.seeded_weights import fill

ROOT = Path(__file__).parents[2]
NAMES = ("bert", "gpt2", "whisper", "vit", "gemma4_text")
CHILD = """
import torch
from tiny_models import tiny
from hardware.testing.reference import identity_of
from hardware.testing.seeded_weights import fill
torch.manual_seed(12345)
model = fill(torch.nn.Linear(8, 4))
print(model.weight.detach().numpy().tobytes().hex(), model.bias.detach().numpy().tobytes().hex())
print(*(identity_of(tiny(name)[0]) for name in {names}))
"""


def linear(dtype: str = "float32", **gain: Any) -> Any:
    return fill(torch.nn.Linear(8, 4, dtype=getattr(torch, dtype)), **gain)


def two(first: Any, second: Any) -> Any:
    return torch.nn.Sequential(OrderedDict(a=first, b=second))


def layers(tied: bool = False) -> Any:
    model = two(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    if tied:
        model.b.weight = model.a.weight
    return fill(model)


def numbers(parameter: Any) -> np.ndarray:
    return parameter.detach().double().numpy()


def test_another_process_gives_the_same_numbers_and_identities() -> None:
    """Hashes of words differ from process to process, and with them the order of sets (gemma4_text)."""
    model, identities = linear(), [identity_of(tiny(name)[0]) for name in NAMES]
    here = [*(p.detach().numpy().tobytes().hex() for p in (model.weight, model.bias)), *identities]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "test" / "support")))
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(names=NAMES)],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == here
    assert len(set(identities)) == len(NAMES)


def test_the_numbers_are_those_that_recipes_recorded() -> None:
    model = linear()
    np.testing.assert_allclose(numbers(model.weight)[0, :3], [0.1336189, -0.1704794, 0.1345405], rtol=1e-6)
    np.testing.assert_allclose(numbers(model.bias)[:2], [0.3464736, 0.1873444], rtol=1e-6)
    assert not model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_numbers_depend_on_name_and_seed_and_on_nothing_that_was_there_before() -> None:
    before = torch.nn.Linear(8, 4)
    torch.nn.init.constant_(before.weight, float("nan"))
    assert torch.equal(fill(before).weight, linear().weight)
    model, tied = layers(), layers(tied=True)
    assert not np.allclose(numbers(model.a.weight), numbers(model.b.weight))
    assert not np.allclose(numbers(linear(seed="1").weight), numbers(linear(seed="0").weight))
    assert tied.a.weight is tied.b.weight
    assert torch.equal(tied.a.weight, model.a.weight), "tied parameters have the first name's numbers"


def test_another_dtype_holds_the_same_numbers_rounded_once() -> None:
    exact = linear("float64").weight
    for dtype in ("float16", "bfloat16", "float64"):
        assert torch.equal(linear(dtype).weight, exact.to(getattr(torch, dtype))), dtype
    model = two(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2).bfloat16())
    wide = fill(two(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2)))
    narrow = fill(model).b.weight
    assert narrow.dtype is torch.float32, "the narrower part is widened, with its own numbers"
    assert torch.equal(narrow, wide.b.weight.bfloat16().float())
    assert torch.equal(model.a.weight, wide.a.weight)


def test_the_gain_scales_matrices_and_an_output_has_about_the_scale_of_its_input() -> None:
    np.testing.assert_allclose(numbers(linear(gain=0.5).weight) * 2, numbers(linear(gain=1.0).weight), rtol=1e-6)
    np.testing.assert_array_equal(numbers(linear(gain=0.5).bias), numbers(linear(gain=1.0).bias))
    assert numbers(fill(torch.nn.Linear(256, 256)).weight).std() == pytest.approx(1 / 16, rel=0.05)


def test_scales_are_around_one_and_biases_around_zero() -> None:
    model = fill(torch.nn.ModuleDict({"norm": torch.nn.LayerNorm(512), "dense": torch.nn.Linear(4, 512)}))
    for parameter, mean in ((model["norm"].weight, 1), (model["dense"].bias, 0)):
        assert numbers(parameter).mean() == pytest.approx(mean, abs=0.1)
        assert numbers(parameter).std() > 0.2
    batch = fill(torch.nn.Sequential(torch.nn.Conv2d(3, 64, 1), torch.nn.BatchNorm2d(64)))
    assert numbers(batch[1].weight).mean() == pytest.approx(1, abs=0.2), "known by its class, not by its name"
    for name in ("lambda_1", "lambda1", "gamma", "ffn_gamma", "layer_scale_parameter"):
        scaled = torch.nn.Module()
        scaled.register_parameter(name, torch.nn.Parameter(1e-6 * torch.ones(512)))
        assert numbers(getattr(fill(scaled), name)).mean() == pytest.approx(1, abs=0.1), name


def test_a_zero_centered_weight_is_around_zero_in_any_layer() -> None:
    norms = torch.nn.ModuleList([torch.nn.RMSNorm(64), torch.nn.RMSNorm(64)])
    model = torch.nn.ModuleDict({"layers": norms, "norm": torch.nn.RMSNorm(64)})
    fill(model, zero_centered=("layers.*.weight",))
    assert all(abs(float(norm.weight.detach().mean())) < 0.2 for norm in norms)
    assert abs(float(model["norm"].weight.detach().mean()) - 1) < 0.2
    fill(model, zero_centered=("layers.1.weight",))
    assert [round(float(norm.weight.detach().mean())) for norm in norms] == [1, 0]


def test_a_table_that_is_never_saved_stays_and_a_saved_buffer_is_filled() -> None:
    """What is loaded again computes the table anew: other numbers there would be lost on the way."""
    model = torch.nn.ModuleDict({"positions": torch.nn.Embedding(4, 2), "words": torch.nn.Embedding(4, 2)})
    before = {name: numbers(parameter).copy() for name, parameter in model.named_parameters()}
    model._keys_to_ignore_on_save = ["positions.weight"]
    fill(model)
    assert np.array_equal(numbers(model["positions"].weight), before["positions.weight"])
    assert not np.array_equal(numbers(model["words"].weight), before["words.weight"])
    for saved in (True, False):
        layer = torch.nn.Module()
        layer.register_buffer("positional_embedding", torch.zeros(4, 2), persistent=saved)
        model = fill(torch.nn.ModuleDict({"layer": layer}))
        assert bool(model["layer"].positional_embedding.any()) is saved


@pytest.mark.parametrize("frozen", [False, True])
def test_statistics_of_batch_normalization_are_filled_too(frozen: bool) -> None:
    norm = torch.nn.BatchNorm1d(64)
    if frozen:  # as detectors have them: all four are buffers
        for name in ("weight", "bias"):
            values = getattr(norm, name).data
            delattr(norm, name)
            norm.register_buffer(name, values)
    model = fill(torch.nn.Sequential(OrderedDict(norm=norm)), gain=1.5)
    mean, variance = numbers(model.norm.running_mean), numbers(model.norm.running_var)
    assert 0.1 < mean.std() < 0.5
    assert (variance > 0).all()
    assert variance.mean() == pytest.approx(1, rel=0.3)  # so that the gain shows behind it
    assert 0.5 < numbers(model.norm.weight).mean() < 1.5
    assert numbers(model.norm.bias).std() > 0.1
    again = fill(torch.nn.Sequential(OrderedDict(norm=torch.nn.BatchNorm1d(64))), gain=1.5)
    assert np.array_equal(numbers(again.norm.running_var), variance)
