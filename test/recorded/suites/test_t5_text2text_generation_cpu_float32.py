"""t5/text2text-generation/cpu/float32

Command   hwcompat generate --model t5 --device cpu
Weights   tiny: 74,240 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import T5Config, T5ForConditionalGeneration

from hwcompat.testing import ModelTest, with_changes

CELL = "t5/text2text-generation/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "encoder-decoder"
CONFIG_HASH = "2c5fbfda5a013ab7b5bb0861375e88ae977e4995a2cf94bb46480e8a536a97bf"
RECIPE = "135de70ad757ab43d0d2ad5c2dc1f1f7bedb7d992fefb4ccff3bc46d98325b0e"
REVISIONS = (
    "suites 1, check loss 2, check attentions 2, check cached_steps 2, "
    "check dropout 2, check long_text 2"
)

CONFIG = {
    "d_ff": 128,
    "d_kv": 16,
    "d_model": 32,
    "decoder_start_token_id": 511,
    "eos_token_id": 510,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "num_layers": 2,
    "pad_token_id": 511,
    "vocab_size": 512,
}
PARAMETERS = 74_240

# Expected logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 4, 278): 0.1134702726,
    (1, 3, 478): -0.1029595511,
    (1, 1, 417): 0.03932966899,
    (0, 4, 1): -0.0003747926748,
    (0, 2, 438): -0.1135469134,
    (0, 3, 17): 0.1087415778,
    (0, 5, 373): 0.07902996638,
    (0, 5, 89): -0.02882722585,
    (0, 0, 441): -0.04505357908,
    (1, 0, 277): 0.1192561618,
    (1, 0, 153): 0.01927951897,
    (1, 3, 216): 0.129454534,
    (1, 2, 14): 0.04289649702,
    (1, 0, 63): 0.0760807639,
    (1, 0, 343): -0.1314070682,
    (1, 3, 331): -0.1033352144,
}
SCALE = 0.0896055


def make_model() -> T5ForConditionalGeneration:
    return T5ForConditionalGeneration(T5Config(**CONFIG))


def make_variant(changes: dict[str, object]) -> T5ForConditionalGeneration:
    config = T5Config(**with_changes(CONFIG, changes))
    return T5ForConditionalGeneration(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Random tokens for encoder and decoder; the encoder's second row is padded."""
    random = np.random.default_rng(seed)
    rows = np.array(lengths)[:, None]
    columns = np.arange(max(lengths))
    input_ids = random.integers(0, 510, (len(lengths), max(lengths)))
    attention_mask = (columns < rows).astype(np.int64)
    decoder_input_ids = random.integers(0, 510, (len(lengths), 7))
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "decoder_input_ids": decoder_input_ids,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=0.5,
        outputs=("logits",),
        masked_by={"encoder_last_hidden_state": "attention_mask"},
        generates="seq2seq",
        exercised="87 of 93 branches of the modeling code (93 %)",
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
    other_padding = np.where(kept, tokens, (tokens + 1) % 510)
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
            },
            without=["attention_mask"],
        )
        assert error <= case.tolerance


def test_causality(case: ModelTest) -> None:
    """Changing the second half of a text changes no output of the first, with padding and without."""
    for lengths in [(16, 9), (16, 16), [160, 160]]:
        inputs = make_inputs(lengths=lengths)
        error = case.causality_error(inputs, "decoder_input_ids", limit=510)
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
            },
        )
        assert error <= case.tolerance


def test_inputs_embeds(case: ModelTest) -> None:
    """The embeddings of the tokens, given instead of the tokens, give the same."""
    assert case.embeddings_error(make_inputs()) <= case.tolerance


def test_given_defaults(case: ModelTest) -> None:
    """Arguments that are given as the model would choose them change nothing."""
    inputs = make_inputs(lengths=(16, 16))
    without = ["attention_mask"]
    for name, value in {
        "attention_mask": 1,
        "decoder_attention_mask": 1,
        "decoder_inputs_embeds": 0,
        "encoder_outputs": 1,
        "return_dict": False,
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
                "without": ["attention_mask"],
            },
        },
    ]:
        inputs = make_inputs(lengths=call["lengths"])
        assert case.optional_error(inputs, **call["arguments"]) <= case.tolerance


def test_large_values(case: ModelTest) -> None:
    """Values 10_000.0 times as large give the outputs of float64."""
    inputs = case.enlarged(make_inputs(), "input_ids", 10000.0)
    assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_loss(case: ModelTest) -> None:
    """The loss is the cross entropy of the logits and labels, without labels of -100."""
    assert case.loss_error(make_inputs(), "same") <= case.tolerance
    assert case.loss_error(make_inputs(), "same", labels_alone=True) <= case.tolerance
    # Gradients in training mode without dropout, as the cross entropy of float64's logits gives them.
    assert case.loss_gradient_error(make_inputs(), "same") <= case.tolerance


def test_hidden_states(case: ModelTest) -> None:
    """The hidden states are what each layer gets, and what the last one gives."""
    assert case.hidden_states_error(make_inputs()) <= case.tolerance


def test_attentions(case: ModelTest) -> None:
    """The attention weights match float64, and those of each position sum to 1."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attentions_error(inputs, without=["attention_mask"])
    assert error <= case.tolerance


def test_cached_steps(case: ModelTest) -> None:
    """A text given in parts, with the cache of the parts before, gives the logits of the whole."""
    inputs = make_inputs(lengths=[160, 160])
    without = ["attention_mask"]
    error = case.cached_steps_error(inputs, "decoder_input_ids", without=without)
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
            "attention": False,
            "changes": {
                "feed_forward_proj": "gated-gelu",
                "num_layers": 3,
            },
            "decodes": False,
            "scale": 0.0919996,
            "recorded": {
                (1, 4, 465): 0.0558809581,
                (1, 1, 469): 0.1095324555,
                (1, 0, 79): -0.08021614593,
                (0, 3, 397): -0.0732370668,
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
    assert case.gradient_count() == 47
    assert case.gradient_norm_error(0.6209132598) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_long_text(case: ModelTest) -> None:
    """A text of 160 tokens, and shorter ones, gives the outputs of float64 and the recorded values."""
    for lengths in [[160, 90], [129, 127], [65, 63], [33, 31]]:
        inputs = make_inputs(lengths=lengths)
        assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance
    recorded = {
        (1, 4, 465): 0.03250002351,
        (1, 1, 469): 0.03563809226,
        (1, 0, 79): 0.03137932616,
        (0, 3, 397): 0.03623416434,
    }
    longest = make_inputs(lengths=[160, 90])
    error = case.recorded_error("logits", recorded, 0.0846479, longest)
    assert error <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 5a436afb519b3d78
