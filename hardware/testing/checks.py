"""The checks of a suite, selected by the task and by what the target can do, from `checks.toml` alone."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("checks.toml")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check: its name (the test function without `test_`), what it shows, and what it requires."""

    name: str
    says: str
    core: bool = False
    compares: bool = False
    needs_mask: bool = False
    needs_cache: bool = False
    can: tuple[str, ...] = ()
    generates: tuple[str, ...] = ("none", "causal", "seq2seq")
    not_for: tuple[str, ...] = ()
    in_recipe: bool = False
    in_float64: bool = False
    precisions: tuple[str, ...] = ()


@functools.cache
def all_checks() -> tuple[Check, ...]:
    """Return all checks in the order of a suite."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["check"]
    return tuple(_check(entry) for entry in entries)


def _check(entry: dict[str, Any]) -> Check:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    return Check(**values)


def applicable_checks(
    *,
    generates: str,
    has_mask: bool,
    has_cache: bool,
    can: frozenset[str],
    task: str = "",
    in_recipe: Collection[str] = (),
    precision: str = "float32",
) -> tuple[Check, ...]:
    """Return the checks for a `task` that decodes in the way `generates`, on a target with the abilities `can`.
    `in_recipe` names the checks for which the model's recipe has arguments."""
    return tuple(
        check
        for check in all_checks()
        if generates in check.generates
        and (has_mask or not check.needs_mask)
        and (has_cache or not check.needs_cache)
        and set(check.can) <= can
        and task not in check.not_for
        and (check.name in in_recipe or not check.in_recipe)
        and (precision in check.precisions or not check.precisions)
    )


@functools.cache
def comparing_checks() -> frozenset[str]:
    """Return the names of the checks that compare an error with a tolerance."""
    return frozenset(check.name for check in all_checks() if check.compares)


@functools.cache
def core_checks() -> frozenset[str]:
    """Return the names of the checks without which a cell doesn't work at all."""
    return frozenset(check.name for check in all_checks() if check.core)


@functools.cache
def reference_checks() -> frozenset[str]:
    """Return the names of the checks that compute in float64 on the CPU alone."""
    return frozenset(check.name for check in all_checks() if check.in_float64)


@functools.cache
def call_checks() -> frozenset[str]:
    """Return the names of the checks that apply to models whose recipe has arguments for them."""
    return frozenset(check.name for check in all_checks() if check.in_recipe)
