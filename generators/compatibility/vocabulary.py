"""The closed word lists of rules and priorities (`vocabulary.toml`), and the precisions that each target runs."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hwcompat.hardware.backends.factory import backend_class, class_of, known_targets
from hwcompat.hardware.cell import GRAPH_TASK
from hwcompat.hardware.errors import BrokenPlugin
from hwcompat.hardware.target import Target

_FILE = Path(__file__).with_name("vocabulary.toml")
_ALWAYS_COMPUTED = "float32"


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Known words, each list in display order, and how texts name the `facts` of rules."""

    families: tuple[str, ...]
    architectures: tuple[str, ...]
    traits: tuple[str, ...]
    target_order: tuple[str, ...]
    not_hardware: tuple[str, ...]
    facts: Mapping[str, Mapping[str, str]]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that have a backend."""
        known = set(known_targets())
        ordered = [name for name in self.target_order if name in known]
        return (*ordered, *sorted(known - set(ordered)))

    @property
    def hardware_types(self) -> tuple[str, ...]:
        """The targets that have a device."""
        return tuple(target for target in self.targets if target not in self.not_hardware)


@functools.cache
def vocabulary() -> Vocabulary:
    """Return the words of the data file."""
    words = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Vocabulary(facts=words.pop("facts"), **{name: tuple(items) for name, items in words.items()})


def not_computed(target: Target, precision: str, task: str = "") -> str:
    """Return why a target isn't run in a precision; empty if it is, and for an unknown target. A file's own precision
    counts for its `task`."""
    if precision == _ALWAYS_COMPUTED or target.name not in known_targets():
        return ""
    try:
        backend = class_of(target)
        known = (*backend.PRECISIONS, *(backend.FILE_PRECISIONS if task == GRAPH_TASK else ()))
    except BrokenPlugin:  # planning reports it
        return ""
    return "" if precision in known else f"{target} in {precision}: it supports only {', '.join(known)}"


def computing(precision: str) -> tuple[str, ...]:
    """Return the names of the targets with a device that compute in a precision."""
    return tuple(
        name
        for name in known_targets()
        if not not_computed(Target(name=name), precision) and not backend_class(name).SIMULATED
    )
