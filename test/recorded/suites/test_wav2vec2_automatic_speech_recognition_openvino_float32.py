"""wav2vec2/automatic-speech-recognition/openvino/float32

Made by   python run_test_generation.py --model wav2vec2 --device openvino
Weights   tiny: 95,280 parameters, weights set by name; no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

from hardware.testing import ModelTest

CELL = "wav2vec2/automatic-speech-recognition/openvino/float32"
SUBJECT = "tiny"
ARCHITECTURE = "speech"
CONFIG_HASH = "71867cca8eb4fa9ca2535b5253b27c68641b9a05c2d67788d5f2a0e6c597027f"
RECIPE = "aa578f4fbb9e851e5dacd4138ce2fb3087758c94ebaf6dd63c51f9935b2cd2f5"
REVISIONS = "suites 1"

CONFIG = {
    "bos_token_id": 30,
    "conv_dim": [32, 32, 32, 32, 32, 32, 32],
    "eos_token_id": 29,
    "hidden_size": 48,
    "intermediate_size": 192,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pad_token_id": 31,
}
PARAMETERS = 95_280

# logits in float64 with transformers 5.5.4: by position, and its scale
RECORDED = {
    (1, 10, 17): 0.6180947158,
    (1, 8, 29): -0.03171571322,
    (1, 4, 26): 0.7532565134,
    (0, 10, 0): 1.883155229,
    (0, 6, 27): -0.3981276532,
    (0, 8, 1): 2.322477652,
    (0, 12, 23): -3.490331753,
    (0, 13, 5): 0.9614319676,
    (0, 1, 27): -0.6121124573,
    (1, 0, 17): 0.8836338291,
    (1, 1, 9): 0.6542180026,
    (1, 7, 13): -3.265396811,
    (1, 6, 0): 1.249803243,
    (1, 0, 3): -2.939994604,
    (1, 0, 21): 1.409756019,
    (1, 8, 20): 1.201954874,
}
SCALE = 1.96298


def make_model() -> Wav2Vec2ForCTC:
    return Wav2Vec2ForCTC(Wav2Vec2Config(**CONFIG))


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Noise for sound; the shorter row is padded."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), 320 * max(lengths) + 80)
    input_values = random.standard_normal(shape).astype(np.float32)
    samples = 320 * np.array(lengths)[:, None] + 80
    attention_mask = (np.arange(samples.max()) < samples).astype(np.int64)
    return {
        "input_values": input_values,
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


# generated: sha256 e69fb1858880567f
