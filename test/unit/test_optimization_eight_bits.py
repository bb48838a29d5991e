"""Optimizers in 8 bits: layers compute what they state, on hardware that can."""

from __future__ import annotations

import pytest
import torch
from optimised_models import CPU, Text

from hardware.optimization import CPUOptimizer
from hardware.optimization.eight_bits import Float8, Int8, Int8Kernels, float8_layers, float8_of, products
from hardware.optimization.strategies import Compiled, StrategySetting
from hardware.testing.seeded_weights import fill

pytestmark = [
    pytest.mark.usefixtures("alone"),
    # torch.compile itself imports what torch has deprecated.
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]


def test_eight_bits_and_compilation_are_kept_together(seconds, only, monkeypatch):
    pytest.importorskip("torchao", reason="torchao isn't installed (requirements-optimise.txt)")
    from hardware.optimization.strategies import CompiledForLong

    monkeypatch.setattr(CompiledForLong, "mode", "default")  # the search takes minutes and isn't what is tested
    only(Int8, Compiled, CompiledForLong)
    seconds(torch_compile_max_autotune=0.5)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", torch.linspace(-1, 1, 64).repeat(4, 1))
    assert result.optimizations_applied == ("int8_dynamic", "torch_compile_max_autotune")
    assert type(model.first.weight.data).__name__ == "Int8Tensor"
    assert 1e-5 < result.metrics["max_rel_error"] < 0.25
    seconds(torch_compile_max_autotune=2.0)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", torch.linspace(-1, 1, 64).repeat(4, 1))
    assert result.left_alone
    assert type(model.first.weight) is torch.nn.Parameter
    assert result.warnings[0].startswith("int8_dynamic with torch_compile_max_autotune: taken back")


def test_int8_on_the_host_is_made_by_torch_alone(seconds, only):
    only(Int8Kernels, Int8)
    seconds(int8_kernels=0.5)
    x = torch.linspace(-1, 1, 64).repeat(4, 1)
    model, want = fill(Text()), fill(Text())(x)["out"].detach()
    model, result = CPUOptimizer(CPU).optimize(model, "O3", x)
    assert result.optimizations_applied == ("int8_kernels",)
    assert not result.warnings, "another way to 8 bits isn't tried"
    assert model.first.packed.dtype == torch.int8
    assert {name.rpartition(".")[2] for name, _ in model.named_parameters()} == {"bias"}, "no weight is in float32"
    error = float((model(x)["out"].detach() - want).abs().max() / want.std())
    assert 1e-4 < error < 0.05
    assert result.metrics["allowed_rel_error"] == 0.25
    _, again = CPUOptimizer(CPU).optimize(model, "O3", x)
    assert again.optimizations_applied == ()
    seconds(int8_kernels=1.0)
    model, result = CPUOptimizer(CPU).optimize(fill(Text()), "O3", x)
    assert type(model.first) is torch.nn.Linear
    assert torch.equal(model(x)["out"], want)


def test_float8_products_are_those_of_float8_numbers():
    from transformers.pytorch_utils import Conv1D

    mixed = torch.nn.Sequential(torch.nn.Linear(4, 8), Conv1D(6, 8), torch.nn.LayerNorm(6))
    assert {name: tuple(weight.shape) for name, (weight, _) in products(mixed).items()} == {"0": (8, 4), "1": (6, 8)}
    form = torch.float8_e4m3fn
    model, x = fill(Text()).requires_grad_(False), torch.linspace(-3, 5, 64).repeat(4, 1)[:, None]
    layer = float8_layers(model, form)["first"]
    assert layer.narrow.dtype == torch.float8_e4m3fn
    rows = (x / (x.abs().max() / 448)).to(torch.float8_e4m3fn).float() * (x.abs().max() / 448)
    exact = rows @ (layer.narrow.float() * layer.scale).t() + model.first.bias
    torch.testing.assert_close(layer(x), exact, rtol=1e-5, atol=1e-5)
    error = float((layer(x) - model.first(x)).abs().max() / model.first(x).std())
    assert 1e-3 < error < 0.1
    odd = torch.nn.Sequential(torch.nn.Linear(60, 64), torch.nn.Linear(64, 64))
    assert list(float8_layers(odd, form)) == ["1"], "the kernel takes multiples of 16"


def test_float8_is_for_devices_that_multiply_it(monkeypatch):
    assert "no processor multiplies float8" in Float8().obstacle(StrategySetting(model=Text(), device=CPU))
    setting = StrategySetting(model=Text(), device=torch.device("cuda:0"))
    for capability, why in (((8, 0), "capability 8.0 doesn't multiply float8; 8.9 does"), ((8, 9), ""), ((9, 0), "")):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
            assert Float8().obstacle(setting) == (why and f"compute {why}")
            assert isinstance(float8_of(setting.device), torch.dtype) is not bool(why)
            if not why:
                assert Float8().obstacle(StrategySetting(model=Text().double(), device=setting.device))
    if torch.cuda.is_available() and not isinstance(float8_of(setting.device), str):
        x = torch.linspace(-1, 1, 64, device=setting.device).repeat(4, 1)
        model = fill(Text()).to(setting.device)
        want = model(x)["out"]
        change = Float8().apply(StrategySetting(model=model, device=setting.device))
        assert Float8().is_applied(model)
        assert float((model(x)["out"] - want).abs().max() / want.std()) < 0.25
        change.off()
        assert torch.equal(model(x)["out"], want)
