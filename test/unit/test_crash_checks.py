"""What the bench of crashes looks at can be broken: each kind of damage is handed to it, and has to be named."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import BERT, CHECKS, a_run, lines_of

from benchmarks.crashes import checking, kills, writers
from benchmarks.crashes.deaths import deaths, judge
from benchmarks.crashes.kills import Undisturbed, after_resuming
from benchmarks.crashes.moments import Kill, child_points, draw, parent_points
from benchmarks.crashes.product import misread
from benchmarks.crashes.result import Kept, keep, read_results
from benchmarks.crashes.running import Killed, Place, Ran
from benchmarks.crashes.writing import make_evidence
from hardware.evidence.record import EndLine, Line, Outcome, RunLine, to_dict
from hardware.evidence.versions import versions_of
from hardware.testing.reference import ReferenceStore

WANTED = {BERT: CHECKS}
RUN = "20260101T000000Z-aaaaaa"
FILE = f"{RUN}-1.jsonl"


def put(folder: Path, *lines: Line, name: str = FILE) -> Path:
    """A file of evidence with these lines."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(to_dict(line)) + "\n" for line in lines), encoding="utf-8")
    return folder / name


def the_end(run: RunLine, *, reason: str = "finished", **counts: int) -> EndLine:
    return EndLine(
        run_id=run.run_id, ended_at=run.started_at, reason=reason, counts=counts or {"passed": len(CHECKS)}
    )


@pytest.fixture
def run() -> RunLine:
    return a_run(RUN, 1)


@pytest.fixture
def whole(tmp_path: Path, run: RunLine) -> Path:
    """A folder of evidence in which all is well."""
    put(tmp_path / "evidence", run, *lines_of(run), the_end(run))
    return tmp_path / "evidence"


def acknowledge(folder: Path, evidence: Path) -> Path:
    """Notes of all lines in a folder of evidence."""
    folder.mkdir(exist_ok=True)
    texts = [text for path in evidence.glob("*.jsonl") for text in path.read_bytes().splitlines()]
    notes = "".join(f"{hashlib.sha256(text).hexdigest()} {FILE}\n" for text in texts)
    (folder / "1.ack").write_text(notes, encoding="utf-8")
    return folder


def test_nothing_is_wrong_where_nothing_is(whole, tmp_path):
    raw = checking.read_raw(whole)
    assert len(raw.lines) == 2 + len(CHECKS)
    assert checking.lost(raw, acknowledge(tmp_path / "log", whole)) == []
    assert checking.changed(raw, raw) == checking.half_lines(raw, killed=False) == checking.untold(raw) == []
    assert checking.unfinished(raw) == set()
    assert checking.incomplete(raw, WANTED) == []
    assert misread(whole, raw) == []


@pytest.mark.parametrize("damage", ["cut", "gone", "altered", "file"])
def test_a_line_that_was_acknowledged_and_is_lost_is_seen(whole, tmp_path, damage):
    log = acknowledge(tmp_path / "log", whole)
    before = checking.read_raw(whole)
    path = whole / FILE
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-20])
    elif damage == "gone":
        path.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    elif damage == "altered":
        path.write_bytes(data.replace(b'"passed"', b'"failed"', 1))
    else:
        path.unlink()
    after = checking.read_raw(whole)
    assert checking.lost(after, log)
    assert checking.changed(before, after) == [f"{FILE} was changed or is gone"]


def test_a_file_that_grew_is_not_changed(whole, run):
    before = checking.read_raw(whole)
    path = whole / FILE
    path.write_bytes(path.read_bytes() + b"{}")
    assert checking.changed(before, checking.read_raw(whole)) == []


@pytest.mark.parametrize("text", [b'{"kind": "che', b"[]", b'{"kind": "other"}', b"\x00\xff"])
def test_half_a_line_in_the_middle_is_always_wrong_and_at_the_end_where_nobody_was_killed(whole, text):
    path = whole / FILE
    data = path.read_bytes()
    path.write_bytes(data + text)
    raw = checking.read_raw(whole)
    assert raw.torn == [FILE]
    assert checking.half_lines(raw, killed=True) == []
    assert len(checking.half_lines(raw, killed=False)) == 1
    path.write_bytes(data + text + b"\n" + data)
    assert len(checking.half_lines(checking.read_raw(whole), killed=True)) == 1


def without(lines: list[Line], check: str) -> list[Line]:
    return [line for line in lines if getattr(line, "check_name", "") != check]


def _last(run: RunLine, **changes: Any) -> Line:
    return lines_of(run, **changes)[-1]


UNTOLD: dict[str, tuple[Callable[[RunLine], list[Line]], str]] = {
    "a check has no line": (lambda run: [run, *lines_of(run)[:-1], the_end(run, passed=3)], "has no line"),
    "counts differ": (lambda run: [run, *lines_of(run), the_end(run, passed=2)], "ends with the counts"),
    "two lines": (lambda run: [run, *lines_of(run), _last(run)], "has 2 lines"),
    "not planned": (lambda run: [run, _last(a_run(RUN, 1, BERT, plan={"checks": ("x",)}))], "was not planned"),
    "no reason": (lambda run: [run, _last(run, outcome=Outcome.NOT_RUN)], "nothing says why"),
    "other suite": (lambda run: [run, _last(run, suite_hash="another")], "another suite"),
    "no plan": (lambda run: lines_of(run), "has lines and no plan"),
}


@pytest.mark.parametrize("damage", UNTOLD)
def test_what_a_run_leaves_unsaid_is_seen(tmp_path, run, damage):
    make, words = UNTOLD[damage]
    put(tmp_path / "evidence", *make(run))
    found = checking.untold(checking.read_raw(tmp_path / "evidence"))
    assert any(words in text for text in found), found


def test_a_crash_beside_a_pass_is_no_second_line(tmp_path, run):
    crashed = _last(run, outcome=Outcome.CRASHED)
    put(tmp_path / "evidence", run, *lines_of(run), crashed, the_end(run, passed=4, crashed=1))
    assert checking.untold(checking.read_raw(tmp_path / "evidence")) == []


def test_a_run_without_its_end_is_not_over_until_another_goes_on_with_it(tmp_path, run):
    put(tmp_path / "evidence", run, *lines_of(run)[:2])
    raw = checking.read_raw(tmp_path / "evidence")
    assert checking.unfinished(raw) == {RUN}
    assert len(checking.incomplete(raw, WANTED)) == 2
    second = a_run("20260102T000000Z-bbbbbb", 2, resumes=(RUN,))
    put(tmp_path / "evidence", second, *lines_of(second), the_end(second), name=f"{second.run_id}-2.jsonl")
    assert checking.incomplete(checking.read_raw(tmp_path / "evidence"), WANTED) == []


def test_a_reader_that_sees_other_lines_is_seen(whole, run):
    raw = checking.read_raw(whole)
    lines = [run, *lines_of(run)[:-1], the_end(run)]
    put(whole, *lines)
    assert any("the reader misses" in text for text in misread(whole, raw))


def test_a_reader_that_takes_half_a_line_for_none_and_a_run_that_was_cut_off_for_whole_is_seen(whole, run):
    put(whole, run, *lines_of(run))
    (whole / FILE).write_bytes((whole / FILE).read_bytes() + b'{"ki')
    raw = checking.read_raw(whole)
    assert misread(whole, raw) == []
    put(whole, run, *lines_of(run), the_end(run))
    found = misread(whole, raw)
    for words in ("calls [] broken", "calls () cut off", "no finding names the run", "no finding names half a line"):
        assert any(words in text for text in found), (words, found)


def test_a_level_above_what_any_run_showed_is_seen(whole, run):
    from hardware.detection import detect

    here = a_run(RUN, 1, versions=versions_of(detect()))
    required = ("builds", "matches_reference", "matches_recorded", "honours_mask", "save_reload", "backward")
    here = a_run(RUN, 1, BERT, versions=dict(here.versions), plan={"checks": (*required, "runs_natively")})
    lines = lines_of(here, accelerator="CPU", native_ops={"aten.addmm": 1}, actual_dtype="float32", tolerance=2e-5)
    put(whole, here, *lines, the_end(here, passed=len(lines)))
    raw = checking.read_raw(whole)
    assert misread(whole, raw) == []
    for line in raw.of_kind("check"):
        line["outcome"] = "failed"
    assert any("no run passed it whole" in text for text in misread(whole, raw))


# Files

HTML = "<!doctype html><html></html>\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a run with suites, reports and a cache, all whole."""
    for name in ("suites", "reports", "cache/generated", "cache/references", "cache/exports/kept"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "suites" / "test_a.py").write_bytes(b"a = 1\n")
    report = json.dumps({"verdicts": [{"cell": BERT}]})
    texts = {"md": f"# Report\n{BERT}\n", "json": report, "html": HTML, "xml": "<a></a>", "sarif": "{}"}
    for suffix, text in texts.items():
        (tmp_path / "reports" / f"{RUN}.{suffix}").write_text(text, encoding="utf-8")
    (tmp_path / "cache" / "generated" / "a.json").write_text("{}")
    ReferenceStore(tmp_path / "cache" / "references").put("id", {"x": np.arange(3)}, {"y": np.ones((4, 5))})
    export = tmp_path / "cache" / "exports" / "kept"
    (export / "model.bin").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    (export / "verified.json").write_text(json.dumps({"files": {"model.bin": digest}}))
    return tmp_path


SUITES = {"test_a.py": b"a = 1\n"}
KEPT = [
    *("suites/test_a.py", f"reports/{RUN}.md", f"reports/{RUN}.json", f"reports/{RUN}.html", f"reports/{RUN}.xml"),
    *(f"reports/{RUN}.sarif", "cache/generated/a.json", "cache/references/*.safetensors"),
    *("cache/exports/kept/model.bin", "cache/exports/kept/verified.json"),
]


def test_whole_files_are_whole(folder):
    assert checking.half_files(folder, SUITES) == []
    assert checking.leftovers(folder) == []


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_half_a_file_is_seen(folder, name, share):
    (path,) = folder.glob(name)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert len(checking.half_files(folder, SUITES)) >= 1


def test_a_file_that_an_export_lacks_is_seen_and_folders_of_work_are_nobodys(folder):
    exports = folder / "cache" / "exports"
    (exports / "export-abc").mkdir()
    (exports / "export-abc" / "half.bin").write_bytes(b"half")
    assert checking.half_files(folder, SUITES) == []
    assert checking.leftovers(folder) == ["cache/exports/export-abc"]
    (exports / "kept" / "model.bin").unlink()
    assert len(checking.half_files(folder, SUITES)) == 1
    shutil.rmtree(exports / "kept")
    (exports / "kept").mkdir()
    assert len(checking.half_files(folder, SUITES)) == 1


def test_what_killed_processes_leave_is_counted(folder):
    (folder / "suites" / ".x.part").write_bytes(b"half")
    (folder / "tmp" / "hwcompat-abc").mkdir(parents=True)
    assert checking.leftovers(folder) == ["suites/.x.part", "tmp/hwcompat-abc"]
    assert checking.half_files(folder, SUITES) == []


def test_half_a_zip_file_is_seen(tmp_path):
    path = tmp_path / "suite.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b" * 1000)
    assert checking.wrong_zip(path) == ""
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    assert checking.wrong_zip(path)
    path.write_bytes(data.replace(b"bbb", b"bcb", 1))
    assert checking.wrong_zip(path)


def test_a_file_that_is_neither_old_nor_new_is_seen(tmp_path):
    for number, text in enumerate(("old", "new")):
        (tmp_path / "known" / str(number)).mkdir(parents=True)
        (tmp_path / "known" / str(number) / "file").write_text(text)
    (tmp_path / "written").mkdir()
    assert writers.wrong_files(tmp_path) == ["file is gone"]
    (tmp_path / "written" / "file").write_text("new")
    (tmp_path / "written" / ".file.part").write_text("ne")
    assert writers.wrong_files(tmp_path) == []
    (tmp_path / "written" / "file").write_text("ne")
    assert writers.wrong_files(tmp_path) == ["file is neither the old nor the new one"]


def test_lines_that_compacting_or_merging_loses_are_seen(tmp_path):
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


# Victims


def killed(code: int) -> Killed:
    return Killed(ran=Ran(code=code, out="", err="", seconds=1.0), landed=True, left=())


def test_a_killed_child_has_to_be_on_record_as_one_crash(tmp_path, run):
    kill = Kill(number=0, victim="child", share=0.5)
    crash = _last(run, outcome=Outcome.CRASHED, error_message="ended by SIGKILL")
    put(tmp_path, run, *lines_of(run)[:-1], crash, the_end(run, passed=3, crashed=1))
    assert kills._victims(kill, killed(1), checking.read_raw(tmp_path)) == []
    assert kills._victims(kill, killed(0), checking.read_raw(tmp_path))
    put(tmp_path, run, *lines_of(run)[:-1], crash, crash, the_end(run, passed=3, crashed=2))
    assert kills._victims(kill, killed(1), checking.read_raw(tmp_path))
    put(tmp_path, run, *lines_of(run), the_end(run))
    assert kills._victims(kill, killed(1), checking.read_raw(tmp_path)) == ["a child was killed, and 0 lines say so"]


def test_a_killed_parent_has_to_have_been_killed(tmp_path, run):
    kill = Kill(number=0, victim="parent", share=0.5)
    put(tmp_path, run, *lines_of(run)[:2])
    raw = checking.read_raw(tmp_path)
    assert kills._victims(kill, killed(-signal.SIGKILL), raw) == []
    assert kills._victims(kill, killed(1), raw) == ["a killed run ended with 1"]


def test_a_process_that_outlives_its_run_is_seen(whole, folder):
    place = Place(folder=folder)
    undisturbed = Undisturbed(seconds=1.0, suites=SUITES)
    (folder / "suites" / "test_a.py").write_bytes(SUITES["test_a.py"])
    assert kills.look(place, checking.read_raw(whole), undisturbed, [77]) == ["process 77 was left alive"]


def test_a_run_that_resume_did_not_bring_to_its_end_is_seen(whole, folder):
    undisturbed = Undisturbed(seconds=1.0, suites=SUITES)
    ran = Ran(code=3, out="", err="it broke", seconds=1.0)
    found = after_resuming(Place(folder=folder), checking.read_raw(whole), ran, undisturbed)
    for words in ("was never carried out whole", "--resume ended with 3", "no report in all formats"):
        assert any(words in text for text in found), (words, found)


def test_a_death_that_is_told_as_something_else_is_seen(tmp_path):
    (death,) = deaths(["segfault"])
    dying = {"bert": death}
    run = a_run(RUN, 1, BERT, plan={"checks": ("first", "second", "third")})
    crash = {"outcome": Outcome.CRASHED, "error_message": "ended by SIGSEGV"}
    first, second, third = (
        lines_of(run, outcome=Outcome.AMBIGUOUS)[0],
        lines_of(run, **crash)[1],
        lines_of(run, outcome=Outcome.NOT_RUN)[2],
    )
    put(tmp_path, run, first, second, third)
    found = judge(tmp_path, dying)
    assert found["segfault"] == []
    assert found["its neighbour"] == ["the suite beside them came to {}"]
    put(tmp_path, run, *lines_of(run))
    assert len(judge(tmp_path, dying)["segfault"]) == 4
    put(tmp_path, run, first)
    assert judge(tmp_path, dying)["segfault"] == ["its lines are ['first']"]


# Drawing, and what is kept of the bench itself


def test_the_same_seed_draws_the_same_kills_spread_over_the_run_and_over_all_points():
    one, again, other = draw(205, 1), draw(205, 1), draw(205, 2)
    assert one == again
    assert one != other
    assert len(one) == 205
    by_victim = {name: [kill for kill in one if kill.victim == name] for name in ("parent", "child", "all", "twice")}
    assert all(by_victim.values())
    shares = sorted(kill.share for kill in by_victim["parent"] if not kill.point)
    assert max(b - a for a, b in itertools.pairwise(shares)) < 2 / len(shares)
    points = [kill.point for kill in one if kill.point]
    assert set(parent_points()) <= set(points)
    assert len(set(points)) == len(points)
    assert set(points) <= {*parent_points(), *child_points()}


def test_a_result_that_was_cut_off_is_tried_again(tmp_path):
    path = tmp_path / "results.jsonl"
    one = Kept(part="kills", id="a", kind="parent", date="2026-01-01", seconds=1.0, facts={}, wrong=["lost"])
    keep(path, one)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"part": "kills", "id": "b"')
    assert read_results(path) == {"a": one}
