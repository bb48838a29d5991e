"""Judged that are kept answer for what they were made from, and for nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generators.compatibility import verdict_cache
from generators.compatibility.judge import required_checks
from generators.compatibility.verdict_cache import Judged, judged_in
from generators.models.recipe import DERIVED
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence import modeling_files
from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine, to_dict
from hardware.evidence.versions import versions_of

HERE = detect()
CELL = Cell.parse("bert/fill-mask/cpu/float32")
CHECKS = required_checks(CELL)


def write_evidence(folder: Path) -> None:
    """One run of one cell, in which all checks pass."""
    folder.mkdir()
    plan = PlannedCell(cell_id=CELL.id, checks=CHECKS, suite="s.py", suite_hash="h", subject="tiny")
    run = RunLine(
        run_id="r",
        started_at="2026-01-01T00:00:00Z",
        command="",
        machine="lab-a",
        inventory={},
        versions=versions_of(HERE),
        plan=(plan,),
    )
    lines = [
        CheckLine(
            run_id="r",
            cell_id=CELL.id,
            check_name=check,
            outcome=Outcome.PASSED,
            subject="tiny",
            requested_target="cpu",
            actual_target="cpu",
            precision="float32",
            model="bert",
            task="fill-mask",
            suite_hash="h",
            started_at="2026-01-01T00:00:01Z",
            duration_s=0.1,
        )
        for check in CHECKS
    ]
    end = EndLine(run_id="r", ended_at="2026-01-01T00:00:02Z", reason="done", counts={})
    text = "".join(json.dumps(to_dict(line)) + "\n" for line in (run, *lines, end))
    (folder / "r-1.jsonl").write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Evidence of some cells, where any is worth keeping; modeling files are those of a library with one type."""
    models = tmp_path / "installed" / "models"
    (models / "bert").mkdir(parents=True)
    (models / "bert" / "modeling_bert.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(modeling_files, "_models", lambda library: models if library == "transformers" else None)
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verdict_cache, "_WORTH_KEEPING", 1)
    write_evidence(tmp_path / "evidence")
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


def test_the_same_question_is_answered_once(folder, asked):
    first = judged_in(folder, HERE)
    again = judged_in(folder, HERE)
    assert asked == [folder]
    assert first.measured
    assert first.devices["machine"]
    assert plain(again) == plain(first)


def changed_line(folder: Path) -> Any:
    path = next(folder.glob("*.jsonl"))
    path.write_text(path.read_text(encoding="utf-8").replace('"passed"', '"failed"', 1), encoding="utf-8")
    return HERE


def another_version(_folder: Path) -> Any:
    return replace(HERE, packages={**HERE.packages, "torch": "9.9.9"})


def derived_recipe(folder: Path) -> Any:
    recipes = folder.parent / "cache" / DERIVED
    recipes.mkdir(parents=True, exist_ok=True)
    (recipes / "new.json").write_text("{}", encoding="utf-8")
    return HERE


def broken_cache(folder: Path) -> Any:
    (kept,) = (folder.parent / "cache" / "verdicts").glob("*.json")
    said = json.loads(kept.read_text(encoding="utf-8"))
    said["devices"]["machine"] = {"lab-a": [10_000]}
    kept.write_text(json.dumps(said), encoding="utf-8")
    return HERE


def edited_modeling(folder: Path) -> Any:
    file = folder.parent / "installed" / "models" / "bert" / "modeling_bert.py"
    file.write_text("edited = True\n", encoding="utf-8")
    return HERE


@pytest.mark.parametrize("change", [changed_line, another_version, derived_recipe, edited_modeling, broken_cache])
def test_another_question_is_answered_anew(folder, asked, change):
    judged_in(folder, HERE)
    judged_in(folder, change(folder))
    assert asked == [folder, folder]


def half_a_line(folder: Path) -> None:
    with next(folder.glob("*.jsonl")).open("a", encoding="utf-8") as file:
        file.write('{"kind": "check"')


def dated_ahead(folder: Path) -> None:
    path = next(folder.glob("*.jsonl"))
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"started_at": "2026-', '"started_at": "2996-'), encoding="utf-8")


@pytest.mark.parametrize("spoil", [half_a_line, dated_ahead])
def test_what_has_more_to_it_is_not_kept(folder, asked, spoil):
    spoil(folder)
    judged_in(folder, HERE)
    judged_in(folder, HERE)
    assert asked == [folder, folder]
