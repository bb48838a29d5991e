"""Dtypes and shapes of ONNX nodes in the graphs of failing models.

Only ONNX types in messages of failed checks are stored, and only the named nodes if the messages name nodes.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from generators.compatibility.operators.operator_names import NODES, operators_named
from generators.models.inputs import make_inputs
from generators.models.recipe import Recipe
from generators.recipes.build_model import build
from hardware.backends.base import ModelInput
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.shipped_evidence import last_checks, read_shipped
from hardware.export.exported import ONNX
from hardware.export.onnx_export import OPSET, _within_float16
from hardware.files import write_whole
from hardware.target import Target

MOST = 6

_NODE = re.compile(r"\{ name: ([^,\s]+), type: ")


def write_nodes(target: str, file: Path, recipes: Mapping[str, Recipe], made_on: str) -> None:
    """Write the file from the stored evidence of a target that uses ONNX files."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for model_type, names, refused in _wanted(target, file):
        if model_type not in recipes:
            continue
        try:
            nodes = list(_nodes(recipes[model_type], names, refused))
        except Exception as error:  # Models that can't be exported here have no nodes.
            click.echo(f"{model_type}: {type(error).__name__}: {error}"[:200], err=True)
            continue
        for name, shown in nodes:
            found[name][shown].add(model_type)
        click.echo(f"{model_type}: {len(nodes)} nodes of {', '.join(sorted(names))}", err=True)
    plain = {
        "made_by": f"python -m benchmarks.operators nodes {target}",
        "made_on": made_on,
        "opset": OPSET,
        "nodes": {name: _commonest(shown) for name, shown in sorted(found.items())},
    }
    write_whole(NODES, json.dumps(plain, indent=1, sort_keys=True) + "\n")


def _commonest(shown: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    ordered = sorted(shown.items(), key=lambda one: (-len(one[1]), one[0]))
    return [{"node": text, "types": sorted(types)} for text, types in ordered[:MOST]]


def _wanted(target: str, file: Path) -> Iterator[tuple[str, set[str], set[str]]]:
    """Return model types whose failed checks name ONNX types, with these types and node names."""
    lines = [line for line in read_shipped(file) if isinstance(line, CheckLine)]
    for name, checks in last_checks(lines, Target(name=target)).items():
        cell = Cell.parse(name)
        failed = [line for line in checks.values() if line.outcome is not Outcome.PASSED]
        named = {op for line in failed for op in operators_named(line.error_message) if op.startswith("onnx.")}
        if named and cell.precision == "float32":
            refused = {name for line in failed for name in _NODE.findall(line.error_message)}
            yield cell.model, {op.removeprefix("onnx.") for op in named}, refused


def _nodes(recipe: Recipe, names: set[str], refused: set[str]) -> Iterator[tuple[str, str]]:
    import onnx

    model = build(recipe.config_class, recipe.model_class, recipe.config)
    inputs = make_inputs(recipe.inputs, 0, recipe.recorded["lengths"])
    with tempfile.TemporaryDirectory(prefix="hwcompat-nodes-") as folder:
        _within_float16(ModelInput(model=model, task=recipe.task, identity=""), inputs, Path(folder))
        graph = onnx.shape_inference.infer_shapes(onnx.load(str(Path(folder) / ONNX))).graph
    known = {one.name: _tensor(one.type.tensor_type) for one in (*graph.value_info, *graph.input, *graph.output)}
    known |= {one.name: _named(one.data_type, list(one.dims)) for one in graph.initializer}
    types = {node.op_type for node in graph.node if node.name in refused}
    for node in graph.node:
        if node.op_type in names and (node.name in refused or node.op_type not in types):
            given = ", ".join(known.get(name, "?") for name in node.input if name)
            equation = [one.s.decode() for one in node.attribute if one.name == "equation"]
            yield f"onnx.{node.op_type}", f"{given} ({equation[0]})" if equation else given


def _tensor(tensor: Any) -> str:
    return _named(tensor.elem_type, [axis.dim_value or "?" for axis in tensor.shape.dim])


def _named(elem_type: int, dims: list[Any]) -> str:
    import onnx

    dtype = onnx.TensorProto.DataType.Name(elem_type).lower()
    return f"{'float32' if dtype == 'float' else dtype}[{'x'.join(map(str, dims))}]"
