"""Commands that publish evidence to object storage, and read it from there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import fsspec
import pytest
from front_doors import reporter
from made_runs import BERT, GPT2, a_run, write

import run_test_generation
from hardware.command_line import run_command_line
from hardware.evidence.store import read_folder

PLACE, OTHER = "memory://lab/hwcompat", "memory://lab/other"


@pytest.fixture(autouse=True)
def bucket() -> Iterator[None]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield
    files.store.clear()


def door(*words: object) -> int:
    return int(reporter.main([str(word) for word in words]))


def test_what_was_published_is_read_from_there_by_each_command(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # reports go to the working directory
    folder, other, home = (tmp_path / name for name in ("own", "other", "home"))
    write(folder, a_run("20260105T000000Z-00000a", 5, BERT))
    write(folder, a_run("20260205T000000Z-00000b", 6, GPT2), broken=["backward"])
    write(other, a_run("20260301T000000Z-00000c", 7, GPT2))
    assert door("--evidence", folder, "--publish", PLACE) == 0
    assert door("--evidence", other, "--publish", OTHER) == 0
    capsys.readouterr()
    assert door("--collect-all", "--evidence", PLACE, "--format", "json") == 1
    out, err = capsys.readouterr()
    assert {one["cell"] for one in json.loads(out)["verdicts"]} == {BERT, GPT2}
    assert "memory://lab/hwcompat: 4 object(s), 4 copied now" in err
    for job in ("--hardware-compatibility", "--coverage-report"):
        run_command_line(run_test_generation.main, [job, "--evidence", PLACE, "--format", "json"], program="x")
        out, err = capsys.readouterr()
        assert "4 object(s)" in err
        assert "bert" in out
    assert door("--compare", PLACE, OTHER, "--format", "json") in (0, 1)
    assert GPT2 in capsys.readouterr().out
    assert door("--merge", PLACE, "--evidence", home) == 0
    assert len(read_folder(home).checks) == len(read_folder(folder).checks)
    capsys.readouterr()
    assert door("--collect-all", "--evidence", f"file://{folder}", "--format", "json") == 1
    assert "object(s)" not in capsys.readouterr().err, "it is the folder itself"


def test_what_lies_there_is_not_changed_and_a_folder_is_no_place_to_publish_to(tmp_path, capsys) -> None:
    for words in (["--compact"], ["--merge", tmp_path]):
        assert door(*words, "--evidence", PLACE) == 4
        assert "nothing is done to the evidence in memory://lab/hwcompat" in capsys.readouterr().err
    for place in (tmp_path, f"file://{tmp_path}"):
        assert door("--evidence", tmp_path, "--publish", place) == 4
        assert "--merge HERE" in capsys.readouterr().err
