"""Which operators a message of a failed check names, and what became of them there."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PATTERNS = Path(__file__).with_name("named.toml")

_LONGEST = 20_000
_WAYS = re.compile(r"; (?=optimum-intel|convert_model|as it is)")
"""Where a message goes on with another way that was tried: what the last one failed of is what stands in the way."""


@dataclass(frozen=True)
class Named:
    """What a message says of an operator: `how` it stands (`missing`, `failing`, `offloaded`), in a few words."""

    how: str
    says: str


@dataclass(frozen=True)
class _Pattern:
    part: re.Pattern[str]
    item: re.Pattern[str]
    prefix: str
    named: Named


@functools.cache
def _patterns() -> tuple[_Pattern, ...]:
    listed = tomllib.loads(PATTERNS.read_text(encoding="utf-8"))["pattern"]
    return tuple(
        _Pattern(
            re.compile(one["in"]), re.compile(one["item"]), one["prefix"], Named(how=one["how"], says=one["says"])
        )
        for one in listed
    )


def operators_named(message: str) -> Mapping[str, Named]:
    """By operator (`onnx.Einsum`, `aten.fft_fftn`), what a message says of it.

    Of several ways that were tried the last that names any counts. Messages come from anywhere: only the first 20,000
    characters are read.
    """
    for way in reversed(_WAYS.split(message[:_LONGEST])):
        if found := _named_in(way):
            return found
    return {}


def last_way(message: str) -> str:
    """What a message says of the last of the ways that were tried: that is what stands in the way."""
    return _WAYS.split(message[:_LONGEST])[-1]


def _named_in(text: str) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for pattern in _patterns():
        for part in pattern.part.findall(text):
            for name in pattern.item.findall(part):
                found.setdefault(pattern.prefix + name, pattern.named)
    return found
