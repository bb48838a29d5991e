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
from hardware.testing.half_precision import CHOICES
from hardware.testing.rounded_operators import exact_operators, rounded_products, rounded_results
from hardware.testing.router_choices import OtherChoices, RouterChoice, beyond_rounding, hold_choices, observe_choices

SCORES = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])


def held(indices: Any, scores: torch.Tensor = SCORES, *, in_order: bool = True) -> Any:
    with hold_choices([RouterChoice(function="topk", indices=np.array(indices))]) as found:
        values, taken = scores.topk(2, sorted=in_order)
    assert taken.tolist() == indices
    assert torch.equal(values, scores.gather(1, taken))
    return found


def test_given_choices_are_taken_with_the_scores_of_the_pass() -> None:
    for row, in_order, gap in (
        ([0, 1], True, 0.0),
        ([1, 0], False, 0.0),  # the same experts
        ([1, 0], True, 1.0),  # queries, whose order counts
        ([0, 2], True, 1.0),
        ([0, 0], True, np.inf),  # one expert twice
    ):
        assert held([row, [3, 2]], in_order=in_order).gaps[0].tolist() == [gap, 0.0], (row, in_order)
    exact = held([[0, 2], [3, 2]])
    for moved, explains in ((0.6, True), (0.4, False)):  # up to twice what rounding does to a score
        near, far = held([[0, 2], [3, 2]], SCORES + moved), held([[0, 2], [3, 2]], SCORES - 9)
        assert beyond_rounding(exact, (near,))[0].tolist() == [not explains, False]
        assert beyond_rounding(exact, (near, far))[0].tolist() == [not explains, False]  # each pass has to explain it
    masked = SCORES.clone()
    masked[0, 3] = torch.finfo(torch.float32).min
    exact, near = held([[0, 2], [3, 2]], masked), held([[0, 2], [3, 2]], torch.where(masked < -9, -9.0, masked))
    assert beyond_rounding(exact, (near,))[0].tolist() == [True, False], "a masked score is no measure of rounding"
    exact, fewer = held([[0, 2], [3, 2]]), held([[0, 2], [1, 2]], SCORES[:, :3] + 9)
    assert beyond_rounding(exact, (fewer,))[0].tolist() == [True, False], "it chose among others"


def test_a_pass_makes_some_choices_itself() -> None:
    given = [RouterChoice(function="topk", indices=np.array([[2, 3], [0, 1]]))]
    with hold_choices(given, but=[np.array([True, False])]):
        assert SCORES.topk(2).indices.tolist() == [[0, 1], [0, 1]]
    with hold_choices([RouterChoice(function="argmax", indices=np.array([2, 0]))], but=[np.array([False, True])]):
        assert SCORES.argmax(dim=-1).tolist() == [2, 3]


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


def test_tf32_rounds_what_products_multiply_and_nothing_else() -> None:
    fine = torch.tensor([[1 + 2**-10, 1 + 2**-12]])
    with rounded_products():
        product, added = fine.T @ fine[:, :1], torch.addmm(fine, fine[:, :1], torch.ones(1, 2))
        total = fine + 0
    assert product.ravel().tolist() == [(1 + 2**-10) ** 2, 1 + 2**-10]
    assert (added - fine).ravel().tolist() == pytest.approx([1 + 2**-10] * 2)
    assert torch.equal(total, fine)


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
