"""Which model types no rule may be tuned on: every third, by a hash of its name."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

LIST = Path(__file__).with_name("held_out.txt")
"""The types of transformers 5.5.4 and the families of diffusers 0.37.1 that are held out, written down before the
first rule was tuned."""


def is_held_out(model_type: str) -> bool:
    """Whether SHA-256 of the name, taken as a number, can be divided by three."""
    return int(hashlib.sha256(model_type.encode()).hexdigest(), 16) % 3 == 0


@functools.cache
def held_out() -> frozenset[str]:
    """The types of the list."""
    return frozenset(LIST.read_text(encoding="utf-8").split())
