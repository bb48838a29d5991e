"""The lock is written line by line: what a person wrote stays, and nothing that wasn't measured gets in."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest
from test_project_outcome import line

from generators.compatibility.verdict import Basis, Level, Verdict
from generators.project.lock import levels_to_lock, update_expected, with_expected
from generators.project.project_outcome import CellRun, judge_project
from generators.project.project_reader import parse_project, read_project
from hardware.errors import OutputError, UsageError
from reports.reason_text import reason_text

CPU, CUDA, OTHER = "bert/fill-mask/cpu/float32", "bert/fill-mask/cuda/float32", "vit/image-classification/cpu/float32"
TEXT = f"""\
# ours
schema_version = 1

[[model]]
name = "bert"

[expected]  # the lock
"{CPU}" = "high"  # since May
'{CUDA}' = 'none'

[[tolerance]]  # after it
cells = "*"
limit = 1e-4
reason = "x"
"""
PATH = Path("hwcompat.toml")


def verdict(cell: str, level: str = "high", basis: str = "measured") -> CellRun:
    return CellRun(
        verdict=Verdict(cell=cell, level=Level(level), basis=Basis(basis), evidence_ids=(f"run1/{cell}/builds",)),
        lines=(line("builds", cell=cell),),
    )


def test_levels_change_in_their_lines_and_new_cells_come_last():
    change = with_expected(TEXT, PATH, {CPU: Level.MEDIUM, CUDA: Level.UNSUPPORTED, OTHER: Level.LOW})
    assert (
        f'"{CPU}" = "medium"  # since May\n\'{CUDA}\' = \'none\'\n"{OTHER}" = "low"\n\n[[tolerance]]' in change.text
    )
    assert change.text.replace('"medium"', '"high"').replace(f'"{OTHER}" = "low"\n', "") == TEXT
    assert change.changes == (f"{CPU}: high -> medium", f'"{OTHER}" = "low" is new')


def test_nothing_new_is_nothing_written():
    change = with_expected(TEXT, PATH, {CPU: Level.HIGH})
    assert (change.text, change.changes) == (TEXT, ())


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_without_a_lock_gets_one(newline):
    text = f'schema_version = 1{newline}[[model]]{newline}name = "bert"'
    change = with_expected(text, PATH, {CPU: Level.HIGH})
    assert change.text == f'{text}{newline}{newline}[expected]{newline}"{CPU}" = "high"{newline}'
    assert parse_project(change.text, PATH).expected[CPU].level is Level.HIGH


@pytest.mark.parametrize("lock", ["expected = {%s}", "expected.%s"])
def test_a_lock_that_is_not_written_line_by_line_is_left_to_the_person(lock):
    entry = f'"{CPU}" = "high"'
    text = f'schema_version = 1\n{lock % entry}\n[[model]]\nname = "bert"\n'
    with pytest.raises(UsageError, match="one a line"):
        with_expected(text, PATH, {OTHER: Level.HIGH})


def test_only_what_was_measured_is_locked():
    runs = {
        CPU: verdict(CPU),
        CUDA: verdict(CUDA, "unknown"),
        OTHER: verdict(OTHER, "high", "expired"),
    }
    assert levels_to_lock(runs, {}) == {CPU: Level.HIGH}


def test_what_was_locked_is_met_by_the_same_results(tmp_path):
    path = tmp_path / "hwcompat.toml"
    path.write_text(TEXT)
    os.chmod(path, 0o640)
    runs = {CPU: verdict(CPU, "medium"), CUDA: verdict(CUDA, "low")}
    assert judge_project(read_project(path), runs, date(2026, 1, 1), words=reason_text).exit_code == 1
    assert len(update_expected(path, levels_to_lock(runs, {}))) == 2
    assert judge_project(read_project(path), runs, date(2026, 1, 1), words=reason_text).exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["hwcompat.toml"]


def test_a_link_to_the_file_stays_a_link(tmp_path):
    real, link = tmp_path / "real.toml", tmp_path / "hwcompat.toml"
    real.write_text(TEXT)
    link.symlink_to(real)
    update_expected(link, {CPU: Level.LOW})
    assert link.is_symlink()
    assert read_project(real).expected[CPU].level is Level.LOW


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error_for_users(tmp_path):
    path = tmp_path / "hwcompat.toml"
    path.write_text(TEXT)
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot be written"):
        update_expected(path, {CPU: Level.LOW})
