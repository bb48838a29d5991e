"""Branches of the modeling code that suites enter, and settings of tiny models that enter more of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

FEW = 0.6
"""The share of branches under which a type needs a reason."""


def reasons_for_few() -> dict[str, list[str]]:
    """Return types whose suites enter few of their branches, by the reason."""
    text = Path(__file__).with_name("left_out.toml").read_text(encoding="utf-8")
    return {one["reason"]: one["types"] for one in tomllib.loads(text)["few"]}
