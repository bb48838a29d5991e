"""whisper/automatic-speech-recognition/cpu/float32

Command   hwcompat generate --model whisper --device cpu
Weights   tiny: 253,248 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import WhisperConfig, WhisperForConditionalGeneration

from hwcompat.testing import ModelTest, with_changes

CELL = "whisper/automatic-speech-recognition/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "speech"
CONFIG_HASH = "5951029aaf1e2c0938bea1a2b2d5fc3b4e6c3fa25d87c8753115d982825f0cec"
RECIPE = "becff2971ccf730906b4eada4a397f20f898ec14ca453b3a1aa96fd593b21a32"
REVISIONS = (
    "suites 1, check loss 2, check attentions 2, check cached_steps 2, check dropout 2"
)

CONFIG = {
    "bos_token_id": 511,
    "d_model": 48,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 192,
    "decoder_layers": 2,
    "decoder_start_token_id": 510,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 192,
    "encoder_layers": 2,
    "eos_token_id": 511,
    "max_target_positions": 128,
    "pad_token_id": 511,
    "vocab_size": 512,
}
PARAMETERS = 253_248

# Expected logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 10, 278): 0.2311210668,
    (1, 8, 478): -1.117733486,
    (1, 4, 417): 0.04914337976,
    (0, 10, 1): 0.3481273613,
    (0, 6, 438): 1.056716173,
    (0, 8, 17): 1.931963231,
    (0, 12, 373): -0.3405833325,
    (0, 13, 89): 1.796882362,
    (0, 1, 441): -0.6174595105,
    (1, 0, 277): 0.01834632977,
    (1, 1, 153): 0.6668976899,
    (1, 7, 216): 0.07166784249,
    (1, 6, 14): 0.4609343514,
    (1, 0, 63): 1.153552875,
    (1, 0, 343): -0.8081009668,
    (1, 8, 331): -1.042602333,
}
SCALE = 1.02015


def make_model() -> WhisperForConditionalGeneration:
    return WhisperForConditionalGeneration(WhisperConfig(**CONFIG))


def make_variant(changes: dict[str, object]) -> WhisperForConditionalGeneration:
    config = WhisperConfig(**with_changes(CONFIG, changes))
    return WhisperForConditionalGeneration(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Noise as sound, and random tokens for the decoder; there is no padding."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), 80, 3000)
    input_features = random.standard_normal(shape).astype(np.float32)
    decoder_input_ids = random.integers(0, 510, (len(lengths), max(lengths)))
    return {
        "input_features": input_features,
        "decoder_input_ids": decoder_input_ids,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=1.0,
        outputs=("logits",),
        generates="seq2seq",
        exercised="56 of 60 branches of the modeling code (93 %)",
    ) as case:
        yield case


def test_builds(case: ModelTest) -> None:
    """The model has the recorded number of parameters."""
    assert case.parameter_count() == PARAMETERS


def test_matches_reference(case: ModelTest) -> None:
    """Outputs match float64 on the CPU, also for other values and other shapes."""
    for inputs in (
        make_inputs(),
        make_inputs(seed=1),
        make_inputs(seed=2, lengths=(5, 12, 7)),
    ):
        assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_matches_recorded(case: ModelTest) -> None:
    """Outputs match the recorded values, so that a fault in the modeling code shows too."""
    assert case.recorded_error("logits", RECORDED, SCALE) <= case.tolerance


def test_batch_invariance(case: ModelTest) -> None:
    """Each row alone gives what it gives in the batch."""
    for row in range(3):
        error = case.alone_error(
            make_inputs(lengths=[16, 9, 16]),
            row,
            batch=3,
            unpadded={},
        )
        assert error <= case.tolerance


def test_attention_agrees(case: ModelTest) -> None:
    """The default attention gives what the plain one gives, in float64 with padding and without."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attention_error(inputs)
    assert error <= case.exact_tolerance
    assert case.attention_error(make_inputs()) <= case.exact_tolerance


def test_causality(case: ModelTest) -> None:
    """Changing the second half of a text changes no output of the first, with padding and without."""
    for lengths in [(16, 9), (16, 16)]:
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


def test_given_defaults(case: ModelTest) -> None:
    """Arguments that are given as the model would choose them change nothing."""
    inputs = make_inputs(lengths=(16, 16))
    without = []
    for name, value in {
        "decoder_attention_mask": 1,
        "decoder_inputs_embeds": 0,
        "decoder_position_ids": 0,
        "encoder_outputs": 1,
        "use_cache": True,
    }.items():
        assert case.given_error(inputs, name, value, without=without) <= case.tolerance


def test_large_values(case: ModelTest) -> None:
    """Values 10_000.0 times as large give the outputs of float64."""
    inputs = case.enlarged(make_inputs(), "input_features", 10000.0)
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
    error = case.attentions_error(inputs)
    assert error <= case.tolerance


def test_cached_steps(case: ModelTest) -> None:
    """A text given in parts, with the cache of the parts before, gives the logits of the whole."""
    inputs = make_inputs(lengths=[16, 16])
    without = []
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
            "attention": True,
            "changes": {
                "apply_spec_augment": True,
                "encoder_layers": 3,
            },
            "decodes": False,
            "scale": 0.991144,
            "recorded": {
                (1, 11, 112): -0.7148007441,
                (1, 4, 195): 1.175302254,
                (1, 0, 182): 0.4625004293,
                (0, 8, 324): 0.847145973,
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
    assert case.gradient_count() == 88
    assert case.gradient_norm_error(0.1342367408) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 ec0de7366b27c2fb
