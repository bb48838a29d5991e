"""Compare every operator of torch's table of samples on a device with float64 on the CPU.

The samples are `op_db`'s (torch/testing/_internal/common_methods_invocations.py), by which torch tests its operators.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import sys
import time
import types
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import torch
from torch.utils._pytree import tree_leaves, tree_map

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64)
_SAMPLES = 3
_SHOWN = 200
_RANDOM = re.compile(
    r"(^|[._])(bernoulli|multinomial|normal|rand|randn|randint|randperm|uniform|exponential|cauchy|geometric|rrelu"
    r"|dropout\d?d?|empty)(_|$)"
)
"""Operators with random or uninitialized results."""


def _moved(value: Any, device: str, dtype: torch.dtype | None) -> Any:
    def move(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        floats = dtype is not None and one.dtype.is_floating_point
        return one.detach().to(device, dtype if floats else None)

    return tree_map(move, value)


def _error(got: Any, want: Any) -> float:
    """Return the largest difference relative to the largest value, over all floating-point outputs. Raises if types
    differ."""
    worst = 0.0
    for one, other in zip(tree_leaves(got), tree_leaves(want), strict=True):
        if not isinstance(one, torch.Tensor):
            continue
        one, other = one.detach().cpu().resolve_conj().resolve_neg(), other.detach().resolve_conj().resolve_neg()
        if one.shape != other.shape:
            raise ValueError(f"shape {tuple(one.shape)}, not {tuple(other.shape)}")
        if not other.numel():
            continue
        if one.dtype.is_complex or other.dtype.is_complex:
            one, other = torch.view_as_real(one.to(torch.complex128)), torch.view_as_real(other.to(torch.complex128))
        one, other = one.double(), other.double()
        known = torch.isfinite(other)
        if not torch.equal(one[~known].nan_to_num(1.0, 2.0, 3.0), other[~known].nan_to_num(1.0, 2.0, 3.0)):
            return float("inf")
        if not torch.isfinite(one[known]).all():
            return float("inf")
        if not known.any():
            continue
        scale = other[known].abs().max().clamp(min=1e-6)
        worst = max(worst, float((one[known] - other[known]).abs().max() / scale))
    return worst


def _rows(device: str, first: int, ends: float) -> Iterator[dict[str, Any]]:
    if importlib.util.find_spec("expecttest") is None:  # torch's tests derive from it, its samples don't need it
        sys.modules["expecttest"] = cast(types.ModuleType, types.SimpleNamespace(TestCase=unittest.TestCase))
    from torch.testing._internal.common_methods_invocations import op_db

    for place, op in enumerate(op_db):
        if place < first or (_RANDOM.search(op.name) and not op.name.startswith("signal.")):
            continue
        for dtype in DTYPES:
            if time.monotonic() > ends:
                return
            yield {"place": place, **_row(op, device, dtype)}


def _row(op: Any, device: str, dtype: torch.dtype) -> dict[str, Any]:
    row: dict[str, Any] = {"operator": f"{op.name}.{op.variant_test_name}".rstrip("."), "dtype": str(dtype)[6:]}
    if dtype not in op.supported_dtypes(device):
        return {**row, "outcome": "unsupported"}
    wide = torch.float64 if dtype in (torch.float32, torch.bfloat16, torch.float16) else None
    worst, compared = 0.0, 0
    no_reference: list[str] = []
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=False))[:_SAMPLES]:
        given = (sample.input, sample.args, sample.kwargs)
        try:
            first, args, kwargs = _moved(given, "cpu", wide)
            want = op(first, *args, **kwargs)
        except Exception as error:  # The CPU has no such kernel: nothing to compare with.
            no_reference.append(_line(error))
            continue
        try:
            first, args, kwargs = _moved(given, device, None)
            got = op(first, *args, **kwargs)
        except Exception as error:  # Any exception of an operator is a result.
            return {**row, "outcome": "raised", "why": _line(error)}
        try:
            worst = max(worst, _error(got, want))
        except Exception as error:  # other types or shapes, or a layout that isn't compared
            return {**row, "outcome": "not compared", "why": _line(error)}
        compared += 1
    outcome = "computed" if compared else "nothing to compare with"
    row |= {"no_reference": sorted(set(no_reference))} if no_reference else {}
    return {**row, "outcome": outcome, "samples": compared, "error": worst if math.isfinite(worst) else "inf"}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_SHOWN]}"


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--device", default="cuda", show_default=True)
@click.option("--seconds", type=float, default=200.0, show_default=True)
@click.option("--first", type=int, default=0, help="The operator to begin with.")
def main(out: Path, device: str, seconds: float, first: int) -> None:
    """Append a line for each operator and dtype to OUT."""
    started = time.monotonic()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    with out.open("a", encoding="utf-8") as file:
        for row in _rows(device, first, started + seconds):
            file.write(json.dumps(row) + "\n")
            file.flush()
            if "CUDA error" in row.get("why", ""):  # The device is lost for this process.
                left = ["--seconds", str(seconds - (time.monotonic() - started)), "--first", str(row["place"] + 1)]
                words = ["-m", "benchmarks.gpu_session.operators", str(out), "--device", device, *left]
                os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    main()
