"""Loud weights: the same numbers for the same name everywhere, and loud enough that a fault is heard."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.testing.seeded_weights import fill

ROOT = Path(__file__).parents[2]

# Numbers of one weight and one bias, written down: they may not change with a version of NumPy or of ours.
WEIGHT = [0.1336189, -0.1704794, 0.1345405]
BIAS = [0.3464736, 0.1873444]


def linear(dtype: str = "float32", **gain: Any) -> Any:
    import torch

    return fill(torch.nn.Linear(8, 4, dtype=getattr(torch, dtype)), **gain)


def numbers(parameter: Any) -> np.ndarray:
    return parameter.detach().double().numpy()


def test_another_process_gives_the_same_numbers():
    code = """
        import torch
        from hardware.testing.seeded_weights import fill
        torch.manual_seed(12345)
        model = fill(torch.nn.Linear(8, 4))
        print(model.weight.detach().numpy().tobytes().hex(), model.bias.detach().numpy().tobytes().hex())
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    here = linear()
    assert said.split() == [p.detach().numpy().tobytes().hex() for p in (here.weight, here.bias)]


def test_what_was_in_the_model_before_does_not_matter():
    import torch

    model = torch.nn.Linear(8, 4)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    assert torch.equal(fill(model).weight, linear().weight)


def test_names_and_seeds_give_other_numbers():
    import torch

    model = fill(torch.nn.Sequential(OrderedDict(a=torch.nn.Linear(8, 8), b=torch.nn.Linear(8, 8))))
    assert not np.allclose(numbers(model.a.weight), numbers(model.b.weight))
    assert not np.allclose(numbers(linear(seed="1").weight), numbers(linear(seed="0").weight))


def test_tied_parameters_stay_one_and_have_the_first_names_numbers():
    import torch

    def two(tied: bool) -> Any:
        model = torch.nn.Sequential(OrderedDict(a=torch.nn.Linear(8, 8), b=torch.nn.Linear(8, 8)))
        if tied:
            model.b.weight = model.a.weight
        return fill(model)

    model = two(tied=True)
    assert model.a.weight is model.b.weight
    assert torch.equal(model.a.weight, two(tied=False).a.weight)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_another_dtype_holds_the_same_numbers_rounded_once(dtype):
    import torch

    exact = linear("float64").weight
    assert torch.equal(linear(dtype).weight, exact.to(getattr(torch, dtype)))


def test_the_gain_scales_matrices_and_nothing_else():
    np.testing.assert_allclose(numbers(linear(gain=0.5).weight) * 2, numbers(linear(gain=1.0).weight), rtol=1e-6)
    np.testing.assert_array_equal(numbers(linear(gain=0.5).bias), numbers(linear(gain=1.0).bias))


def test_an_output_has_about_the_scale_of_its_input():
    import torch

    model = fill(torch.nn.Linear(256, 256))
    assert numbers(model.weight).std() == pytest.approx(1 / 16, rel=0.05)


def test_norms_are_jittered_around_one_and_biases_around_zero():
    import torch

    model = fill(torch.nn.ModuleDict({"norm": torch.nn.LayerNorm(512), "dense": torch.nn.Linear(4, 512)}))
    assert numbers(model["norm"].weight).mean() == pytest.approx(1, abs=0.1)
    assert numbers(model["norm"].weight).std() > 0.2
    assert numbers(model["dense"].bias).mean() == pytest.approx(0, abs=0.1)
    assert numbers(model["dense"].bias).std() > 0.2


def test_a_normalisation_is_known_by_its_class_where_its_name_does_not_say() -> None:
    import torch

    model = fill(torch.nn.Sequential(torch.nn.Conv2d(3, 64, 1), torch.nn.BatchNorm2d(64)))
    assert numbers(model[1].weight).mean() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("name", ["lambda_1", "lambda1", "gamma", "ffn_gamma", "layer_scale_parameter"])
def test_what_scales_a_branch_is_jittered_around_one_so_that_the_branch_is_heard(name: str) -> None:
    import torch

    model = torch.nn.Module()
    model.register_parameter(name, torch.nn.Parameter(1e-6 * torch.ones(512)))
    assert numbers(getattr(fill(model), name)).mean() == pytest.approx(1, abs=0.1)


def test_the_model_comes_back_in_evaluation_mode_with_its_gradients_as_they_were():
    model = linear()
    assert not model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_the_numbers_are_the_ones_that_recipes_recorded():
    model = linear()
    np.testing.assert_allclose(numbers(model.weight)[0, :3], WEIGHT, rtol=1e-6)
    np.testing.assert_allclose(numbers(model.bias)[:2], BIAS, rtol=1e-6)


def test_a_table_that_is_computed_and_never_saved_stays():
    """What is loaded again computes it anew: other numbers there would be lost on the way."""
    import torch

    model = torch.nn.ModuleDict({"positions": torch.nn.Embedding(4, 2), "words": torch.nn.Embedding(4, 2)})
    before = {name: numbers(parameter).copy() for name, parameter in model.named_parameters()}
    model._keys_to_ignore_on_save = ["positions.weight"]
    fill(model)
    assert np.array_equal(numbers(model["positions"].weight), before["positions.weight"])
    assert not np.array_equal(numbers(model["words"].weight), before["words.weight"])


def test_a_table_kept_as_a_buffer_is_filled_where_it_is_saved_alone():
    import torch

    for saved in (True, False):
        layer = torch.nn.Module()
        layer.register_buffer("positional_embedding", torch.zeros(4, 2), persistent=saved)
        model = fill(torch.nn.ModuleDict({"layer": layer}))
        assert bool(model["layer"].positional_embedding.any()) is saved


@pytest.mark.parametrize("frozen", [False, True])
def test_the_statistics_of_batch_normalisation_are_loud_too(frozen):
    import torch

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
    assert variance.mean() == pytest.approx(1, rel=0.3)  # so that the gain is heard behind it
    assert 0.5 < numbers(model.norm.weight).mean() < 1.5
    assert numbers(model.norm.bias).std() > 0.1
    again = fill(torch.nn.Sequential(OrderedDict(norm=torch.nn.BatchNorm1d(64))), gain=1.5)
    assert np.array_equal(numbers(again.norm.running_var), variance)


def test_a_zero_centered_weight_is_jittered_around_zero_whatever_the_layer() -> None:
    import torch

    norms = torch.nn.ModuleList([torch.nn.RMSNorm(64), torch.nn.RMSNorm(64)])
    model = torch.nn.ModuleDict({"layers": norms, "norm": torch.nn.RMSNorm(64)})
    fill(model, zero_centered=("layers.*.weight",))
    assert all(abs(float(norm.weight.detach().mean())) < 0.2 for norm in norms)
    assert abs(float(model["norm"].weight.detach().mean()) - 1) < 0.2
    fill(model, zero_centered=("layers.1.weight",))
    assert [round(float(norm.weight.detach().mean())) for norm in norms] == [1, 0]


def test_what_is_narrower_than_the_rest_keeps_its_numbers_and_is_widened():
    import torch

    model = torch.nn.Sequential(OrderedDict(wide=torch.nn.Linear(8, 4), narrow=torch.nn.Linear(4, 2).bfloat16()))
    exact = fill(torch.nn.Sequential(OrderedDict(wide=torch.nn.Linear(8, 4), narrow=torch.nn.Linear(4, 2))))
    narrow = fill(model).narrow.weight
    assert narrow.dtype is torch.float32
    assert torch.equal(narrow, exact.narrow.weight.bfloat16().float())
    assert torch.equal(model.wide.weight, exact.wide.weight)
