"""Read the inputs of a graph file (`.onnx`, or OpenVINO's `.xml`), choose sizes for its dimensions, and run it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hwcompat.generators.models.given_recipe import GivenInput, GivenRecipe, draw_inputs
from hwcompat.hardware.cell import GRAPH_TASK
from hwcompat.hardware.compare import Array
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.inventory.system.main_memory import free_bytes
from hwcompat.hardware.testing.graph_files import open_reference
from hwcompat.hardware.testing.graph_reference import GraphReference
from hwcompat.hardware.testing.graph_weights import graph_hash, weight_files

log = logging.getLogger(__name__)

_BYTES_A_BYTE = 6
"""Memory per byte of the file: the weights, again in float64, in the runtime, and room for results."""

_BATCH = 2
_SIZES = (8, 16, 32, 64, 224)
"""Sizes to try, in this order, for each dynamic dimension except the batch."""


def derive_graph(name: str) -> GivenRecipe:
    """Return the recipe of a graph file. Raises `BrokenInput` if it can't be read, `ModelError` if it can't be
    tested: it doesn't fit into free memory, or has no reference that is independent of the runtimes."""
    file = Path(name).expanduser()
    _require_memory(file, ())
    evaluator = open_reference(file)
    _require_memory(file, weight_files(file))
    asked = evaluator.inputs()
    if not asked:
        raise ModelError(f"{echo(file.name)} has no inputs", why="its outputs are always the same")
    specs, sizes, outputs = _first_that_runs(file.name, evaluator, asked)
    if not outputs:
        raise ModelError(f"{echo(file.name)} has no floating-point output", why="there is nothing to compare")
    if all(float(value.std()) == 0.0 for value in outputs.values() if value.size > 1):
        raise ModelError(f"{echo(file.name)} has constant outputs", why="a wrong result would look the same")
    return GivenRecipe(
        kind="graph",
        name=file.name,
        subject="checkpoint",
        task=GRAPH_TASK,
        inputs=specs,
        sizes=sizes,
        other_sizes=_other_sizes(evaluator, specs, sizes, outputs),
        parameters=evaluator.parameters,
        gradients=0,
        gradient_norm=0.0,
        operators=(),  # predictions use only torch's operators
        outputs=tuple(outputs),
        weights_hash=graph_hash(file),
        computes_in=evaluator.computes_in,
        reference=evaluator.said,
    )


def _require_memory(file: Path, weights: tuple[Path, ...]) -> None:
    needed = _BYTES_A_BYTE * sum(path.stat().st_size for path in (file, *weights))
    free = free_bytes()
    if needed > free:
        raise ModelError(
            f"{echo(file.name)} doesn't fit into memory",
            why=f"the test needs about {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free",
            fix="Run it on a machine with more memory.",
        )


def _first_that_runs(
    name: str, evaluator: GraphReference, asked: Mapping[str, tuple[str, tuple[int | str, ...], int]]
) -> tuple[dict[str, GivenInput], dict[str, int], dict[str, Array]]:
    """Return the first specifications and sizes with which the reference can be computed, and its outputs."""
    reasons = []
    for low, size in ((low, size) for size in _SIZES for low in (0, 1)):
        specs = {key: _spec(key, *one, low) for key, one in asked.items()}
        sizes = _sizes(specs, size)
        try:
            return specs, sizes, evaluator(draw_inputs(specs, sizes))
        except ModelError:
            raise
        except Exception as error:  # NumPy or the runtime may raise anything for an unsupported size
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    raise ModelError(
        f"{echo(name)} can't be evaluated on random inputs",
        why=reasons[0],
        fix="Export it with fixed input shapes.",
    )


def _spec(key: str, dtype: str, shape: tuple[int | str, ...], rows: int, low: int) -> GivenInput:
    kind = np.dtype(dtype).kind if dtype != "bfloat16" else "?"
    if kind == "f":
        return GivenInput(kind="normal", dtype=dtype, shape=shape)
    if kind == "b":
        return GivenInput(kind="booleans", dtype=dtype, shape=shape)
    if kind in "iu":
        # Integers that are no table index are usually a mask: zeros and ones, or only ones if zeros spoil a row.
        first, high = (0, rows) if rows else (low, 2)
        return GivenInput(kind="integers", dtype=dtype, shape=shape, low=first, high=high)
    raise ModelError(f"the input {echo(key)} has dtype {dtype}", why="random inputs need a dtype of NumPy")


def _sizes(specs: Mapping[str, GivenInput], size: int) -> dict[str, int]:
    named = [(axis, one) for spec in specs.values() for axis, one in enumerate(spec.shape) if isinstance(one, str)]
    first = {one for axis, one in named if axis == 0}
    return {one: _BATCH if one in first else size for _, one in named}


def _alternatives(specs: Mapping[str, GivenInput], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    first = {spec.shape[0] for spec in specs.values() if spec.shape}
    yield {name: size + 1 if name in first else 2 * size for name, size in sizes.items()}
    yield {name: size + 1 if name in first else size for name, size in sizes.items()}


def _other_sizes(
    evaluator: GraphReference, specs: Mapping[str, GivenInput], sizes: Mapping[str, int], outputs: Mapping[str, Array]
) -> dict[str, int]:
    """Return a second choice of sizes with which the graph runs and gives other shapes; empty if there is none."""
    for other in _alternatives(specs, sizes) if sizes else ():
        try:
            found = evaluator(draw_inputs(specs, other))
        except Exception as error:  # any error means that it doesn't run with these sizes
            log.debug("sizes %s: %s", other, error)
            continue
        if any(found[name].shape != value.shape for name, value in outputs.items()):
            return other
    return {}
