"""A reference above narrow weights: the numbers of a whole float64 copy, without the copy."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from hardware.testing import reference
from hardware.testing.seeded_weights import fill
from hardware.testing.widened_weights import copy_over, widen

torch = pytest.importorskip("torch")


class Everything(torch.nn.Module):
    """Tied weights, a convolution, a buffer, a bare parameter, and weights used outside their own module."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.mix = torch.nn.Conv1d(8, 8, 3, padding=1, groups=2)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.gate = torch.nn.Parameter(torch.ones(8))
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]))
        self.register_buffer("places", torch.arange(8))

    def forward(self, input_ids):
        x = self.norm(self.table(input_ids)) * self.scale + self.gate[self.places]
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x * torch.sigmoid(self.mix.weight.mean() + self.norm.weight[None, :] ** 2)
        return {"logits": self.head(x), "expanded": self.gate.expand(2, 8) @ self.table.weight.t()}


@pytest.fixture
def model():
    return fill(Everything(), gain=1.0)


INPUTS = {"input_ids": np.arange(12).reshape(2, 6) % 16}


def test_outputs_and_gradients_are_those_of_a_whole_copy(model):
    plain = reference.as_reference(copy.deepcopy(model))
    wide = reference.as_reference(copy_over(model), large=0)
    assert next(plain.parameters()).dtype == next(wide.parameters()).dtype == torch.float64
    pairs = [
        (reference.float64_outputs(plain, INPUTS), reference.float64_outputs(wide, INPUTS)),
        (reference.float64_gradients(plain, INPUTS), reference.float64_gradients(wide, INPUTS)),
    ]
    for want, got in pairs:
        assert sorted(got) == sorted(want)
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-15, atol=1e-15 * np.abs(want[name]).max())


def test_a_second_pass_is_not_disturbed_by_the_first(model):
    wide = reference.as_reference(copy_over(model), large=0)
    first = reference.float64_outputs(wide, INPUTS)["logits"].copy()
    reference.float64_outputs(wide, {"input_ids": INPUTS["input_ids"][::-1].copy()})
    np.testing.assert_array_equal(reference.float64_outputs(wide, INPUTS)["logits"], first)


def test_the_weights_are_not_copied_and_stay_as_they_are(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    wide = widen(copy_over(model))
    for mine, theirs in zip(wide.parameters(), model.parameters(), strict=True):
        assert mine.narrow.data_ptr() == theirs.data_ptr()
    reference.float64_gradients(wide, INPUTS)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_tied_weights_stay_tied(model):
    wide = widen(copy_over(model))
    assert wide.head.weight is wide.table.weight
    assert "head.weight" not in dict(wide.named_parameters())


def test_nobody_writes_into_the_weights_of_a_reference(model):
    wide = widen(copy_over(model))
    with torch.no_grad(), pytest.raises(RuntimeError, match="would write into weights"):
        wide.gate.mul_(2)


def test_a_fault_in_one_weight_is_heard_through_widened_weights(model):
    right = reference.float64_outputs(reference.as_reference(copy_over(model), large=0), INPUTS)["logits"]
    with torch.no_grad():
        model.attention.out_proj.weight[0, 0] += 0.1
    wrong = reference.float64_outputs(reference.as_reference(copy_over(model), large=0), INPUTS)["logits"]
    assert np.abs(right - wrong).max() > 1e-4


def test_gradients_are_counted_and_measured_without_being_kept(model):
    wide = reference.as_reference(copy_over(model), large=0)
    for _ in range(2):
        want = reference.float64_gradients(wide, INPUTS)
        count, norm = reference.gradient_summary(wide, INPUTS, {})
        assert count == len(want) > 5
        assert norm == pytest.approx(np.sqrt(sum(np.square(one).sum() for one in want.values())), rel=1e-12)
        wide.gate.requires_grad_(False)
    assert all(parameter.grad is None for parameter in wide.parameters())
