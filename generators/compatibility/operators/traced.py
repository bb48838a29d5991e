"""Operators of traces that a target's converter was seen to take, and so those that nobody has seen it take."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

FILE = Path(__file__).with_name("traced.json")
"""`python -m benchmarks.operators traced TARGET` writes it, from kept evidence."""

AT_LEAST = 2
"""Models that pass with an operator before it counts as seen: what one model alone has says nothing of another, and
no model's own pass speaks for it."""


@functools.cache
def _seen() -> Mapping[str, frozenset[str]]:
    said = json.loads(FILE.read_text(encoding="utf-8"))
    return {target: frozenset(one["operators"]) for target, one in said.items()}


def unseen_operators(target: str, trace_operators: Iterable[str]) -> tuple[str, ...] | None:
    """The operators of a trace that no two other models pass with on a target; None where nobody looked."""
    seen = _seen().get(target)
    return None if seen is None else tuple(sorted(set(trace_operators) - seen))
