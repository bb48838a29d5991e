"""`Incident`: something about a pool that a report should tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Incident:
    """`kind` is `low_memory`, `memory_pressure` or `failed_load`; `error_type` names what is known of a failure.
    Moments are ISO 8601 in UTC. `text` may quote what others wrote."""

    kind: str
    device: str
    text: str
    first_at: str
    last_at: str
    count: int
    error_type: str = ""
