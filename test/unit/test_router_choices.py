"""Half precision: choices of routers that rounding makes, held in a pass, and what rounding does to results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from suites_of_recipes import outcomes

from hardware.backends._trace import operator_trace
from hardware.backends.factory import get_backend
from hardware.testing.half_precision import CHOICES, exact_operators, rounded_results
from hardware.testing.router_choices import OtherChoices, RouterChoice, hold_choices, observe_choices, undecided

SCORES = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])


def held(indices: Any, scores: torch.Tensor = SCORES) -> Any:
    with hold_choices([RouterChoice(function="topk", indices=np.array(indices))]) as found:
        values, taken = scores.topk(2)
    assert taken.tolist() == indices
    assert torch.equal(values, scores.gather(1, taken))
    return found


def test_given_choices_are_taken_with_the_scores_of_the_pass() -> None:
    gaps = {((0, 1), (3, 2)): 0.0, ((1, 0), (3, 2)): 0.0, ((0, 2), (3, 2)): 1.0, ((0, 0), (3, 2)): np.inf}
    for indices, gap in gaps.items():  # the same experts in any order, and one expert twice
        assert held([[*row] for row in indices]).gaps == [gap]
    exact = held([[0, 2], [3, 2]])
    for moved, explains in ((0.6, True), (0.4, False)):  # up to twice what rounding does to a score
        near, far = held([[0, 2], [3, 2]], SCORES + moved), held([[0, 2], [3, 2]], SCORES - 9)
        assert undecided(exact, (near,)) is explains
        assert undecided(exact, (near, far)) is explains  # each pass has to explain it
    masked = SCORES.clone()
    masked[0, 3] = torch.finfo(torch.float32).min
    exact, near = held([[0, 2], [3, 2]], masked), held([[0, 2], [3, 2]], torch.where(masked < -9, -9.0, masked))
    assert not undecided(exact, (near,)), "a number that stands for a mask is no measure of rounding"


def test_a_pass_that_makes_other_choices_takes_none() -> None:
    def hold(function: str) -> Any:
        return hold_choices([RouterChoice(function=function, indices=np.zeros((2, 2), int))])

    with pytest.raises(OtherChoices), hold("argmax"):
        SCORES.topk(2)
    with pytest.raises(OtherChoices), hold("topk"):
        SCORES.topk(3)
    with pytest.raises(OtherChoices), hold("topk"):
        pass


def test_choices_of_floating_scores_are_observed_and_are_no_work_of_the_host() -> None:
    class Chooses(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.argmax(x, dim=-1), x.topk(k=2, dim=-1), x.long().argmax(dim=-1), x.max()

    class Takes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.topk(k=2, dim=-1)

    model = Chooses()
    with observe_choices(model, passes=1) as found:
        model(SCORES)
        model(SCORES)
    assert [(one.function, one.indices.shape) for one in found] == [("argmax", (2,)), ("topk", (2, 2))]
    scores, takes = SCORES.to(get_backend("simulated").device), Takes()
    with observe_choices(takes) as found, operator_trace("simulated") as trace:
        takes(scores)
    assert len(found) == 1
    assert not trace.offloaded


def test_exact_operators_round_once() -> None:
    terms = torch.full((1, 4096), 1.0, dtype=torch.bfloat16)
    weights = torch.full((4096, 1), 1 + 2**-7, dtype=torch.bfloat16)
    with exact_operators():
        product = terms @ weights
    assert product.dtype is torch.bfloat16
    assert float(product) == float(torch.tensor(4096 * (1 + 2**-7), dtype=torch.float64).bfloat16())


def test_rounded_results_leave_the_numbers_of_masks() -> None:
    smallest = torch.finfo(torch.float64).min
    with rounded_results(torch.bfloat16):
        result = torch.tensor([1.001, smallest], dtype=torch.float64) * 1.0
        whole = torch.arange(3) + 1
    assert result.tolist() == [1.0, smallest]
    assert whole.dtype is torch.int64


def test_a_choice_that_rounding_makes_is_a_condition_and_a_wrong_result_fails(tmp_path: Path) -> None:
    """Of one model; test/device asks others."""

    def spoil(model: Any) -> None:
        """Make logits wrong in bfloat16 alone."""
        model.lm_head.register_forward_hook(
            lambda head, _, logits: logits.roll(1, -1) if head.weight.dtype is torch.bfloat16 else logits
        )

    checks = ("generates_like_reference", "cache_matches")
    found, conditions = outcomes("mistral", "bfloat16", tmp_path, checks=checks)
    assert found == dict.fromkeys(checks, "passed")
    assert CHOICES in conditions
    found, _ = outcomes("mistral", "bfloat16", tmp_path, checks=("matches_reference", *checks), spoil=spoil)
    assert set(found.values()) == {"failed"}
