"""Small graphs and modules with known answers: does a session compute, and in which arithmetic?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from .base import Array, BaseBackend

SIZE = 8
FLOAT16_LARGEST = 65504.0

_BITS = {"float32": 20, "float16": 10, "bfloat16": 7}
"""Errors below 2**-bits distinguish a type from the next one (23, 10 and 7 bits of mantissa)."""


def write_question(file: Path, right: Array) -> None:
    """Write column sums of tanh(left @ right) for `left` (8, 8), the question of `hardware.known_answer`."""
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["left", "right"], ["product"]),
        helper.make_node("Tanh", ["product"], ["bounded"]),
        helper.make_node("ReduceSum", ["bounded", "axes"], ["answer"], keepdims=0),
    ]
    constants = {"right": right, "axes": np.array([0], np.int64)}
    _write(file, nodes, "left", "answer", [SIZE], constants)


def write_copy(file: Path) -> None:
    """Write `values` (8, 8) times the identity: the error is that of the arithmetic."""
    from onnx import helper

    nodes = [helper.make_node("MatMul", ["values", "identity"], ["copy"])]
    _write(file, nodes, "values", "copy", [SIZE, SIZE], {"identity": np.eye(SIZE, dtype=np.float32)})


def write_overflow(file: Path) -> None:
    """Write the root of `values` (8, 8) times 300 times the identity, all in float16: for 300 the product is 90,000,
    which float16 can't represent."""
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["values", "factor"], ["product"]),
        helper.make_node("Sqrt", ["product"], ["root"]),
    ]
    _write(
        file, nodes, "values", "root", [SIZE, SIZE], {"factor": (300 * np.eye(SIZE)).astype(np.float16)}, np.float16
    )


def overflows(root: Array) -> bool:
    """Return whether the result of `write_overflow` for 300 was rounded to float16 between its operators."""
    return not bool(np.all(np.abs(root.astype(np.float64) - 300) < 1))


def _write(
    file: Path,
    nodes: list[object],
    given: str,
    result: str,
    shape: list[int],
    constants: dict[str, Array],
    dtype: type[np.floating[Any]] = np.float32,
) -> None:
    from onnx import helper, numpy_helper, save

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "question",
        [helper.make_tensor_value_info(given, kind, [SIZE, SIZE])],
        [helper.make_tensor_value_info(result, kind, shape)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))


def values_to_copy() -> Array:
    """Return numbers in [1, 2) with all bits of float32, and one that float16 can't represent."""
    values = 1 + np.random.default_rng(0).random((SIZE, SIZE))
    values[0] = 0.0
    values[0, 0] = 70_000.0  # alone in its row, so that an infinity affects no other number
    return values.astype(np.float32)


def precision_of(copy: Array) -> str:
    """Return the arithmetic that turned `values_to_copy` into `copy`, or `unknown`.

    HTP's float16 has no infinity: a number beyond its largest one becomes a finite one up to 131,008.
    """
    values = values_to_copy()
    lost = float(np.abs(copy[1:] / values[1:] - 1).max())
    found = next((name for name, bits in _BITS.items() if lost < 2.0**-bits), "unknown")
    held = bool(abs(copy[0, 0] / values[0, 0] - 1) < 2.0 ** -_BITS["float16"])
    return "tf32" if found == "float16" and held else found


def precision_of_products(backend: BaseBackend) -> str:
    """Return the precision in which a target computes float32 products, in the words of `precision_of`."""
    from ..cell import MODULE_TASK
    from .base import ModelInput

    values = {"x": values_to_copy(), "y": np.eye(SIZE, dtype=np.float32)}
    product = ModelInput(model=module_of(lambda x, y: x @ y), task=MODULE_TASK, identity="product")
    runnable = backend.load(product, values, "float32")
    try:
        (copy,) = runnable(**values).values()
        return precision_of(copy)
    finally:
        runnable.close()


def module_of(function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]) -> torch.nn.Module:
    """Return a module that calls a function with its inputs."""
    import torch

    class Question(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        """Calls a function with its inputs."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("here", torch.zeros(()))

        def forward(self, **tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
            return function(**tensors)

    return Question().eval()
