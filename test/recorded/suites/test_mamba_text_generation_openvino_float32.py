"""mamba/text-generation/openvino/float32

Made by   python run_test_generation.py --model mamba --device openvino
Weights   tiny: 64,080 parameters, weights set by name; no download
Recipe    transformers 5.5.4
Rules     golden.first, golden.second
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import MambaConfig, MambaForCausalLM

from hardware.testing import ModelTest

CELL = "mamba/text-generation/openvino/float32"
SUBJECT = "tiny"
ARCHITECTURE = "decoder-only"
CONFIG_HASH = "6799f0bd6d77578639d0e455db88fa294033dd915532b1f1202ef23589805037"
RECIPE = "2534235edb427e07742d131ab87e93859fc42166188fbd266fd44c4d29ec5048"
REVISIONS = "suites 1"

CONFIG = {
    "bos_token_id": 511,
    "eos_token_id": 511,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "pad_token_id": 511,
    "vocab_size": 512,
}
PARAMETERS = 64_080

# logits in float64 with transformers 5.5.4: by position, and its scale
RECORDED = {
    (1, 12, 323): -0.2621203595,
    (0, 15, 278): -0.0164538703,
    (0, 12, 286): -0.02310454942,
    (0, 6, 478): 0.1577518233,
    (0, 7, 142): 0.3872213803,
    (0, 1, 417): 0.6576911552,
    (0, 1, 343): 0.8651090996,
    (0, 0, 1): -0.2375816236,
    (0, 4, 201): -0.2948451544,
    (1, 11, 438): -0.2921559092,
    (1, 7, 283): 0.246612052,
    (1, 13, 17): 1.248606827,
    (0, 12, 391): 0.3062282471,
    (0, 15, 373): 0.5758013151,
    (1, 15, 433): 0.6436472832,
    (1, 9, 89): -0.3959313427,
}
SCALE = 0.775314


def make_model() -> MambaForCausalLM:
    return MambaForCausalLM(MambaConfig(**CONFIG))


def make_inputs(
    seed: int = 0,
    lengths: tuple[int, ...] = (16, 9),
) -> dict[str, np.ndarray]:
    """Random tokens, padded on the left, where a causal mask hides no padding."""
    random = np.random.default_rng(seed)
    rows = np.array(lengths)[:, None]
    columns = np.arange(max(lengths))
    input_ids = random.integers(0, 511, (len(lengths), max(lengths)))
    attention_mask = (columns >= max(lengths) - rows).astype(np.int64)
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
        gain=0.7,
        outputs=("logits",),
        masked_by={"logits": "attention_mask"},
        generates="causal",
    ) as case:
        yield case


def test_builds(case: ModelTest) -> None:
    """The model comes out with the parameters that the recipe counted."""
    assert case.parameter_count() == PARAMETERS


def test_matches_reference(case: ModelTest) -> None:
    """Float64 on CPU gives the same, also for other values, shapes and no padding."""
    for inputs in (
        make_inputs(),
        make_inputs(seed=1),
        make_inputs(seed=2, lengths=(5, 12, 7)),
        make_inputs(seed=3, lengths=(11, 11)),
    ):
        assert case.error(case.run(inputs), case.reference(inputs)) <= case.tolerance


def test_matches_recorded(case: ModelTest) -> None:
    """Numbers kept with the recipe: a fault in the modelling code shows here too."""
    assert case.recorded_error("logits", RECORDED, SCALE) <= case.tolerance


def test_honours_mask(case: ModelTest) -> None:
    """What stands at padded positions changes nothing; dropping the mask does."""
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


def test_generates_like_reference(case: ModelTest) -> None:
    """Greedy decoding with a cache gives float64's tokens and logits without one."""
    got, want = case.generate(), case.reference_generate()
    assert not case.different_tokens(got, want)
    assert case.logits_error(got, want) <= case.tolerance


def test_cache_matches(case: ModelTest) -> None:
    """Logits decoded step by step are float64's over the whole sequence."""
    generated = case.generate()
    assert generated.used_cache, "every step was given the whole sequence"
    assert case.replay_error(generated) <= case.tolerance


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


# generated: sha256 c20b6c4c06be9d57
