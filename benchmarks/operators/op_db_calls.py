"""The calls of torch's operators that `torch.testing`'s list of operators (`op_db`) makes: the second tier of suites.

The list's module imports `expecttest`, which the project doesn't need: `pip install expecttest`.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from generators.recipes.operator_calls import OperatorCall, call_recorder
from hardware.operators.numbers import NOT_COMPARED

_SAMPLES = 4
"""Samples of an entry of the list, and calls of an operator that are kept."""
_MOST_ELEMENTS = 2**16
_OF_OTHERS = ("CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")
"""Keys of torch's dispatcher under which operators are registered that call others, unless a device has a kernel."""

_NOT_UNIQUE = frozenset(
    f"aten.{name}"
    for name in ("_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_qr", "geqrf", "linalg_lstsq", "svd", "lstsq")
)
"""Decompositions with more than one right result."""


def op_db_calls() -> dict[str, list[OperatorCall]]:
    """Return at most four calls of each operator: first those with elements and with other dtypes and ranks.
    Operators with random, uninitialized or ambiguous results are left out, and those that torch makes of others."""
    found: dict[str, dict[str, OperatorCall]] = defaultdict(dict)
    for call in _all_calls():
        if not _is_left_out(call):
            found[call.operator].setdefault(repr((call.overload, call.arguments, call.named)), call)
    return {name: _most_different(list(calls.values())) for name, calls in sorted(found.items())}


def _all_calls() -> Iterator[OperatorCall]:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    for entry in op_db:
        kinds = sorted(entry.supported_dtypes("cpu"), key=str)
        kind = torch.float32 if torch.float32 in kinds else next(iter(kinds), None)
        if kind is None:
            continue
        for sample in itertools.islice(entry.sample_inputs("cpu", kind, requires_grad=False), _SAMPLES):
            recorder = call_recorder()
            try:
                with torch.no_grad(), recorder:
                    entry.op(sample.input, *sample.args, **sample.kwargs)
            except AssertionError:  # an entry that compares its results with those of a recorded call
                continue
            yield from recorder.calls


def _is_left_out(call: OperatorCall) -> bool:
    import torch

    namespace, _, name = call.operator.partition(".")
    is_uninitialized = name.startswith(("empty", "new_empty", "resize_"))
    if namespace != "aten" or is_uninitialized or call.operator in NOT_COMPARED | _NOT_UNIQUE:
        return True
    overload = f"aten::{name}" if call.overload == "default" else f"aten::{name}.{call.overload}"
    has_kernel = partial(torch._C._dispatch_has_kernel_for_dispatch_key, overload)
    if not has_kernel("CPU") and any(map(has_kernel, _OF_OTHERS)):
        return True
    tags = getattr(getattr(torch.ops.aten, name), call.overload).tags
    sizes = (math.prod(shape) for _, shape in call.tensors)
    return torch.Tag.nondeterministic_seeded in tags or max(sizes, default=0) > _MOST_ELEMENTS


def _most_different(calls: list[OperatorCall]) -> list[OperatorCall]:
    calls = sorted(calls, key=lambda call: any(0 in shape for _, shape in call.tensors))
    first = list({call.kind: call for call in reversed(calls)}.values())[::-1]
    return [*first, *(call for call in calls if call not in first)][:_SAMPLES]
