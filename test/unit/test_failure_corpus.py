"""The rules by which labeled failures and public reports are split into halves."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from benchmarks.failures import FOLDER, HELD_OUT, SEEN, read

REPORTS = FOLDER.parent / "reports"
BEFORE_THE_SPLIT = 12
"""Repositories that were looked at before the reports were split."""


def reports(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (REPORTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def number_of(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


@pytest.mark.parametrize(("half", "remainder"), [(SEEN, 0), (HELD_OUT, 1)])
def test_failures_of_one_cause_are_in_one_half(half: str, remainder: int) -> None:
    assert {number_of(one.label.group) % 2 for one in read(half)} == {remainder}


def test_no_repository_is_on_both_sides_of_the_reports() -> None:
    halves = {name: {one["repository"].lower() for one in reports(name)} for name in ("train", "tune", "test")}
    shares = {name: {one: number_of(one) % 100 for one in found} for name, found in halves.items()}
    assert all(share < 35 for share in shares["test"].values())
    assert all(35 <= share < 47 for share in shares["tune"].values())
    assert sum(share < 35 for share in shares["train"].values()) <= BEFORE_THE_SPLIT
    assert not halves["test"] & (halves["train"] | halves["tune"])
    assert len(reports("test")) >= 250
    assert all("second" in one for one in reports("test"))
    every = [one["url"] for name in halves for one in reports(name)]
    assert len(every) == len(set(every))
