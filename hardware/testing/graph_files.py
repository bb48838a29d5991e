"""What a suite of a graph file needs: the file, found by its hash, and a `ModelTest` whose reference evaluates it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..backends.base import FileSubject, Runnable
from ..cell import Cell
from ..errors import BrokenInput, echo
from ..evidence.record import Stage
from ..output_masks import masks_of
from ..untrusted import check_not_sparse, is_folder, is_inside, is_plain_file, opened
from .checkpoints import CHECKPOINTS_VARIABLE
from .graph_reference import GraphReference, open_reference
from .measurement import Outputs
from .model_test import ModelTest
from .parity import Array


def graph_hash(file: Path) -> str:
    """SHA-256 over a graph file's bytes and those of the files that hold its weights, in the order of their names."""
    digest = hashlib.sha256()
    for path in (file, *weight_files(file)):
        with opened(path) as read:
            check_not_sparse(read)
            while block := read.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def weight_files(file: Path) -> tuple[Path, ...]:
    """The files beside a graph file that hold its weights: the `.bin` of an `.xml`, external data of an `.onnx`.

    Raises `BrokenInput` where one is missing, or lies outside the graph file's folder.
    """
    if file.suffix == ".xml":
        weights = file.with_suffix(".bin")
        return (weights,) if is_plain_file(weights) else ()
    import onnx
    from onnx.external_data_helper import uses_external_data

    model = onnx.load(str(file), load_external_data=False)
    names = {_location(one) for one in _all_tensors(model) if uses_external_data(one)}
    if not all(isinstance(name, str) for name in names):  # protobuf gives bytes for what is no UTF-8
        raise BrokenInput(
            f"{echo(file.name)} names its weights in no text", fix="Save it again with its data beside it."
        )
    found = []
    for name in sorted(names):
        path = file.parent / name
        if Path(name).is_absolute() or not is_inside(path, file.parent):
            raise BrokenInput(
                f"{echo(file.name)} keeps weights outside its folder",
                why=f"it names {echo(name)}",
                fix="Save it again with its data beside it.",
            )
        if not is_plain_file(path):
            raise BrokenInput(
                f"the weights of {echo(file.name)} are missing",
                why=f"{echo(name)} does not lie beside it",
                fix="Copy it there: it was written together with the .onnx file.",
            )
        found.append(path)
    return tuple(found)


def _location(tensor: Any) -> str:
    """The file that a tensor names; the last one counts, as in ONNX, which warns of other keys."""
    return next((entry.value for entry in reversed(tensor.external_data) if entry.key == "location"), "")


def _all_tensors(model: Any) -> Iterator[Any]:
    """The constants of a model's graph, of its functions and of how it is trained: each may lie in another file."""
    yield from _tensors(model.graph)
    for function in model.functions:
        yield from _tensors_of(function.node)
    for training in model.training_info:
        yield from _tensors(training.initialization)
        yield from _tensors(training.algorithm)


def _tensors(graph: Any) -> Iterator[Any]:
    """The constants of a graph and of the graphs inside its nodes."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of(graph.node)


def _tensors_of(nodes: Any) -> Iterator[Any]:
    for attribute in (one for node in nodes for one in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


def graph_file(cell: str, revision: str) -> Path:
    """The graph file with the hash `revision`, in the folders that `HWCOMPAT_CHECKPOINTS` names.

    Raises `BrokenInput` where there is none.
    """
    folders = [Path(text) for text in os.environ.get(CHECKPOINTS_VARIABLE, "").split(os.pathsep) if text]
    for folder in filter(is_folder, folders):
        for file in sorted([*folder.glob("*.onnx"), *folder.glob("*.xml")]):
            if _has_hash(file, revision):
                return file
    raise BrokenInput(
        f"the graph file of {echo(Cell.parse(cell).model)} wasn't found",
        why=f"no file in {len(folders)} folder(s) of {CHECKPOINTS_VARIABLE} has its hash",
        fix=f"Name its folder in {CHECKPOINTS_VARIABLE}, or generate the suite again if the file has changed.",
    )


def _has_hash(file: Path, revision: str) -> bool:
    try:
        return graph_hash(file) == revision
    except (BrokenInput, OSError):  # another file in the folder, which isn't the one asked for
        return False
    except Exception as error:  # protobuf has an error class of its own for what is no .onnx file
        if type(error).__name__ != "DecodeError":
            raise
        return False


class GraphTest(ModelTest):
    """A `ModelTest` of a graph file; the same calls, where `make_model` gives the file's path.

    The reference is an evaluator that shares nothing with the runtime under test (`graph_reference.py`).
    """

    def parameter_count(self) -> int:
        """Numbers in the file's floating-point constants."""
        return self._evaluator.parameters

    @cached_property
    def _file(self) -> Path:
        file: Any = self.make_model()
        return Path(file)

    @cached_property
    def _evaluator(self) -> GraphReference:
        return open_reference(self._file)

    def _load(self) -> Runnable:
        with self._at(Stage.LOAD):
            return self.backend.load_file(FileSubject(file=self._file), self.inputs, self.cell.precision)

    def reference(self, inputs: Mapping[str, Array]) -> Outputs:
        """What the evaluator computes."""
        return Outputs(arrays=self._evaluator(inputs), masks=masks_of(self.masked_by, inputs), inputs=inputs)

    def _conditions(self, loaded: Runnable | None) -> dict[str, str]:
        said = self._evaluator.said
        return super()._conditions(loaded) | ({"reference": said} if said else {})
