"""Diffusion models: what diffusers maps, tiny parts of its pipelines, and what one step of denoising takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from generators import model_profile
from generators.models import model_libraries, priority
from generators.models.classifier import classify
from generators.models.inputs import covered_by, make_inputs
from generators.models.model_libraries import (
    DiffusionCatalog,
    catalog_of,
    diffusion_catalog,
    read_parts,
    read_pipelines,
)
from generators.models.recipe import Recipe
from generators.models.recipe_store import load_recipe
from generators.recipes.diffusion import diffusion_specs, overrides_of, tiny_arguments
from hardware.cell import DIFFUSION_TASKS, Cell
from hardware.errors import ModelError
from hardware.evidence.versions import relevant_versions
from hardware.target import Target

CPU = Target.parse("cpu")


@pytest.fixture
def without_diffusers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_libraries, "installed_diffusers", lambda: "")
    monkeypatch.setattr(model_libraries, "pipeline_mappings", dict)
    monkeypatch.setattr(model_libraries, "diffusion_catalog", model_libraries.diffusion_catalog.__wrapped__)


@pytest.fixture
def with_diffusers() -> None:
    if not model_libraries.installed_diffusers():
        pytest.skip("diffusers isn't installed")


def test_reads_mappings_and_what_is_put_into_them_later() -> None:
    source = (
        "AUTO_TEXT2IMAGE_PIPELINES_MAPPING = OrderedDict([('one', OnePipeline), ('two', TwoPipeline)])\n"
        "_AUTO_TEXT2IMAGE_DECODER_PIPELINES_MAPPING = OrderedDict([('one', Other)])\n"
        "if is_available():\n    AUTO_TEXT2IMAGE_PIPELINES_MAPPING['three'] = ThreePipeline\n"
    )
    assert read_pipelines(source) == {
        "AUTO_TEXT2IMAGE_PIPELINES_MAPPING": {"one": "OnePipeline", "two": "TwoPipeline", "three": "ThreePipeline"}
    }


def test_the_parts_of_a_pipeline_are_those_that_its_constructor_is_annotated_with() -> None:
    source = (
        "class Other(Base):\n    def __init__(self, unet: Wrong):\n        pass\n"
        "class One(Base):\n    def __init__(self, vae: Optional[AutoencoderKL], text: str,\n"
        "        transformer: FluxTransformer2DModel | None = None):\n        super().__init__()\n"
        "    def broken(self\n"  # only the text up to the end of the constructor is read
    )
    assert read_parts(source, "One") == {"denoiser": "FluxTransformer2DModel", "autoencoder": "AutoencoderKL"}


@pytest.mark.usefixtures("with_diffusers")
def test_every_family_of_the_installed_version_has_a_denoiser() -> None:
    catalog = diffusion_catalog()
    assert {"stable-diffusion", "stable-diffusion-xl", "stable-diffusion-3", "flux"} <= set(catalog.model_types)
    for family in catalog.model_types:
        tasks = catalog.tasks_of(family)
        assert tasks[0].task != "image-reconstruction", family
        assert {one.task for one in tasks} <= DIFFUSION_TASKS
    assert [one.model_class for one in catalog.tasks_of("stable-diffusion")][::3] == [
        "UNet2DConditionModel",
        "AutoencoderKL",
    ]


def test_a_name_that_both_libraries_have_means_transformers() -> None:
    mapped = {"AUTO_TEXT2IMAGE_PIPELINES_MAPPING": {"bert": "BertPipeline", "flux": "FluxPipeline"}}
    catalog = DiffusionCatalog(version="1", mappings=mapped, known={})
    assert catalog.model_types == ("diffusers-bert", "flux")
    assert catalog_of("bert").library == "transformers"


def test_a_family_is_classified_by_its_denoiser() -> None:
    found = classify("stable-diffusion")
    assert (found.family, found.architecture, found.task) == ("vision", "diffusion", "text-to-image")
    assert (found.model_class, found.confidence) == ("UNet2DConditionModel", "high")


@pytest.mark.usefixtures("without_diffusers")
def test_without_diffusers_the_families_are_those_whose_recipes_ship() -> None:
    assert classify("stable-diffusion").model_class == "UNet2DConditionModel"
    assert "stable-diffusion" not in priority.types_of_priority("all")
    with pytest.raises(ModelError, match=r"pip install 'hwcompat\[diffusion\]'"):
        model_libraries.require("diffusers")
    note = model_profile.profile_of("stable-diffusion").note
    assert "diffusers isn't installed" in note
    assert "pip install -e '.[diffusion]'" in note


@pytest.mark.usefixtures("with_diffusers")
def test_where_diffusers_is_installed_all_types_are_those_of_both_libraries() -> None:
    assert {"bert", "stable-diffusion", "flux"} <= set(priority.types_of_priority("all"))


class TwoStreams:
    def __init__(
        self,
        num_layers: int = 18,
        num_attention_heads: int = 24,
        attention_head_dim: int = 128,
        caption_projection_dim: int = 3072,
        joint_attention_dim: int = 4096,
        pooled_projection_dim: int = 768,
        axes_dims_rope: tuple[int, ...] = (16, 56, 56),
        in_channels: int = 64,
    ) -> None:
        """Never called: only its defaults are read."""


class Blocks:
    def __init__(
        self,
        down_block_types: tuple[str, ...] = ("Cross", "Cross", "Cross", "Down"),
        up_block_types: tuple[str, ...] = ("Up", "Cross", "Cross", "Cross"),
        block_out_channels: tuple[int, ...] = (320, 640, 1280, 1280),
        norm_num_groups: int = 32,
        layers_per_block: int = 2,
    ) -> None:
        """Never called: only its defaults are read."""


def test_a_width_that_is_heads_times_their_width_stays_so_and_rotary_axes_share_a_head() -> None:
    tiny = tiny_arguments(TwoStreams, "some")
    assert tiny["caption_projection_dim"] == tiny["num_attention_heads"] * tiny["attention_head_dim"]
    assert sum(tiny["axes_dims_rope"]) == tiny["attention_head_dim"]
    assert all(axis % 2 == 0 and axis for axis in tiny["axes_dims_rope"])
    assert tiny["joint_attention_dim"] != tiny["pooled_projection_dim"]
    assert tiny["num_layers"] == 2


def test_one_block_of_each_kind_is_kept_up_and_down() -> None:
    tiny = tiny_arguments(Blocks, "some")
    assert tiny["down_block_types"] == ["Cross", "Down"]
    assert tiny["up_block_types"] == ["Up", "Cross"]
    assert len(tiny["block_out_channels"]) == 2
    assert all(width % tiny["norm_num_groups"] == 0 for width in tiny["block_out_channels"])


def test_a_family_that_has_no_tiny_model_yet_says_why() -> None:
    with pytest.raises(ModelError, match="complex numbers"):
        tiny_arguments(Blocks, "lumina")
    assert tiny_arguments(Blocks, "")


def test_a_family_like_another_gets_what_that_one_is_like_too() -> None:
    whole = overrides_of("UNet2DConditionModel", "stable-diffusion-controlnet", "inputs")
    assert whole
    for family in ("stable-diffusion-xl-controlnet", "stable-diffusion-xl-controlnet-pag"):
        assert overrides_of("UNet2DConditionModel", family, "inputs").keys() >= whole.keys(), family


class Denoiser:
    """Takes what a transformer like Flux's does."""

    config: Mapping[str, Any] = MappingProxyType(
        {
            "in_channels": 4,
            "patch_size": 2,
            "joint_attention_dim": 32,
            "pooled_projection_dim": 24,
            "axes_dims_rope": [4, 6, 6],
            "guidance_embeds": True,
        }
    )

    def forward(
        self, hidden_states: Any, encoder_hidden_states: Any, pooled_projections: Any, timestep: Any, img_ids: Any,
        txt_ids: Any, guidance: Any = None, return_dict: bool = True,
    ) -> None: ...  # fmt: skip


class Conditioned:
    """Takes what the UNet of Stable Diffusion XL does."""

    config: Mapping[str, Any] = MappingProxyType(
        {
            "in_channels": 4,
            "block_out_channels": [8, 16],
            "cross_attention_dim": 32,
            "addition_embed_type": "text_time",
            "projection_class_embeddings_input_dim": 100,
            "addition_time_embed_dim": 8,
            "time_cond_proj_dim": None,
        }
    )

    def forward(
        self, sample: Any, timestep: Any, encoder_hidden_states: Any, encoder_attention_mask: Any = None,
        timestep_cond: Any = None, added_cond_kwargs: Any = None,
    ) -> None: ...  # fmt: skip


def test_inputs_of_a_step_follow_from_the_signature_and_the_configuration() -> None:
    flux = make_inputs(diffusion_specs(Denoiser(), "some"), 0, (16, 9))
    assert {name: array.shape for name, array in flux.items()} == {
        "hidden_states": (2, 32, 4),
        "encoder_hidden_states": (2, 16, 32),
        "pooled_projections": (2, 24),
        "timestep": (2,),
        "img_ids": (32, 3),
        "txt_ids": (16, 3),
        "guidance": (2,),
    }
    assert (flux["timestep"] < 1).all()
    unet = make_inputs(diffusion_specs(Conditioned(), "some"), 0, (16, 9))
    assert {name: array.shape for name, array in unet.items()} == {
        "sample": (2, 4, 8, 16),
        "timestep": (2,),
        "encoder_hidden_states": (2, 16, 32),
        "encoder_attention_mask": (2, 16),
        "added_cond_kwargs.text_embeds": (2, 52),
        "added_cond_kwargs.time_ids": (2, 6),
    }
    assert unet["timestep"].dtype == np.int64
    assert unet["timestep"].max() < 128


def test_a_part_that_takes_no_known_input_is_refused_with_what_it_takes() -> None:
    class Unknown:
        config: Mapping[str, Any] = MappingProxyType({})

        def forward(self, melody: Any) -> None: ...

    with pytest.raises(ModelError, match="melody"):
        diffusion_specs(Unknown(), "some")


def test_a_picture_grows_with_the_prompt_and_is_not_square() -> None:
    specs = {
        "x": {"kind": "features", "shape": [4, [2, 4], [4, 4]]},
        "cells": {"kind": "cells", "rows": [1, 4], "columns": [2, 4], "width": 8},
        "ids": {"kind": "places_of_cells", "rows": [1, 4], "columns": [2, 4], "axes": ["", "row", "column"]},
        "t": {"kind": "categories", "shape": [], "high": 16, "divisor": 128},
        "shapes": {"kind": "sizes", "value": [1, [1, 4], [2, 4]]},
    }
    for lengths, rows, columns in (((16, 9), 4, 8), ((5, 12, 7), 3, 6)):
        made = make_inputs(specs, 0, lengths)
        assert made["x"].shape == (len(lengths), 4, 2 * rows, 2 * columns)
        assert made["cells"].shape == (len(lengths), rows * columns, 8)
        assert made["ids"].max(axis=0).tolist() == [0, rows - 1, columns - 1]
        assert made["shapes"].tolist() == [[[1, rows, columns]]] * len(lengths)
        assert made["t"].dtype == np.float32
        assert (made["t"] < 0.125).all()


def test_a_mask_covers_the_prompt_and_never_itself() -> None:
    specs = {"states": {"kind": "frames", "step": 1, "bins": 8}, "states_mask": {"kind": "mask", "side": "right"}}
    assert covered_by("states_mask", specs) == "states"


def test_a_recipe_of_diffusers_says_its_version_and_is_kept_apart() -> None:
    recipe = load_recipe("stable-diffusion")
    assert recipe is not None
    assert (recipe.library, recipe.config_class) == ("diffusers", "")
    assert recipe.library_version == recipe.diffusers_version
    assert Recipe.from_dict(json.loads(recipe.to_json())) == recipe


def test_evidence_of_a_diffusion_model_expires_with_diffusers() -> None:
    cell = Cell(model="stable-diffusion", task="text-to-image", target=CPU)
    assert relevant_versions(cell, {"diffusers": "0.37.1"})["diffusers"] == "0.37.1"
    assert "diffusers" not in relevant_versions(Cell(model="bert", task="fill-mask", target=CPU), {})
