"""Evidence from elsewhere: taken whole and checked, or refused with the file and the line that are wrong."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_lines import check_line, planned_cell, run_line

from hardware.errors import BrokenInput, OutputError
from hardware.evidence.merge import LARGEST_MERGE, merge_evidence
from hardware.evidence.record import EndLine, to_dict
from hardware.evidence.store import LONGEST_LINE, MOST_BRACKETS, read_folder

RUN_ID = "20261121T120000Z-abcdef"
RUN = run_line(planned_cell(checks=("builds", "backward")), run_id=RUN_ID)
END = EndLine(run_id=RUN_ID, ended_at="2026-01-02", reason="finished", counts={"passed": 2})
CHECK, BACKWARD = (check_line(name, run_id=RUN_ID) for name in ("builds", "backward"))


def put(folder: Path, *lines: Any, pid: int = 1, tail: bytes = b"") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{RUN_ID}-{pid}.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(to_dict(line)) for line in lines]
    path.write_bytes("".join(f"{text}\n" for text in texts).encode() + tail)
    return path


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return tmp_path / "lab"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def refused(source: Path, home: Path, message: str) -> None:
    before = sorted(home.iterdir()) if home.exists() else None
    with pytest.raises(BrokenInput, match=message):
        merge_evidence(source, home)
    assert (sorted(home.iterdir()) if home.exists() else None) == before


def test_evidence_is_taken_as_it_was_written_and_again_when_it_has_grown(lab: Path, home: Path) -> None:
    put(lab, RUN, END)
    path = put(lab, CHECK, pid=2)
    assert [(one.state, one.lines) for one in merge_evidence(lab, home)] == [("taken", 2), ("taken", 1)]
    assert read_folder(home) == read_folder(lab)
    assert [one.state for one in merge_evidence(lab, home)] == ["known", "known"]
    path.write_text(path.read_text() + json.dumps(to_dict(BACKWARD)) + "\n")
    assert [one.state for one in merge_evidence(lab, home)] == ["known", "longer"]
    assert len(read_folder(home).checks) == 2
    path.write_text(path.read_text().replace("passed", "failed"))
    refused(lab, home, "with different content")


def test_a_line_that_a_kill_cut_off_is_left_out_and_said(lab: Path, home: Path) -> None:
    put(lab, RUN, CHECK, tail=b'{"kind": "check", "run_')
    (merged,) = merge_evidence(lab, home)
    assert (merged.cut, merged.lines) == (True, 2)
    assert read_folder(home).broken == ()


def changed(**changes: Any) -> Any:
    return replace(CHECK, **changes)


WRONG = [
    ("line 2 of .* is broken", ["{broken"]),
    ("its kind must be one of run, check, end", ['{"kind": "wish"}']),
    ("line 3", [CHECK, '{"x": 1}']),
    ("belongs to another run", [changed(run_id="20261121T120000Z-000000")]),
    ("not a planned check", [changed(check_name="flies")]),
    ("not a planned check", [changed(cell_id="gpt2/text-generation/cpu/float32")]),
    ("a different suite than planned", [changed(suite_hash="f" * 16)]),
    ("duplicate run line", [RUN]),
    ("its max_rel_error is negative: -1.0", [changed(max_rel_error=-1.0)]),
    ("it passed, but has an error type", [changed(error_type="AssertionError")]),
    ("its run planned 'tiny'", [changed(subject="checkpoint")]),
    ("its precision is 'float16'", [changed(precision="float16")]),
    ("before the start of its run", [changed(started_at="2010-01-01T00:00:00+00:00")]),
    ("outcome", [json.dumps({**to_dict(CHECK), "outcome": "fine"})]),
    ("duration_s", [json.dumps({**to_dict(CHECK), "duration_s": "long"})]),
    ("schema_version", [json.dumps({**to_dict(CHECK), "schema_version": 99})]),
]


def test_what_is_wrong_is_refused_and_nothing_is_taken(lab: Path, home: Path) -> None:
    for message, lines in WRONG:
        put(lab, RUN, *lines)
        put(lab, CHECK, pid=2)
        refused(lab, home, message)


def test_lines_that_no_reader_takes_are_refused_before_they_are_parsed(lab: Path, home: Path) -> None:
    put(lab, RUN, tail=json.dumps(to_dict(CHECK)).encode("utf-16-be") + b"\n")
    refused(lab, home, r"line 2 of .* is broken")
    for line in (
        b'{"text": "' + b"x" * LONGEST_LINE + b'"}',
        b'{"a": [' + b",".join([b"[]"] * MOST_BRACKETS) + b"]}",
    ):
        put(lab, RUN, tail=line + b"\n")
        refused(lab, home, r"line 2 of .* is refused")


def test_a_plan_has_to_be_there_once_and_to_name_cells(lab: Path, home: Path) -> None:
    put(lab, CHECK)
    refused(lab, home, "has no plan")
    put(lab, replace(RUN, plan=(replace(RUN.plan[0], cell_id="bert/fill-mask/cpu:0/float32"),)))
    refused(lab, home, "is not the id of a cell")
    put(home, RUN)
    put(home, CHECK, BACKWARD, pid=2)
    (lab / f"{RUN_ID}-1.jsonl").unlink()
    path = put(lab, replace(RUN, versions={"torch": "99"}), pid=99999)
    for source in (lab, path):
        refused(source, home, "with a different description")


def test_what_is_no_evidence_is_refused_by_name(lab: Path, home: Path, tmp_path: Path) -> None:
    refused(lab, home, "no such file or folder")
    lab.mkdir()
    refused(lab, home, "no evidence in")
    outside = put(tmp_path / "elsewhere", RUN)
    own = lab / outside.name
    own.symlink_to(outside)
    refused(lab, home, "not a valid evidence file name")
    own.unlink()
    (lab / "evidence.jsonl").write_text("{}\n")
    refused(lab, home, "not a valid evidence file name")
    (lab / "evidence.jsonl").unlink()
    os.mkfifo(own)
    refused(lab, home, "it is not a regular file")
    for beginning in (b"PK\x03\x04\x14\xb6", b"<!doctype html>\n"):
        page = tmp_path / "page.zip"
        page.write_bytes(beginning)
        refused(page, home, r"'page.zip' is not evidence: it is a page .* itself.*the file that the page saved")


def test_more_than_is_taken_in_at_once_is_refused_before_it_is_read(lab: Path, home: Path) -> None:
    path = put(lab, RUN)
    for pid in range(2, 4):
        os.truncate(put(lab, pid=pid), LARGEST_MERGE // 2)
    refused(lab, home, "takes at most 256 MiB")
    os.truncate(path, LARGEST_MERGE + 1)
    refused(path, home, "larger than 256 MiB")


def test_a_full_disk_is_an_error_in_the_systems_words(lab: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    put(lab, RUN)
    monkeypatch.setattr("hardware.evidence.merge.write_whole", full)
    with pytest.raises(OutputError, match="evidence cannot be written to") as caught:
        merge_evidence(lab, home)
    assert caught.value.why == "No space left on device"
