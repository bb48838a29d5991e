"""Files that are written whole, marked as in use, and removed with the folder of the work."""

from __future__ import annotations

import os

import pytest

from hardware.files import is_in_use, mark_in_use, one_at_a_time, work_folder, write_whole


def test_a_file_is_replaced_in_one_step_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "before")
    with path.open() as reading:
        write_whole(path, "after")
        assert reading.read() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, "before")

    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_in_use_until_it_is_closed(tmp_path):
    path = tmp_path / "file"
    assert not is_in_use(path)
    path.touch()
    assert not is_in_use(path)
    with path.open("ab") as file, path.open("ab") as other:
        mark_in_use(file.fileno())
        mark_in_use(other.fileno())
        assert is_in_use(path)
    assert not is_in_use(path)


def test_a_folder_of_work_is_removed_after_its_block(tmp_path):
    with work_folder(tmp_path, "work-") as folder:
        (folder / "half").write_text("half")
        assert folder.name.startswith("work-")
    with one_at_a_time(tmp_path):
        assert not folder.exists()
