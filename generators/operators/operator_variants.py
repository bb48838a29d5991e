"""The calls that an operator's suite makes: those of models, and the same with other sizes and numbers."""

from __future__ import annotations

import functools
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwcompat.generators.compatibility.operators.operator_names import recorded
from hwcompat.generators.models.recipe_store import stored_recipes
from hwcompat.generators.recipes.operator_calls import TENSOR
from hwcompat.hardware.operators.call import Call, Tensor, is_defined, name_of

FILE = Path(__file__).with_name("variants.json.gz")
"""Written by `python -m benchmarks.operators variants` from the recorded calls of all recipes."""
BREADTH = Path(__file__).with_name("breadth.json.gz")
"""Written by `python -m benchmarks.operators breadth` from the list of operators with which torch tests itself
(`op_db` of `torch.testing`)."""
_LIMITS = ("low", "high", "true", "ordered")
KINDS = ("seen", "odd", "large", "empty", "special")

NOT_TESTED: Mapping[str, str] = MappingProxyType(
    {"aten.mkldnn_rnn_layer": "an LSTM of the CPU alone; other devices run lstm"}
)
"""Operators that models call and that have no suite, and why."""

_ONLY_FLOAT32 = ("aten.polar", "aten.view_as_complex", "aten.view_as_real", "aten._conj", "aten._fft_c2r")
"""Operators on complex numbers, which models of every precision keep in float32."""


@dataclass(frozen=True, kw_only=True)
class OperatorCalls:
    """The calls of one operator: `seen` in models, with an `odd`, a `large` and an `empty` size, and with `special`
    numbers, as far as torch accepts these on the CPU, and `samples` from torch's own tests. Of an operator that no
    model calls, `seen` is empty."""

    operator: str
    seen: tuple[Call, ...] = ()
    odd: tuple[Call, ...] = ()
    large: tuple[Call, ...] = ()
    empty: tuple[Call, ...] = ()
    special: tuple[Call, ...] = ()
    samples: tuple[Call, ...] = ()

    @property
    def main(self) -> tuple[Call, ...]:
        """The calls whose placement is proven: those of models, or torch's samples."""
        return self.seen or self.samples

    @property
    def has_precision(self) -> bool:
        """Whether a call has floating-point tensors of the suite's precision; else all precisions make the same
        calls."""
        return self.operator not in _ONLY_FLOAT32 and any(
            one.is_real for call in (*self.seen, *self.samples) for one in call.tensors
        )


@functools.cache
def needing_types() -> Mapping[str, tuple[str, ...]]:
    """Return the model types that call each operator, by the recipes."""
    found: dict[str, set[str]] = defaultdict(set)
    for recipe in stored_recipes():
        for operator in recipe.operators:
            found[operator].add(recipe.model_type)
    return MappingProxyType({name: tuple(sorted(types)) for name, types in sorted(found.items())})


@functools.cache
def operators_with_suites() -> Mapping[str, OperatorCalls]:
    """Return the calls of each operator that suites test; first those that models call."""
    found = {
        name: OperatorCalls(operator=name, **{kind: _defined(name, calls[kind]) for kind in KINDS})
        for name, calls in _stored(FILE).items()
        if calls["seen"]
    }
    for name, calls in _stored(BREADTH).items():
        own = {kind: _defined(name, calls[kind]) for kind in calls}
        samples = own.pop("seen")
        found[name] = replace(found.get(name) or OperatorCalls(operator=name, **own), samples=samples)
    return MappingProxyType(found)


@functools.cache
def types_by_call(operator: str) -> Mapping[str, frozenset[str]]:
    """Return the model types that make each call of an operator's suite, by the call's name: those whose calls have
    the same overload, dtypes and numbers of axes."""
    types = {_kind(one): frozenset(one["model_types"]) for one in recorded()["operators"].get(operator, ())}
    return {name: types.get(kind, frozenset()) for name, kind in _tested(operator).items()}


def types_of_others(operator: str, failed: Iterable[str]) -> frozenset[str]:
    """Return the model types of which nothing says that their calls work when the `failed` ones don't: they make a
    call that no suite has, and with its overload and dtypes one fails or none is tested; or their calls weren't
    recorded."""
    tested, failed = _tested(operator), frozenset(failed)
    bad = {_without_axes(kind) for name, kind in tested.items() if name in failed}
    good = {_without_axes(kind) for kind in tested.values()} - bad
    lists = (recorded()[name].get(operator, ()) for name in ("operators", "others"))
    everything = [(_kind(one), one) for calls in lists for one in calls]
    others = [one for kind, one in everything if kind not in tested.values() and _without_axes(kind) not in good]
    known = {model_type for _, one in everything for model_type in one["model_types"]}
    unrecorded = set(needing_types().get(operator, ())) - known
    return frozenset(unrecorded.union(*(one["model_types"] for one in others)))


def is_like_one_of(operator: str, call: str, names: Iterable[str]) -> bool:
    """Return whether a call, as text (`float32[2x3]`), has the overload, dtypes and numbers of axes of a named one;
    also if a name isn't that of a recorded call."""
    tested = _tested(operator)
    kinds = {kind for name, kind in tested.items() if name.endswith(f"({call})")}
    return any(name not in tested or tested[name] in kinds for name in names)


_Kind = tuple[str, tuple[tuple[str, int], ...]]


def _kind(one: Mapping[str, Any]) -> _Kind:
    return one["overload"], tuple((dtype, len(shape)) for dtype, shape in one["tensors"])


def _without_axes(kind: _Kind) -> tuple[str, ...]:
    return (kind[0], *(dtype for dtype, _ in kind[1]))


@functools.cache
def _tested(operator: str) -> Mapping[str, _Kind]:
    calls = operators_with_suites()[operator]
    return {
        name_of(operator, call): (call.overload, tuple((one.dtype, len(one.shape)) for one in call.tensors))
        for call in (*calls.seen, *calls.odd, *calls.large)
    }


def calls_of(name: str, *, breadth: bool) -> OperatorCalls:
    """Return the calls of an operator: those of models, and with `breadth` or without such those of torch's tests."""
    found = operators_with_suites()[name]
    return replace(found, samples=()) if found.seen and not breadth else found


@functools.cache
def called_by_models() -> tuple[str, ...]:
    """Return the operators with suites that models call."""
    return tuple(name for name, calls in operators_with_suites().items() if calls.seen)


def _stored(file: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(gzip.decompress(file.read_bytes()))["operators"]
    return found


def _defined(operator: str, calls: Iterable[Mapping[str, Any]]) -> tuple[Call, ...]:
    return tuple(call for call in map(plain_call, calls) if is_defined(operator, call))


def plain_call(plain: Mapping[str, Any]) -> Call:
    """Return the call that plain values describe, as `variants.json.gz` and recorded calls have them."""
    named = {name: _argument(value) for name, value in plain["named"]}
    return Call(plain["overload"], tuple(map(_argument, plain["arguments"])), named, plain.get("draws", "signed"))


def _argument(value: Any) -> Any:
    if isinstance(value, Mapping):
        limits = {name: value[name] for name in _LIMITS if name in value}
        return Tensor(value[TENSOR], tuple(value["shape"]), **limits)
    return [_argument(one) for one in value] if isinstance(value, list | tuple) else value
