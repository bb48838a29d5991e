"""videomae/video-classification/cpu/float32

Command   hwcompat generate --model videomae --device cpu
Weights   tiny: 130,906 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import VideoMAEConfig, VideoMAEForVideoClassification

from hwcompat.testing import ModelTest, with_changes

CELL = "videomae/video-classification/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "video"
CONFIG_HASH = "680cad26046cab8e0246e57f49acb00b73296959067b68f3fcf506473a0e0968"
RECIPE = "0969105f298493042726656a399674b960156dc6e5fdb99d696efb818f5e1d6e"
REVISIONS = "suites 1, check loss 2, check attentions 2, check dropout 2"

CONFIG = {
    "decoder_hidden_size": 24,
    "decoder_intermediate_size": 96,
    "decoder_num_attention_heads": 3,
    "decoder_num_hidden_layers": 2,
    "hidden_size": 48,
    "image_size": 64,
    "intermediate_size": 192,
    "num_attention_heads": 6,
    "num_frames": 4,
    "num_hidden_layers": 2,
    "num_labels": 10,
}
PARAMETERS = 130_906

# Expected logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 6): -0.4976448554,
    (1, 5): -0.4645468889,
    (0, 9): 0.9139957042,
    (0, 2): 0.5594165113,
    (0, 8): 2.20899145,
    (0, 6): -0.3949783723,
    (0, 0): 0.2911350026,
    (0, 3): -3.437192606,
    (1, 8): 0.7011029882,
    (1, 0): -2.732723616,
    (1, 7): 1.283737862,
    (1, 1): -1.189888186,
}
SCALE = 1.73483


def make_model() -> VideoMAEForVideoClassification:
    return VideoMAEForVideoClassification(VideoMAEConfig(**CONFIG))


def make_variant(changes: dict[str, object]) -> VideoMAEForVideoClassification:
    config = VideoMAEConfig(**with_changes(CONFIG, changes))
    return VideoMAEForVideoClassification(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Noise as a short video for each entry of `lengths`."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), 4, 3, 64, 64)
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
        exercised="17 of 18 branches of the modeling code (94 %)",
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
    """The attention weights of each position sum to 1."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attentions_error(inputs, sums_alone=True)
    assert error <= case.tolerance


def test_variants(case: ModelTest) -> None:
    """Models with other settings match float64 and recorded values."""
    output = "logits"
    for variant in [
        {
            "attention": True,
            "changes": {
                "num_hidden_layers": 3,
                "use_mean_pooling": False,
            },
            "decodes": False,
            "scale": 1.67569,
            "recorded": {
                (1, 7): -0.3900664736,
                (1, 2): -2.564756111,
                (1, 0): -0.3473947549,
                (0, 5): 0.1269969816,
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
    assert case.gradient_count() == 38
    assert case.gradient_norm_error(2.575426406) <= case.tolerance


def test_gradient_checkpointing(case: ModelTest) -> None:
    """Gradients are the same if layers are computed again in the backward pass."""
    assert case.checkpointing_error(make_inputs()) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 dcb923e1d576ac55
