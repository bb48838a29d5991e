"""resnet/image-classification/openvino/float32

Made by   python run_test_generation.py --model resnet --device openvino
Weights   tiny: 34,286 parameters, weights set by name; no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import ResNetConfig, ResNetForImageClassification

from hardware.testing import ModelTest

CELL = "resnet/image-classification/openvino/float32"
SUBJECT = "tiny"
ARCHITECTURE = "vision"
CONFIG_HASH = "dd5d63711c4bed88bd84fc49e41f6350d67cb918a97e522aae0654e0416f6b47"
RECIPE = "bec4982a2c185db04135f319965500a126aaee5551fce3b472533431cbc487dc"
REVISIONS = "suites 1"

CONFIG = {
    "depths": [1, 1, 1, 1],
    "embedding_size": 4,
    "hidden_sizes": [16, 32, 64, 128],
    "num_labels": 10,
}
PARAMETERS = 34_286

# logits in float64 with transformers 5.5.4: by position, and its scale
RECORDED = {
    (1, 6): 8.96143474,
    (1, 5): 0.7814223814,
    (0, 9): 0.1910508958,
    (0, 2): -6.295475637,
    (0, 8): 3.19188326,
    (0, 6): 8.51886047,
    (0, 0): -7.735797137,
    (0, 3): 1.289432085,
    (1, 8): 2.46280673,
    (1, 0): -8.331400723,
    (1, 7): -1.581160562,
    (1, 1): 8.400856034,
}
SCALE = 6.23119


def make_model() -> ResNetForImageClassification:
    return ResNetForImageClassification(ResNetConfig(**CONFIG))


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Noise of the size of an image, one for each entry of `lengths`."""
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
    ) as case:
        yield case


def test_builds(case: ModelTest) -> None:
    """The model comes out with the parameters that the recipe counted."""
    assert case.parameter_count() == PARAMETERS


def test_matches_reference(case: ModelTest) -> None:
    """Float64 on CPU gives the same, also for other values and other shapes."""
    for inputs in (
        make_inputs(),
        make_inputs(seed=1),
        make_inputs(seed=2, lengths=(5, 12, 7)),
    ):
        assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_matches_recorded(case: ModelTest) -> None:
    """Numbers kept with the recipe: a fault in the modelling code shows here too."""
    assert case.recorded_error("logits", RECORDED, SCALE) <= case.tolerance


def test_save_reload(case: ModelTest, tmp_path: Path) -> None:
    """What is saved and loaded again computes the same."""
    inputs = make_inputs()
    again = case.save_and_reload(tmp_path, inputs)
    assert case.error(again, case.reference(inputs)) <= case.tolerance


def test_runs_natively(case: ModelTest) -> None:
    """The runtime's own records: every operator on the target, in this precision."""
    execution = case.execution()
    assert execution.native
    assert not execution.beyond_allowed
    assert execution.dtype == "float32"


# generated: sha256 561db2919c712afe
