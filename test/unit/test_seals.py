"""Seals: what was changed after its run had ended isn't read, by whichever way somebody reads it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import BERT, GPT2, a_run, lines_of

from generators.compatibility.judge import is_final, judge
from hardware.detection import detect
from hardware.errors import BrokenInput
from hardware.evidence.compacted import compact
from hardware.evidence.evidence_table import EvidenceTable
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.record import EndLine, RunLine, to_dict
from hardware.evidence.seals import ADDED, CHANGED, MISSING, digests, examine
from hardware.evidence.store import read_folder, read_run
from hardware.evidence.writer import EvidenceWriter

RUN, LATER = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"


def child_file(folder: Path, run: RunLine, broken: Sequence[str] = ()) -> Path:
    """What a child wrote: a writer names its file after its process, and here there is one process only."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{run.run_id}-1.jsonl"
    path.write_text("".join(json.dumps(to_dict(line)) + "\n" for line in lines_of(run, broken)), encoding="utf-8")
    return path


def parent_file(folder: Path, run: RunLine, *, ended: bool = True) -> Path:
    writer = EvidenceWriter(folder, run.run_id)
    writer.write(run)
    if ended:
        writer.end("finished", {"passed": 4}, run.resumes)
    writer.close()
    return writer.path


def refused(folder: Path) -> dict[str, str]:
    """The files of a folder of which no line counts."""
    return examine({path.name: path for path in folder.iterdir()}).refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run in two files."""
    run = a_run(RUN, 1)
    child_file(tmp_path / "evidence", run)
    parent_file(tmp_path / "evidence", run)
    return tmp_path / "evidence"


def test_what_nobody_touched_is_as_it_was_sealed(folder):
    assert refused(folder) == {}
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
    assert refused(folder) == {path.name: CHANGED}
    for evidence in (read_folder(folder), read_run(folder, RUN)):
        assert evidence.checks == ()
        assert [(line.file, line.reason) for line in evidence.broken] == [(path.name, CHANGED)]
    with EvidenceTable(folder) as table:
        assert table.connection.execute("SELECT count(*) FROM checks").fetchall() == [(0,)]
        assert [(line.file, line.reason) for line in table.broken] == [(path.name, CHANGED)]
    left = dict(compact(folder).left)
    assert left.pop(path.name) == CHANGED
    assert all("another file of its run was changed" in why for why in left.values())
    assert read_latest(folder).damaged == {BERT: (RUN,)}, "what tells of the change isn't packed away"


def test_a_run_line_that_was_changed_takes_its_plan_along(folder):
    (parent,) = (path for path in folder.iterdir() if path.name != f"{RUN}-1.jsonl")
    parent.write_text(parent.read_text().replace('"torch": "2.13.0"', '"torch": "2.14.0"'))
    assert refused(folder) == {parent.name: CHANGED}
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
    assert refused(tmp_path) == {}, "a run without an end seals nothing"
    parent_file(tmp_path, later)
    assert refused(tmp_path) == {}, "it was so when it was sealed"
    edit(path)
    assert refused(tmp_path) == {path.name: CHANGED}


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
    assert refused(tmp_path) == {path.name: CHANGED}


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
    assert refused(tmp_path) == {}
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
    assert refused(tmp_path) == {}
    assert len(read_folder(tmp_path).checks) == 4


PASSED, BROKEN = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A run that passed, and a later one that failed, each in two files and sealed."""
    for run_id, day, broken in ((PASSED, 1, ()), (BROKEN, 2, ("matches_reference",))):
        run = a_run(run_id, day)
        child_file(tmp_path, run, broken)
        parent_file(tmp_path, run)
    assert judged(tmp_path) == "unsupported"
    return tmp_path


def judged(folder: Path) -> str:
    """The level of the cell, with the reason's code where its evidence is damaged."""
    for latest in (read_latest(folder), read_latest(read_folder(folder))):
        (verdict,) = judge(latest, detect(), cells=[BERT])
        if verdict.reasons[0].code == "evidence_damaged":
            assert is_final(verdict)
            found = "damaged"
        else:
            found = str(verdict.level)
    return found


def reasons(folder: Path) -> set[tuple[str, str]]:
    found = {(line.file, line.reason) for line in read_latest(folder).broken}
    assert found == {(line.file, line.reason) for line in read_folder(folder).broken}
    return found


def blank(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE = {"a blank line more": blank, "edited": edit, "removed": Path.unlink, "emptied": empty}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("packed", [False, True], ids=["", "the older run is packed"])
def test_a_damaged_failing_run_lets_no_older_pass_shine(two: Path, damage: Callable[[Path], None], packed: bool):
    path = two / f"{BROKEN}-1.jsonl"
    if packed:
        others = {other: other.read_bytes() for other in two.glob(f"{BROKEN}-*.jsonl")}
        for other in others:
            other.unlink()
        compact(two)
        for other, data in others.items():
            other.write_bytes(data)
    damage(path)
    assert judged(two) == "damaged"
    assert reasons(two) == {(path.name, CHANGED if path.exists() and path.stat().st_size else MISSING)}
    compact(two)
    assert judged(two) == "damaged"


def test_an_end_that_is_dated_back_lets_no_older_pass_shine(two):
    (two / f"{BROKEN}-1.jsonl").unlink()
    (parent,) = two.glob(f"{BROKEN}-*.jsonl")
    *before, end = parent.read_text().splitlines(keepends=True)
    parent.write_text("".join([*before, json.dumps(json.loads(end) | {"ended_at": "1970-01-01"}) + "\n"]))
    assert judged(two) == "damaged"


def test_a_line_elsewhere_of_a_run_whose_files_are_refused_is_broken(two):
    edit(two / f"{BROKEN}-1.jsonl")
    path = two / "more.jsonl"
    path.write_text(json.dumps(to_dict(lines_of(a_run(BROKEN, 2))[1])) + "\n", encoding="utf-8")
    assert {name for name, _ in reasons(two)} == {path.name, f"{BROKEN}-1.jsonl"}
    assert judged(two) == "damaged"


def test_a_later_whole_run_of_the_same_machine_settles_what_is_damaged(two):
    (two / f"{BROKEN}-1.jsonl").unlink()
    end = max(read_folder(two).ends, key=lambda one: one.ended_at)
    for run_id, machine, wanted in (
        ("20260103T000000Z-cccccc", "another", "damaged"),
        ("20260104T000000Z-dddddd", "desk", "unknown"),
    ):
        run = replace(a_run(run_id, 3), machine=machine, started_at=end.ended_at + "0")
        child_file(two, run)
        assert judged(two) == "damaged", "the run line with its plan is still to come"
        parent_file(two, run, ended=False)
        assert (judged(two) == "damaged") is (wanted == "damaged")


def test_a_cell_that_only_the_damaged_file_names_is_unknown(two):
    for path in two.glob(f"{PASSED}-*.jsonl"):
        path.unlink()
    (parent,) = (path for path in two.glob("*.jsonl") if not path.name.endswith("-1.jsonl"))
    (two / f"{BROKEN}-1.jsonl").unlink()
    parent.write_text(parent.read_text().replace('"torch": "2.13.0"', '"torch": "2.14.0"'))
    assert judged(two) == "damaged"


def test_a_file_that_was_added_after_the_end_counts_for_nothing(folder, tmp_path):
    path = folder / f"{RUN}-1.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    for other in folder.glob("*.jsonl"):
        if other != path:
            other.unlink()
    parent_file(folder, a_run(RUN, 1))
    missing = lines_of(a_run(RUN, 1))[-1]
    added = folder / f"{RUN}-99999.jsonl"
    added.write_text(json.dumps(to_dict(missing)) + "\n", encoding="utf-8")
    assert reasons(folder) == {(added.name, ADDED)}
    assert len(read_folder(folder).checks) == 3
    lone = tmp_path / "lone" / added.name
    lone.parent.mkdir()
    lone.write_text(json.dumps(to_dict(a_run(RUN, 1))) + "\n" + added.read_text())
    added.unlink()
    with pytest.raises(BrokenInput, match="added after its run had ended"):
        merge_evidence(lone, folder)
    compact(folder)
    assert not list(folder.glob("*.jsonl"))
    with pytest.raises(BrokenInput, match="added after its run had ended"):
        merge_evidence(lone, folder)
    shutil.copy(lone, added)
    assert (added.name, ADDED) in reasons(folder), "the seal is in Parquet"


def test_a_second_end_of_a_run_clears_nothing(two):
    line = to_dict(lines_of(a_run(BROKEN, 2))[1])
    (two / f"{BROKEN}-1.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    files = digests(two, [BROKEN])
    false = {"kind": "end", "schema_version": 2, "run_id": BROKEN, "ended_at": "2026-01-02", "reason": "finished"}
    path = two / f"{BROKEN}-99999.jsonl"
    path.write_text(json.dumps(false | {"counts": {}, "files": files}) + "\n", encoding="utf-8")
    assert judged(two) == "damaged"


def test_an_end_says_nothing_of_runs_that_its_own_did_not_resume(two):
    other = a_run("20260105T000000Z-eeeeee", 5, GPT2)
    files = {f"{BROKEN}-1.jsonl": "0" * 64}
    writer = EvidenceWriter(two, other.run_id)
    writer.write(other)
    writer.write(EndLine(run_id=other.run_id, ended_at="2026-01-05", reason="finished", counts={}, files=files))
    writer.close()
    assert judged(two) == "unsupported"
    stranger = two / "20260106T000000Z-ffffff-1.jsonl"  # the end of a run that isn't the file's own
    end = EndLine(run_id=BROKEN, ended_at="2026-01-05", reason="finished", counts={}, files=files)
    stranger.write_text(json.dumps(to_dict(end)) + "\n", encoding="utf-8")
    assert judged(two) == "unsupported"


def test_the_run_that_resumed_another_holds_its_files_to_what_they_were(tmp_path):
    killed, later = a_run(RUN, 1), a_run(LATER, 2, GPT2, resumes=(RUN,))
    path = child_file(tmp_path, killed)
    parent_file(tmp_path, killed, ended=False)
    parent_file(tmp_path, later)
    added = tmp_path / f"{RUN}-99999.jsonl"
    shutil.copy(path, added)
    assert reasons(tmp_path) == {(added.name, ADDED)}
    path.unlink()
    assert reasons(tmp_path) == {(added.name, ADDED), (path.name, MISSING)}
    assert read_latest(tmp_path).damaged == {BERT: (RUN,)}
    added.unlink()
    compact(tmp_path)
    assert read_latest(tmp_path).damaged == {BERT: (RUN,)}


def test_a_run_that_goes_on_may_write_more_files(tmp_path):
    run = a_run(RUN, 1)
    parent_file(tmp_path, run, ended=False)
    for number in (1, 2):
        child_file(tmp_path, run).rename(tmp_path / f"{RUN}-{number}0.jsonl")
        assert reasons(tmp_path) == set()
