"""Verdicts that are kept answer for what they were made from, and for nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_lines import BERT, check_line, planned_cell, run_line, write_lines

from generators.compatibility import verdict_cache
from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict_cache import Judged, judged_in
from generators.models.recipe import DERIVED
from hardware.cell import Cell
from hardware.detection import HardwareInfo, detect
from hardware.evidence import modeling_files
from hardware.evidence.record import EndLine
from hardware.evidence.versions import versions_of


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return detect()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: HardwareInfo) -> Path:
    """One run in which all checks pass, worth keeping; modeling files are those of a library with one type."""
    (tmp_path / "models" / "bert").mkdir(parents=True)
    (tmp_path / "models" / "bert" / "modeling_bert.py").touch()
    own = {"transformers": tmp_path / "models"}
    monkeypatch.setattr(modeling_files, "_models", own.get)
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verdict_cache, "_MIN_RESULTS", 1)
    checks = required_checks(Cell.parse(BERT))
    run = run_line(planned_cell(BERT, checks), versions=versions_of(here))
    end = EndLine(run_id="r1", ended_at="2026-01-01T00:00:02Z", reason="done", counts={})
    write_lines(tmp_path / "evidence" / "r1-1.jsonl", run, *map(check_line, checks), end)
    return tmp_path / "evidence"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were judged anew."""
    found: list[Path] = []
    read = verdict_cache.read_latest

    def noted(folder: Path) -> Any:
        found.append(folder)
        return read(folder)

    monkeypatch.setattr(verdict_cache, "read_latest", noted)
    return found


def plain(found: Judged) -> Any:
    views = {
        view: {name: [one.to_dict() for one in verdicts] for name, verdicts in by_name.items()}
        for view, by_name in found.devices.items()
    }
    return [one.to_dict() for one in found.measured], views


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def broken_cache(folder: Path) -> None:
    (kept,) = (folder.parent / "cache" / "verdicts").glob("*.json")
    known = json.loads(kept.read_text(encoding="utf-8"))
    known["devices"]["machine"] = {"lab": [10_000]}
    kept.write_text(json.dumps(known), encoding="utf-8")


def derived_recipe(folder: Path) -> None:
    recipes = folder.parent / "cache" / DERIVED
    recipes.mkdir(parents=True, exist_ok=True)
    (recipes / "new.json").write_text("{}", encoding="utf-8")


def edited_modeling(folder: Path) -> None:
    (folder.parent / "models" / "bert" / "modeling_bert.py").write_text("edited = True\n", encoding="utf-8")


def changed_line(folder: Path) -> None:
    replaced(folder / "r1-1.jsonl", '"outcome": "passed"', '"outcome": "failed"')


def test_the_same_question_is_answered_once_and_another_one_anew(folder, asked, here) -> None:
    first = judged_in(folder, here)
    assert first.measured
    assert first.devices["machine"]
    changes: list[Callable[[Path], None]] = [broken_cache, derived_recipe, edited_modeling, changed_line]
    for number, change in enumerate(changes, start=1):
        assert plain(judged_in(folder, here)) == plain(first)
        assert len(asked) == number
        change(folder)
        first = judged_in(folder, here)
        assert len(asked) == number + 1, change.__name__
    judged_in(folder, replace(here, packages={**here.packages, "torch": "9.9.9"}))
    assert len(asked) == len(changes) + 2


def test_what_is_dated_ahead_or_only_half_a_line_is_not_kept(folder, asked, here) -> None:
    path = folder / "r1-1.jsonl"
    whole = path.read_text(encoding="utf-8")
    for text in (whole + '{"kind": "check"', whole.replace('"started_at": "2026-', '"started_at": "2996-')):
        path.write_text(text, encoding="utf-8")
        asked.clear()
        for _ in range(2):
            judged_in(folder, here)
        assert asked == [folder, folder]
