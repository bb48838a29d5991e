"""Operators that OpenVINO's converter can't read are replaced by others with the same numbers in a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hardware.export.convert_model import computed_beforehand
from hardware.export.openvino_operators import convertible_operators

functions = torch.nn.functional
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(3, 7, generator=GENERATOR)
WHOLE = torch.randint(-4, 9, (3, 7), generator=GENERATOR)
BAD = X.clone()
BAD[0, 0], BAD[1, 1], BAD[2, 2] = float("nan"), float("inf"), -float("inf")


def _set(key: Any, value: Any) -> Any:
    changed = X.clone()
    changed[key] = value
    return changed


CALLS: dict[str, Callable[[], Any]] = {
    "sum": lambda: torch.sum(X, dim=-1),
    "index_put": lambda: X.index_put((torch.tensor([0]), torch.tensor([1])), torch.tensor([5.0])),
    "avg_pool2d": lambda: functions.avg_pool2d(X[None, None], 9, ceil_mode=True),
    "avg_pool2d within": lambda: functions.avg_pool2d(X[None, None], 3, stride=1, padding=1),
    "diff": lambda: torch.diff(X),
    "diff of rows": lambda: WHOLE.diff(dim=0),
    "diff with a beginning": lambda: torch.diff(WHOLE, prepend=WHOLE[:, :1]),
    "diff of diff": lambda: torch.diff(X, n=2),
    "histc": lambda: torch.histc(WHOLE.float(), bins=6, min=-2, max=7),
    "histc of one value": lambda: torch.histc(torch.zeros(5), bins=1, min=0, max=0),
    "nan_to_num": lambda: BAD.nan_to_num(),
    "nan_to_num by others": lambda: torch.nan_to_num(BAD, nan=2.0, posinf=9.0, neginf=-9.0),
    "floor division": lambda: WHOLE // 3,
    "floor division by a tensor": lambda: WHOLE // torch.tensor(3),
    "div": lambda: torch.div(WHOLE, 4, rounding_mode="floor"),
    "div of fractions": lambda: torch.div(X, 2),
    "divide": lambda: torch.divide(X, 2),
    "subtract": lambda: torch.subtract(X, 2),
    "argmax": lambda: (WHOLE > 3).int().argmax(1),
    "argmax of columns": lambda: WHOLE.argmax(dim=0, keepdim=True),
    "argmax of all": lambda: torch.argmax(WHOLE),
    "isin": lambda: torch.isin(WHOLE, torch.tensor([1, 4])),
    "logit": lambda: torch.special.logit(X.sigmoid(), eps=1e-5),
    "cummax": lambda: torch.cummax(WHOLE, dim=1)[0],
    "cummax, where": lambda: torch.cummax(WHOLE, dim=1)[1],
    "cummin": lambda: torch.cummin(WHOLE, 0)[0],
    "mse_loss": lambda: functions.mse_loss(X, BAD.nan_to_num(0.0, 1.0, 1.0)),
    "unfold": lambda: X.unfold(-1, 3, 2),
    "set by a mask": lambda: _set(WHOLE > 3, -1.0),
    "set rows by a mask": lambda: _set(WHOLE[:, 0] > 0, X[0]),
    "set by a mask, one by one": lambda: _set(WHOLE > 3, X[WHOLE > 3] + 1),
    "set places": lambda: _set((slice(None), [1, -2]), -1.0),
    "set places by a mask of them": lambda: _set((slice(None), [True, *[False] * 6]), -1.0),
    "set places in two rows": lambda: _set((slice(None), torch.tensor([[1], [4]])), -1.0),
    "set one column": lambda: _set((slice(None), 2), X[:, 0]),
    "attention of one head": lambda: functions.scaled_dot_product_attention(*[X[None, None]] * 3, scale=0.3),
    "causal attention of one head": lambda: functions.scaled_dot_product_attention(
        *[X[None, None]] * 3, is_causal=True
    ),
    "attention": lambda: functions.scaled_dot_product_attention(X[None], X[None], X[None], (WHOLE[None, :, :3] > -9)),
}


def test_replaced_operators_give_the_same_and_are_restored() -> None:
    before = torch.sum, torch.Tensor.__floordiv__, functions.avg_pool2d, "argmax" in vars(torch.Tensor)
    for name, call in CALLS.items():
        want = call()
        with convertible_operators():
            assert torch.sum is not before[0]
            got = call()
        assert got.dtype == want.dtype, name
        assert got.shape == want.shape, name
        assert torch.allclose(got.double(), want.double(), atol=1e-6), name
    assert before == (torch.sum, torch.Tensor.__floordiv__, functions.avg_pool2d, "argmax" in vars(torch.Tensor))
    mask = torch.zeros(1, 3, 3, dtype=torch.bool)
    with convertible_operators():
        out = functions.scaled_dot_product_attention(X[None], X[None], X[None], mask)
    assert torch.isfinite(out).all(), "a row that attends to nothing"


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_trace_holds_nothing_that_follows_from_constants() -> None:
    sizes, numbers = torch.tensor([[2, 2], [2, 2]]), torch.tensor([1.0, 2.0])

    class Counts(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with computed_beforehand([sizes]):
                found = torch.unique_consecutive(sizes.flatten())
                assert isinstance(x.shape[0], int)
                return x * found + len({x.shape[0]: 1}[x.shape[0]] * [1])

    class Writes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with computed_beforehand([numbers]):
                mine = numbers * 2
                mine[0] = x
                return mine + 1

    traced = torch.jit.trace(Counts(), X)
    assert "unique_consecutive" not in str(traced.graph)
    assert torch.equal(traced(X), X * 2 + 1)
    written = torch.jit.trace(Writes(), torch.tensor(5.0))
    assert written(torch.tensor(7.0)).tolist() == [8.0, 5.0], "a constant that is written into belongs to the trace"
