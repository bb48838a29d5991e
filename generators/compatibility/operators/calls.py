"""How models call each operator: the commonest examples of dtypes and shapes, with how many model types call it so.

They are facts of the models, whatever any target did with them.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("calls.json.gz")
"""`python -m benchmarks.operators calls` writes it."""

NODES = Path(__file__).with_name("onnx_nodes.json")
"""Nodes of the graphs that failing models become; `python -m benchmarks.operators nodes` writes it."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One way in which tiny models call an operator; `types` is how many model types do.

    `tensors` are dtype and shape of what it is given, in order.
    """

    overload: str
    types: int
    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    def __str__(self) -> str:
        return ", ".join(f"{dtype}[{'x'.join(map(str, shape))}]" for dtype, shape in self.tensors) or "no tensor"


@functools.cache
def recorded() -> Mapping[str, Any]:
    """The file as it stands: `made_by`, `versions`, `types`, and by operator its examples with all arguments."""
    loaded: Mapping[str, Any] = (
        json.loads(gzip.decompress(FILE.read_bytes())) if FILE.is_file() else {"operators": {}}
    )
    return loaded


def examples(operator: str) -> tuple[Example, ...]:
    """The commonest ways in which an operator of torch (`aten.addmm`) is called, the most frequent first."""
    found = recorded()["operators"].get(operator, ())
    return tuple(
        Example(
            overload=one["overload"],
            types=one["types"],
            tensors=tuple((dtype, tuple(shape)) for dtype, shape in one["tensors"]),
        )
        for one in found
    )


@functools.cache
def _nodes() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads(NODES.read_text(encoding="utf-8")) if NODES.is_file() else {"nodes": {}}
    return loaded


def nodes(onnx_type: str) -> tuple[str, ...]:
    """What nodes of an ONNX type (`onnx.Einsum`) are given in graphs that a runtime refused, the commonest first."""
    found = _nodes()["nodes"].get(onnx_type, ())
    return tuple(f"{one['node']} in {', '.join(one['types'][:3])}" for one in found)
