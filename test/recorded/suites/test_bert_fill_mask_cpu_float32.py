"""bert/fill-mask/cpu/float32

Command   hwcompat generate --model bert --device cpu
Weights   tiny: 90,416 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import BertConfig, BertForMaskedLM

from hwcompat.testing import ModelTest, with_changes

CELL = "bert/fill-mask/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "encoder-only"
CONFIG_HASH = "0698cdf072e1d9455b2e4ba372434beef0365e168e8d89ef4ee6d4fa5ae3cf0b"
RECIPE = "aa02f267dc39e7392dcaea4c91bf3eab4a0202e376aa6de444f570f2ec99ea65"
REVISIONS = (
    "suites 1, check loss 2, check attentions 2, check dropout 2, check long_text 2"
)

CONFIG = {
    "hidden_size": 48,
    "intermediate_size": 192,
    "max_position_embeddings": 128,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pad_token_id": 511,
    "vocab_size": 512,
}
PARAMETERS = 90_416

# Expected logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 5, 323): 0.1191496735,
    (0, 15, 278): -1.953634512,
    (0, 12, 286): -0.9049621248,
    (0, 6, 478): -2.047839639,
    (0, 7, 142): -1.518019212,
    (0, 1, 417): -1.337888196,
    (0, 1, 343): 0.60326937,
    (0, 0, 1): -0.3422081078,
    (0, 4, 201): -0.5206770595,
    (1, 4, 438): 1.034658321,
    (1, 0, 283): -4.660252334,
    (1, 6, 17): -1.054879053,
    (0, 12, 391): 1.737662442,
    (0, 15, 373): -2.384298165,
    (1, 8, 433): -0.7210907635,
    (1, 2, 89): -1.476703736,
}
SCALE = 1.60567


def make_model() -> BertForMaskedLM:
    return BertForMaskedLM(BertConfig(**CONFIG))


def make_variant(changes: dict[str, object]) -> BertForMaskedLM:
    config = BertConfig(**with_changes(CONFIG, changes))
    return BertForMaskedLM(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Random tokens; the second row is padded, so that a dropped mask is detected."""
    random = np.random.default_rng(seed)
    rows = np.array(lengths)[:, None]
    columns = np.arange(max(lengths))
    input_ids = random.integers(0, 511, (len(lengths), max(lengths)))
    attention_mask = (columns < rows).astype(np.int64)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
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
        exercised="43 of 46 branches of the modeling code (93 %)",
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
            },
            without=["attention_mask"],
        )
        assert error <= case.tolerance


def test_attention_agrees(case: ModelTest) -> None:
    """The default attention gives what the plain one gives, in float64 with padding and without."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attention_error(inputs, without=["attention_mask"])
    assert error <= case.exact_tolerance
    assert case.attention_error(make_inputs()) <= case.exact_tolerance


def test_padding_side(case: ModelTest) -> None:
    """Padding with the padding token, on the right, changes no output."""
    for side in ["right"]:
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
        "position_ids": 0,
        "token_type_ids": 0,
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


def test_token_types(case: ModelTest) -> None:
    """Types of tokens change the outputs as in float64, and type 0 is the default."""
    assert case.token_types_error(make_inputs()) <= case.tolerance
    assert case.token_types_effect(make_inputs()) > 2 * case.tolerance
    assert case.default_type_error(make_inputs()) <= case.tolerance


def test_loss(case: ModelTest) -> None:
    """The loss is the cross entropy of the logits and labels, without labels of -100."""
    assert case.loss_error(make_inputs(), "same") <= case.tolerance
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


def test_variants(case: ModelTest) -> None:
    """Models with other settings match float64 and recorded values."""
    output = "logits"
    for variant in [
        {
            "attention": True,
            "changes": {
                "add_cross_attention": True,
                "is_decoder": True,
                "num_hidden_layers": 3,
            },
            "decodes": False,
            "scale": 1.65236,
            "shapes": {
                "encoder_attention_mask": [7],
                "encoder_hidden_states": [7, 48],
            },
            "recorded": {
                (1, 5, 135): 2.161101463,
                (0, 15, 473): 3.022928399,
                (0, 12, 398): 0.7386015425,
                (0, 6, 381): -1.168332935,
            },
        },
        {
            "attention": True,
            "changes": {
                "is_decoder": True,
            },
            "decodes": False,
            "scale": 1.59825,
            "recorded": {
                (1, 5, 135): 2.043328133,
                (0, 15, 473): 1.215583897,
                (0, 12, 398): -1.653568074,
                (0, 6, 381): -0.3004517752,
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
    assert case.gradient_count() == 42
    assert case.gradient_norm_error(0.1276797764) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_long_text(case: ModelTest) -> None:
    """A text of 120 tokens, and shorter ones, gives the outputs of float64 and the recorded values."""
    for lengths in [[120, 67], [65, 63], [33, 31]]:
        inputs = make_inputs(lengths=lengths)
        assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance
    recorded = {
        (1, 39, 34): -2.876102038,
        (0, 119, 57): -1.942451338,
        (0, 95, 298): -3.390513777,
        (0, 50, 230): 0.1117200154,
    }
    longest = make_inputs(lengths=[120, 67])
    error = case.recorded_error("logits", recorded, 1.60486, longest)
    assert error <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 b1fa3082088ff157
