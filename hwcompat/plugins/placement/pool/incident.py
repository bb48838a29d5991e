"""`Incident`: something about a pool that a report should tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Incident:
    """`kind` is `low_memory`, `memory_pressure` or `failed_load`; moments are ISO 8601 in UTC.

    Of a failure `error` is the class and its message, `error_type` what is known of it, `model` whose it is.
    Texts may quote what others wrote.
    """

    kind: str
    device: str
    text: str
    first_at: str
    last_at: str
    count: int
    error: str = ""
    error_type: str = ""
    model: str = ""
