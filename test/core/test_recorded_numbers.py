"""The numbers that a recipe keeps move with the faults that the recipe was accepted with."""

from __future__ import annotations

import numpy as np

from generators.recipes.measurements import SUBTLE
from generators.recipes.probe import record

RANDOM = np.random.default_rng(3)
WANT = RANDOM.standard_normal((2, 40, 50))
MASK = np.repeat([[1] * 40, [1] * 20 + [0] * 20], 1, axis=0)


def kept(*faults, among=("logits",), reference=None):
    reference = {"logits": WANT} if reference is None else reference
    masks = {"logits": MASK}
    return record(reference, among, masks, faults=faults, seed=0, lengths=(40, 20), origin="here")


def at(array: np.ndarray, found: dict) -> np.ndarray:
    return np.array([array[tuple(place)] for place in found["positions"]])


def test_a_fault_that_moves_one_entry_gets_a_number_of_its_own():
    quiet, alone = {"logits": WANT.copy()}, {"logits": WANT.copy()}
    quiet["logits"][1, 7, 11] += 0.5
    alone["logits"][0, 3, 2] += 0.5
    alone["logits"][1, 30, 2] += 50  # padding means nothing
    plain, found = kept(), kept(quiet, alone)
    assert len(found["positions"]) == 16
    assert found["positions"][:-2] == plain["positions"][:-2]
    assert found["positions"][-2:] == [[0, 3, 2], [1, 7, 11]]
    for fault in (quiet, alone):
        assert abs(at(fault["logits"], found) - np.array(found["values"])).max() / found["scale"] > SUBTLE


def test_numbers_that_move_anyway_stay_where_they_were_drawn():
    assert kept({"logits": 1.1 * WANT})["positions"] == kept()["positions"]


def test_an_output_that_no_fault_moves_is_not_the_one_that_is_kept():
    other = RANDOM.standard_normal((2, 3))
    reference = {"logits": WANT, "boxes": other}
    fault = {"logits": WANT, "boxes": other + 1}
    assert kept(fault, among=("logits", "boxes"), reference=reference)["output"] == "boxes"
    assert kept(among=("logits", "boxes"), reference=reference)["output"] == "logits"


def test_what_is_ruled_out_or_of_another_shape_does_not_count_as_moved():
    want = WANT.copy()
    want[:, :, 0] = -np.inf
    fault = {"logits": want.copy()}
    fault["logits"][0, 0, 0] = 1.0
    fault["logits"][1, 2, 3] += 1
    assert kept(fault, reference={"logits": want})["positions"][-1] == [1, 2, 3]
    assert kept({"logits": want[:, :3]}, reference={"logits": want})["values"]
