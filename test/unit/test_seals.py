"""Seals: what was changed after its run had ended isn't read, by whichever way somebody reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import BERT, a_run, lines_of

from hardware.errors import BrokenInput
from hardware.evidence.compacted import compact
from hardware.evidence.merge import merge_evidence
from hardware.evidence.record import RunLine, to_dict
from hardware.evidence.seals import CHANGED, altered_files
from hardware.evidence.store import read_folder, read_run
from hardware.evidence.table import EvidenceTable
from hardware.evidence.writer import EvidenceWriter

RUN, LATER = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"


def child_file(folder: Path, run: RunLine) -> Path:
    """What a child wrote: a writer names its file after its process, and here there is one process only."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{run.run_id}-1.jsonl"
    path.write_text("".join(json.dumps(to_dict(line)) + "\n" for line in lines_of(run)), encoding="utf-8")
    return path


def parent_file(folder: Path, run: RunLine, *, ended: bool = True) -> Path:
    writer = EvidenceWriter(folder, run.run_id)
    writer.write(run)
    if ended:
        writer.end("finished", {"passed": 4}, run.resumes)
    writer.close()
    return writer.path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run in two files."""
    run = a_run(RUN, 1)
    child_file(tmp_path / "evidence", run)
    parent_file(tmp_path / "evidence", run)
    return tmp_path / "evidence"


def test_what_nobody_touched_is_as_it_was_sealed(folder):
    assert altered_files(sorted(folder.iterdir())) == {}
    assert len(read_folder(folder).checks) == 4
    assert read_folder(folder).broken == ()


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace('"outcome": "passed"', '"outcome": "failed"', 1))


def add(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[-1]]))


def remove(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def reorder(path: Path) -> None:
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))


CHANGES = {"edited": edit, "grown": add, "shorter": remove, "cut off": cut, "in another order": reorder}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_no_line_of_a_changed_file_is_read_in_any_way(folder: Path, change: Callable[[Path], None]):
    path = folder / f"{RUN}-1.jsonl"
    change(path)
    assert altered_files(sorted(folder.iterdir())) == {path: CHANGED}
    for evidence in (read_folder(folder), read_run(folder, RUN)):
        assert evidence.checks == ()
        assert [(line.file, line.reason) for line in evidence.broken] == [(path.name, CHANGED)]
    with EvidenceTable(folder) as table:
        assert table.connection.execute("SELECT count(*) FROM checks").fetchall() == [(0,)]
        assert [(line.file, line.reason) for line in table.broken] == [(path.name, CHANGED)]
    assert dict(compact(folder).left) == {path.name: CHANGED}
    assert path.is_file()


def test_a_run_line_that_was_changed_takes_its_plan_along(folder):
    (parent,) = (path for path in folder.iterdir() if path.name != f"{RUN}-1.jsonl")
    parent.write_text(parent.read_text().replace('"torch": "2.13.0"', '"torch": "2.14.0"'))
    assert altered_files(sorted(folder.iterdir())) == {parent: CHANGED}
    assert read_folder(folder).runs == ()


def test_evidence_that_was_changed_on_its_way_isn_t_taken(folder, tmp_path):
    edit(folder / f"{RUN}-1.jsonl")
    with pytest.raises(BrokenInput, match=f"{RUN}-1.jsonl.* is refused"):
        merge_evidence(folder, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_run_that_goes_on_seals_what_the_one_before_left(tmp_path):
    killed, later = a_run(RUN, 1), a_run(LATER, 2, resumes=(RUN,))
    path = child_file(tmp_path, killed)
    parent_file(tmp_path, killed, ended=False)
    edit(path)
    assert altered_files(sorted(tmp_path.iterdir())) == {}, "a run without an end seals nothing"
    parent_file(tmp_path, later)
    assert altered_files(sorted(tmp_path.iterdir())) == {}, "it was so when it was sealed"
    edit(path)
    assert altered_files(sorted(tmp_path.iterdir())) == {path: CHANGED}


def test_a_seal_of_a_long_run_is_found_whole(tmp_path):
    run = a_run(RUN, 1)
    writer = EvidenceWriter(tmp_path, RUN)
    writer.write(run)
    for number in range(12_000):  # more than a piece that is read at once
        (tmp_path / f"{RUN}-{10_000_000 + number}.jsonl").touch()
    path = child_file(tmp_path, run)
    writer.end("finished", {})
    writer.close()
    assert writer.path.stat().st_size > 1 << 20
    edit(path)
    assert altered_files([path, writer.path]) == {path: CHANGED}


def test_what_ended_before_there_were_seals_counts_as_before(tmp_path):
    run = a_run(RUN, 1)
    child_file(tmp_path, run)
    path = parent_file(tmp_path, run)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1].pop("files")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    evidence = read_folder(tmp_path)
    assert evidence.broken == ()
    assert {line.cell_id for line in evidence.checks} == {BERT}


def test_what_a_killed_process_of_the_same_number_left_is_sealed_too(tmp_path):
    run = a_run(RUN, 1)
    writer = EvidenceWriter(tmp_path, RUN)
    writer.write(run)
    writer.close()
    with writer.path.open("ab") as file:
        file.write(b'{"kind": "check", "run_')
    again = EvidenceWriter(tmp_path, RUN)
    again.end("finished", {})
    again.close()
    assert altered_files([writer.path]) == {}
    assert [line.number for line in read_folder(tmp_path).broken] == [2]
    assert [end.run_id for end in read_folder(tmp_path).ends] == [RUN]


def test_a_run_that_was_resumed_while_it_went_on_is_sealed_by_itself_alone(tmp_path):
    run, later = a_run(RUN, 1), a_run(LATER, 2, resumes=(RUN,))
    going_on = EvidenceWriter(tmp_path, RUN)
    going_on.write(run)
    parent_file(tmp_path, later)
    sealed = [line for line in read_folder(tmp_path).ends if line.run_id == LATER]
    assert [sorted(end.files) for end in sealed] == [[f"{LATER}-{os.getpid()}.jsonl"]]
    child_file(tmp_path, run)  # written after the later run had ended
    going_on.end("finished", {"passed": 4})
    going_on.close()
    assert altered_files(sorted(tmp_path.iterdir())) == {}
    assert len(read_folder(tmp_path).checks) == 4
