"""The checks that need no recorded numbers: each fails for a model that breaks its relation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from generators.models.recipe_store import load_recipe
from generators.recipes.build_model import filled_model
from generators.recipes.probe_calls import probe_calls
from hardware.testing import measurement
from hardware.testing.checks import all_checks
from hardware.testing.row_of_batch import repadded, row_alone, share_of_row

Change = Callable[[Any], None]


def first_state(output: Any) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def with_state(output: Any, state: torch.Tensor) -> Any:
    return (state, *output[1:]) if isinstance(output, tuple) else state


def after(path: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Change what a part of the model returns."""

    def hook(_: Any, __: Any, output: Any) -> Any:
        return with_state(output, change(first_state(output)))

    return lambda model: model.get_submodule(path).register_forward_hook(hook)


def given(path: str, **changes: Callable[[Any], Any]) -> Change:
    """Change arguments of a part of the model, where they are given."""

    def hook(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        new = {name: change(kwargs[name]) for name, change in changes.items() if kwargs.get(name) is not None}
        return args, {**kwargs, **new}

    return lambda model: model.get_submodule(path).register_forward_pre_hook(hook, with_kwargs=True)


def returned(name: str, change: Callable[[Any], Any]) -> Change:
    """Change one output of the whole model, where it has it."""

    def hook(_: Any, __: Any, output: Any) -> None:
        if output.get(name) is not None:
            output[name] = change(output[name])

    return lambda model: model.register_forward_hook(hook)


def dropped_always(model: Any) -> None:
    block = model.transformer.h[0]
    block.mlp.register_forward_hook(lambda mlp, _, output: output * (1 - mlp.dropout.p))


def forgets_beams(model: Any) -> None:
    def hook(_: Any, __: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs.get("past_key_values") is not None:
            kwargs["past_key_values"].reorder_cache = lambda beams: None
        return (), kwargs

    model.register_forward_pre_hook(hook, with_kwargs=True)


def late_in_static_caches(model: Any) -> None:
    def hook(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        cache = kwargs.get("past_key_values")
        if type(cache).__name__ == "StaticCache" and kwargs.get("position_ids") is not None:
            kwargs["position_ids"] = kwargs["position_ids"] + 1
        return args, kwargs

    model.transformer.register_forward_pre_hook(hook, with_kwargs=True)


def detached_when_checkpointed(model: Any) -> None:
    def hook(block: Any, _: Any, output: Any) -> Any:
        state = first_state(output)
        return with_state(output, state.detach()) if block.gradient_checkpointing and block.training else output

    model.transformer.h[0].register_forward_hook(hook)


def scores_by_sdpa(model: Any) -> None:
    def hook(attention: Any, _: Any, output: Any) -> Any:
        return with_state(output, output[0] * (1.1 if attention.config._attn_implementation == "sdpa" else 1.0))

    model.transformer.h[0].attn.register_forward_hook(hook)


def long_is_other(state: torch.Tensor) -> torch.Tensor:
    return (
        state.float().to(torch.bfloat16).to(state.dtype)
        if state.shape[1] > 64 and state.dtype == torch.float32
        else state
    )


def saturating(state: torch.Tensor) -> torch.Tensor:
    return state.clamp(-100, 100) if state.dtype == torch.float32 else state


def unmasked_padding_tokens(model: Any) -> None:
    def hook(whole: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        padding = whole.config.pad_token_id or 0
        if kwargs.get("input_ids") is not None and bool((kwargs["input_ids"] == padding).any()):
            kwargs["attention_mask"] = None
        return args, kwargs

    model.register_forward_pre_hook(hook, with_kwargs=True)


def mixing_rows_of_three(state: torch.Tensor) -> torch.Tensor:
    return state + 0.1 * state.mean(0, keepdim=True) if len(state) > 2 else state


def seeing_later_in_long_texts(state: torch.Tensor) -> torch.Tensor:
    return state + 0.1 * state.mean(1, keepdim=True) if state.shape[1] > 30 else state


def scaled(encoder_outputs: Any) -> Any:
    encoder_outputs["last_hidden_state"] = 1.1 * encoder_outputs["last_hidden_state"]
    return encoder_outputs


def uniform(weights: torch.Tensor) -> torch.Tensor:
    return (weights > 0).to(weights.dtype) / (weights > 0).sum(-1, keepdim=True)


def plain_attention_without_padding_mask(model: Any) -> None:
    def hook(attention: Any, _: Any, kwargs: dict[str, Any], output: Any) -> Any:
        mask = kwargs.get("attention_mask")
        is_plain = attention.config._attn_implementation == "eager"
        is_padded = is_plain and mask is not None and bool((mask[:, :, -1] < 0).any())
        return with_state(output, output[0] * (1.1 if is_padded else 1.0))

    model.transformer.h[0].attn.register_forward_hook(hook, with_kwargs=True)


def forgets_long_caches(model: Any) -> None:
    def hook(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        cache = kwargs.get("past_key_values")
        if cache is not None and cache.get_seq_length() > 24:
            kwargs["past_key_values"] = None
        return args, kwargs

    model.transformer.register_forward_pre_hook(hook, with_kwargs=True)


def other_in_training(model: Any) -> None:
    def hook(block: Any, _: Any, output: Any) -> Any:
        return with_state(output, first_state(output) * (1.1 if block.training else 1.0))

    model.transformer.h[0].register_forward_hook(hook)


def never_computed_again(model: Any) -> None:
    model.gradient_checkpointing_enable = lambda: None


def on_the_target(one: torch.Tensor) -> torch.Tensor:
    return 1.1 * one if one.dtype == torch.float32 else one


def other_tuple(model: Any) -> None:
    model.register_forward_hook(
        lambda _, __, output: with_state(output, 1.1 * output[0]) if type(output) is tuple else None
    )


BREAKS: list[tuple[str, str, Change]] = [
    ("batch_invariance", "gpt2", after("transformer.h.0", lambda state: state + 0.1 * state.mean(0, keepdim=True))),
    ("batch_invariance", "gpt2", after("transformer.h.0", mixing_rows_of_three)),
    ("attention_agrees", "gpt2", scores_by_sdpa),
    ("attention_agrees", "gpt2", plain_attention_without_padding_mask),
    ("causality", "gpt2", after("transformer.h.0", lambda state: state + 0.1 * state.mean(1, keepdim=True))),
    ("causality", "gpt2", after("transformer.h.0", seeing_later_in_long_texts)),
    ("padding_side", "bert", unmasked_padding_tokens),
    ("given_defaults", "gpt2", given("transformer", position_ids=lambda one: one + 1)),
    ("given_defaults", "bart", given("", encoder_outputs=scaled)),
    ("given_defaults", "mamba", other_tuple),
    ("optional_arguments", "olmoe", returned("aux_loss", on_the_target)),
    ("optional_arguments", "clip", returned("loss", on_the_target)),
    ("optional_arguments", "gpt2", returned("hidden_states", lambda states: (on_the_target(states[0]), *states[1:]))),
    ("inputs_embeds", "gpt2", given("transformer", inputs_embeds=lambda one: 1.1 * one)),
    ("large_values", "gpt2", after("transformer.drop", saturating)),
    ("token_types", "gpt2", given("transformer", token_type_ids=lambda one: 0 * one)),
    ("loss", "gpt2", returned("loss", lambda loss: 1.1 * loss)),
    ("loss", "gpt2", returned("loss", lambda loss: 1.1 * loss - 0.1 * loss.detach())),
    ("hidden_states", "gpt2", returned("hidden_states", lambda states: (states[1], *states[1:]))),
    ("attentions", "gpt2", returned("attentions", lambda all_of: tuple(1.1 * one for one in all_of))),
    ("attentions", "gpt2", returned("attentions", lambda all_of: tuple(map(uniform, all_of)))),
    ("logits_to_keep", "gpt2", given("", logits_to_keep=lambda kept: slice(-kept - 1, -1) if kept else kept)),
    ("cached_steps", "gpt2", given("transformer", past_key_values=lambda _: None)),
    ("cached_steps", "gpt2", forgets_long_caches),
    ("static_cache", "gpt2", late_in_static_caches),
    ("beam_search", "gpt2", forgets_beams),
    ("long_text", "gpt2", after("transformer.h.0", long_is_other)),
    ("image_size", "vit", given("vit.embeddings", interpolate_pos_encoding=lambda _: False)),
    ("dropout", "gpt2", dropped_always),
    ("dropout", "gpt2", other_in_training),
    ("gradient_checkpointing", "gpt2", detached_when_checkpointed),
    ("gradient_checkpointing", "gpt2", never_computed_again),
]


@pytest.fixture(autouse=True)
def _no_references_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook isn't part of a model's identity, by which references are kept."""
    monkeypatch.setattr(measurement, "keeps_references", False)


@pytest.mark.parametrize(("check", "name", "change"), BREAKS)
def test_each_check_fails_for_a_model_that_breaks_its_relation(check: str, name: str, change: Change) -> None:
    recipe = load_recipe(name)
    assert recipe is not None
    clean = probe_calls(recipe, filled_model(recipe), checks=(check,))
    assert clean.arguments.get(check) == recipe.calls[check]
    model = filled_model(recipe)
    change(model)
    probed = probe_calls(recipe, model, checks=(check,))
    assert check in probed.failing or probed.arguments.get(check) != recipe.calls[check]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_padding_that_is_not_finite_fails(value: float) -> None:
    recipe = load_recipe("bert")
    assert recipe is not None
    model = filled_model(recipe)

    def hook(_: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if output.logits.dtype == torch.float32 and kwargs.get("attention_mask") is not None:
            output.logits[kwargs["attention_mask"] == 0] = value

    model.register_forward_hook(hook, with_kwargs=True)
    assert "padding_side" not in probe_calls(recipe, model, checks=("padding_side",)).arguments


def test_hidden_states_without_a_list_of_layers_are_not_compared_with_nothing() -> None:
    recipe = load_recipe("albert")
    assert recipe is not None
    probed = probe_calls(recipe, filled_model(recipe), checks=("hidden_states",))
    assert probed.refused == {"hidden_states": "inf in hidden_states (3 of 0)"}


def test_beams_of_a_checkpoint_with_penalties_of_its_own_are_scored_without_them() -> None:
    recipe = load_recipe("gpt2")
    assert recipe is not None
    model: Any = filled_model(recipe)
    model.generation_config.length_penalty = 2.0
    model.generation_config.repetition_penalty = 1.3
    probed = probe_calls(recipe, model, checks=("beam_search",))
    assert (list(probed.arguments), probed.failing) == (["beam_search"], frozenset())


def test_dropout_of_whole_layers_is_not_called_unused_because_one_seed_drops_none() -> None:
    recipe = load_recipe("whisper")
    assert recipe is not None
    probed = probe_calls(recipe, filled_model(recipe), checks=("dropout",))
    assert probed.arguments["dropout"] == {"unused": [], "trains_alike": True}


def test_a_row_of_two_numbers_is_judged_by_the_scale_of_its_batch() -> None:
    recipe = load_recipe("big_bird", "pre-training")
    assert recipe is not None
    probed = probe_calls(recipe, filled_model(recipe), checks=("batch_invariance",))
    assert not probed.failing, probed.refused


def test_every_check_of_calls_can_fail() -> None:
    without = {"variants"}  # tried by test_variants.py
    assert {check for check, *_ in BREAKS} == {one.name for one in all_checks() if one.in_recipe} - without


def test_a_row_alone_has_no_padding_and_is_compared_with_its_part_of_the_batch() -> None:
    tokens, mask = np.array([[1, 2, 3], [7, 4, 5]]), np.array([[1, 1, 1], [0, 1, 1]])
    inputs = {"input_ids": tokens, "attention_mask": mask, "pixels": np.arange(8).reshape(4, 2)}
    unpadded = {"attention_mask": "attention_mask", "input_ids": "attention_mask"}
    alone = row_alone(inputs, 1, 2, unpadded=unpadded, without=("attention_mask",))
    assert {name: one.tolist() for name, one in alone.items()} == {"input_ids": [[4, 5]], "pixels": [[4, 5], [6, 7]]}
    other_side = repadded(inputs, "right", 9, unpadded=unpadded)
    assert other_side["input_ids"].tolist() == [[1, 2, 3], [4, 5, 9]]
    assert other_side["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    whole = {"logits": tokens, "similarity": np.array([[1, 2], [3, 4]]), "loss": np.array([1.0])}
    like = {"logits": alone["input_ids"], "similarity": np.array([[0]]), "loss": np.array([1.0])}
    share = share_of_row(whole, {"logits": mask}, 1, 2, like)
    assert {name: one.tolist() for name, one in share.items()} == {"logits": [[4, 5]], "similarity": [[4]]}
    kept = row_alone({"cells": tokens, "ids": tokens}, 1, 2, unpadded={}, shared=("ids",))
    assert {name: one.tolist() for name, one in kept.items()} == {"cells": [[7, 4, 5]], "ids": tokens.tolist()}
    choices = {"input_ids": tokens[:, None], "attention_mask": mask[:, None]}
    by_choice = repadded(choices, "right", 9, unpadded=dict.fromkeys(choices, "attention_mask @ 2"))
    assert by_choice["input_ids"].tolist() == [[[1, 2, 3]], [[4, 5, 9]]]
    lost = share_of_row({"logits": tokens}, {}, 1, 2, {"logits": np.array([4, 5])})
    assert lost["logits"].shape == (1, 3), "an axis that a batch of one loses is seen"
