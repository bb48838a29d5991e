"""What a child measures a cell under: one condition changed, to see whether that makes it work.

The only way in is the variable `HWCOMPAT_CHANGES` (`attention=eager;cache=off`), set in the environment of a child
alone. Whatever runs under it says so in every line, which has an origin of its own: no such line is a measurement of
the cell as it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Self

from .errors import UsageError, did_you_mean, echo

VARIABLE = "HWCOMPAT_CHANGES"

CHANGED = "changed"
"""The condition by which a line tells what was changed."""

KNOWN: dict[str, tuple[str, ...]] = {
    "attention": ("eager", "sdpa"),
    "export": ("trace", "onnx", "program"),
    "opset": ("13", "16", "18", "20"),
    "shapes": ("static",),
    "batch": ("one",),
    "cache": ("off",),
}
"""What can be changed, and to what. `environment` besides: the names of variables that were set, in words."""

_LONGEST = 200


@dataclass(frozen=True, kw_only=True)
class AppliedFix:
    """`attention` of the model under test, never of the reference; the way of its `export`, and the `opset` of ONNX;
    `shapes` of an export, `batch` (one row at a time), `cache` of decoding. `environment` only tells."""

    attention: str = ""
    export: str = ""
    opset: str = ""
    shapes: str = ""
    batch: str = ""
    cache: str = ""
    environment: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The changes that `name=value;name=value` says. Raises `UsageError` for a name or value that isn't known."""
        found: dict[str, str] = {}
        for part in filter(None, (one.strip() for one in text.split(";"))):
            name, _, value = part.partition("=")
            known = KNOWN.get(name, ())
            if name != "environment" and value not in known:
                raise UsageError(
                    f"{VARIABLE} has {echo(part)}, which is no change",
                    why=f"{name} can be {', '.join(known)}" if known else did_you_mean(name, KNOWN),
                    fix=f"Unset {VARIABLE}: --try-remedies sets it where it is needed.",
                )
            found[name] = value[:_LONGEST]
        return cls(**found)

    @property
    def text(self) -> str:
        """What `parse` reads; empty where nothing is changed."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return ";".join(f"{name}={value}" for name, value in said.items() if value)

    @property
    def of_export(self) -> str:
        """The part that makes another export of the same model, for the key that exports are kept under."""
        return ";".join((self.attention, self.export, self.opset, self.shapes))


def current_changes() -> AppliedFix:
    """What this process measures under; nothing where the variable isn't set. Raises `UsageError`."""
    return AppliedFix.parse(os.environ.get(VARIABLE, ""))


def refuse_changes() -> None:
    """Raise `UsageError` where something is changed: whoever measures cells as they are calls this first."""
    if text := current_changes().text:
        raise UsageError(
            f"{VARIABLE} is set to {echo(text)}",
            why="what runs under a changed condition measures no cell",
            fix=f"Unset {VARIABLE}; --try-remedies of hardware_compatibility_reporter.py tries changes.",
        )
