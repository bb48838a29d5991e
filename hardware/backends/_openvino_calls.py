"""What happens around OpenVINO's graphs in Python: how often they run, and what torch computes beside."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ._trace import host_products


def beside_graphs(work: Callable[[], object]) -> tuple[int, Counter[str]]:
    """How many inferences `work` asks OpenVINO for, and the products that torch computes meanwhile, in any thread."""
    with inferences() as asked:
        beside = host_products(work)
    return sum(asked.values()), beside


@contextlib.contextmanager
def inferences() -> Iterator[Counter[str]]:
    """Counts the calls that start an inference; every way of Python's to run a compiled graph ends in one of them."""
    import openvino

    asked: Counter[str] = Counter()
    before = {name: vars(openvino.InferRequest)[name] for name in ("infer", "start_async")}

    def counted(name: str) -> Callable[..., Any]:
        def start(request: Any, *arguments: Any, **named: Any) -> Any:
            asked[name] += 1
            return before[name](request, *arguments, **named)

        return start

    for name in before:
        setattr(openvino.InferRequest, name, counted(name))
    try:
        yield asked
    finally:
        for name, method in before.items():
            setattr(openvino.InferRequest, name, method)
