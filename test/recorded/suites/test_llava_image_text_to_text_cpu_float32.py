"""llava/image-text-to-text/cpu/float32

Command   hwcompat generate --model llava --device cpu
Weights   tiny: 592,640 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from transformers import LlavaConfig, LlavaForConditionalGeneration

from hwcompat.testing import ModelTest, with_changes

CELL = "llava/image-text-to-text/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "vision-encoder-text-decoder"
CONFIG_HASH = "2aa9126fc143519fec37d0396455666d93291318a6e802d602ba7483f4aa48c0"
RECIPE = "81024e4f05579e8a7e9111f14270effa924fd0140c050fc41260c38cc7794ff0"
REVISIONS = "suites 1, check loss 2, check attentions 2, check dropout 2"

CONFIG = {
    "image_token_index": 509,
    "text_config": {
        "bos_token_id": 511,
        "eos_token_id": 510,
        "head_dim": 16,
        "hidden_size": 128,
        "intermediate_size": 344,
        "max_position_embeddings": 128,
        "model_type": "llama",
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "num_key_value_heads": 8,
        "vocab_size": 512,
    },
    "vision_config": {
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 128,
        "model_type": "clip_vision_model",
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "patch_size": 14,
        "projection_dim": 24,
    },
}
PARAMETERS = 592_640

# Expected logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 23, 323): -0.102258138,
    (1, 11, 278): -0.4574209708,
    (0, 29, 286): 0.6327511328,
    (0, 15, 478): -1.318176359,
    (0, 17, 142): -0.09420655343,
    (0, 2, 417): -0.1685923219,
    (0, 4, 343): -1.025032551,
    (0, 0, 1): -0.6863951399,
    (0, 9, 201): 1.311798309,
    (1, 21, 438): 0.1474613169,
    (1, 12, 283): 0.1962379917,
    (1, 27, 17): -0.7734604425,
    (0, 28, 391): -0.3609115759,
    (1, 9, 373): -0.4804993914,
    (1, 30, 433): -0.4687944119,
    (1, 16, 89): 0.3652249156,
}
SCALE = 0.761825


def make_model() -> LlavaForConditionalGeneration:
    # A copy, because a configuration may change its arguments.
    config = LlavaConfig(**deepcopy(CONFIG))
    return LlavaForConditionalGeneration(config)


def make_variant(changes: dict[str, object]) -> LlavaForConditionalGeneration:
    config = LlavaConfig(**with_changes(CONFIG, changes))
    return LlavaForConditionalGeneration(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Noise as an image, with its placeholder tokens in a text that is padded on the left."""
    random = np.random.default_rng(seed)
    lengths = tuple(length + 16 for length in lengths)  # image tokens
    rows = np.array(lengths)[:, None]
    columns = np.arange(max(lengths))
    input_ids = random.integers(0, 509, (len(lengths), max(lengths)))
    input_ids[:, -19:-3] = 509
    shape = (len(lengths), 3, 56, 56)
    pixel_values = random.standard_normal(shape).astype(np.float32)
    attention_mask = (columns >= max(lengths) - rows).astype(np.int64)
    position_ids = np.maximum(attention_mask.cumsum(axis=1) - 1, 0)
    return {
        "input_ids": input_ids,
        "pixel_values": pixel_values,
        "attention_mask": attention_mask,
        "position_ids": position_ids,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=0.7,
        outputs=("logits",),
        masked_by={"logits": "attention_mask"},
        generates="causal",
        exercised="14 of 19 branches of the modeling code (73 %)",
    ) as case:
        yield case


def test_builds(case: ModelTest) -> None:
    """The model has the recorded number of parameters."""
    assert case.parameter_count() == PARAMETERS


def test_matches_reference(case: ModelTest) -> None:
    """Outputs match float64 on the CPU, also for other values, other shapes and without padding."""
    for inputs in (
        make_inputs(),
        make_inputs(seed=1),
        make_inputs(seed=2, lengths=(5, 12, 7)),
        make_inputs(seed=3, lengths=(11, 11)),
    ):
        assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_matches_recorded(case: ModelTest) -> None:
    """Outputs match the recorded values, so that a fault in the modeling code shows too."""
    assert case.recorded_error("logits", RECORDED, SCALE) <= case.tolerance


def test_honours_mask(case: ModelTest) -> None:
    """The content of padding doesn't change the outputs; dropping the mask does."""
    inputs = make_inputs()
    mask, tokens = inputs["attention_mask"], inputs["input_ids"]
    kept = mask == 1
    other_padding = np.where(kept, tokens, (tokens + 1) % 509)
    scrambled = case.run(inputs | {"input_ids": other_padding})
    without = inputs | {"attention_mask": np.ones_like(mask)}
    unmasked = case.run(without)
    assert case.error(scrambled, case.reference(inputs)) <= case.tolerance
    assert case.error(unmasked, case.reference(without)) <= case.tolerance
    assert case.difference(unmasked, case.reference(inputs)) > 2 * case.tolerance


def test_batch_invariance(case: ModelTest) -> None:
    """Each row alone, without padding, gives what it gives in the batch."""
    for row in range(3):
        error = case.alone_error(
            make_inputs(lengths=[16, 9, 16]),
            row,
            batch=3,
            unpadded={
                "attention_mask": "attention_mask",
                "input_ids": "attention_mask",
                "position_ids": "attention_mask",
            },
            without=[
                "attention_mask",
                "position_ids",
            ],
        )
        assert error <= case.tolerance


def test_attention_agrees(case: ModelTest) -> None:
    """The default attention gives what the plain one gives, in float64 with padding and without."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attention_error(inputs, without=["attention_mask", "position_ids"])
    assert error <= case.exact_tolerance
    assert case.attention_error(make_inputs()) <= case.exact_tolerance


def test_causality(case: ModelTest) -> None:
    """Changing the second half of a text changes no output of the first, with padding and without."""
    for lengths in [(16, 9), (16, 16)]:
        inputs = make_inputs(lengths=lengths)
        error = case.causality_error(inputs, "input_ids", limit=509)
        assert error <= case.exact_tolerance


def test_generates_like_reference(case: ModelTest) -> None:
    """Greedy decoding with a cache gives the tokens and logits of float64 without a cache."""
    got, want = case.generate(), case.reference_generate()
    assert not case.different_tokens(got, want)
    assert case.logits_error(got, want) <= case.tolerance


def test_cache_matches(case: ModelTest) -> None:
    """Logits decoded step by step match float64 over the whole sequence."""
    generated = case.generate()
    assert generated.used_cache, "the cache wasn't used: each step got all tokens"
    assert case.replay_error(generated) <= case.tolerance


def test_padding_side(case: ModelTest) -> None:
    """Padding with the padding token, on the left or on the right, changes no output."""
    for side in ["left", "right"]:
        error = case.padding_error(
            make_inputs(),
            side,
            unpadded={
                "attention_mask": "attention_mask",
                "input_ids": "attention_mask",
                "position_ids": "attention_mask",
            },
            without=["position_ids"],
        )
        assert error <= case.tolerance


def test_inputs_embeds(case: ModelTest) -> None:
    """The embeddings of the tokens, given instead of the tokens, give the same."""
    assert case.embeddings_error(make_inputs()) <= case.tolerance


def test_given_defaults(case: ModelTest) -> None:
    """Arguments that are given as the model would choose them change nothing."""
    inputs = make_inputs(lengths=(16, 16))
    without = ["attention_mask", "position_ids"]
    for name, value in {
        "attention_mask": 1,
        "position_ids": 0,
    }.items():
        assert case.given_error(inputs, name, value, without=without) <= case.tolerance


def test_optional_arguments(case: ModelTest) -> None:
    """All outputs that the model can return, and inputs that may be left out, match float64."""
    for call in [
        {
            "lengths": (16, 9),
            "arguments": {
                "batch": 2,
                "flags": [
                    "output_hidden_states",
                    "output_attentions",
                ],
            },
        },
        {
            "lengths": (16, 16),
            "arguments": {
                "batch": 2,
                "flags": [
                    "output_hidden_states",
                    "output_attentions",
                ],
                "without": [
                    "attention_mask",
                    "position_ids",
                ],
            },
        },
    ]:
        inputs = make_inputs(lengths=call["lengths"])
        assert case.optional_error(inputs, **call["arguments"]) <= case.tolerance


def test_large_values(case: ModelTest) -> None:
    """Values 10_000.0 times as large give the outputs of float64."""
    inputs = case.enlarged(make_inputs(), "pixel_values", 10000.0)
    assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_loss(case: ModelTest) -> None:
    """The loss is the cross entropy of the logits and labels, without labels of -100."""
    assert case.loss_error(make_inputs(), "next") <= case.tolerance
    assert case.loss_error(make_inputs(), "next", counted=True) <= case.tolerance
    # Gradients in training mode without dropout, as the cross entropy of float64's logits gives them.
    assert case.loss_gradient_error(make_inputs(), "next") <= case.tolerance


def test_hidden_states(case: ModelTest) -> None:
    """The hidden states are what each layer gets, and what the last one gives."""
    assert case.hidden_states_error(make_inputs()) <= case.tolerance


def test_attentions(case: ModelTest) -> None:
    """The attention weights match float64, and those of each position sum to 1."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attentions_error(inputs, without=["attention_mask", "position_ids"])
    assert error <= case.tolerance


def test_logits_to_keep(case: ModelTest) -> None:
    """The last logits alone are those of all."""
    assert case.kept_logits_error(make_inputs()) <= case.tolerance


def test_static_cache(case: ModelTest) -> None:
    """Decoding with a static cache gives the logits of float64 without a cache."""
    assert case.cache_error("static") <= case.tolerance


def test_beam_search(case: ModelTest) -> None:
    """The scores of a beam search are those of one float64 pass over each beam."""
    assert case.beam_search_error() <= case.tolerance


def test_variants(case: ModelTest) -> None:
    """Models with other settings match float64 and recorded values."""
    output = "logits"
    for variant in [
        {
            "attention": True,
            "changes": {
                "text_config.head_dim": 16,
                "text_config.hidden_size": 48,
                "text_config.num_attention_heads": 6,
                "text_config.num_hidden_layers": 3,
                "text_config.num_key_value_heads": 2,
                "text_config.rope_parameters": {
                    "factor": 8.0,
                    "high_freq_factor": 4.0,
                    "low_freq_factor": 1.0,
                    "original_max_position_embeddings": 16,
                    "rope_theta": 10000.0,
                    "rope_type": "llama3",
                },
            },
            "decodes": False,
            "scale": 0.745636,
            "recorded": {
                (1, 23, 248): 0.8126143694,
                (1, 11, 157): -0.4149588277,
                (0, 29, 69): -0.6062623507,
                (0, 15, 193): -0.004335565268,
            },
        },
        {
            "attention": True,
            "changes": {
                "text_config.num_attention_heads": 2,
                "text_config.num_key_value_heads": 2,
                "text_config.rope_parameters": {
                    "factor": 4.0,
                    "original_max_position_embeddings": 8,
                    "rope_theta": 10000.0,
                    "rope_type": "yarn",
                },
            },
            "decodes": False,
            "scale": 0.775672,
            "recorded": {
                (1, 23, 248): -0.05998966767,
                (1, 11, 157): -1.019527495,
                (0, 29, 69): -0.06408591802,
                (0, 15, 193): -0.2021366437,
            },
        },
        {
            "attention": True,
            "changes": {
                "text_config.rope_parameters": {
                    "factor": 2.0,
                    "rope_theta": 10000.0,
                    "rope_type": "linear",
                },
            },
            "decodes": False,
            "scale": 0.761959,
            "recorded": {
                (1, 23, 248): 0.3640653936,
                (1, 11, 157): -0.7235222719,
                (0, 29, 69): -1.084493827,
                (0, 15, 193): 0.2597417647,
            },
        },
        {
            "attention": True,
            "changes": {
                "text_config.max_position_embeddings": 8,
                "text_config.rope_parameters": {
                    "factor": 2.0,
                    "rope_theta": 10000.0,
                    "rope_type": "dynamic",
                },
            },
            "decodes": False,
            "scale": 0.762685,
            "recorded": {
                (1, 23, 248): 0.4105572153,
                (1, 11, 157): -0.9029726189,
                (0, 29, 69): -1.201672432,
                (0, 15, 193): 0.2643194208,
            },
        },
        {
            "attention": True,
            "changes": {
                "text_config.rope_parameters": {
                    "factor": 4.0,
                    "long_factor": [
                        1.0,
                        1.5,
                        2.0,
                        2.5,
                        3.0,
                        3.5,
                        4.0,
                        4.5,
                    ],
                    "original_max_position_embeddings": 8,
                    "rope_theta": 10000.0,
                    "rope_type": "longrope",
                    "short_factor": [
                        1.0,
                        1.1,
                        1.2,
                        1.3,
                        1.4,
                        1.5,
                        1.6,
                        1.7,
                    ],
                },
            },
            "decodes": False,
            "scale": 0.765032,
            "recorded": {
                (1, 23, 248): 0.3338437913,
                (1, 11, 157): -0.84618431,
                (0, 29, 69): -1.010537923,
                (0, 15, 193): 0.3414899242,
            },
        },
    ]:
        error = case.variant_error(make_variant, output, **variant)
        assert error <= case.tolerance


def test_dropout(case: ModelTest) -> None:
    """Dropout changes nothing in evaluation mode, and its kinds something in training mode."""
    assert case.dropout_error(make_inputs()) <= case.exact_tolerance
    # Training mode without dropout computes what evaluation mode does.
    assert case.training_error(make_inputs()) <= case.exact_tolerance
    unused = []
    assert set(case.unused_dropout(make_inputs())) <= set(unused)


def test_save_reload(case: ModelTest, tmp_path: Path) -> None:
    """The model computes the same after it was saved and loaded again."""
    inputs = make_inputs()
    again = case.save_and_reload(tmp_path, inputs)
    assert case.error(again, case.reference(inputs)) <= case.tolerance


def test_backward(case: ModelTest) -> None:
    """Gradients match float64; their number and norm match the recorded ones."""
    assert case.gradient_error() <= case.tolerance
    assert case.gradient_count() == 46
    assert case.gradient_norm_error(0.1773705734) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 4e26c1451b9c0d8f
