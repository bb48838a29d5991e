"""vit/image-classification/cpu/float32

Command   hwcompat generate --model vit --device cpu
Weights   tiny: 94,906 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import ViTConfig, ViTForImageClassification

from hwcompat.testing import ModelTest, with_changes

CELL = "vit/image-classification/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "vision"
CONFIG_HASH = "1354f4b4b56a3c2d9224eda36bfba2693a254065a4e834a65a5c1c9fb0f10ac0"
RECIPE = "2ee914a822e76021fedd9ef46835a07c0cbd7ae590e77c6c1b3aeb9f6c352652"
REVISIONS = "suites 1, check loss 2, check attentions 2, check dropout 2"

CONFIG = {
    "hidden_size": 48,
    "image_size": 64,
    "intermediate_size": 192,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "num_labels": 10,
}
PARAMETERS = 94_906

# Expected logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 6): -1.172258756,
    (1, 5): 1.825280651,
    (0, 9): -1.813421125,
    (0, 2): -0.1105661211,
    (0, 8): 0.483430044,
    (0, 6): -0.8665197762,
    (0, 0): -0.02978225237,
    (0, 3): -2.525113642,
    (1, 8): 1.101331455,
    (1, 0): 0.4314639343,
    (1, 7): 0.1743138217,
    (1, 1): -1.184950063,
}
SCALE = 1.15478


def make_model() -> ViTForImageClassification:
    return ViTForImageClassification(ViTConfig(**CONFIG))


def make_variant(changes: dict[str, object]) -> ViTForImageClassification:
    config = ViTConfig(**with_changes(CONFIG, changes))
    return ViTForImageClassification(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Noise as an image for each entry of `lengths`."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), 3, 64, 64)
    pixel_values = random.standard_normal(shape).astype(np.float32)
    return {
        "pixel_values": pixel_values,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=1.5,
        outputs=("logits",),
        exercised="19 of 20 branches of the modeling code (95 %)",
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


def test_given_defaults(case: ModelTest) -> None:
    """Arguments that are given as the model would choose them change nothing."""
    inputs = make_inputs(lengths=(16, 16))
    without = []
    for name, value in {
        "interpolate_pos_encoding": True,
    }.items():
        assert case.given_error(inputs, name, value, without=without) <= case.tolerance


def test_optional_arguments(case: ModelTest) -> None:
    """All outputs that the model can return, and inputs that may be left out, match float64."""
    for call in [
        {
            "lengths": (16, 16),
            "arguments": {
                "batch": 2,
                "flags": [
                    "output_hidden_states",
                    "output_attentions",
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
    assert case.loss_error(make_inputs(), "row") <= case.tolerance
    # Gradients in training mode without dropout, as the cross entropy of float64's logits gives them.
    assert case.loss_gradient_error(make_inputs(), "row") <= case.tolerance


def test_hidden_states(case: ModelTest) -> None:
    """The hidden states are what each layer gets, and what the last one gives."""
    assert case.hidden_states_error(make_inputs()) <= case.tolerance


def test_attentions(case: ModelTest) -> None:
    """The attention weights match float64, and those of each position sum to 1."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attentions_error(inputs)
    assert error <= case.tolerance


def test_image_size(case: ModelTest) -> None:
    """Images of twice the height and three times the width match float64 and the recorded values."""
    recorded = {
        (1, 7): 0.1383296332,
        (1, 2): 1.21074168,
        (1, 0): 0.4249944216,
        (0, 5): 1.868770457,
    }
    name, output = "pixel_values", "logits"
    error = case.image_size_error(make_inputs(), name, output, recorded, 1.15692)
    assert error <= case.tolerance


def test_variants(case: ModelTest) -> None:
    """Models with other settings match float64 and recorded values."""
    output = "logits"
    for variant in [
        {
            "attention": True,
            "changes": {
                "num_hidden_layers": 3,
            },
            "decodes": False,
            "scale": 1.43915,
            "recorded": {
                (1, 7): 0.1388060254,
                (1, 2): 0.5373989279,
                (1, 0): 0.9051378409,
                (0, 5): 2.361178522,
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
    assert case.gradient_count() == 40
    assert case.gradient_norm_error(5.984915725) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 d4e6bd347699892c
