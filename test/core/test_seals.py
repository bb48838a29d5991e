"""Seals: what was changed after its run ended isn't read, by whichever way somebody reads it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_lines import write_lines
from made_runs import BERT, GPT2, a_run, lines_of

from generators.compatibility.judge import is_final, judge
from hardware.detection import detect
from hardware.errors import BrokenInput
from hardware.evidence.compacted import compact
from hardware.evidence.evidence_table import EvidenceTable
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.record import EndLine, RunLine
from hardware.evidence.seals import ADDED, CHANGED, MISSING, digests, examine
from hardware.evidence.store import read_folder, read_run
from hardware.evidence.writer import EvidenceWriter

RUN, LATER = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"


def child_file(folder: Path, run: RunLine, broken: Sequence[str] = ()) -> Path:
    """Write what a child writes: a writer names its file after its process, and here there is one process only."""
    path = folder / f"{run.run_id}-1.jsonl"
    write_lines(path, *lines_of(run, broken))
    return path


def parent_file(folder: Path, run: RunLine, *, ended: bool = True) -> Path:
    writer = EvidenceWriter(folder, run.run_id)
    writer.write(run)
    if ended:
        writer.end("finished", {"passed": 4}, run.resumes)
    writer.close()
    return writer.path


def refused(folder: Path) -> dict[str, str]:
    """Return the files of a folder of which no line counts, with the reason."""
    return examine({path.name: path for path in folder.iterdir()}).refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run in two files."""
    run = a_run(RUN, 1)
    child_file(tmp_path / "evidence", run)
    parent_file(tmp_path / "evidence", run)
    return tmp_path / "evidence"


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace('"outcome": "passed"', '"outcome": "failed"', 1))


def test_no_line_of_a_changed_file_is_read_in_any_way(folder: Path, tmp_path: Path) -> None:
    path = folder / f"{RUN}-1.jsonl"
    whole = path.read_bytes()
    assert refused(folder) == {}
    assert (len(read_folder(folder).checks), read_folder(folder).broken) == (4, ())
    lines = whole.splitlines(keepends=True)
    edited = whole.replace(b'"outcome": "passed"', b'"outcome": "failed"', 1)
    grown, shorter, reordered = b"".join([*lines, lines[-1]]), b"".join(lines[:-1]), b"".join(reversed(lines))
    for data in (grown, shorter, whole[:-7], reordered, edited):
        path.write_bytes(data)
        assert refused(folder) == {path.name: CHANGED}
        for evidence in (read_folder(folder), read_run(folder, RUN)):
            assert evidence.checks == ()
            assert [(line.file, line.reason) for line in evidence.broken] == [(path.name, CHANGED)]
    with EvidenceTable(folder) as table:
        assert table.connection.execute("SELECT count(*) FROM checks").fetchall() == [(0,)]
        assert [(line.file, line.reason) for line in table.broken] == [(path.name, CHANGED)]
    with pytest.raises(BrokenInput, match=f"{RUN}-1.jsonl.* is refused"):
        merge_evidence(folder, tmp_path / "home")
    assert not (tmp_path / "home").exists()
    left = dict(compact(folder).left)
    assert left.pop(path.name) == CHANGED
    assert all("another file of its run was changed" in why for why in left.values())
    assert read_latest(folder).damaged == {BERT: (RUN,)}, "what tells of the change isn't packed away"


def test_a_run_line_that_was_changed_takes_its_plan_along(folder: Path) -> None:
    (parent,) = (path for path in folder.iterdir() if path.name != f"{RUN}-1.jsonl")
    parent.write_text(parent.read_text().replace('"torch": "2.13.0"', '"torch": "2.14.0"'))
    assert refused(folder) == {parent.name: CHANGED}
    assert read_folder(folder).runs == ()


def test_a_run_that_goes_on_seals_what_the_one_before_left(tmp_path: Path) -> None:
    killed, later = a_run(RUN, 1), a_run(LATER, 2, GPT2, resumes=(RUN,))
    path = child_file(tmp_path, killed)
    parent_file(tmp_path, killed, ended=False)
    edit(path)
    assert refused(tmp_path) == {}, "a run without an end seals nothing"
    parent_file(tmp_path, later)
    assert refused(tmp_path) == {}, "it was so when it was sealed"
    added = tmp_path / f"{RUN}-99999.jsonl"
    shutil.copy(path, added)
    assert refused(tmp_path) == {added.name: ADDED}
    edit(path)
    assert refused(tmp_path) == {added.name: ADDED, path.name: CHANGED}
    path.unlink()
    assert reasons(tmp_path) == {(added.name, ADDED), (path.name, MISSING)}
    added.unlink()
    compact(tmp_path)
    assert read_latest(tmp_path).damaged == {BERT: (RUN,)}


def test_a_seal_of_a_long_run_is_found_whole(tmp_path: Path) -> None:
    run = a_run(RUN, 1)
    path, parent = child_file(tmp_path, run), parent_file(tmp_path, run)
    first, end = parent.read_text().splitlines()
    sealed = json.loads(end)
    others = {f"{RUN}-{10_000_000 + number}.jsonl": "0" * 64 for number in range(12_000)}
    parent.write_text(f"{first}\n{json.dumps(sealed | {'files': others | sealed['files']})}\n")
    assert parent.stat().st_size > 1 << 20, "it is more than what is read at once"
    edit(path)
    found = refused(tmp_path)
    assert found[path.name] == CHANGED


def test_what_ended_before_there_were_seals_counts_as_before(tmp_path: Path) -> None:
    run = a_run(RUN, 1)
    child_file(tmp_path, run)
    write_lines(tmp_path / f"{RUN}-2.jsonl", run, EndLine(run_id=RUN, ended_at="2026-01-02", reason="", counts={}))
    evidence = read_folder(tmp_path)
    assert evidence.broken == ()
    assert {line.cell_id for line in evidence.checks} == {BERT}


def test_what_a_killed_process_of_the_same_number_left_is_sealed_too(tmp_path: Path) -> None:
    path = parent_file(tmp_path, a_run(RUN, 1), ended=False)
    with path.open("ab") as file:
        file.write(b'{"kind": "check", "run_')
    again = EvidenceWriter(tmp_path, RUN)
    again.end("finished", {})
    again.close()
    assert refused(tmp_path) == {}
    assert [line.number for line in read_folder(tmp_path).broken] == [2]
    assert [end.run_id for end in read_folder(tmp_path).ends] == [RUN]


def test_a_run_that_was_resumed_while_it_went_on_is_sealed_by_itself_alone(tmp_path: Path) -> None:
    run, later = a_run(RUN, 1), a_run(LATER, 2, resumes=(RUN,))
    going_on = EvidenceWriter(tmp_path, RUN)
    going_on.write(run)
    parent_file(tmp_path, later)
    sealed = [line for line in read_folder(tmp_path).ends if line.run_id == LATER]
    assert [sorted(end.files) for end in sealed] == [[f"{LATER}-{os.getpid()}.jsonl"]]
    child_file(tmp_path, run)  # written after the later run had ended
    going_on.end("finished", {"passed": 4})
    going_on.close()
    assert refused(tmp_path) == {}
    assert len(read_folder(tmp_path).checks) == 4


def test_a_run_that_goes_on_may_write_more_files(tmp_path: Path) -> None:
    run = a_run(RUN, 1)
    parent_file(tmp_path, run, ended=False)
    for number in (1, 2):
        child_file(tmp_path, run).rename(tmp_path / f"{RUN}-{number}0.jsonl")
        assert reasons(tmp_path) == set()


# A later run that failed, and was damaged: an older pass must not count again.


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A run that passed, and a later one that failed, each in two files and sealed."""
    for run_id, day, broken in ((RUN, 1, ()), (LATER, 2, ("matches_reference",))):
        run = a_run(run_id, day)
        child_file(tmp_path, run, broken)
        parent_file(tmp_path, run)
    return tmp_path


def judged(folder: Path) -> str:
    """Return the level of the cell, or `damaged` if its evidence is."""
    latest = read_latest(folder)
    (verdict,) = judge(latest, detect(), cells=[BERT])
    if verdict.reasons[0].code != "evidence_damaged":
        return str(verdict.level)
    assert is_final(verdict)
    assert {(line.file, line.reason) for line in latest.broken} == reasons(folder)
    return "damaged"


def reasons(folder: Path) -> set[tuple[str, str]]:
    return {(line.file, line.reason) for line in read_folder(folder).broken}


def test_a_damaged_failing_run_lets_no_older_pass_count(two: Path) -> None:
    assert judged(two) == "unsupported"
    path = two / f"{LATER}-1.jsonl"
    whole = path.read_bytes()
    edited = whole.replace(b'"outcome": "failed"', b'"outcome": "passed"', 1)
    for data, reason in ((whole + b"\n", CHANGED), (b"", MISSING), (edited, CHANGED), (None, MISSING)):
        path.unlink() if data is None else path.write_bytes(data)
        assert reasons(two) == {(path.name, reason)}
        assert data not in (edited, None) or judged(two) == "damaged"
    compact(two)  # the older run is packed, and what is left tells of the damage
    assert judged(two) == "damaged"
    path.write_bytes(whole)
    assert judged(two) == "unsupported"


def test_neither_an_earlier_date_nor_a_second_end_clears_a_damaged_run(two: Path) -> None:
    path = two / f"{LATER}-1.jsonl"
    path.unlink()
    (parent,) = two.glob(f"{LATER}-*.jsonl")
    sealed = parent.read_text()
    *before, end = sealed.splitlines(keepends=True)
    parent.write_text("".join([*before, json.dumps(json.loads(end) | {"ended_at": "1970-01-01"}) + "\n"]))
    assert judged(two) == "damaged"
    parent.write_text(sealed)
    write_lines(path, lines_of(a_run(LATER, 2))[1])
    false = EndLine(run_id=LATER, ended_at="2026-01-02", reason="finished", counts={}, files=digests(two, [LATER]))
    write_lines(two / f"{LATER}-99999.jsonl", false)
    assert judged(two) == "damaged"


def test_a_line_elsewhere_of_a_run_whose_files_are_refused_is_broken(two: Path) -> None:
    edit(two / f"{LATER}-1.jsonl")
    write_lines(two / "more.jsonl", lines_of(a_run(LATER, 2))[1])
    assert {name for name, _ in reasons(two)} == {"more.jsonl", f"{LATER}-1.jsonl"}
    assert judged(two) == "damaged"


def test_a_later_whole_run_of_the_same_machine_settles_what_is_damaged(two: Path) -> None:
    (two / f"{LATER}-1.jsonl").unlink()
    end = max(read_folder(two).ends, key=lambda one: one.ended_at)
    for run_id, machine, settled in (
        ("20260103T000000Z-cccccc", "another", False),
        ("20260104T000000Z-dddddd", "desk", True),
    ):
        run = replace(a_run(run_id, 3), machine=machine, started_at=end.ended_at + "0")
        child_file(two, run)
        assert judged(two) == "damaged", "the run line with its plan is still to come"
        parent_file(two, run, ended=False)
        assert (judged(two) != "damaged") is settled


def test_a_cell_that_only_the_damaged_file_names_is_unknown(two: Path) -> None:
    for path in two.glob(f"{RUN}-*.jsonl"):
        path.unlink()
    (two / f"{LATER}-1.jsonl").unlink()
    (parent,) = two.glob("*.jsonl")
    parent.write_text(parent.read_text().replace('"torch": "2.13.0"', '"torch": "2.14.0"'))
    assert judged(two) == "damaged"


def test_an_end_says_nothing_of_runs_that_its_own_did_not_resume(two: Path) -> None:
    other = a_run("20260105T000000Z-eeeeee", 5, GPT2)
    files = {f"{LATER}-1.jsonl": "0" * 64}
    end = EndLine(run_id=other.run_id, ended_at="2026-01-05", reason="finished", counts={}, files=files)
    write_lines(two / f"{other.run_id}-1.jsonl", other, end)
    write_lines(two / "20260106T000000Z-ffffff-1.jsonl", replace(end, run_id=LATER))  # not of the file's own run
    assert judged(two) == "unsupported"


def test_a_file_that_was_added_after_the_end_counts_for_nothing(tmp_path: Path) -> None:
    folder, run = tmp_path / "evidence", a_run(RUN, 1)
    *lines, missing = lines_of(run)
    write_lines(folder / f"{RUN}-1.jsonl", *lines)
    parent_file(folder, run)
    added = folder / f"{RUN}-99999.jsonl"
    write_lines(added, missing)
    assert reasons(folder) == {(added.name, ADDED)}
    assert len(read_folder(folder).checks) == 3
    added.unlink()
    lone = tmp_path / "lone" / added.name
    write_lines(lone, run, missing)
    with pytest.raises(BrokenInput, match="added after its run ended"):
        merge_evidence(lone, folder)
    compact(folder)
    assert not list(folder.glob("*.jsonl"))
    with pytest.raises(BrokenInput, match="added after its run ended"):
        merge_evidence(lone, folder)
    shutil.copy(lone, added)
    assert (added.name, ADDED) in reasons(folder), "the seal is in Parquet"
