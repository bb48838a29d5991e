"""Write the calls of operator suites: recorded calls, and the same with other sizes and numbers that torch accepts.

Each call is tried on the CPU in a child process: torch 2.13 dies of some tensors without elements.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import numpy as np

from generators.compatibility.operators.operator_names import recorded
from generators.operators.operator_variants import (
    BREADTH,
    FILE,
    KINDS,
    NOT_TESTED,
    called_by_models,
    operators_with_suites,
    plain_call,
)
from generators.recipes.derive_many import in_children
from generators.recipes.operator_calls import TENSOR
from hardware.compare import Array
from hardware.files import write_whole
from hardware.operators.call import Call, Tensor, made, specials
from hardware.operators.numbers import NOT_COMPARED, limit_of

LARGE = 1031
"""A prime above 1,024: no tile of a kernel divides it."""
_ROWS = 33_000
"""Rows of a table, beyond 32,767, the largest 16-bit integer. Only the last ones are read."""
_TABLES = ("aten.embedding",)
_MOST_ELEMENTS = 2**18
_IGNORED = ("layout", "pin_memory", "memory_format")
_TIMEOUT_S = 120.0
_SHARE = 0.25

_UNIT = ("aten.logit",)
"""Operators that are defined for signed numbers, but at a limit that half precision can't represent."""

Item = tuple[str, int, Mapping[str, Any]]


def write_variants() -> None:
    """Write the calls of models. The same calls give the same bytes."""
    calls = {name: calls for name, calls in recorded()["operators"].items() if name not in NOT_TESTED}
    _write(FILE, "variants", calls, KINDS)


def write_breadth() -> None:
    """Write the calls of torch's own list of operators that models don't make, and of operators that models don't
    call also without elements. Special numbers are asked only of operators that models call: what a Bessel function
    of 300 gives in float32 is no question of a device."""
    from .op_db_calls import op_db_calls

    known = {name: operators_with_suites()[name].seen for name in called_by_models()}
    calls = {
        name: [{**call.to_dict(), "tensors": call.tensors} for call in found] for name, found in op_db_calls().items()
    }
    _write(BREADTH, "breadth", calls, ("seen", "empty"), known)


def _write(
    file: Path,
    name: str,
    calls: Mapping[str, Sequence[Mapping[str, Any]]],
    kinds: Sequence[str],
    known: Mapping[str, Sequence[Call]] = MappingProxyType({}),
) -> None:
    items: list[Item] = [(one, number, plain) for one, own in calls.items() for number, plain in enumerate(own)]
    asked = (*kinds, *(["single"] if "odd" in kinds else []))
    found = dict(_tried(items, asked, not_of_models=bool(known)))
    dying = [item for item in items if item[:2] not in found]
    found |= dict(_tried(dying, tuple(kind for kind in asked if kind != "empty"), not_of_models=bool(known)))
    operators: dict[str, dict[str, list[Any]]] = defaultdict(lambda: {kind: [] for kind in kinds})
    for operator, number, _ in items:
        own = found.get((operator, number), {})
        if operator in known:
            seen = [_plain(one) for one in known[operator]]
            own = {kind: call for kind, call in own.items() if kind == "seen" and call not in seen}
        for kind, call in own.items():
            if call not in operators[operator]["odd" if kind == "single" else kind]:
                operators[operator]["odd" if kind == "single" else kind].append(call)
    for calls in operators.values():
        _give_one_domain([call for own in calls.values() for call in own])
    plain = {
        "made_by": f"python -m benchmarks.operators {name}",
        "versions": {"torch": version("torch").partition("+")[0]},
        "operators": {name: calls for name, calls in sorted(operators.items()) if calls["seen"] or not known},
    }
    write_whole(file, gzip.compress(json.dumps(plain, sort_keys=True).encode(), mtime=0))
    counts = {kind: sum(len(calls[kind]) for calls in operators.values()) for kind in kinds}
    click.echo(f"{len(operators)} operators: {counts}")


def _give_one_domain(calls: Sequence[dict[str, Any]]) -> None:
    """Draw all calls of an operator between 0 and 1 if one of them isn't defined elsewhere: a few numbers of another
    size may have been defined by chance."""
    if any(call["draws"] == "unit" for call in calls):
        for call in calls:
            call["draws"] = "special" if call["draws"] == "special" else "unit"


def _tried(
    items: Sequence[Item], kinds: Sequence[str], *, not_of_models: bool
) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    work = partial(_variants, kinds=kinds, not_of_models=not_of_models)
    for (operator, number, _), answer, lost in in_children(items, work, jobs=1, timeout_s=_TIMEOUT_S):
        if answer is None or "seen" not in answer:
            click.echo(f"{operator} {number}: {lost or 'it cannot be called alone'}", err=True)
        if answer is not None:
            yield (operator, number), answer


def _variants(item: Item, kinds: Sequence[str], *, not_of_models: bool) -> dict[str, Any]:
    """Return the variants of one recorded call by kind, as plain values."""
    import torch

    torch.set_num_threads(1)
    operator, _, plain = item
    named = [[name, value] for name, value in plain["named"] if name not in _IGNORED]
    if not plain["tensors"] and "device" in [one.name for one in _schema(operator, plain["overload"]).arguments]:
        named = [*(one for one in named if one[0] != "device"), ["device", "cpu"]]  # replaced by the target's device
    call = plain_call({**plain, "named": named})
    if operator == "aten._grouped_mm":  # its whole numbers are the ends of groups
        call = _with_each(call, lambda one: replace(one, ordered=not one.is_real))
    seen = _with_draws(operator, call, must_be_stable=not_of_models)
    if seen is None:
        return {}
    if not_of_models and not any(one.numel() for one in _results(operator, seen) or ()):
        return {"empty": _plain(seen)}
    makers: Mapping[str, Callable[[str, Call], Call | None]] = {
        "seen": lambda _, call: call,
        "odd": _odd,
        "single": _single,
        "large": _large,
        "empty": _empty,
        "special": _special,
    }
    found = {kind: makers[kind](operator, seen) for kind in kinds}
    return {kind: _plain(call) for kind, call in found.items() if call is not None}


def _with_draws(operator: str, call: Call, *, must_be_stable: bool) -> Call | None:
    """Return the call with signed numbers, or with numbers between 0 and 1 if it isn't defined for others; None if
    it can't be made. Half of its booleans are true, or as many as it accepts."""
    found = None
    for true in (0.5, 0.1, 1.0):
        for draws in ("signed", "unit") if operator not in _UNIT else ("unit",):
            tried = replace(_with_each(call, lambda one: replace(one, true=true)), draws=draws)  # noqa: B023
            results = _results(operator, tried)
            if results is not None and (found is None or operator not in NOT_COMPARED):
                found = found or tried
                is_finite = all(bool(one.isfinite().all()) for one in results)
                if is_finite and not (must_be_stable and not _is_stable(operator, tried)):
                    return tried
    return None if must_be_stable else found


def _with_each(call: Call, change: Callable[[Tensor], Tensor]) -> Call:
    """Return a call with changed tensors."""

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        return [changed(one) for one in value] if isinstance(value, list) else value

    return replace(call, arguments=tuple(map(changed, call.arguments)))


def _odd(operator: str, call: Call) -> Call | None:
    sizes = _sizes(call)
    mappings = [{size: size + 1 for size in sizes}, *({size: size + 1} for size in sizes)]
    return _first_valid(operator, call, mappings)


def _single(operator: str, call: Call) -> Call | None:
    """Return the call with one row in each tensor, as for a batch of one."""
    first = dict.fromkeys(one.shape[0] for one in call.tensors if len(one.shape) > 1 and one.shape[0] > 1)
    return _first_valid(operator, call, [{size: 1} for size in first])


def _large(operator: str, call: Call) -> Call | None:
    if operator in _TABLES:
        table, ids = call.tensors[:2]
        rows = replace(table, shape=(_ROWS, *table.shape[1:])), replace(ids, low=2**15, high=_ROWS - 1)
        return replace(call, arguments=(*rows, *call.arguments[2:]))
    tried = [_resized(operator, call, {size: LARGE}) for size in _sizes(call)]
    for one in sorted(tried, key=lambda one: -_elements(one)):
        results = _results(operator, one) if _elements(one) <= _MOST_ELEMENTS else None
        if results is not None and max((result.numel() for result in results), default=0) <= _MOST_ELEMENTS:
            return one
    return None


def _empty(operator: str, call: Call) -> Call | None:
    return _first_valid(operator, call, [{size: 0} for size in _sizes(call)])


def _sizes(call: Call) -> list[int]:
    return list(dict.fromkeys(size for one in call.tensors for size in one.shape if size > 1))


def _first_valid(operator: str, call: Call, mappings: Sequence[Mapping[int, int]]) -> Call | None:
    for mapping in mappings:
        tried = _resized(operator, call, mapping)
        if repr(tried) != repr(call) and _results(operator, tried) is not None:
            return tried
    return None


def _resized(operator: str, call: Call, sizes: Mapping[int, int]) -> Call:
    """Return a call whose tensors, and arguments that are shapes, have other sizes."""
    shapes = {
        number
        for number, argument in enumerate(_schema(operator, call.overload).arguments)
        if "SymInt" in str(argument.real_type) and "List" in str(argument.real_type)
    }

    def changed(value: Any, is_shape: bool) -> Any:
        if isinstance(value, Tensor):
            high = sizes.get(value.high, value.high) if value.ordered else value.high
            return replace(value, shape=tuple(sizes.get(size, size) for size in value.shape), high=high)
        if isinstance(value, list):
            return [changed(one, is_shape) for one in value]
        return sizes.get(value, value) if is_shape and type(value) is int else value

    arguments = tuple(changed(value, number in shapes) for number, value in enumerate(call.arguments))
    named = {name: changed(value, False) for name, value in call.named.items()}
    return replace(call, arguments=arguments, named=named)


def _elements(call: Call) -> int:
    return max((math.prod(one.shape) for one in call.tensors), default=0)


def _special(operator: str, call: Call) -> Call | None:
    """Return an elementwise call with special numbers in all pairs; None if it has no floating-point tensor."""
    import torch

    overload = getattr(_packet(operator), call.overload)
    is_real = any(one.is_real for one in call.tensors) and operator not in _UNIT
    if torch.Tag.pointwise not in overload.tags or not is_real:
        return None
    shape = (len(specials("float32")) ** 2,)
    arguments = tuple(
        replace(one, shape=shape) if isinstance(one, Tensor) and one.shape else one for one in call.arguments
    )
    tried = replace(call, arguments=arguments, draws="special")
    return tried if _results(operator, tried) is not None else None


def _is_stable(operator: str, call: Call) -> bool:
    """Whether a change of each number by half a unit in its last place changes the results by less than a quarter of
    the limit. A singular matrix has no right inverse in float32."""
    first, second = _results(operator, call), _results(operator, call, changed_by=2.0**-24)
    for one, other in zip(first or (), second or (), strict=True):
        if one.is_floating_point() and one.numel():
            apart = (one.double() - other.double()).abs().nan_to_num(0.0).max()
            scale = one.double().nan_to_num(0.0).abs().max() or 1.0
            if apart > _SHARE * limit_of(operator, "float32").limit * scale:
                return False
    return True


def _results(operator: str, call: Call, changed_by: float = 0.0) -> list[Any] | None:
    """Return the results of a call on the CPU in float64; None if torch refuses it."""
    import torch

    from hardware.model.calls import forward, in_dtype, to_tensors

    try:
        one = made(operator, call, "float32")
        with torch.no_grad():
            tensors = to_tensors(one.inputs, "cpu", torch.float64)
            if changed_by:
                signs = np.random.default_rng(0).choice((-1, 1), 10_007)
                tensors = {name: _changed(tensor, changed_by * signs) for name, tensor in tensors.items()}
            return list(forward(in_dtype(one.build(), torch.float64), tensors).values())
    except Exception:  # torch raises errors of many classes
        return None


def _changed(tensor: Any, by: Array) -> Any:
    import torch

    if not tensor.is_floating_point():
        return tensor
    return tensor * (1 + torch.as_tensor(np.resize(by, tuple(tensor.shape))))


def _packet(operator: str) -> Any:
    import torch

    namespace, _, name = operator.partition(".")
    return getattr(getattr(torch.ops, namespace), name)


def _schema(operator: str, overload: str) -> Any:
    return getattr(_packet(operator), overload)._schema


def _plain(value: Any) -> Any:
    if isinstance(value, Call):
        named = [[name, _plain(one)] for name, one in value.named.items()]
        arguments = [_plain(one) for one in value.arguments]
        return {"overload": value.overload, "arguments": arguments, "named": named, "draws": value.draws}
    if isinstance(value, Tensor):
        limits = {} if value.is_real else {"low": value.low, "high": value.high}
        limits = {"true": value.true} if value.dtype == "bool" else limits
        limits |= {"ordered": True} if value.ordered else {}
        return {TENSOR: value.dtype, "shape": list(value.shape), **limits}
    return [_plain(one) for one in value] if isinstance(value, list) else value
