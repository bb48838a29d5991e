"""Inputs that are found by asking a model: placeholder tokens, layouts of sounds, masks, and what changes nothing.

A model with fewer positions than the default inputs have tokens gets inputs, and decodes texts, that fit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from generators.models.catalog import TaskEntry
from generators.models.classifier import classify_type
from generators.models.inputs import make_inputs, other_draws, placeholders
from generators.models.recipe_store import load_recipe
from generators.recipes import derive
from generators.recipes.derive import derive_checkpoint
from generators.recipes.input_layouts import (
    chosen_layout,
    placeholder_positions,
    placeholder_tokens,
    sound_layouts,
    with_sense_masks,
)
from generators.recipes.input_specs import input_specs
from generators.recipes.measurements import ineffective_inputs, run
from hardware.backends.base import STEPS
from hardware.compare import scale_of
from hardware.errors import ModelError
from hardware.model.outputs import nested
from hardware.testing.capability_checks import replay_inputs
from hardware.testing.reference import as_reference, float64_generation, float64_outputs
from hardware.testing.seeded_weights import fill


def configured(**attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(model_type="some", **attributes)


# Placeholder tokens

PIXELS = {"kind": "pixels", "shape": [3, 4, 4]}
WIDTH = 8


class Sighted(torch.nn.Module):
    """Scatters five embeddings of an image over the embedded text, and two of a video."""

    config = configured(image_token_id=60, video_token_index=61)

    def forward(self, input_ids: Any, pixel_values: Any = None, pixel_values_videos: Any = None) -> Any:
        text = torch.zeros(*input_ids.shape, WIDTH)
        for token, given, count in ((60, pixel_values, 5), (61, pixel_values_videos, 2)):
            if given is not None:
                there = (input_ids == token)[..., None].expand_as(text)
                text = self.placed(text, there, torch.ones(len(given), count, WIDTH))
        return {"logits": text}

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        return text.masked_scatter(there, features)


class Checking(Sighted):
    """Checks, before it scatters them, that there is a placeholder for each feature, as the library does."""

    def get_placeholder_mask(self, input_ids: Any, inputs_embeds: Any, image_features: Any) -> Any:
        raise ValueError("the places do not match")

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        return self.get_placeholder_mask(None, inputs_embeds=text, image_features=features)


class Embedding(Sighted):
    """Fails in a way of its own, and has a method that makes the embeddings."""

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        raise ValueError("these are too few")

    def get_image_features(self, pixel_values: Any) -> Any:
        return SimpleNamespace(pooler_output=torch.zeros(len(pixel_values), 5, WIDTH))


class Beside(Sighted):
    """Lets the text attend to the image from outside."""

    def placed(self, text: Any, there: Any, features: Any) -> Any:
        return text + features.sum()


class Failing(Sighted):
    def placed(self, text: Any, there: Any, features: Any) -> Any:
        raise ValueError("no such tile")


def drafts(*more: str) -> dict[str, dict[str, Any]]:
    return {"input_ids": {"kind": "tokens", "high": 50}} | {name: dict(PIXELS) for name in more}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model", [Sighted(), Checking(), Embedding()], ids=lambda one: type(one).__name__)
def test_an_image_has_as_many_placeholders_as_the_model_fills_and_none_is_padded(model: Any, side: str) -> None:
    specs = drafts("pixel_values")
    specs["input_ids"]["places"] = placeholder_positions(model, {"image": 60}, specs, side)
    specs["attention_mask"] = {"kind": "mask", "side": side}
    specs["token_type_ids"] = {"kind": "places", "token": 60, "elsewhere": True}
    assert placeholders(specs) == 5
    arrays = make_inputs(specs, 0, (12, 5))
    there = arrays["input_ids"] == 60
    assert there.shape == (2, 17)
    assert (there.sum(axis=1) == 5).all()
    assert arrays["attention_mask"].sum(axis=1).tolist() == [17, 10]
    assert arrays["attention_mask"][there].all()
    assert (arrays["token_type_ids"] == ~there).all()
    assert "get_placeholder_mask" not in vars(model)


def test_placeholders_follow_one_another_and_a_model_that_needs_none_has_none() -> None:
    specs = drafts("pixel_values", "pixel_values_videos")
    assert placeholder_positions(Sighted(), placeholder_tokens(Sighted.config, specs), specs, "left") == [
        [60, -10, -5],
        [61, -5, -3],
    ]
    assert placeholder_positions(Beside(), {"image": 60}, drafts("pixel_values"), "left") == []
    with pytest.raises(ModelError, match="number of placeholder tokens") as refused:
        placeholder_positions(Failing(), {"image": 60}, drafts("pixel_values"), "left")
    assert "no such tile" in refused.value.why


def test_tokens_are_an_image_only_if_nothing_else_is_taken() -> None:
    """ImageGPT's are colors; if pixels of an unknown shape are taken, text alone proves little."""

    class OfColors(torch.nn.Module):
        config = configured(vocab_size=512)

        def forward(self, input_ids: Any) -> None: ...

    class OfMore(OfColors):
        def forward(self, input_ids: Any, unheard_of_pixels: Any) -> None: ...  # type: ignore[override]

    entry = TaskEntry(mapping="", task="image-classification", auto_class="", outputs=(), generate="none")
    assert list(input_specs(OfColors(), entry, "vision", "right", 16)) == ["input_ids"]
    with pytest.raises(ModelError, match="only the text inputs"):
        input_specs(OfMore(), entry, "vision", "right", 16)


# Sounds

WAVES = {"conv_kernel": (10, 3, 3, 3, 3, 2, 2), "conv_stride": (5, 2, 2, 2, 2, 2, 2), "vocab_size": 32}


def sounding(**attributes: Any) -> Any:
    """Return a model with nothing in it but a configuration."""
    model = torch.nn.Module()
    model.config = configured(**attributes)  # type: ignore[assignment]
    return model


def samples(spec: dict[str, Any], lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(make_inputs({"input_values": spec}, 0, lengths)["input_values"].shape)


def test_a_sound_has_the_samples_that_the_configuration_or_the_convolutions_ask_for() -> None:
    count = samples(sound_layouts("input_values", sounding(**WAVES), in_text=False)[0], (16, 9))[1]
    for kernel, stride in zip(WAVES["conv_kernel"], WAVES["conv_stride"], strict=True):
        count = (count - kernel) // stride + 1
    assert count == 16  # one frame for each position
    codec = sounding(audio_channels=2)
    codec.encoder = torch.nn.Sequential(torch.nn.Conv1d(2, 4, 8, stride=4), torch.nn.Conv1d(4, 4, 4, stride=2))
    codec.decoder = torch.nn.ConvTranspose1d(4, 2, 8, stride=8)
    plain, channels = sound_layouts("input_values", codec, in_text=False)
    assert samples(plain, (3, 2)) == (2, 24)
    assert samples(channels, (3, 2)) == (2, 2, 24)
    in_text = sound_layouts("input_values", sounding(hop_length=10), in_text=True)[0]
    assert samples(in_text, (16, 9)) == samples(in_text, (5, 3))


def test_a_shape_of_sound_that_is_left_open_is_refused_or_found_by_trying() -> None:
    with pytest.raises(ModelError, match="conv_kernel and conv_stride"):
        sound_layouts("input_values", sounding(), in_text=False)
    with pytest.raises(ModelError, match="num_mel_bins"):
        sound_layouts("input_features", sounding(), in_text=False)
    assert sound_layouts("labels", sounding(), in_text=False) == []
    layouts = sound_layouts("input_features", sounding(num_mel_bins=20), in_text=False)
    for axis in (1, 2):

        def takes(specs: Any, axis: int = axis) -> None:
            if make_inputs(specs)["input_features"].shape[axis] != 20:
                raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        chosen = chosen_layout(sounding(), "input_features", {}, layouts, takes)["input_features"]
        assert make_inputs({"input_features": chosen})["input_features"].shape[axis] == 20


def test_codes_of_a_codec_differ_and_one_number_alone_has_a_scale() -> None:
    """A library leaves its tables of codes 0, with which every sound becomes the same code."""
    model = torch.nn.Module()
    model.register_buffer("embed", torch.zeros(16, 4))
    model.register_buffer("other", torch.zeros(16, 4))
    fill(model)
    assert len(torch.unique(model.embed, dim=0)) == 16
    assert not model.other.any()  # type: ignore[operator]
    assert [scale_of(np.array(one)) for one in (3.0, [-2.0, -2.0], [1.0, 3.0])] == [3.0, 2.0, 1.0]


# Masks over images and sounds

IMAGE = {"pixel_values": {"kind": "pixels", "shape": [3, 8, 8]}}
LENGTHS = (16, 9)


class Seeing(torch.nn.Module):
    """Looks at the mean of an image where its mask is true; `read` says what it makes of the mask."""

    config = SimpleNamespace(patch_size=4)

    def __init__(self, read: Any) -> None:
        super().__init__()
        self.read = read

    def forward(self, pixel_values: Any, pixel_mask: Any = None, bool_masked_pos: Any = None) -> Any:
        shown = torch.ones_like(pixel_values[:, 0]) if pixel_mask is None else self.read(pixel_mask)
        return {"logits": (pixel_values * shown[:, None]).mean(dim=(2, 3))}


def by_patch(mask: Any) -> Any:
    return mask.to(torch.float32).reshape(-1, 2, 2).repeat_interleave(4, 1).repeat_interleave(4, 2)


@pytest.mark.parametrize(
    ("read", "mask"),
    [
        (lambda mask: mask.to(torch.float32).reshape(-1, 8, 8), {"shape": [8, 8]}),
        (by_patch, {"shape": [2, 2]}),
        (lambda mask: (~mask).logical_not().float(), {"shape": [8, 8], "boolean": True}),
    ],
    ids=["pixels", "patches", "booleans"],
)
def test_the_axes_and_type_of_a_mask_are_those_that_the_model_takes(read: Any, mask: dict[str, Any]) -> None:
    specs, unknown = with_sense_masks(Seeing(read), IMAGE, LENGTHS, ())
    assert specs["pixel_mask"] == {"kind": "shown", **mask}
    assert not unknown


def test_a_mask_that_is_not_read_is_not_given_and_one_of_another_form_is_named() -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("another shape")

    class Odd(torch.nn.Module):
        def forward(self, pixel_values: Any, weather_mask: Any = None) -> Any:
            return {"logits": pixel_values.mean(dim=(2, 3))}

    assert with_sense_masks(Seeing(torch.ones_like), IMAGE, LENGTHS, ()) == (IMAGE, ())
    required = {**IMAGE, "pixel_mask": {"kind": "ones", "shape": [8, 8]}}
    assert with_sense_masks(Seeing(torch.ones_like), required, LENGTHS, ()) == (required, ())
    assert with_sense_masks(Seeing(refuse), IMAGE, LENGTHS, ()) == (IMAGE, ("pixel_mask",))
    assert with_sense_masks(Seeing(refuse), IMAGE, LENGTHS, {"pixel_mask"}) == (IMAGE, ())
    assert with_sense_masks(Odd(), IMAGE, LENGTHS, ()) == (IMAGE, ("weather_mask",))


def test_a_sound_is_masked_where_its_row_is_padded_and_over_merged_frames() -> None:
    class Hearing(torch.nn.Module):
        def forward(self, input_values: Any, attention_mask: Any = None) -> Any:
            return {"logits": (input_values * attention_mask).mean(dim=1, keepdim=True)}

    class Merging(torch.nn.Module):
        def forward(self, input_features: Any, attention_mask: Any = None) -> Any:
            merged = input_features.unflatten(1, (-1, 2)).mean(dim=2)
            return {"logits": (merged * attention_mask[..., None]).mean(dim=1)}

    sound = {"input_values": {"kind": "waveform", "step": 4, "extra": 2}}
    specs, unknown = with_sense_masks(Hearing(), sound, LENGTHS, ())
    assert specs["attention_mask"] == {"kind": "heard", "step": 4, "extra": 2}
    assert not unknown
    arrays = make_inputs(specs, 0, LENGTHS)
    assert arrays["attention_mask"].shape == arrays["input_values"].shape
    assert arrays["attention_mask"].sum(axis=1).tolist() == [66, 38]
    frames = {"input_features": {"kind": "frames", "step": 8, "bins": 3}}
    specs, _ = with_sense_masks(Merging(), frames, LENGTHS, ())
    assert specs["attention_mask"] == {"kind": "heard", "step": 4, "extra": 0}


def test_padding_that_no_gain_makes_detectable_is_left_away_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    plain, kept = derive.probe_recipe, {}  # measured once with and once without

    def noisy(*args: Any, pad_senses: bool) -> Any:
        asked.append(pad_senses)
        if pad_senses not in kept:
            kept[pad_senses] = plain(*args, pad_senses=pad_senses)
        found = kept[pad_senses]
        return replace(found, sensitivity={**found.sensitivity, "float32_error": 1.0}) if pad_senses else found

    monkeypatch.setattr(derive, "probe_recipe", noisy)
    recipe = load_recipe("detr")
    assert recipe is not None
    chosen = derive.task_class("detr", None)
    best = derive._best_of(recipe.config, recipe.config_class, chosen, classify_type("detr"), gains=(1.0, 0.7))
    assert asked == [True, True, False, False]
    assert isinstance(best, tuple), best
    assert best[1].unknown_masks == ("pixel_mask",)
    assert "pixel_mask" not in best[1].specs


# Inputs that change nothing


def test_an_input_that_changes_nothing_is_named() -> None:
    class Blind(torch.nn.Linear):
        def forward(self, past_values: Any, pixel_values: Any) -> Any:
            return {"logits": super().forward(past_values) + 0 * pixel_values.sum()}

    model = Blind(4, 3)
    specs = {name: {"kind": "features", "shape": [4]} for name in ("past_values", "pixel_values")}
    inputs, others = make_inputs(specs, 0), make_inputs(specs, 1)
    clean = run(model, inputs)
    found = ineffective_inputs(model, inputs, others, clean, {}, specs)
    assert len(found) == 1
    assert found[0].startswith("other pixel_values change the output by 0.0e+00")
    half = {**others, "past_values": np.stack([inputs["past_values"][0], others["past_values"][1]])}
    assert ineffective_inputs(model, inputs, half, clean, {}, specs) == found, (
        "a row that is drawn alike says nothing"
    )
    assert len(ineffective_inputs(model, inputs, inputs, clean, {}, specs)) == 2, "nothing was drawn anew"


def test_an_example_that_is_left_out_is_named() -> None:
    """A model that scatters more features than it has placeholders for silently leaves the last image out."""

    class First(torch.nn.Linear):
        def forward(self, pixel_values: Any) -> Any:
            return {"logits": super().forward(pixel_values) * torch.tensor([[1.0], [0.0]])}

    model, specs = First(4, 3), {"pixel_values": {"kind": "features", "shape": [4]}}
    inputs, others = make_inputs(specs, 0), make_inputs(specs, 1)
    assert len(ineffective_inputs(model, inputs, others, run(model, inputs), {}, specs)) == 1


def test_names_with_points_are_parts_of_what_a_forward_takes() -> None:
    one, two = torch.ones(2, 3), torch.zeros(2)
    made = nested({"x": one, "added.ids": two, "parts.0": one, "parts.1": two, "rows.*": one, "sizes.list": two})
    assert made["x"] is one
    assert made["added"]["ids"] is two
    assert [part is tensor for part, tensor in zip(made["parts"], (one, two), strict=True)] == [True, True]
    assert [row.shape for row in made["rows"]] == [(3,), (3,)]
    assert made["sizes"] == [0.0, 0.0]


transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
INNER = {**SMALL, "intermediate_size": 64}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4}
LAYERS = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
BOTH = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in LAYERS.items()}
MODELS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", 8, {**GPT2, "n_positions": 8}),
    "longer gpt2": ("GPT2Config", "GPT2LMHeadModel", 18, {**GPT2, "n_positions": 18}),
    "opt": ("OPTConfig", "OPTForCausalLM", 8, {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", 8, INNER),
    "bert": ("BertConfig", "BertForMaskedLM", 8, INNER),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", 10, {**INNER, "pad_token_id": 1}),
    "roberta decodes": (
        *("RobertaConfig", "RobertaForCausalLM", 12),
        {**INNER, "pad_token_id": 1, "is_decoder": True},
    ),
    "bart": ("BartConfig", "BartForConditionalGeneration", 8, {"vocab_size": 96, "d_model": 32, **BOTH}),
}
"""Configuration, model, positions and settings."""


@pytest.mark.parametrize("name", MODELS)
def test_all_inputs_and_decoded_texts_fit(name: str, tmp_path: Path) -> None:
    import torch

    config_class, model_class, most, settings = MODELS[name]
    if "n_positions" not in settings:
        settings = {**settings, "max_position_embeddings": most}
    config = getattr(transformers, config_class)(**settings, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    made = getattr(transformers, model_class)(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)
    made.save_pretrained(tmp_path)

    recipe = derive_checkpoint(tmp_path)
    lengths = recipe.recorded["lengths"]
    model: Any = as_reference(type(made).from_pretrained(tmp_path))
    assert max(lengths) <= most
    assert min(lengths) < max(lengths), "a row is padded, so that a dropped mask shows"
    draws = [make_inputs(recipe.inputs, seed, rows or lengths) for seed, rows in other_draws(lengths)]
    for inputs in [make_inputs(recipe.inputs, 0, lengths), *draws]:
        float64_outputs(model, inputs)
    if recipe.generate != "none":
        inputs = make_inputs(recipe.inputs, 0, lengths)
        decoded = float64_generation(model, inputs, steps=STEPS)
        assert 2 <= decoded.tokens.shape[1] <= STEPS
        float64_outputs(model, replay_inputs(inputs, decoded, recipe.generate))
