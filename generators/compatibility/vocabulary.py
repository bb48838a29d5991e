"""The closed word lists that rules and priorities are written with; the words are in `vocabulary.toml`."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from hardware.backends.factory import known_targets

_FILE = Path(__file__).with_name("vocabulary.toml")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Known words, each in the order in which tables show them."""

    families: tuple[str, ...]
    architectures: tuple[str, ...]
    traits: tuple[str, ...]
    target_order: tuple[str, ...]
    not_hardware: tuple[str, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that have a backend."""
        known = set(known_targets())
        ordered = [name for name in self.target_order if name in known]
        return (*ordered, *sorted(known - set(ordered)))

    @property
    def hardware_types(self) -> tuple[str, ...]:
        """The targets that have a device behind them."""
        return tuple(target for target in self.targets if target not in self.not_hardware)


@functools.cache
def vocabulary() -> Vocabulary:
    """The words of the data file."""
    words = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Vocabulary(**{name: tuple(items) for name, items in words.items()})
