"""Probe the arithmetic of a device with small modules: precision of products, rounding, subnormal numbers, NaN,
integers, layouts, sizes and repeats.

Each question is a module that the target loads as it does a model, so that one implementation serves torch devices
and runtimes of graphs. The questions run in a child process. If it ends, the question that it was at is `crashed`,
and another child goes on. Run as a module, this is the child.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends._onnx_probe import module_of, precision_of, precision_of_products, values_to_copy
from ..backends.base import ModelInput
from ..backends.factory import get_backend
from ..cell import MODULE_TASK
from ..errors import BackendUnavailable
from ..plain_text import one_line
from ..process import NoAnswer, answer, ask
from ..target import Target

if TYPE_CHECKING:
    import torch

    from ..backends.base import BaseBackend
    from ..model.model_types import Array, Inputs

Function = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]
Answer = tuple[str, str]
"""What was found, in a word that `device_probe.toml` explains, and a detail."""

CRASHED, REFUSED = "crashed", "refused"
_LIMIT_S = 600.0
_LONGEST = 300
_PASSES = 128
_SIZES = (31, 33, 64, 65, 127, 129, 257)
"""Around the sizes of tiles that kernels use."""
_FAR = 2e-2
"""Error relative to the largest number that no rounding explains: that of bfloat16 is at most 9e-3 (limits.toml)."""
_UNCOUNTED = 5e-4
"""Error of a count: half of what the next smaller number in half precision is off, 4 of 4,100."""


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """One property of a device: its `value`, whether that is what float32 on a CPU does, and what it means."""

    name: str
    title: str
    value: str
    usual: bool
    detail: str = ""
    meaning: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether the device crashed or gave wrong numbers, and not only less exact ones."""
        return self.value in (CRASHED, "wrong", "unknown")


@functools.cache
def questions() -> Mapping[str, Mapping[str, Any]]:
    """Return the questions in their order: `title`, `usual` values and `meaning` of the others."""
    found: Mapping[str, Mapping[str, Any]] = tomllib.loads(
        Path(__file__).with_name("device_probe.toml").read_text(encoding="utf-8")
    )
    return found


def probe_device(target: Target, limit_s: float = _LIMIT_S) -> list[ProbeAnswer]:
    """Return the answers of a target to all questions. Raises `BackendUnavailable`."""
    found: dict[str, Answer] = {}
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
        file = Path(folder) / "answers"
        while left := [name for name in questions() if name not in found]:
            why = ""
            try:
                ask(__name__, {"target": str(target), "names": left, "file": str(file)}, limit_s=limit_s)
            except NoAnswer as error:
                why = one_line(str(error), longest=_LONGEST)
            lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
            found |= {name: (value, detail) for name, value, detail in map(json.loads, lines)}
            if why:
                found[next(name for name in left if name not in found)] = (CRASHED, why)
    return [_explained(name, *found[name]) for name in questions()]


def _explained(name: str, value: str, detail: str) -> ProbeAnswer:
    facts = questions()[name]
    usual = value in facts["usual"]
    meaning = "" if usual else str(facts["meaning"].get(value, ""))
    return ProbeAnswer(name=name, title=facts["title"], value=value, usual=usual, detail=detail, meaning=meaning)


# In the child


class _Prober:
    def __init__(self, backend: BaseBackend) -> None:
        self.backend = backend

    def run(self, name: str, function: Function, inputs: Sequence[Inputs]) -> list[Sequence[Array]]:
        """Return the results of a function for each of the inputs, in order. It is loaded with ordinary numbers of
        the same shapes, so that exporters don't meet NaN."""
        random = np.random.default_rng(0)
        example = {
            key: random.uniform(0.5, 1.5, one.shape).astype(one.dtype) if one.dtype.kind == "f" else one
            for key, one in inputs[0].items()
        }
        subject = ModelInput(model=module_of(function), task=MODULE_TASK, identity=f"device probe {name}")
        runnable = self.backend.load(subject, example, "float32")
        try:
            found = [runnable(**one) for one in inputs]
            return [[one[name] for name in sorted(one, key=_place)] for one in found]
        finally:
            runnable.close()

    def one(self, name: str, function: Function, **inputs: Array) -> Sequence[Array]:
        """Return the results for one set of inputs."""
        return self.run(name, function, [inputs])[0]


def _place(name: str) -> int:
    """Return the position of an output, whose name ends with it if there are several."""
    last = name.rpartition("_")[2]
    return int(last) if last.isdigit() else 0


def _rows(*numbers: float) -> Array:
    """Return two equal rows: exporters look at batches of other sizes."""
    return np.array([numbers, numbers], dtype=np.float32)


def _matmul(probe: _Prober) -> Answer:
    return precision_of_products(probe.backend), ""


def _convolution(probe: _Prober) -> Answer:
    import torch

    values = values_to_copy()
    size = len(values)
    images = values.T.reshape(1, size, size, 1).copy()
    (copy,) = probe.one(
        "convolution", torch.conv2d, input=images, weight=np.eye(size, dtype=np.float32).reshape(size, size, 1, 1)
    )
    return precision_of(copy.reshape(size, size).T), ""


def _accumulation(probe: _Prober) -> Answer:
    """Add so many ones that a sum in half precision can't count them, although it can represent the result."""
    for count, precision in ((1032, "bfloat16"), (4100, "float16")):
        x = np.ones((1, count), dtype=np.float32)
        (found,) = probe.one(f"accumulation {count}", lambda x, y: x @ y, x=x, y=x.T.copy())
        if abs(found[0, 0] / count - 1) > _UNCOUNTED:
            return precision, f"{count} ones add up to {found[0, 0]:g}"
    return "float32", ""


def _subnormals(probe: _Prober) -> Answer:
    smallest = float(np.finfo(np.float32).smallest_normal)
    x, y = _rows(smallest, 1, 1, 1), _rows(smallest / 8, 1, 1, 1)
    made, read = probe.one("subnormals", lambda x, y: (x * 0.5, y * 2.0**20), x=x, y=y)
    lost = [name for name, one in (("results", made), ("inputs", read)) if one[0, 0] == 0]
    return "flushed" if lost else "kept", f"{' and '.join(lost)} become 0" if lost else ""


def _fused(probe: _Prober) -> Answer:
    factor = _rows(*[1 + 2.0**-12] * 4)
    (found,) = probe.one("fused", lambda a, b, c: a * b + c, a=factor, b=factor, c=_rows(*[-(1 + 2.0**-11)] * 4))
    rest = float(found[0, 0])
    return ("fused" if rest == 2.0**-24 else "separate" if rest == 0 else "less"), f"residue {rest:g}"


def _rounding(probe: _Prober) -> Answer:
    ulp = 2.0**-23
    x, y = _rows(1.0, 1 + ulp, 1.0, -1.0), _rows(ulp / 2, ulp / 2, 0.75 * ulp, -0.75 * ulp)
    (got,) = probe.one("rounding", lambda x, y: x + y, x=x, y=y)
    ways = {
        "nearest_even": (1.0, 1 + 2 * ulp, 1 + ulp, -1 - ulp),
        "toward_zero": (1.0, 1 + ulp, 1.0, -1.0),
        "away_from_zero_on_ties": (1 + ulp, 1 + 2 * ulp, 1 + ulp, -1 - ulp),
    }
    return next((name for name, want in ways.items() if np.array_equal(got[0], want)), "less"), ""


def _special(probe: _Prober) -> Answer:
    """Compare NaN and infinities with what torch gives in float64 on the CPU."""
    import torch

    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "max": lambda x: torch.maximum(x, torch.ones_like(x)),
        "relu": torch.relu,
        "amax": lambda x: x.amax(-1, keepdim=True),
        "product": lambda x: x * (x - x),
        "exp": torch.exp,
        "division": lambda x: 1 / x,
        "clamp": lambda x: x.clamp(-1, 1),
        "softmax": lambda x: x.softmax(-1),
        "matmul": lambda x: x @ x.transpose(0, 1),
    }
    x = _rows(math.nan, math.inf, -math.inf, 0.0, 1.0, 1000.0)
    got = probe.one("special", lambda x: tuple(one(x) for one in functions.values()), x=x)
    wide = torch.as_tensor(x, dtype=torch.float64)
    lost = [
        name
        for (name, function), one in zip(functions.items(), got, strict=True)
        if not _alike(one, function(wide).numpy())
    ]
    return "lost" if lost else "kept", ", ".join(lost)


def _alike(got: Array, want: Array) -> bool:
    """Whether NaN and infinities are at the same places; beyond float32 there are infinities."""
    with np.errstate(over="ignore"):
        want = want.astype(np.float32)
    same = np.isnan(got) == np.isnan(want), np.isinf(got) == np.isinf(want)
    return got.shape == want.shape and all(bool(one.all()) for one in same)


def _integers(probe: _Prober) -> Answer:
    """Subtract neighbors of powers of two: what is lost shows how wide whole numbers are."""
    base = np.array([[2**24, 2**31, 2**40, 5]] * 2, dtype=np.int64)
    (got,) = probe.one("integers", lambda x, y: (x - y).float(), x=base + 5, y=base)
    right = [bool(one == 5) for one in got[0]]
    return ("64 bits" if all(right) else "32 bits" if right[0] else "24 bits"), ""


def _repeats(probe: _Prober) -> Answer:
    random = np.random.default_rng(1)
    x, y = (random.standard_normal(shape).astype(np.float32) for shape in ((64, 512), (512, 64)))
    passes = probe.run("repeats", lambda x, y: (x @ y).softmax(-1).sum(0), [{"x": x, "y": y}] * _PASSES)
    others = sum(not np.array_equal(passes[0][0], one[0]) for one in passes[1:])
    return ("differ" if others else "same bits"), f"{others} of {_PASSES} passes differ" if others else ""


def _views(probe: _Prober) -> Answer:
    x = np.random.default_rng(2).standard_normal((34, 66)).astype(np.float32)
    functions: dict[str, Callable[[Any], Any]] = {
        "transposed": lambda x: x.T @ x,
        "strided": lambda x: x[:, 1::2] @ x[:, ::2].T,
        "offset": lambda x: x[1:, 1:] * 2 + 1,
        "repeated": lambda x: x[:, :1] + x,
    }
    got = probe.one("views", lambda x: tuple(one(x) for one in functions.values()), x=x)
    wrong = [name for (name, one), found in zip(functions.items(), got, strict=True) if _far(found, one(x))]
    return ("wrong" if wrong else "right"), ", ".join(wrong)


def _sizes(probe: _Prober) -> Answer:
    """Multiply matrices of sizes around those of tiles, and compare the last row with the same row alone."""
    random = np.random.default_rng(3)
    wrong, apart = [], 0.0
    for size in _SIZES:
        x, y = (random.standard_normal((size, size)).astype(np.float32) for _ in range(2))
        got, alone = probe.one(f"sizes {size}", lambda x, y: (x @ y, x[-1:] @ y), x=x, y=y)
        want = x.astype(np.float64) @ y
        if _far(got, want) or _far(alone, want[-1:]):
            wrong.append(str(size))
        else:
            apart = max(apart, float(np.abs(got[-1:] - alone).max() / np.abs(got).max()))
    if wrong:
        return "wrong", f"sizes {', '.join(wrong)}"
    return ("same bits", "") if not apart else ("right", f"a row alone differs by {apart:.0e} of the scale")


def _far(got: Array, want: Array) -> bool:
    """Whether numbers are beyond what half precision gives."""
    return got.shape != want.shape or not bool(np.abs(got - want).max() <= _FAR * np.abs(want).max())


_ASK: Mapping[str, Callable[[_Prober], Answer]] = {
    "matmul": _matmul,
    "convolution": _convolution,
    "accumulation": _accumulation,
    "subnormals": _subnormals,
    "fused": _fused,
    "rounding": _rounding,
    "special": _special,
    "integers": _integers,
    "repeats": _repeats,
    "views": _views,
    "sizes": _sizes,
}


def _answer(asked: Mapping[str, Any]) -> list[str]:
    """Answer questions one after the other, each with a line in a file."""
    with get_backend(Target.parse(asked["target"])) as backend:
        if why := backend.unavailable():
            raise BackendUnavailable(f"{asked['target']} isn't available here", why=why)
        probe = _Prober(backend)
        for name in asked["names"]:
            try:
                found = _ASK[name](probe)
            except Exception as error:  # a runtime may raise anything, which is the result
                found = REFUSED, one_line(f"{type(error).__name__}: {error}", longest=_LONGEST)
            with Path(asked["file"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, *found]) + "\n")
    return list(asked["names"])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    answer(_answer)
