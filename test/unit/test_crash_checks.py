"""What the benchmark of crashes checks can be broken: each kind of damage is made, and has to be named."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import BERT, CHECKS, a_run, lines_of

from benchmarks.crashes import checking, kills, writers
from benchmarks.crashes.deaths import deaths, judge
from benchmarks.crashes.kills import Undisturbed, after_resuming
from benchmarks.crashes.moments import Kill
from benchmarks.crashes.product import misread
from benchmarks.crashes.running import Killed, Place, Ran
from benchmarks.crashes.writing import make_evidence
from generators.compatibility.required_checks import required_checks
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import EndLine, Line, Outcome, RunLine, to_dict
from hardware.evidence.versions import versions_of
from hardware.testing.reference import ReferenceStore

WANTED = {BERT: CHECKS}
RUN = "20260101T000000Z-aaaaaa"
FILE = f"{RUN}-1.jsonl"


def put(folder: Path, *lines: Line, name: str = FILE) -> checking.Raw:
    """Write a file of evidence with these lines; return what is read of its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(to_dict(line)) + "\n" for line in lines), encoding="utf-8")
    return checking.read_raw(folder)


def the_end(run: RunLine, **counts: int) -> EndLine:
    counts = counts or {"passed": len(CHECKS)}
    return EndLine(run_id=run.run_id, ended_at=run.started_at, reason="finished", counts=counts)


def _last(run: RunLine, **changes: Any) -> Line:
    return lines_of(run, **changes)[-1]


@pytest.fixture
def run() -> RunLine:
    return a_run(RUN, 1)


@pytest.fixture
def whole(tmp_path: Path, run: RunLine) -> Path:
    """A folder of evidence without damage."""
    put(tmp_path / "evidence", run, *lines_of(run), the_end(run))
    return tmp_path / "evidence"


def test_lost_changed_and_half_lines_are_seen_and_nothing_where_nothing_is(whole: Path, tmp_path: Path) -> None:
    log, path, before = tmp_path / "log", whole / FILE, checking.read_raw(whole)
    log.mkdir()
    data = path.read_bytes()
    notes = "".join(f"{hashlib.sha256(text).hexdigest()} {FILE}\n" for text in data.splitlines())
    (log / "1.ack").write_text(notes, encoding="utf-8")
    assert len(before.lines) == 2 + len(CHECKS)
    assert checking.lost(before, log) == checking.changed(before, before) == checking.untold(before) == []
    assert checking.incomplete(before, WANTED) == misread(whole, before) == []
    assert checking.half_lines(before, killed=False) == []
    assert checking.unfinished(before) == set()
    cut, gone = data[:-20], b"".join(data.splitlines(keepends=True)[:-1])
    for damaged in (cut, gone, data.replace(b'"passed"', b'"failed"', 1), None):
        path.write_bytes(damaged) if damaged else path.unlink()
        after = checking.read_raw(whole)
        assert checking.lost(after, log)
        assert checking.changed(before, after) == [f"{FILE} was changed or is gone"]
    for text in (b'{"kind": "che', b"[]", b'{"kind": "other"}', b"\x00\xff"):
        path.write_bytes(data + text)
        raw = checking.read_raw(whole)
        assert checking.changed(before, raw) == [], "a file that grew is not changed"
        assert raw.torn == [FILE]
        assert checking.half_lines(raw, killed=True) == []
        assert len(checking.half_lines(raw, killed=False)) == 1
        path.write_bytes(data + text + b"\n" + data)
        assert len(checking.half_lines(checking.read_raw(whole), killed=True)) == 1


def test_what_a_run_leaves_unsaid_is_seen(tmp_path: Path, run: RunLine) -> None:
    other_plan = a_run(RUN, 1, BERT, plan={"checks": ("x",)})
    for lines, words in (
        ([run, *lines_of(run)[:-1], the_end(run, passed=3)], "has no line"),
        ([run, *lines_of(run), the_end(run, passed=2)], "ends with the counts"),
        ([run, *lines_of(run), _last(run)], "has 2 lines"),
        ([run, _last(other_plan)], "was not planned"),
        ([run, _last(run, outcome=Outcome.NOT_RUN)], "nothing says why"),
        ([run, _last(run, suite_hash="another")], "another suite"),
        (lines_of(run), "has lines and no plan"),
    ):
        found = checking.untold(put(tmp_path, *lines))
        assert any(words in text for text in found), (words, found)
    crashed = _last(run, outcome=Outcome.CRASHED)
    assert checking.untold(put(tmp_path, run, *lines_of(run), crashed, the_end(run, passed=4, crashed=1))) == []


def test_a_run_without_its_end_is_not_over_until_another_goes_on_with_it(tmp_path: Path, run: RunLine) -> None:
    raw = put(tmp_path, run, *lines_of(run)[:2])
    assert checking.unfinished(raw) == {RUN}
    assert len(checking.incomplete(raw, WANTED)) == 2
    second = a_run("20260102T000000Z-bbbbbb", 2, resumes=(RUN,))
    raw = put(tmp_path, second, *lines_of(second), the_end(second), name=f"{second.run_id}-2.jsonl")
    assert checking.incomplete(raw, WANTED) == []


def test_a_reader_that_comes_to_something_else_is_seen(whole: Path, run: RunLine) -> None:
    raw = checking.read_raw(whole)
    put(whole, run, *lines_of(run)[:-1], the_end(run))
    assert any("the reader misses" in text for text in misread(whole, raw))
    put(whole, run, *lines_of(run))
    (whole / FILE).write_bytes((whole / FILE).read_bytes() + b'{"ki')
    raw = checking.read_raw(whole)
    assert misread(whole, raw) == []
    put(whole, run, *lines_of(run), the_end(run))
    found = misread(whole, raw)
    for words in ("calls [] broken", "calls () cut off", "no finding names the run", "no finding names half a line"):
        assert any(words in text for text in found), (words, found)
    plan = {"checks": required_checks(Cell.parse(BERT))}
    here = a_run(RUN, 1, BERT, versions=dict(a_run(RUN, 1, versions=versions_of(detect())).versions), plan=plan)
    lines = lines_of(here, accelerator="CPU", native_ops={"aten.addmm": 1}, actual_dtype="float32", tolerance=2e-5)
    raw = put(whole, here, *lines, the_end(here, passed=len(lines)))
    assert misread(whole, raw) == []
    for line in raw.of_kind("check"):
        line["outcome"] = "failed"
    assert any("no run passed it whole" in text for text in misread(whole, raw))


SUITES = {"test_a.py": b"a = 1\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a run with suites, reports and a cache, all whole."""
    export, references = tmp_path / "cache/exports/kept", tmp_path / "cache/references"
    texts = {"md": f"# Report\n{BERT}\n", "json": json.dumps({"verdicts": [{"cell": BERT}]}), "xml": "<a></a>"}
    texts |= {"html": "<!doctype html><html></html>\n", "sarif": "{}"}
    verified = {"files": {"model.bin": hashlib.sha256(b"weights").hexdigest()}}
    for path, text in {
        tmp_path / "suites/test_a.py": "a = 1\n",
        tmp_path / "cache/generated/a.json": "{}",
        export / "model.bin": "weights",
        export / "verified.json": json.dumps(verified),
        **{tmp_path / f"reports/{RUN}.{suffix}": text for suffix, text in texts.items()},
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    references.mkdir()
    ReferenceStore(references).put("id", {"x": np.arange(3)}, {"y": np.ones((4, 5))})
    return tmp_path


def test_half_a_file_is_seen_and_what_killed_processes_leave_is_counted(folder: Path) -> None:
    assert checking.half_files(folder, SUITES) == checking.leftovers(folder) == []
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert len(whole) == 10
    for path, data in whole.items():
        for share in (0.0, 0.5, 0.9):
            path.write_bytes(data[: int(len(data) * share)])
            assert checking.half_files(folder, SUITES), (path, share)
        path.write_bytes(data)
    exports = folder / "cache" / "exports"
    (exports / "export-abc").mkdir()
    (exports / "export-abc" / "half.bin").write_bytes(b"half")
    (folder / "suites" / ".x.part").write_bytes(b"half")
    (folder / "tmp" / "hwcompat-abc").mkdir(parents=True)
    left = ["cache/exports/export-abc", "suites/.x.part", "tmp/hwcompat-abc"]
    assert sorted(checking.leftovers(folder)) == left
    assert checking.half_files(folder, SUITES) == []
    (exports / "kept" / "model.bin").unlink()
    assert len(checking.half_files(folder, SUITES)) == 1
    shutil.rmtree(exports / "kept")
    (exports / "kept").mkdir()
    assert len(checking.half_files(folder, SUITES)) == 1


def test_lines_that_compacting_or_merging_loses_are_seen(tmp_path: Path) -> None:
    own = tmp_path / "written"
    make_evidence(own)
    assert writers.wrong_compaction(tmp_path, done=False) == []
    assert writers.wrong_compaction(tmp_path, done=True) == ["files are left"]
    shutil.copytree(own, tmp_path / "source")
    assert writers.wrong_merge(tmp_path, done=True) == []
    path = next(own.glob("*.jsonl"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert any("1 lines are lost" in text for text in writers.wrong_compaction(tmp_path, done=False))
    assert writers.wrong_merge(tmp_path, done=False) == [f"{path.name} is not what was merged"]
    path.unlink()
    assert writers.wrong_merge(tmp_path, done=False) == []
    assert writers.wrong_merge(tmp_path, done=True) == [f"{path.name} lacks"]


def test_a_victim_that_is_not_on_record_as_one_crash_is_seen(tmp_path: Path, run: RunLine) -> None:
    def ended(code: int) -> Killed:
        return Killed(ran=Ran(code=code, out="", err="", seconds=1.0), landed=True, left=())

    child, parent = (Kill(number=0, victim=victim, share=0.5) for victim in ("child", "parent"))
    crash = _last(run, outcome=Outcome.CRASHED, error_message="ended by SIGKILL")
    raw = put(tmp_path, run, *lines_of(run)[:-1], crash, the_end(run, passed=3, crashed=1))
    assert kills._victims(child, ended(1), raw) == []
    assert kills._victims(child, ended(0), raw)
    twice = put(tmp_path, run, *lines_of(run)[:-1], crash, crash, the_end(run, passed=3, crashed=2))
    assert kills._victims(child, ended(1), twice)
    none = put(tmp_path, run, *lines_of(run), the_end(run))
    assert kills._victims(child, ended(1), none) == ["a child was killed, and 0 lines say so"]
    cut_off = put(tmp_path, run, *lines_of(run)[:2])
    assert kills._victims(parent, ended(-signal.SIGKILL), cut_off) == []
    assert kills._victims(parent, ended(1), cut_off) == ["a killed run ended with 1"]


def test_a_process_that_is_left_and_a_run_that_was_not_completed_are_seen(whole: Path, folder: Path) -> None:
    undisturbed, place = Undisturbed(seconds=1.0, suites=SUITES), Place(folder=folder)
    raw = checking.read_raw(whole)
    assert kills.look(place, raw, undisturbed, [77]) == ["process 77 was left alive"]
    found = after_resuming(place, raw, Ran(code=3, out="", err="it broke", seconds=1.0), undisturbed)
    for words in ("was never carried out whole", "--resume ended with 3", "no report in all formats"):
        assert any(words in text for text in found), (words, found)


def test_a_death_that_is_told_as_something_else_is_seen(tmp_path: Path) -> None:
    (death,) = deaths(["segfault"])
    run = a_run(RUN, 1, BERT, plan={"checks": ("first", "second", "third")})
    first = lines_of(run, outcome=Outcome.AMBIGUOUS)[0]
    second = lines_of(run, outcome=Outcome.CRASHED, error_message="ended by SIGSEGV")[1]
    put(tmp_path, run, first, second, lines_of(run, outcome=Outcome.NOT_RUN)[2])
    found = judge(tmp_path, {"bert": death})
    assert found["segfault"] == []
    assert found["its neighbour"] == ["the suite beside them came to {}"]
    put(tmp_path, run, *lines_of(run))
    assert len(judge(tmp_path, {"bert": death})["segfault"]) == 4
