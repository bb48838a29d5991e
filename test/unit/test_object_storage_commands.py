"""Commands that publish evidence to object storage, and read it from there."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest
from front_doors import invoke
from made_runs import BERT, GPT2, a_run, write

from hardware.evidence.store import read_folder

PLACE, OTHER = "memory://lab/hwcompat", "memory://lab/other"


@pytest.fixture(autouse=True)
def bucket() -> Iterator[None]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield
    files.store.clear()


def test_what_was_published_is_read_from_there_by_each_command(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # reports go to the working directory
    folder, other, home = (tmp_path / name for name in ("own", "other", "home"))
    write(folder, a_run("20260105T000000Z-00000a", 5, BERT))
    write(folder, a_run("20260205T000000Z-00000b", 6, GPT2), broken=["backward"])
    write(other, a_run("20260301T000000Z-00000c", 7, GPT2))
    assert invoke("evidence", "publish", PLACE, "--evidence", folder).code == 0
    assert invoke("evidence", "publish", OTHER, "--evidence", other).code == 0
    done = invoke("report", "--evidence", PLACE, "--format", "json")
    assert done.code == 1
    assert {one["cell"] for one in done.document["verdicts"]} == {BERT, GPT2}
    assert "memory://lab/hwcompat: 4 object(s), 4 copied now" in done.err
    for command in ("matrix", "coverage"):
        done = invoke(command, "--evidence", PLACE, "--format", "json")
        assert "4 object(s)" in done.err
        assert "bert" in done.out
    done = invoke("compare", PLACE, OTHER, "--format", "json")
    assert done.code in (0, 1)
    assert GPT2 in done.out
    assert invoke("evidence", "merge", PLACE, "--evidence", home).code == 0
    assert len(read_folder(home).checks) == len(read_folder(folder).checks)
    done = invoke("report", "--evidence", f"file://{folder}", "--format", "json")
    assert done.code == 1
    assert "object(s)" not in done.err, "it is the folder itself"


def test_a_folder_is_no_place_to_publish_to(tmp_path) -> None:
    for place in (tmp_path, f"file://{tmp_path}"):
        done = invoke("evidence", "publish", place, "--evidence", tmp_path)
        assert done.code == 4
        assert "evidence merge HERE" in done.err
