"""Lines of evidence from anywhere: taken in only where schema, run and plan agree, and read without harm else."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hostile import Hostile
from made_evidence import files, write
from made_page import made_page, saved
from made_page import written as written_by_page
from watched import Sentinel, Surroundings, limited, refused_or

from hardware.errors import BrokenInput
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.pages import SEALS, keep_seal, read_seal
from hardware.evidence.record import from_dict, to_dict
from hardware.evidence.runs import RunEvidence
from hardware.evidence.store import read_file, read_folder

_NUMBERS = itertools.count()


def changed_files(hostile: Hostile) -> list[tuple[str, list[dict[str, Any]]]]:
    """The files with some of their lines changed, left out or moved, and perhaps other names."""
    found = []
    share = hostile.choice((0.0, 0.03, 0.2))
    for name, lines in files():
        kept = [hostile.changed(line) if hostile.random() < share else line for line in lines]
        if hostile.random() < 0.1:
            hostile.shuffle(kept)
        if hostile.random() < share:
            name = f"x{next(_NUMBERS)}.jsonl"
        found.append((name, [line for line in kept if isinstance(line, dict) and hostile.random() > share / 5]))
    return found


def written(folder: Path, hostile: Hostile) -> Path:
    """A folder of changed evidence, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, changed_files(hostile), hostile.line)
    return folder


@pytest.mark.fuzz(100)
def test_what_is_merged_is_whole_and_nothing_else_is_written(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    source, folder = place.parent / "source", place / "evidence"
    accepted = []

    for hostile in fuzz:
        written(source, hostile)
        if hostile.random() < 0.1:
            hostile.trap(source / "20260103T000000Z-aaaaaa-1.jsonl", place)
        shutil.rmtree(folder, ignore_errors=True)
        around = Surroundings(place.parent, place)
        taken = refused_or(merge_evidence, source, folder)
        around.check()
        if taken is None:
            assert not folder.exists()
        else:
            accepted.append(taken)
            assert {path.name for path in folder.iterdir()} <= {one.name for one in taken}
            assert not read_folder(folder).broken


def test_whole_evidence_is_merged(place: Path) -> None:
    write(place / "source", files())
    taken = merge_evidence(place / "source", place / "evidence")
    assert [one.state for one in taken] == ["taken"] * 4


@pytest.mark.fuzz(60)
def test_reading_a_folder_line_by_line_never_fails(fuzz: Any, place: Path) -> None:
    for hostile in fuzz:
        evidence = read_folder(written(place / "evidence", hostile))
        read_latest(evidence, details=True)
        assert all(one.reason and one.number > 0 for one in evidence.broken)
        for line in evidence.checks:
            text = json.dumps(to_dict(line), allow_nan=False)
            again = from_dict(json.loads(text))
            assert again == line or json.dumps(to_dict(again)) == text, "NaN, which may be written, equals none"


@pytest.mark.fuzz(10)
def test_reading_a_folder_never_fails_and_both_ways_come_to_the_same(fuzz: Any, place: Path) -> None:
    for hostile in fuzz:
        folder = written(place / "evidence", hostile)
        as_objects = read_latest(read_folder(folder))
        in_tables = read_latest(folder)
        if not as_objects.broken:
            assert {one.evidence_id for one in in_tables.checks} == {one.evidence_id for one in as_objects.checks}
            assert in_tables.cells == as_objects.cells
        assert set(in_tables.broken) <= set(as_objects.broken)
        read_latest(folder, details=True)
        with RunEvidence(folder) as evidence:
            evidence.checks()


def test_a_line_without_an_end_takes_no_memory(place: Path) -> None:
    path = place / "20260101T000000Z-0a1b2c-1.jsonl"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    lines, broken = limited(read_file, path, memory=100 << 20)
    assert not lines
    assert [one.reason for one in broken] == ["longer than 16 MiB"]
    assert limited(merge_evidence, place, place / "other", memory=100 << 20) is None


def test_a_line_of_brackets_alone_takes_no_memory(place: Path) -> None:
    path = place / "20260101T000000Z-0a1b2c-1.jsonl"
    path.write_bytes(b'{"a": [' + b"[]," * 5_000_000 + b"[]]}\n")
    _, broken = limited(read_file, path, memory=250 << 20)
    assert "lists and objects" in broken[0].reason
    with pytest.raises(BrokenInput, match="too many lists"):
        merge_evidence(place, place / "other")


# What a page saved on somebody's phone, held against its seal: no changed line gets in, and no other seal is read.


@pytest.mark.fuzz(120)
def test_a_changed_line_is_never_taken_in(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    page = made_page("webgpu")
    folder, source = place / "evidence", place.parent / "from-a-phone"
    whole = written_by_page(page)
    keep_seal(folder, page.text)
    free = ("duration_s", "latency_ms", "peak_memory_bytes", "error_message", "traceback", "unseen", "started_at")
    free += ("ended_at", "reason", "error_type", "batch", "sequence_length")
    taken = []

    for hostile in fuzz:
        lines = json.loads(json.dumps(whole))
        at = hostile.randrange(len(lines))
        lines[at] = hostile.changed(lines[at], most=2)
        shutil.rmtree(source, ignore_errors=True)
        path = saved(source, whole)
        path.write_bytes(b"".join(hostile.line(line) + b"\n" for line in lines))
        around = Surroundings(place.parent, folder)
        if refused_or(merge_evidence, path, folder) is None:
            assert {one.name for one in folder.iterdir()} == {SEALS}
        else:
            taken.append(path)
            differing = {key for key in {*whole[at], *lines[at]} if whole[at].get(key) != lines[at].get(key)}
            # What is left out says nothing, or what a reader takes for it: that it is of our own tests.
            differing -= {
                key for key in differing if key not in lines[at] and whole[at][key] in ("", "hwcompat", None, {})
            }
            assert differing <= {*free, "inventory"} | {key for key in lines[at] if key not in whole[at]}, differing
            for one_file in folder.glob("*.jsonl"):
                one_file.unlink()
        around.check()


def test_what_a_page_wrote_is_taken_in(place: Path) -> None:
    page = made_page("webgpu")
    keep_seal(place / "evidence", page.text)
    (found,) = merge_evidence(saved(place / "from-a-phone", written_by_page(page)), place / "evidence")
    assert found.state == "taken"


@pytest.mark.fuzz(120)
def test_a_seal_is_its_own_hash_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    page = made_page("webgpu")
    sealed = json.loads(page.text)
    (place.parent / "outside.json").write_text(page.text)

    for hostile in fuzz:
        text = json.dumps(hostile.changed(sealed)) if hostile.random() < 0.7 else hostile.text()
        try:
            kept = keep_seal(place, text)
        except UnicodeEncodeError:  # a seal is ASCII; nobody else's is kept
            continue
        refused_or(read_seal, place, kept.stem)
        kept.write_bytes(hostile.bytes(kept.read_bytes()) + b" ")
        assert refused_or(read_seal, place, kept.stem) is None
        assert refused_or(read_seal, place, hostile.name()) is None
        assert refused_or(read_seal, place, "../../outside") is None
