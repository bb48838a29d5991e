"""Draw inputs like the example of a user's module: which of its arrays can be drawn, and which seeds reach other
lines of its code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

from hwcompat.generators.models.given_recipe import GivenInput, draw_inputs
from hwcompat.hardware.compare import Array
from hwcompat.hardware.errors import ModelError, echo

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_TRIED = tuple(range(1, 9))
_MORE = 3
"""Seeds of a suite besides the first."""
_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class ExampleDraws:
    """How inputs like an example are drawn: `specs` and `sizes` as in a recipe; `inputs_from` says what is drawn."""

    example: Mapping[str, Array]
    specs: dict[str, GivenInput]
    sizes: dict[str, int]
    inputs_from: str

    def make(self, seed: int) -> dict[str, Array]:
        """Return the example for the seed 0, and drawn inputs for others."""
        return draw_inputs(self.specs, self.sizes, seed, self.example) if seed else dict(self.example)


def draws_like(example: Mapping[str, Array], run: Run) -> ExampleDraws:
    """Return draws that `run` accepts: of all arrays, else of the floating-point ones, else of none.

    Raises `ModelError` for an example that can't be one.
    """
    every = {name: spec_like(name, one) for name, one in example.items()}
    floats = {name: one if example[name].dtype.kind == "f" else _given(one) for name, one in every.items()}
    reasons: list[str] = []
    for specs, what in ((every, ""), (floats, "with floating-point values drawn like them")):
        named, sizes = _batched(specs) if specs is every else (specs, {})
        found = ExampleDraws(example=example, specs=named, sizes=sizes, inputs_from="")
        if all(one.kind == "given" for one in specs.values()):
            continue
        try:
            for seed in _TRIED[:2]:
                run(found.make(seed))
        except Exception as error:  # the user's own code may raise anything, and outputs may not be finite
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:80]}")
            continue
        kept = [name for name, one in specs.items() if one.kind == "given"]
        text = f"given by the factory, and others {what or 'drawn like them'}" + (
            f", without {', '.join(kept)}" if kept else ""
        )
        return replace(found, inputs_from=text + (f" ({reasons[0]})" if reasons else ""))
    given = {name: _given(one) for name, one in every.items()}
    why = f" (others fail: {reasons[0]})" if reasons else ""
    return ExampleDraws(
        example=example, specs=given, sizes={}, inputs_from=f"given by the factory, and no others{why}"
    )


def _given(one: GivenInput) -> GivenInput:
    return GivenInput(kind="given", dtype=one.dtype, shape=one.shape)


def spec_like(name: str, example: Array) -> GivenInput:
    """Return how to draw arrays of the shape and kind of an example, with values like its own. A single number and a
    constant other than 0 stay as they are."""
    if not example.size:
        raise ModelError(f"the example input {echo(name)} can't be used", why="it is empty")
    whole = example.dtype.kind in "iub"
    low, high = example.min(), example.max()
    is_constant = bool(low == high and low) and example.size > 1
    if not example.ndim or (is_constant and (example.dtype.kind == "b" or _rounded(low) != low)):
        return GivenInput(kind="given", dtype=str(example.dtype), shape=example.shape)
    if example.dtype.kind == "b":
        return GivenInput(kind="booleans", dtype="bool", shape=example.shape)
    if whole:
        low, high = (0, 1) if low == high and low in (0, 1) else (low, high)  # the ids of an empty text
        return GivenInput(
            kind="integers", dtype=str(example.dtype), shape=example.shape, low=int(low), high=int(high) + 1
        )
    if is_constant or (low >= 0 and high > low):  # the module may compute its logarithm or root
        kind, low, high = "uniform", _rounded(low), _rounded(high)
    else:
        kind, low, high = "normal", _rounded(example.mean()), _rounded(float(example.std()) or 1.0)
    return GivenInput(kind=kind, dtype="float32", shape=example.shape, low=low, high=high)


def _rounded(value: Any) -> float:
    return float(f"{float(value):.4g}")


def _batched(specs: Mapping[str, GivenInput]) -> tuple[dict[str, GivenInput], dict[str, int]]:
    """Return the specifications with the first dimension named `batch` in all inputs that have that of the first
    drawn one, and the sizes; unchanged if an array that isn't drawn has it too."""
    first = next((one.shape[0] for one in specs.values() if one.kind != "given" and one.shape), None)
    alike = {name: one for name, one in specs.items() if one.shape[:1] == (first,)}
    if first is None or any(one.kind == "given" for one in alike.values()):
        return dict(specs), {}
    named = {name: replace(one, shape=("batch", *one.shape[1:])) for name, one in alike.items()}
    return {**specs, **named}, {"batch": int(first)}


def other_size(run: Run, draws: ExampleDraws, reference: Mapping[str, Array]) -> tuple[ExampleDraws, dict[str, int]]:
    """Return draws whose batch may have another size, and that size; else draws of the example's size alone."""
    if draws.sizes:
        other = {"batch": draws.sizes["batch"] + 1}
        batched = [name for name, array in reference.items() if array.shape[:1] == (draws.sizes["batch"],)]
        try:
            outputs = run(draw_inputs(draws.specs, other, 1, draws.example))
            if all(outputs[name].shape[:1] == (other["batch"],) for name in batched):
                return draws, other
        except Exception:  # any error means that it needs the size of its example
            pass
    sizes = draws.sizes
    fixed = {
        name: replace(one, shape=tuple(sizes[size] if isinstance(size, str) else size for size in one.shape))
        for name, one in draws.specs.items()
    }
    return replace(draws, specs=fixed, sizes={}), {}


def seeds_and_lines(run: Run, draws: ExampleDraws, is_own: Callable[[str], bool]) -> tuple[tuple[int, ...], str]:
    """Return the seeds whose inputs take other ways through the module's code, at least the first, and which of its
    lines no input reaches. `is_own` says whether a file is the user's."""
    if all(one.kind == "given" for one in draws.specs.values()):
        tried: Iterable[int] = (0,)
        chosen: list[int] = []
    else:
        tried, chosen = (0, *_TRIED), [1]
    ways: set[frozenset[Any]] = set()
    reached: set[tuple[str, int]] = set()
    entered: set[CodeType] = set()
    for seed in tried:
        lines: Counter[tuple[str, int]] = Counter()
        try:
            with _traced(lines, entered, is_own):
                run(draws.make(seed))
        except Exception:  # these inputs aren't the module's
            continue
        way = frozenset(lines.items())
        if seed > 1 and way not in ways and len(chosen) <= _MORE:
            chosen.append(seed)
        ways.add(way)
        reached |= lines.keys()
    every = {(code.co_filename, line) for code in entered for line in _lines_of(code)}
    missing = sorted(every - reached)
    shown = ", ".join(f"{Path(file).name}:{line}" for file, line in missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    if not missing:
        return tuple(chosen), ""
    return tuple(chosen), f"{len(every) - len(missing)} of {len(every)} lines of its functions, not {shown}{more}"


def _lines_of(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}


class _traced:
    """Count the lines of the user's functions that run meanwhile."""

    def __init__(
        self, lines: Counter[tuple[str, int]], entered: set[CodeType], is_own: Callable[[str], bool]
    ) -> None:
        self._lines, self._entered, self._is_own = lines, entered, is_own
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: Any, event: str, _: Any) -> Any:
        if not self._is_own(frame.f_code.co_filename):
            return None
        self._entered.add(frame.f_code)
        return self._line

    def _line(self, frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            self._lines[frame.f_code.co_filename, frame.f_lineno] += 1
        return self._line
