"""gpt2/text-generation/cpu/float32

Command   hwcompat generate --model gpt2 --device cpu
Weights   tiny: 87,360 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from hwcompat.testing import ModelTest, with_changes

CELL = "gpt2/text-generation/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "decoder-only"
CONFIG_HASH = "6bf92377fe72664e728fce2288502126fa70fc3810769a6a4a1eb436138482f2"
RECIPE = "2e0dc5f08ad65fffbded8b6dc8514c5b8107517bd6247772809c0c519ce25b43"
REVISIONS = (
    "suites 1, check loss 2, check attentions 2, check cached_steps 2, "
    "check dropout 2, check long_text 2"
)

CONFIG = {
    "bos_token_id": 511,
    "eos_token_id": 511,
    "n_embd": 48,
    "n_head": 3,
    "n_layer": 2,
    "n_positions": 128,
    "vocab_size": 512,
}
PARAMETERS = 87_360

# Expected logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 12, 323): -0.7768727414,
    (0, 15, 278): -0.1364356214,
    (0, 12, 286): 1.056427507,
    (0, 6, 478): -4.541012117,
    (0, 7, 142): 0.375447942,
    (0, 1, 417): -2.581229312,
    (0, 1, 343): -0.7053222114,
    (0, 0, 1): 0.5447138911,
    (0, 4, 201): 1.782684916,
    (1, 11, 438): 0.1294260049,
    (1, 7, 283): -4.192729097,
    (1, 13, 17): 0.4971766809,
    (0, 12, 391): -1.105323242,
    (0, 15, 373): -1.019467633,
    (1, 15, 433): -1.69647316,
    (1, 9, 89): 1.832839388,
}
SCALE = 1.84739


def make_model() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(**CONFIG))


def make_variant(changes: dict[str, object]) -> GPT2LMHeadModel:
    config = GPT2Config(**with_changes(CONFIG, changes))
    return GPT2LMHeadModel(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Random tokens, padded on the left: a causal mask would hide padding on the right."""
    random = np.random.default_rng(seed)
    rows = np.array(lengths)[:, None]
    columns = np.arange(max(lengths))
    input_ids = random.integers(0, 511, (len(lengths), max(lengths)))
    attention_mask = (columns >= max(lengths) - rows).astype(np.int64)
    position_ids = np.maximum(attention_mask.cumsum(axis=1) - 1, 0)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "position_ids": position_ids,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=1.5,
        outputs=("logits",),
        masked_by={"logits": "attention_mask"},
        generates="causal",
        exercised="57 of 61 branches of the modeling code (93 %)",
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
    other_padding = np.where(kept, tokens, (tokens + 1) % 511)
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
    for lengths in [(16, 9), (16, 16), [120, 120]]:
        inputs = make_inputs(lengths=lengths)
        error = case.causality_error(inputs, "input_ids", limit=511)
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
    """Padding with the padding token, on the right, changes no output."""
    for side in ["right"]:
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
        "use_cache": True,
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
    inputs = case.enlarged(make_inputs(), "input_ids", 10000.0)
    assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_token_types(case: ModelTest) -> None:
    """Types of tokens change the outputs as in float64."""
    assert case.token_types_error(make_inputs()) <= case.tolerance
    assert case.token_types_effect(make_inputs()) > 2 * case.tolerance


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


def test_cached_steps(case: ModelTest) -> None:
    """A text given in parts, with the cache of the parts before, gives the logits of the whole."""
    inputs = make_inputs(lengths=[120, 120])
    without = ["attention_mask", "position_ids"]
    error = case.cached_steps_error(inputs, "input_ids", without=without)
    assert error <= case.tolerance


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
                "add_cross_attention": True,
                "n_layer": 3,
                "scale_attn_by_inverse_layer_idx": True,
                "scale_attn_weights": False,
            },
            "decodes": True,
            "scale": 1.73539,
            "shapes": {
                "encoder_attention_mask": [7],
                "encoder_hidden_states": [7, 48],
            },
            "recorded": {
                (1, 12, 135): 2.771031146,
                (0, 15, 473): 1.008100468,
                (0, 12, 398): -2.551320293,
                (0, 6, 381): -2.230942143,
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
    assert case.gradient_count() == 28
    assert case.gradient_norm_error(0.2380039121) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_long_text(case: ModelTest) -> None:
    """A text of 120 tokens, and shorter ones, gives the outputs of float64 and the recorded values."""
    for lengths in [[120, 67], [65, 63], [33, 31]]:
        inputs = make_inputs(lengths=lengths)
        assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance
    recorded = {
        (1, 92, 34): 3.541604362,
        (0, 119, 57): -1.440053854,
        (0, 95, 298): 0.4200857109,
        (0, 50, 230): -0.6753499554,
    }
    longest = make_inputs(lengths=[120, 67])
    error = case.recorded_error("logits", recorded, 1.87072, longest)
    assert error <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 10c20ad8a7020f2a
