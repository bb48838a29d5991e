"""Profiles: shares of samples in py-spy's format, and a page that tells of every action."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.profiles import KEPT, Action, actions, from_py_spy, page, profile

RAW = (
    'process 1:"a b";<module> (run.py:3);open_door.<locals>.run (hardware/door.py:37);warm (hardware/warm.py:1) 6\n'
    'process 1:"a b";<module> (run.py:3);warm (hardware/warm.py:1);warm (hardware/warm.py:9) 2\n'
    "<module> (run.py:4) 2\n"
)


def test_a_share_counts_a_sample_once_however_often_the_function_stands_in_it() -> None:
    found = from_py_spy(RAW)
    assert found.share("warm", "hardware/warm.py") == pytest.approx(0.8)
    assert found.share("run", "hardware/door.py") == pytest.approx(0.6)
    assert found.share("warm", "another.py") == 0
    assert from_py_spy("").share("warm", "warm.py") == 0


def test_a_profiler_that_is_not_there_is_no_profile(tmp_path: Path) -> None:
    action = Action(command="-c pass")
    with pytest.raises(OSError, match="py-spy"):
        profile(action, tmp_path, tmp_path)


def test_the_page_is_made_from_what_was_kept_and_tells_why_of_each() -> None:
    told = json.loads(KEPT.read_text(encoding="utf-8"))
    profiled, others = actions()
    assert len(profiled) >= 5
    assert all(one.why and one.cost and one.became for one in profiled)
    assert {one.name for one in profiled} | {one.command for one in others} == set(told["actions"])
    text = page(told, profiled, others)
    for one in profiled:
        assert f"`{one.command}`" in text
        assert one.why in text
    kept = KEPT.parents[1] / "PROFILES.md"
    assert kept.read_text(encoding="utf-8") == text


def test_no_other_took_more_processor_time_than_those_that_were_profiled() -> None:
    found = json.loads(KEPT.read_text(encoding="utf-8"))["actions"]
    profiled, others = actions()
    least = min(found[one.name]["now"]["processor_s"] for one in profiled)
    assert all(found[one.command]["now"]["processor_s"] < least for one in others)
