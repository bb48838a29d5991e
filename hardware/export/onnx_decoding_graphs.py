"""Graphs that decode with a cache as ONNX files: for the encoder, if there is one, the prompt, and a token.

The prompt has the shapes of its example; the token takes a cache of any length, by named axes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.model_types import ModelInput
from .convert_model import by_position
from .decoding_graphs import DecodingGraph, decode, decoding_graphs
from .exported import ENCODER, PROMPT, RESULT, STEP, Exported
from .onnx_export import OPERATORS_REFUSED, OPSET, PACKAGES, drop_empty, fold, output_name, session_on_host
from .onnx_operators import exportable_operators
from .routes import Route, export_once, opened
from .traceable import arithmetic_masks
from .verify_export import Proof

if TYPE_CHECKING:
    from ..model.model_types import Array, Generation, Inputs

FILES: Mapping[str, str] = {ENCODER: "encoder.onnx", PROMPT: "prompt.onnx", STEP: "step.onnx"}
_METHOD = "torchscript, decoding"
_RUNTIME = "ONNX Runtime's CPU provider"


def export_onnx_decoding(model_input: ModelInput, example: Inputs) -> Exported:
    """Return the decoding graphs of a model, from the cache or made now.

    On ONNX Runtime's CPU provider they decode the same tokens as torch. Raises `Unsupported` with the reason
    otherwise, as `export_onnx` does.
    """
    route = Route(
        ways=((_METHOD, _write),),
        prove=_proven,
        runtime=_RUNTIME,
        packages=("torch", *PACKAGES),
        refused=OPERATORS_REFUSED,
        best=_METHOD,
        decodes=True,
    )
    return export_once(model_input, example, lambda exported: DecodingOnnx(exported, model_input), route)


class DecodingOnnx:
    """An export on ONNX Runtime's CPU provider, called by the library's decoding loop."""

    def __init__(self, exported: Exported, model_input: ModelInput) -> None:
        self.model_input = model_input
        self.graphs = {
            name: functools.partial(_run, session_on_host(file)) for name, file in graph_files(exported).items()
        }

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise NotImplementedError("these graphs only decode; the forward pass is in a separate file")

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        return decode(self.model_input.model, self.graphs, inputs, steps=steps)


def graph_files(exported: Exported) -> dict[str, Path]:
    """Return the files of an export by what they compute: `ENCODER`, `PROMPT`, `STEP`."""
    found = {name: exported.folder / file for name, file in FILES.items()}
    return {name: file for name, file in found.items() if file.is_file()}


@functools.lru_cache(maxsize=16)
def axes_of(file: Path) -> Mapping[str, tuple[str, ...]]:
    """Return, by input of a file, the names of its axes; empty for an axis with a size."""
    import onnx

    graph = onnx.load(str(file)).graph
    return {one.name: tuple(axis.dim_param for axis in one.type.tensor_type.shape.dim) for one in graph.input}


def is_dynamic(file: Path) -> bool:
    """Return whether an axis of an input of a file has no size."""
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    return any(not axis.dim_value for one in graph.input for axis in one.type.tensor_type.shape.dim)


def with_sizes(file: Path, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> Path:
    """Return the file for inputs of these shapes only, in `folder`, with all that follows from sizes computed."""
    import onnx

    sizes = repr(sorted(shapes.items()))
    fixed = folder / f"{file.stem}-{hashlib.sha256(sizes.encode()).hexdigest()[:12]}.onnx"
    if not fixed.is_file():
        model = onnx.load(str(file))
        for one in (one for one in model.graph.input if one.name in shapes):  # old files list their weights too
            for axis, size in zip(one.type.tensor_type.shape.dim, shapes[one.name], strict=True):
                axis.dim_value = size
        del model.graph.value_info[:]  # they name axes
        whole = fixed.with_suffix(".whole")
        onnx.save(model, str(whole))
        fold(whole, fixed)
        whole.unlink()
    return fixed


def _run(session: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    named = {one.name: np.ascontiguousarray(arrays[one.name]) for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    found = zip(names, session.run(names, named), strict=True)
    return {output_name(name): np.asarray(value) for name, value in found}


def _write(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    with (
        arithmetic_masks(),
        exportable_operators(),
        contextlib.closing(decoding_graphs(model_input.model, example, tokens=2)) as graphs,
    ):
        for graph in graphs:
            _write_one(graph, folder / FILES[graph.file])
    return Exported(folder=folder, method=_METHOD, static=True, decodes=True)


def _write_one(graph: DecodingGraph, file: Path) -> None:
    import torch

    names = list(graph.given)
    whole = file.with_name(f"whole-{file.name}")
    with torch.no_grad():
        outputs = [f"{RESULT}{name}" if name in names else name for name in graph.compute(graph.given)]
        torch.onnx.export(
            by_position(graph.part, graph.compute, names),
            tuple(graph.given.values()),
            str(whole),
            dynamo=False,
            opset_version=OPSET,
            input_names=names,
            output_names=outputs,
            dynamic_axes={name: {axis: f"{name}.{axis}" for axis in axes} for name, axes in graph.growing.items()},
        )
    fold(whole, file)
    whole.unlink()
    if not graph.growing:  # a cache begins empty, and the prompt's is concatenated to it
        drop_empty(file)


def _proven(made: Exported, proof: Proof, open_on_cpu: Any) -> tuple[Exported, float]:
    return made, proof.of_decoding(opened(open_on_cpu, made), made)
