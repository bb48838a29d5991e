"""Norms that add 1, and biases of routers: what a model drops of them fails its suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_suites import recipe_of
from suites_of_recipes import outcomes

from generators.recipes.build_model import build, zero_centered_weights
from hardware.testing.seeded_weights import ROUTING_BIASES, fill

CENTERED = ("gemma", "gemma2", "gemma3_text", "qwen3_next", "t5gemma", "vaultgemma")
ROUTED = ("deepseek_v3", "glm4_moe", "dots1", "lfm2_moe", "longcat_flash", "minimax_m2", "nemotron_h", "solar_open")
BY_PARAMETER = ("afmoe", "ernie4_5_moe")
"""Those whose biases are parameters."""


def drop_the_one(model: Any) -> None:
    """Take the 1 that norms add away again, as code that forgot it computes."""
    for module in model.modules():
        if hasattr(module, "_norm") and hasattr(module, "weight"):
            module.forward = lambda x, norm=module: (norm._norm(x.float()) * norm.weight.float()).type_as(x)


def drop_routing_biases(model: Any) -> None:
    def drop(*_: object) -> None:
        for name, bias in [*model.named_parameters(), *model.named_buffers()]:
            if name.rpartition(".")[2] in ROUTING_BIASES:
                bias.data.zero_()

    model.register_forward_pre_hook(drop)


@pytest.mark.parametrize(
    "model_type", ["gemma", "gemma3_text", "qwen3_next"]
)  # numbers of gemma2 are the library's fault
def test_a_model_that_lost_its_one_fails_its_suite(model_type: str, tmp_path: Path) -> None:
    checks = ("matches_reference", "matches_recorded")
    clean, _ = outcomes(model_type, "float32", tmp_path, checks=checks)
    assert set(clean.values()) == {"passed"}
    broken, _ = outcomes(model_type, "float32", tmp_path, checks=checks, spoil=drop_the_one)
    assert broken["matches_recorded"] == "failed"  # the reference runs the same code


@pytest.mark.filterwarnings("ignore:.input_embeds. is deprecated:FutureWarning")  # of Nemotron-H's own code
@pytest.mark.parametrize(
    ("model_type", "precision"),
    [(name, "float32") for name in ROUTED + BY_PARAMETER] + [(name, "bfloat16") for name in ("deepseek_v3", "afmoe")],
)
def test_a_router_that_drops_its_bias_fails_its_suite(model_type: str, precision: str, tmp_path: Path) -> None:
    checks = ("matches_recorded",)
    clean, _ = outcomes(model_type, precision, tmp_path, checks=checks)
    assert clean == {"matches_recorded": "passed"}
    broken, _ = outcomes(model_type, precision, tmp_path, checks=checks, spoil=drop_routing_biases)
    assert broken == {"matches_recorded": "failed"}


def test_a_recipe_says_which_norms_add_one() -> None:
    for model_type in (*CENTERED, "llama", "deepseek_v3"):
        recipe = recipe_of(model_type)
        model = build(recipe.config_class, recipe.model_class, recipe.config)
        assert recipe.zero_centered == zero_centered_weights(model), model_type
        assert bool(recipe.zero_centered) is (model_type in CENTERED), model_type
    gated = recipe_of("qwen3_next").zero_centered  # a norm with a gate doesn't add one
    assert not any("linear_attn.norm" in name for name in gated)
    assert "model.norm.weight" in gated


def test_layers_that_differ_are_named_one_by_one() -> None:
    class AddingRMSNorm(torch.nn.Module):
        def __init__(self, one: float) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 7.0))
            self.one = one

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (self.one + self.weight)

    same = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([AddingRMSNorm(1.0), AddingRMSNorm(1.0)])})
    assert zero_centered_weights(same) == ("layers.*.weight",)
    other = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([AddingRMSNorm(1.0), AddingRMSNorm(0.0)])})
    assert zero_centered_weights(other) == ("layers.0.weight",)
    assert all(float(norm.weight.detach().mean()) == 7 for norm in other["layers"])


def test_weights_do_not_hang_on_what_the_code_does() -> None:
    recipe = recipe_of("gemma")

    def made(broken: bool) -> dict[str, torch.Tensor]:
        model: Any = build(recipe.config_class, recipe.model_class, recipe.config)
        if broken:
            drop_the_one(model)
        filled = fill(model, gain=recipe.gain or 1.0, zero_centered=recipe.zero_centered)
        return {name: one.detach() for name, one in filled.named_parameters()}

    clean, broken = made(broken=False), made(broken=True)
    assert all(torch.equal(clean[name], broken[name]) for name in clean)
    assert abs(float(clean["model.norm.weight"].mean())) < 0.2


def test_a_bias_of_a_router_is_filled_as_a_buffer_and_as_a_parameter() -> None:
    for name in ROUTING_BIASES:
        buffered, parametrized = torch.nn.Module(), torch.nn.Module()
        buffered.register_buffer(name, torch.zeros(8))
        parametrized.register_parameter(name, torch.nn.Parameter(torch.zeros(8), requires_grad=False))
        both = [fill(torch.nn.ModuleDict({"gate": one}))["gate"] for one in (buffered, parametrized)]
        first, second = (getattr(one, name).detach() for one in both)
        assert torch.equal(first, second)
        assert 0.1 < float(first.std()) < 0.6
