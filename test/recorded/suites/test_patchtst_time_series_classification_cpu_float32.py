"""patchtst/time-series-classification/cpu/float32

Command   hwcompat generate --model patchtst --device cpu
Weights   tiny: 26,826 parameters, seeded random weights, no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import PatchTSTConfig, PatchTSTForClassification

from hwcompat.testing import ModelTest, with_changes

CELL = "patchtst/time-series-classification/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "time-series"
CONFIG_HASH = "9c5c39fe1aacc9909020442abcd139b156c99342faeaba1eadf65f9221217f54"
RECIPE = "ea520350cb5e051642810be7f6a0356879294c9d26c0577df4122b74dfbb0961"
REVISIONS = "suites 1, check attentions 2, check dropout 2"

CONFIG = {
    "d_model": 32,
    "ffn_dim": 128,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_targets": 10,
}
PARAMETERS = 26_826

# Expected prediction_logits at some positions, and their scale (float64, transformers 5.5.4)
RECORDED = {
    (1, 6): 0.9762650262,
    (1, 5): -1.325156733,
    (0, 9): 1.806013426,
    (0, 2): -1.072988367,
    (0, 8): 2.773285034,
    (0, 6): 0.6937524495,
    (0, 0): 5.521806176,
    (0, 3): 4.505929506,
    (1, 8): 2.627529062,
    (1, 0): 3.823099885,
    (1, 7): 3.22150315,
    (1, 1): -5.658790724,
}
SCALE = 3.24077


def make_model() -> PatchTSTForClassification:
    return PatchTSTForClassification(PatchTSTConfig(**CONFIG))


def make_variant(changes: dict[str, object]) -> PatchTSTForClassification:
    config = PatchTSTConfig(**with_changes(CONFIG, changes))
    return PatchTSTForClassification(config)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Noise as a series for each entry of `lengths`; a tenth of the values is marked as missing."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), 32, 1)
    past_values = random.standard_normal(shape).astype(np.float32)
    shape = (len(lengths), 32, 1)
    past_observed_mask = (random.random(shape) < 0.9).astype(np.float32)
    return {
        "past_values": past_values,
        "past_observed_mask": past_observed_mask,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=1.0,
        outputs=("prediction_logits",),
        exercised="56 of 96 branches of the modeling code (58 %)",
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
    assert case.recorded_error("prediction_logits", RECORDED, SCALE) <= case.tolerance


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
        "return_dict": False,
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
    inputs = case.enlarged(make_inputs(), "past_values", 10000.0)
    assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_attentions(case: ModelTest) -> None:
    """The attention weights match float64, and those of each position sum to 1."""
    inputs = make_inputs(lengths=(16, 16))
    error = case.attentions_error(inputs)
    assert error <= case.tolerance


def test_variants(case: ModelTest) -> None:
    """Models with other settings match float64 and recorded values."""
    output = "prediction_logits"
    for variant in [
        {
            "attention": True,
            "changes": {
                "norm_type": "layernorm",
                "num_hidden_layers": 3,
                "positional_encoding_type": "random",
                "pre_norm": False,
                "share_embedding": False,
                "use_cls_token": True,
            },
            "decodes": False,
            "scale": 0.746495,
            "recorded": {
                (1, 7): -0.06482182792,
                (1, 2): -1.439418193,
                (1, 0): -0.6090941463,
                (0, 5): -0.1409140405,
            },
        },
        {
            "attention": True,
            "changes": {
                "channel_attention": True,
            },
            "decodes": False,
            "scale": 5.86974,
            "recorded": {
                (1, 7): 3.640783331,
                (1, 2): 0.7462585795,
                (1, 0): -1.305317426,
                (0, 5): -0.4051525618,
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
    assert case.gradient_count() == 36
    assert case.gradient_norm_error(9.308560937) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 46be320fadb20664
