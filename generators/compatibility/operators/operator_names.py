"""How models call each operator, and which operators the message of a failed check names.

Calls are facts of the models, with the number of model types that make them, whatever a target did with them.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATTERNS = Path(__file__).with_name("named.toml")

_LONGEST = 20_000
_WAYS = re.compile(r"; (?=optimum-intel|convert_model|plain trace|as it is)")
"""The separator between the ways that a message says were tried; the failure of the last one counts."""
FILE = Path(__file__).with_name("calls.json.gz")
"""Written by `python -m benchmarks.operators calls`."""
NODES = Path(__file__).with_name("onnx_nodes.json")
"""Nodes of the graphs of failing models, written by `python -m benchmarks.operators nodes`."""


@dataclass(frozen=True)
class NamedOperator:
    """What a message says about an operator: `how` it fails (`missing`, `failing`, `offloaded`), as short text."""

    how: str
    says: str


@dataclass(frozen=True)
class _Pattern:
    part: re.Pattern[str]
    item: re.Pattern[str]
    prefix: str
    named: NamedOperator


@functools.cache
def _patterns() -> tuple[_Pattern, ...]:
    listed = tomllib.loads(PATTERNS.read_text(encoding="utf-8"))["pattern"]
    return tuple(
        _Pattern(
            re.compile(one["in"]),
            re.compile(one["item"]),
            one["prefix"],
            NamedOperator(how=one["how"], says=one["says"]),
        )
        for one in listed
    )


def operators_named(message: str) -> Mapping[str, NamedOperator]:
    """Return what a message says about operators, by name (`onnx.Einsum`, `aten.fft_fftn`).

    Of several ways that were tried the last that names any counts. Only the first 20,000 characters are read, because
    messages are untrusted.
    """
    for way in reversed(_WAYS.split(message[:_LONGEST])):
        if found := _named_in(way):
            return found
    return {}


def last_way(message: str) -> str:
    """Return what a message says about the last of the ways that were tried."""
    return _WAYS.split(message[:_LONGEST])[-1]


def _named_in(text: str) -> dict[str, NamedOperator]:
    found: dict[str, NamedOperator] = {}
    for pattern in _patterns():
        for part in pattern.part.findall(text):
            for name in pattern.item.findall(part):
                found.setdefault(pattern.prefix + name, pattern.named)
    return found


@dataclass(frozen=True, kw_only=True)
class Example:
    """A way in which tiny models call an operator; `types` is the number of model types that do.

    `tensors` are dtype and shape of its inputs, in order.
    """

    overload: str
    types: int
    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    def __str__(self) -> str:
        return ", ".join(f"{dtype}[{'x'.join(map(str, shape))}]" for dtype, shape in self.tensors) or "no tensor"


@functools.cache
def recorded() -> Mapping[str, Any]:
    """Return the contents of the file: `made_by`, `versions`, `types`, and by operator its examples with all
    arguments."""
    loaded: Mapping[str, Any] = (
        json.loads(gzip.decompress(FILE.read_bytes())) if FILE.is_file() else {"operators": {}}
    )
    return loaded


def examples(operator: str) -> tuple[Example, ...]:
    """Return the most frequent calls of an operator of torch (`aten.addmm`), the commonest first."""
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
    """Return the inputs of nodes of an ONNX type (`onnx.Einsum`) in graphs that a runtime refused, the commonest
    first."""
    found = _nodes()["nodes"].get(onnx_type, ())
    return tuple(f"{one['node']} in {', '.join(one['types'][:3])}" for one in found)
