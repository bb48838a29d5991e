"""The changed condition under which a child process measures a cell, to test whether it makes the cell work.

It is set only through the variable `HWCOMPAT_CHANGES` (`attention=eager;cache=off`) in the environment of a child
process. Each line of evidence written under it names it and has an origin of its own, so that it doesn't count as a
measurement of the unchanged cell.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Self

from .errors import UsageError, did_you_mean, echo

VARIABLE = "HWCOMPAT_CHANGES"

CHANGED = "changed"
"""The condition that names the change in a line of evidence."""

KNOWN: dict[str, tuple[str, ...]] = {
    "attention": ("eager", "sdpa"),
    "export": ("trace", "onnx", "program"),
    "opset": ("13", "16", "18", "20"),
    "shapes": ("static",),
    "batch": ("one",),
    "cache": ("off",),
}
"""What can be changed, and the allowed values. `environment` additionally lists the names of variables that were
set."""

_LONGEST = 200


@dataclass(frozen=True, kw_only=True)
class AppliedFix:
    """`attention` of the model under test (never of the reference), the route of its `export` with its ONNX
    `opset` and `shapes`, `batch` (one row at a time), and the `cache` of decoding. `environment` is only
    reported."""

    attention: str = ""
    export: str = ""
    opset: str = ""
    shapes: str = ""
    batch: str = ""
    cache: str = ""
    environment: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the changes in the text `name=value;name=value`. Raises `UsageError` for an unknown name or
        value."""
        found: dict[str, str] = {}
        for part in filter(None, (one.strip() for one in text.split(";"))):
            name, _, value = part.partition("=")
            known = KNOWN.get(name, ())
            if name != "environment" and value not in known:
                raise UsageError(
                    f"{VARIABLE} has {echo(part)}, which is no change",
                    why=f"{name} can be {', '.join(known)}" if known else did_you_mean(name, KNOWN),
                    fix=f"Unset {VARIABLE}: hwcompat fix sets it where it is needed.",
                )
            found[name] = value[:_LONGEST]
        return cls(**found)

    @property
    def text(self) -> str:
        """Return the text that `parse` reads; empty if nothing is changed."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return ";".join(f"{name}={value}" for name, value in values.items() if value)

    @property
    def of_export(self) -> str:
        """Return the changes that affect an export, as part of the key under which exports are cached."""
        return ";".join((self.attention, self.export, self.opset, self.shapes))


def current_changes() -> AppliedFix:
    """Return the changes of this process, none if the variable isn't set. Raises `UsageError` for invalid ones."""
    return AppliedFix.parse(os.environ.get(VARIABLE, ""))


def refuse_changes() -> None:
    """Raise `UsageError` if a change is set: commands that measure unchanged cells call this first."""
    if text := current_changes().text:
        raise UsageError(
            f"{VARIABLE} is set to {echo(text)}",
            why="what runs under a changed condition measures no cell",
            fix=f"Unset {VARIABLE}; hwcompat fix CELL tries changes.",
        )
