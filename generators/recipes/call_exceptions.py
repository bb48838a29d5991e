"""Read `call_exceptions.toml`: the types that a check of calls doesn't apply to."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("call_exceptions.toml")


@dataclass(frozen=True, kw_only=True)
class CallException:
    """Types that a check doesn't apply to, because their mathematics doesn't have the relation."""

    types: tuple[str, ...]
    check: str
    reason: str


@functools.cache
def call_exceptions() -> tuple[CallException, ...]:
    """Return the entries of `call_exceptions.toml`."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["exception"]
    return tuple(CallException(**{**one, "types": tuple(one["types"])}) for one in entries)


def exceptions_of(model_type: str, task: str) -> tuple[CallException, ...]:
    """Return the entries of a type, or of one of its tasks (`type@task`)."""
    names = {model_type, f"{model_type}@{task}"}
    return tuple(one for one in call_exceptions() if names & set(one.types))
