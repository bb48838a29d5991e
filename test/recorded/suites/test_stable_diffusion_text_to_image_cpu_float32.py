"""stable-diffusion/text-to-image/cpu/float32

Command   hwcompat generate --model stable-diffusion --device cpu
Weights   tiny: 1,106,212 parameters, seeded random weights, no download
Recipe    diffusers 0.37.1
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from diffusers import UNet2DConditionModel

from hwcompat.testing import ModelTest

CELL = "stable-diffusion/text-to-image/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "diffusion"
CONFIG_HASH = "ba59831ba6a51a220fc85b861d81c0480c5d66328d652f74d379d97ee3250cfc"
RECIPE = "d53d4cdee14b6d5464e85d64f528dc8019415150c42dbc74f64ac3144413e1d8"
REVISIONS = "suites 1, check dropout 2"

CONFIG = {
    "attention_head_dim": 2,
    "block_out_channels": [32, 64],
    "cross_attention_dim": 32,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "norm_num_groups": 8,
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}
PARAMETERS = 1_106_212

# Expected sample at some positions, and their scale (float64, diffusers 0.37.1)
RECORDED = {
    (1, 2, 4, 8): -0.49073585,
    (1, 3, 2, 13): 0.248670741,
    (1, 2, 0, 6): -0.213103414,
    (0, 3, 4, 0): -0.5921940242,
    (0, 3, 5, 13): 0.3767191834,
    (0, 0, 0, 13): -1.092104682,
    (0, 0, 4, 1): -0.4147134209,
    (0, 1, 3, 6): 0.4829238894,
    (0, 1, 0, 0): 0.45225601,
    (1, 0, 0, 10): -0.6374481403,
    (1, 2, 5, 4): -0.4876151135,
    (1, 2, 6, 6): -1.050504701,
    (1, 1, 7, 12): 0.652017077,
    (1, 3, 3, 10): 0.2839139522,
    (1, 3, 5, 13): 0.5485188762,
    (1, 2, 5, 6): -0.7964298406,
}
SCALE = 0.646583


def make_model() -> UNet2DConditionModel:
    return UNet2DConditionModel(**CONFIG)


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """One denoising step for each entry of `lengths`; the latents grow with the prompt."""
    random = np.random.default_rng(seed)
    rows = np.array(lengths)[:, None]
    columns = np.arange(max(lengths))
    shape = (len(lengths), 4, 2 * (max(lengths) // 4), 4 * (max(lengths) // 4))
    sample = random.standard_normal(shape).astype(np.float32)
    shape = len(lengths)
    timestep = random.integers(0, 128, shape)
    shape = (len(lengths), 1 * max(lengths), 32)
    encoder_hidden_states = random.standard_normal(shape).astype(np.float32)
    encoder_attention_mask = (columns < rows).astype(np.int64)
    return {
        "sample": sample,
        "timestep": timestep,
        "encoder_hidden_states": encoder_hidden_states,
        "encoder_attention_mask": encoder_attention_mask,
    }


@pytest.fixture(scope="module")
def case() -> Iterator[ModelTest]:
    with ModelTest(
        CELL,
        make_model,
        make_inputs(),
        gain=1.0,
        outputs=("sample",),
        exercised="140 of 260 branches of the modeling code (53 %)",
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
    assert case.recorded_error("sample", RECORDED, SCALE) <= case.tolerance


def test_honours_mask(case: ModelTest) -> None:
    """The content of padding doesn't change the outputs; dropping the mask does."""
    inputs = make_inputs()
    mask, steps = inputs["encoder_attention_mask"], inputs["encoder_hidden_states"]
    other_padding = np.where(mask[..., None] == 1, steps, steps + 1).astype(np.float32)
    scrambled = case.run(inputs | {"encoder_hidden_states": other_padding})
    without = inputs | {"encoder_attention_mask": np.ones_like(mask)}
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
                "encoder_attention_mask": "encoder_attention_mask",
                "encoder_hidden_states": "encoder_attention_mask",
            },
            without=["encoder_attention_mask"],
        )
        assert error <= case.tolerance


def test_given_defaults(case: ModelTest) -> None:
    """Arguments that are given as the model would choose them change nothing."""
    inputs = make_inputs(lengths=(16, 16))
    without = ["encoder_attention_mask"]
    for name, value in {
        "return_dict": False,
    }.items():
        assert case.given_error(inputs, name, value, without=without) <= case.tolerance


def test_large_values(case: ModelTest) -> None:
    """Values 10_000.0 times as large give the outputs of float64."""
    inputs = case.enlarged(make_inputs(), "sample", 10000.0)
    assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_dropout(case: ModelTest) -> None:
    """Dropout changes nothing in evaluation mode, and its kinds something in training mode."""
    assert case.dropout_error(make_inputs()) <= case.exact_tolerance
    # Training mode without dropout computes what evaluation mode does.
    assert case.training_error(make_inputs()) <= case.exact_tolerance
    unused = [
        "BasicTransformerBlock.dropout",
        "Attention.dropout",
    ]
    assert set(case.unused_dropout(make_inputs())) <= set(unused)


def test_save_reload(case: ModelTest, tmp_path: Path) -> None:
    """The model computes the same after it was saved and loaded again."""
    inputs = make_inputs()
    again = case.save_and_reload(tmp_path, inputs)
    assert case.error(again, case.reference(inputs)) <= case.tolerance


def test_backward(case: ModelTest) -> None:
    """Gradients match float64; their number and norm match the recorded ones."""
    assert case.gradient_error() <= case.tolerance
    assert case.gradient_count() == 304
    assert case.gradient_norm_error(0.3643612144) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """Every operator ran on the target in this precision, by the runtime's records."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 b2a32f56f5abd265
