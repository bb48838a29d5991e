"""Read the labeled failures of `test/fixtures/failures`; its README explains fields and labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hardware.evidence.record import CheckLine, from_dict

FOLDER = Path(__file__).parents[1] / "test" / "fixtures" / "failures"
SEEN, HELD_OUT = "seen", "held_out"

ASKED_FOR = (
    *("missing_dependency", "version_conflict", "driver_missing", "driver_too_old", "permission_denied"),
    *("device_absent", "device_busy", "device_lost", "out_of_memory", "memory_pressure", "unsupported_operator"),
    *("unsupported_dtype", "unsupported_shape", "export_failed", "conversion_wrong", "numerical_mismatch"),
    *("non_finite", "silent_offload", "crash", "timeout", "corrupt_checkpoint", "needs_network"),
    *("remote_code_required", "browser_required", "context_lost", "config_invalid", "upstream_bug", "unknown"),
)
"""The error types that the diagnosis must distinguish at least; each has two entries or more."""

OTHERS = (
    *("device_unusable", "wrong_build", "build_mismatch", "ambiguous", "not_implemented", "unsupported_format"),
    "reference_not_finite",
)


@dataclass(frozen=True, kw_only=True)
class Label:
    """The label of a failure; `group` is its root cause."""

    error_type: str
    severity: str
    operator: str
    group: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A labeled failure: a check line of evidence, or the text of a log."""

    id: str
    source: str
    url: str
    target: str
    stage: str
    outcome: str
    label: Label
    fixable: bool | None
    why: str
    line: CheckLine | None = None
    text: str = ""

    @property
    def printed(self) -> str:
        """All text that the software printed."""
        if self.line is None:
            return self.text
        return "\n".join((self.line.error_message, self.line.substitution_reason, self.line.traceback))


def half_of(group: str) -> str:
    """Return the half for failures of a root cause, so that all its repetitions are in one half."""
    return (SEEN, HELD_OUT)[int(hashlib.sha256(group.encode()).hexdigest(), 16) % 2]


def read(half: str) -> tuple[Failure, ...]:
    """Read the failures of a half, in the order of the file."""
    lines = (FOLDER / f"{half}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(_failure(json.loads(line)) for line in lines)


def _failure(data: Mapping[str, Any]) -> Failure:
    given = {**data, "label": Label(**data["label"])}
    if "line" in data:
        given["line"] = cast(CheckLine, from_dict(data["line"]))
    return Failure(**given)
