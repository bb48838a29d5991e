"""clip/zero-shot-image-classification/cpu/float32

Command   hwcompat generate --model clip --device cpu
Weights   tiny: 251,937 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import CLIPConfig, CLIPModel

from hwcompat.testing import ModelTest, with_changes

CELL = "clip/zero-shot-image-classification/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "multimodal"
CONFIG_HASH = "96d8fd931688fa1bfa656a31a92e2b4b35ac306e3eb8e261d0bea611a080cc97"
RECIPE = "6a2c014bb1ce51b1d4da2030499b80bd7c850bf765f32f0b726b51235a5d60f8"
REVISIONS = "suites 1, check dropout 2"

CONFIG = {
    "projection_dim": 32,
    "text_config": {
        "bos_token_id": 510,
        "eos_token_id": 509,
        "hidden_size": 32,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "pad_token_id": 511,
        "projection_dim": 32,
        "vocab_size": 512,
    },
    "vision_config": {
        "hidden_size": 48,
        "image_size": 128,
        "intermediate_size": 192,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "projection_dim": 32,
    },
}
PARAMETERS = 251_937

# Expected logits_per_image at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 1): -0.1592633408,
    (0, 1): -0.1054330073,
    (0, 0): -0.1860331566,
    (1, 0): -0.2420422236,
}
SCALE = 0.0492203


def make_model() -> CLIPModel:
    return CLIPModel(CLIPConfig(**CONFIG))


def make_variant(changes: dict[str, object]) -> CLIPModel:
    config = CLIPConfig(**with_changes(CONFIG, changes))
    return CLIPModel(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Random tokens, and noise as the image; the second text is padded."""
    random = np.random.default_rng(seed)
    rows = np.array(lengths)[:, None]
    columns = np.arange(max(lengths))
    input_ids = random.integers(0, 509, (len(lengths), max(lengths)))
    input_ids[:, -1] = 509
    shape = (len(lengths), 3, 128, 128)
    pixel_values = random.standard_normal(shape).astype(np.float32)
    attention_mask = (columns < rows).astype(np.int64)
    return {
        "input_ids": input_ids,
        "pixel_values": pixel_values,
        "attention_mask": attention_mask,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=1.0,
        outputs=("logits_per_image", "text_embeds", "image_embeds"),
        exercised="17 of 18 branches of the modeling code (94 %)",
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
    assert case.recorded_error("logits_per_image", RECORDED, SCALE) <= case.tolerance


def test_honours_mask(case: ModelTest) -> None:
    """The content of padding doesn't change the outputs; dropping the mask does."""
    inputs = make_inputs()
    mask, tokens = inputs["attention_mask"], inputs["input_ids"]
    kept = (mask == 1) | (tokens == 509)
    other_padding = np.where(kept, tokens, (tokens + 1) % 509)
    scrambled = case.run(inputs | {"input_ids": other_padding})
    without = inputs | {"attention_mask": np.ones_like(mask)}
    unmasked = case.run(without)
    assert case.error(scrambled, case.reference(inputs)) <= case.tolerance
    assert case.error(unmasked, case.reference(without)) <= case.tolerance
    assert case.difference(unmasked, case.reference(inputs)) > 2 * case.tolerance


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


def test_given_defaults(case: ModelTest) -> None:
    """Arguments that are given as the model would choose them change nothing."""
    inputs = make_inputs(lengths=(16, 16))
    without = ["attention_mask"]
    for name, value in {
        "attention_mask": 1,
        "interpolate_pos_encoding": True,
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
                "flags": ["return_loss"],
            },
        },
        {
            "lengths": (16, 16),
            "arguments": {
                "batch": 2,
                "flags": ["return_loss"],
                "without": ["attention_mask"],
            },
        },
    ]:
        inputs = make_inputs(lengths=call["lengths"])
        assert case.optional_error(inputs, **call["arguments"]) <= case.tolerance


def test_large_values(case: ModelTest) -> None:
    """Values 10_000.0 times as large give the outputs of float64."""
    inputs = case.enlarged(make_inputs(), "pixel_values", 10000.0)
    assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_image_size(case: ModelTest) -> None:
    """Images of twice the height and three times the width match float64 and the recorded values."""
    recorded = {
        (1, 1): -0.1745029229,
        (1, 0): -0.2583925872,
        (0, 1): -0.1109602369,
    }
    name, output = "pixel_values", "logits_per_image"
    error = case.image_size_error(make_inputs(), name, output, recorded, 0.052379)
    assert error <= case.tolerance


def test_variants(case: ModelTest) -> None:
    """Models with other settings match float64 and recorded values."""
    output = "logits_per_image"
    for variant in [
        {
            "attention": True,
            "changes": {
                "text_config.num_hidden_layers": 3,
            },
            "decodes": False,
            "scale": 0.0462417,
            "recorded": {
                (1, 1): -0.08256507668,
                (1, 0): -0.1490512589,
                (0, 1): -0.01950565762,
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
    assert case.gradient_count() == 78
    assert case.gradient_norm_error(2.271948083) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 e352d4c86b248646
