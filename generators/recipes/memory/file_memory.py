"""Answer a request for the memory of an `.onnx` file: its weights as they are stored, and the results of its nodes at
the sizes with which it is tested. Runs in a child process."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np

from hwcompat.generators.compatibility.memory_fit import MemoryEstimate, MemoryRequest
from hwcompat.generators.models.given_recipe import GivenRecipe, draw_inputs
from hwcompat.generators.recipes.graph_file import derive_graph
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.plain_text import size_text
from hwcompat.hardware.testing.graph_ladder import Ladder
from hwcompat.hardware.testing.graph_weights import parts_of

_MOST_BATCH = 64
"""Inputs are drawn for a batch: larger ones are computed from two smaller ones."""


def memory_of_file(name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimate as `memory_request.memory_of` does. Raises `ModelError` if none can be made."""
    file = Path(name).expanduser()
    if file.suffix.lower() != ".onnx":
        raise ModelError(f"the memory of {echo(file.name)} can't be estimated", why="only .onnx files are read")
    recipe = derive_graph(name)
    if asked.get("mode") == "training" or asked.get("precision") not in (None, recipe.computes_in):
        raise ModelError(
            f"the memory of {echo(file.name)} can't be estimated like this",
            why=f"a file runs as it is: inference in {recipe.computes_in}",
            fix="Remove --training and --precision.",
        )
    named = {spec.shape[0] for spec in recipe.inputs.values() if spec.shape}
    batches = [str(one) for one in named if one in recipe.sizes]
    batch = int(asked.get("batch") or 1)
    if not batches and batch > 1:
        raise ModelError(
            f"{echo(file.name)} has a fixed batch", why="its first axes have sizes", fix="Remove --batch."
        )
    notes = [_weights_text(file)]
    base = _estimate(file, recipe, {one: min(batch, _MOST_BATCH) for one in batches}, notes)
    if batch > _MOST_BATCH:
        base = _grown(_estimate(file, recipe, dict.fromkeys(batches, 1), []), base, batch)
    others = [_estimate(file, recipe, dict.fromkeys(batches, 1), [])] if batch > 1 and _is_short(asked, base) else []
    anatomy = {"parameters": recipe.parameters, "linear": 0, "largest": 0, "block": 0, "beside": 0, "is_file": True}
    found = [one.to_dict() for one in (base, *others)]
    return {"estimates": found, "anatomy": anatomy, "notes": notes, "reads_text": False}


def _is_short(asked: Mapping[str, Any], base: MemoryEstimate) -> bool:
    return asked.get("least_room") is not None and base.total > asked["least_room"]


def _grown(one: MemoryEstimate, many: MemoryEstimate, batch: int) -> MemoryEstimate:
    """Return the estimate for a larger batch than that of `many`: memory grows linearly."""
    rows = many.request.batch - 1
    parts = {name: low + ceil((many.parts[name] - low) / rows * (batch - 1)) for name, low in one.parts.items()}
    request = MemoryRequest(mode="inference", precision=many.request.precision, batch=batch, context=0)
    return MemoryEstimate(request=request, **parts)


def _estimate(file: Path, recipe: GivenRecipe, batches: Mapping[str, int], notes: list[str]) -> MemoryEstimate:
    """Return the memory of a pass with these sizes of the batch. Results live from the node that makes them to the
    last one that reads them."""
    import onnx

    inputs = draw_inputs(recipe.inputs, {**recipe.sizes, **batches})
    model = onnx.load(str(file))
    graph = model.graph
    kept = {one.name for one in graph.output}
    made = [name for node in graph.node for name in node.output if name and name not in kept]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
        exposed = Path(folder) / "exposed.onnx"
        onnx.save(model, str(exposed))
        known = {name: np.asarray(one).nbytes for name, one in Ladder(model, exposed).first(inputs).items()}
    last = {name: place for place, node in enumerate(graph.node) for name in _read_by(node)}
    live = peak = 0
    ends: Counter[int] = Counter()
    for place, node in enumerate(graph.node):
        sizes = {name: known[name] for name in node.output if name}
        live += sum(sizes.values())
        peak = max(peak, live)
        for name, size in sizes.items():
            if name not in kept:
                ends[last.get(name, place)] += size
        live -= ends.pop(place, 0)
    notes.append(f"inputs: {', '.join(f'{key} {list(one.shape)}' for key, one in inputs.items())}")
    notes.append("results were measured in ONNX Runtime without optimizations; what kernels allocate isn't counted")
    inner = sum(1 for node in graph.node for part in parts_of(node, type(node)) if part is not node)
    if inner:
        notes.append(f"the results of {inner} nodes inside of If, Loop and Scan aren't counted")
    batch = next(iter(batches.values()), 1)
    request = MemoryRequest(mode="inference", precision=recipe.computes_in, batch=batch, context=0)
    given = sum(one.nbytes for one in inputs.values())
    empty = dict.fromkeys(("gradients", "optimiser", "cache", "workspace"), 0)
    return MemoryEstimate(
        request=request, weights=sum(_weights(file).values()), inputs=given, activations=peak, **empty
    )


def _read_by(node: Any) -> Iterator[str]:
    """Yield the tensors that a node reads, also inside of its subgraphs."""
    return (name for part in parts_of(node, type(node)) for name in part.input if name)


def _width(kind: int) -> float:
    """Return the bytes of an element; two share one in four bits."""
    from onnx import helper

    text = helper.tensor_dtype_to_string(kind)
    return 0.5 if text.endswith("INT4") else float(helper.tensor_dtype_to_np_dtype(kind).itemsize)


def _weights(file: Path) -> Counter[str]:
    """Return the bytes of a file's constants by dtype."""
    import onnx

    found: Counter[str] = Counter()
    for tensor in parts_of(onnx.load(str(file), load_external_data=False), onnx.TensorProto):
        if tensor.data_type != onnx.TensorProto.STRING:
            name = onnx.TensorProto.DataType.Name(tensor.data_type).lower().replace("double", "float64")
            found["float32" if name == "float" else name] += ceil(prod(tensor.dims) * _width(tensor.data_type))
    return found


def _weights_text(file: Path) -> str:
    found = _weights(file).most_common()
    return "weights: " + (", ".join(f"{name} {size_text(size)}" for name, size in found) or "none")
