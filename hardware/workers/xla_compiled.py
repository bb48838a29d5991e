"""Executables of XLA in the worker, with their instructions, dtypes, and places of results.

Imports nothing of the product; JAX and torch on first use.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class XlaExecutable:
    """An executable of XLA with the counts of its instructions."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        jax = importlib.import_module("jax")
        with _torch_operators() as self.torch:
            lowered = jax.jit(function).lower(*arguments)
        self.lowered = Counter(_PRODUCT.findall(lowered.as_text()))
        self.executable = lowered.compile()
        self.calls = 0
        self.instructions, self.products = instructions_of(self.executable.as_text())

    def __call__(self, *arguments: Any) -> Any:
        with _torch_operators() as seen:
            results = importlib.import_module("jax").block_until_ready(self.executable(*arguments))
        self.torch += seen
        self.calls += 1
        return results

    def proof(self, results: Any) -> dict[str, Any]:
        """Return where the results are, and the instructions of the compiled module by name."""
        leaves = importlib.import_module("jax").tree.leaves(results)
        devices = sorted({str(device) for one in leaves for device in one.devices()})
        platforms = sorted({device.platform for one in leaves for device in one.devices()})
        return {
            "devices": devices,
            "platforms": platforms,
            "instructions": dict(self.instructions),
            "products": dict(self.products),
            "lowered": dict(self.lowered),
            "torch": dict(self.torch),
            "calls": self.calls,
        }


_LINE = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z][a-z0-9\-]*)\((.*)$")
_PRODUCT = re.compile(r"stablehlo\.(?:dot_general|convolution)\b.*: \(tensor<(?:[0-9?]+x)*([a-z]+[0-9]+)")
"""Dtype of the operands of a product in StableHLO."""

_NO_WORK = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"})


def instructions_of(text: str) -> tuple[Counter[str], Counter[str]]:
    """Return the instructions of a compiled module, including fused ones, and the dtypes of results of products.

    A custom call is named by its target, a transfer between device and host by its direction.
    """
    found: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match[2] in _NO_WORK:
            continue
        name = match[2]
        if name == "custom-call":
            target = re.search(r'custom_call_target="([^"]*)"', line)
            name = f"custom-call:{target[1] if target else ''}"
        elif "is_host_transfer=true" in line:
            name = f"{name}:host"
        found[name] += 1
        if match[2] in ("dot", "convolution"):
            products[match[1].partition("[")[0]] += 1
    return found, products


@contextmanager
def _torch_operators() -> Iterator[Counter[str]]:
    """Count the operators that torch itself computes meanwhile, on the host."""
    mode = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    seen: Counter[str] = Counter()

    class Seen(mode):  # type: ignore[misc, valid-type]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen["aten." + func._schema.name.removeprefix("aten::")] += 1
            return func(*args, **(kwargs or {}))

    with Seen():
        yield seen
