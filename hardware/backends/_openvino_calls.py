"""How OpenVINO is asked to compute, and what happens around its graphs in Python: how often they run, and what torch
computes beside."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._trace import host_products

OPENVINO_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # On processors with AMX the CPU plug-in computes in bfloat16, and keeps the key-value cache in 8 or 16 bits,
    # unless it is told not to. A float32 answer needs both settings.
    "float32": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
    "bfloat16": {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16"},
    "float16": {"INFERENCE_PRECISION_HINT": "f16", "KV_CACHE_PRECISION": "f16"},
    # Weights alone have 8 bits: what they are multiplied with isn't to be rounded as well.
    "int8": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}

CHOICES = ("AUTO", "HETERO", "MULTI", "BATCH")
"""OpenVINO's devices that stand for a choice between devices: evidence says which one it took (`executed_on`)."""


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
