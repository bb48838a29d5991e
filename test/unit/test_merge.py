"""Evidence from elsewhere: taken whole and checked, or refused with the file and the line that are wrong."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardware.errors import BrokenInput, OutputError
from hardware.evidence.merge import LARGEST_MERGE, merge_evidence
from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine, to_dict
from hardware.evidence.store import LONGEST_LINE, MOST_BRACKETS, read_folder
from hardware.evidence.writer import now

RUN = "20261121T120000Z-abcdef"
CELL = "bert/fill-mask/cpu/float32"


def run_line(run_id: str = RUN) -> RunLine:
    cell = PlannedCell(
        cell_id=CELL,
        checks=("builds", "backward"),
        suite="test_a.py",
        suite_hash="0" * 16,
        subject="tiny",
        verdict=None,
    )
    return RunLine(
        run_id=run_id,
        started_at=now(),
        command="c",
        machine="lab",
        inventory={},
        versions={"torch": "2.11"},
        plan=(cell,),
    )


def check(name: str = "builds", **changes: Any) -> CheckLine:
    line = CheckLine(
        run_id=RUN,
        cell_id=CELL,
        check_name=name,
        outcome=Outcome.PASSED,
        subject="tiny",
        requested_target="cpu",
        actual_target="cpu",
        precision="float32",
        model="bert",
        task="fill-mask",
        suite_hash="0" * 16,
        started_at=now(),
        duration_s=0.5,
    )
    return replace(line, **changes)


def end() -> EndLine:
    return EndLine(run_id=RUN, ended_at=now(), reason="finished", counts={"passed": 2})


def put(folder: Path, *lines: Any, pid: int = 1, run_id: str = RUN, tail: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{run_id}-{pid}.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(to_dict(line)) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts) + tail)
    return path


@pytest.fixture
def lab(tmp_path):
    return tmp_path / "lab"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def test_evidence_comes_home_as_it_was_written(lab, home):
    put(lab, run_line(), end())
    put(lab, check(), check("backward"), pid=2)
    merged = merge_evidence(lab, home)
    assert [(one.state, one.lines) for one in merged] == [("taken", 2), ("taken", 2)]
    assert read_folder(home) == read_folder(lab)
    assert [one.state for one in merge_evidence(lab, home)] == ["known", "known"]


def test_a_file_that_has_grown_replaces_what_was_taken_before(lab, home):
    put(lab, run_line())
    path = put(lab, check(), pid=2)
    merge_evidence(lab, home)
    path.write_text(path.read_text() + json.dumps(to_dict(check("backward"))) + "\n")
    assert [one.state for one in merge_evidence(lab, home)] == ["known", "longer"]
    assert len(read_folder(home).checks) == 2


def test_a_line_that_a_kill_cut_off_is_left_out_and_said(lab, home):
    put(lab, run_line(), check(), tail='{"kind": "check", "run_')
    (merged,) = merge_evidence(lab, home)
    assert merged.cut
    assert merged.lines == 2
    assert read_folder(home).broken == ()


BROKEN = {
    "no JSON": (["{broken"], "line 2 of .* is broken"),
    "another kind": (['{"kind": "wish"}'], "its kind is none of run, check, end"),
    "an outcome that there isn't": ([check(), '{"x": 1}'], "line 3"),
    "another run": ([replace(check(), run_id="20261121T120000Z-000000")], "is of another run"),
    "a check that was never planned": ([check("flies")], "of no planned check"),
    "a cell that was never planned": ([check(cell_id="gpt2/text-generation/cpu/float32")], "of no planned check"),
    "another suite": ([check(suite_hash="f" * 16)], "another suite than the one planned"),
    "a second plan": ([run_line()], "second time"),
    "a negative error": ([check(max_rel_error=-1.0)], "its max_rel_error is -1.0"),
    "a pass with an error": ([check(error_type="AssertionError")], "it passed, and has an error type"),
    "other weights": ([check(subject="checkpoint")], "its run planned 'tiny'"),
    "another precision than the cell's": ([check(precision="float16")], "its precision is 'float16'"),
    "a date before its run": ([check(started_at="2010-01-01T00:00:00+00:00")], "before its run"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_refused_and_nothing_is_taken(lab, home, name):
    lines, message = BROKEN[name]
    put(lab, run_line(), *lines)
    put(lab, check(), pid=2)
    with pytest.raises(BrokenInput, match=message):
        merge_evidence(lab, home)
    assert not home.exists()


@pytest.mark.parametrize(("field", "value"), [("outcome", "fine"), ("duration_s", "long"), ("schema_version", 99)])
def test_a_line_that_breaks_the_schema_names_the_field(lab, home, field, value):
    put(lab, run_line(), json.dumps({**to_dict(check()), field: value}))
    with pytest.raises(BrokenInput, match=field):
        merge_evidence(lab, home)


def test_a_plan_of_no_cell_is_refused(lab, home):
    plan = (replace(run_line().plan[0], cell_id="bert/fill-mask/cpu:0/float32"),)
    put(lab, replace(run_line(), plan=plan))
    with pytest.raises(BrokenInput, match="is not the id of a cell"):
        merge_evidence(lab, home)


def test_a_second_run_line_of_a_run_that_is_there_is_refused(lab, home):
    run = run_line()
    put(home, run)
    put(home, check(), check("backward"), pid=2)
    path = put(lab, replace(run, versions={"torch": "99"}), pid=99999)
    for source in (lab, path):
        with pytest.raises(BrokenInput, match="is described otherwise"):
            merge_evidence(source, home)
    assert len(list(home.iterdir())) == 2


def test_checks_without_their_plan_are_refused(lab, home):
    put(lab, check())
    with pytest.raises(BrokenInput, match="has no plan"):
        merge_evidence(lab, home)


def test_a_file_that_was_changed_since_is_refused(lab, home):
    path = put(lab, run_line(), check(outcome=Outcome.FAILED))
    merge_evidence(lab, home)
    path.write_text(path.read_text().replace("failed", "passed"))
    with pytest.raises(BrokenInput, match="holds something else"):
        merge_evidence(lab, home)


def test_a_link_and_a_strange_name_are_refused(lab, home, tmp_path):
    outside = put(tmp_path / "elsewhere", run_line())
    lab.mkdir()
    (lab / outside.name).symlink_to(outside)
    with pytest.raises(BrokenInput, match="not the name of an evidence file"):
        merge_evidence(lab, home)
    (lab / outside.name).unlink()
    (lab / "evidence.jsonl").write_text("{}\n")
    with pytest.raises(BrokenInput, match="not the name of an evidence file"):
        merge_evidence(lab, home)


def test_an_empty_or_missing_folder_is_refused(lab, home):
    with pytest.raises(BrokenInput, match="no such file or folder"):
        merge_evidence(lab, home)
    lab.mkdir()
    with pytest.raises(BrokenInput, match="holds no evidence"):
        merge_evidence(lab, home)


@pytest.mark.parametrize("beginning", [b"PK\x03\x04\x14\xb6", b"<!doctype html>\n"])
def test_a_page_is_not_what_a_page_saved(home, tmp_path, beginning):
    page = tmp_path / "page.zip"
    page.write_bytes(beginning)
    with pytest.raises(BrokenInput, match=r"'page.zip' is no evidence: it is a page .* itself") as caught:
        merge_evidence(page, home)
    assert "the file that the page saved" in str(caught.value)


def test_a_line_in_another_encoding_is_refused_since_no_reader_takes_it(lab, home):
    path = put(lab, run_line())
    path.write_bytes(path.read_bytes() + json.dumps(to_dict(check())).encode("utf-16-be") + b"\n")
    with pytest.raises(BrokenInput, match=r"line 2 of .* is broken"):
        merge_evidence(lab, home)


def test_more_than_is_taken_in_at_once_is_refused_before_it_is_read(lab, home):
    path = put(lab, run_line())
    for pid in range(2, 4):
        with put(lab, pid=pid).open("r+b") as file:
            file.truncate(LARGEST_MERGE // 2)
    with pytest.raises(BrokenInput, match="256 MiB are taken in at once"):
        merge_evidence(lab, home)
    with path.open("r+b") as file:
        file.truncate(LARGEST_MERGE + 1)
    with pytest.raises(BrokenInput, match="larger than 256 MiB"):
        merge_evidence(path, home)


def test_what_is_no_file_is_refused_at_once(lab, home):
    lab.mkdir()
    os.mkfifo(lab / f"{RUN}-1.jsonl")
    with pytest.raises(BrokenInput, match="it is no regular file"):
        merge_evidence(lab, home)


def test_a_home_that_takes_nothing_is_an_error_in_the_systems_words(lab, home, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    put(lab, run_line())
    monkeypatch.setattr("hardware.evidence.merge.write_whole", full)
    with pytest.raises(OutputError, match="evidence cannot be written to") as caught:
        merge_evidence(lab, home)
    assert caught.value.why == "No space left on device"


@pytest.mark.parametrize(
    "line",
    [b'{"text": "' + b"x" * LONGEST_LINE + b'"}', b'{"lists": [' + b",".join([b"[]"] * MOST_BRACKETS) + b"]}"],
    ids=["too long", "too many lists"],
)
def test_a_line_that_no_reader_takes_is_refused_before_it_is_parsed(lab, home, line):
    path = put(lab, run_line())
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(BrokenInput, match=r"line 2 of .* is refused"):
        merge_evidence(lab, home)
