"""`hwcompat compare`: which runs are named, what is printed, and with which exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from front_doors import invoke
from made_runs import BERT, GPT2, a_run, write

from hardware.evidence import runs
from hardware.evidence.compacted import compact
from hardware.evidence.evidence_table import EvidenceTable, UnusualEvidenceError
from hardware.evidence.record import Origin
from hardware.evidence.runs import RunEvidence
from hardware.evidence.store import Evidence
from reports.comparison.comparison_result import COMPARISON_SCHEMA

BROKEN = ("matches_reference", "backward")
GREEN, RED = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A green run, and a broken one with another torch."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "hwcompat-out" / "evidence"
    place.parent.mkdir()
    write(place, a_run(GREEN, 1, BERT, GPT2))
    write(place, a_run(RED, 2, BERT, GPT2, versions={"torch": "2.14.0"}), BROKEN)
    return place


def of_objects_only(source: Path | Evidence) -> EvidenceTable:
    """Tables that DuckDB can't fill from a folder, so that Python reads its lines."""
    if isinstance(source, Path):
        raise UnusualEvidenceError("as if")
    return EvidenceTable(source)


def compare(*words: object) -> int:
    return invoke("compare", *words).code


def data(*words: object) -> dict:
    done = invoke("compare", *words, "--format", "json")
    found: dict = done.document
    assert done.code == (1 if found["counts"]["worse"] else 0)
    jsonschema.validate(found, json.loads(COMPARISON_SCHEMA.read_text(encoding="utf-8")))
    return found


def test_a_run_is_named_in_many_ways_and_what_broke_has_its_one_candidate(folder):
    for words in (
        f"{GREEN} {RED}",
        GREEN,
        "20260101 20260102",
        "20260101t000000z-A latest",
        "previous latest",
        "previous",
        f"previous {RED}",
        "last-green",
        "last-green latest",
        "latest last-green",
        "last-green desk",
        "last-green --machine desk",
        f"{GREEN} desk",
        f"{GREEN} hwcompat-out/evidence",
    ):
        found = data(*words.split())
        assert found["counts"]["worse"] == 2, words
        assert [change["cause"]["single"]["name"] for change in found["changes"]] == ["torch", "torch"]
        assert [change["before"]["run_id"] for change in found["changes"]] == [GREEN, GREEN]
    assert compare(RED, GREEN) == 0
    assert compare(RED, GREEN, "--fail-on", "info") == 1
    assert compare(GREEN, RED, "--fail-on", "critical") == 0


def test_evidence_is_the_same_as_lines_as_parquet_and_as_objects(folder, monkeypatch):
    def lines_of_runs() -> set[tuple[str, str]]:
        with RunEvidence(folder) as evidence:
            found = evidence.checks(runs=[RED]) + evidence.checks(runs=[GREEN], cells=[BERT])
        return {(line.run_id, line.cell_id) for line in found}

    wanted = data("last-green")
    lines = {(RED, BERT), (RED, GPT2), (GREEN, BERT)}
    assert lines_of_runs() == lines
    with monkeypatch.context() as patch:
        patch.setattr(runs, "EvidenceTable", of_objects_only)
        assert data("last-green") == wanted
        assert lines_of_runs() == lines
    assert compact(folder).files == 4
    assert not list(folder.glob("*.jsonl"))
    assert data("last-green") == wanted


def test_what_differs_is_above_what_broke(folder):
    write(folder, a_run("r9", 9, BERT, machine="<b>|`", versions={"torch": "<i>|`"}), BROKEN)
    for format_ in ("text", "markdown"):
        shown = " ".join(invoke("compare", GREEN, "r9", "--format", format_).out.split())
        assert shown.index("version torch") < shown.index(BERT)
        assert "gone" in shown.lower()
        assert "5 checks fail" not in shown
        assert "2 checks fail: matches_reference, backward" in shown.replace("\\_", "_")
        assert format_ == "text" or not re.search("<[bi]>", shown)


def test_what_names_no_run_says_what_to_type(folder):
    for words, code, message in (
        (f"20260101T000000Z-aaaaab {RED}", 5, f"Did you mean '{GREEN}'"),
        ("lates", 5, "Did you mean 'latest'"),
        (f"dsk {RED}", 5, "Did you mean 'desk'"),
        (f"{RED} --machine dsk", 5, "Did you mean 'desk'"),
        ("2026", 4, "is ambiguous: it matches 2"),
        (f"latest {RED}", 4, "are the same run"),
        ("previous previous", 4, "previous latest"),
        (f"{GREEN} {RED} more", 4, "unexpected extra argument"),
        ("", 4, "previous latest"),
        ("last-green previous", 4, "hwcompat compare last-green"),
        (f"{RED} ./nowhere", 4, "not found"),
        (f"{RED} --format csv", 4, "'csv' is not one of 'text'"),
        (f"{RED} --collect-all", 4, "No such option '--collect-all'"),
    ):
        shown = invoke("compare", *words.split())
        assert (shown.code, shown.out) == (code, ""), words
        assert message in shown.err
        if code == 5 or not words:
            assert f"{RED}  2026-01-02 00:00  desk  2 cells" in shown.err
            assert "hwcompat run" in shown.err
        else:
            assert shown.err.count("\n") == 1


def test_no_cell_in_common_and_no_evidence_are_code_5(folder, tmp_path):
    write(folder, a_run("r9", 9, "vit/image-classification/cpu/float32"))
    done = invoke("compare", GREEN, "r9")
    assert done.code == 5
    assert "no cell in common" in done.err
    assert compare("previous") == 5
    (tmp_path / "empty").mkdir()
    assert compare("latest", "--evidence", "empty") == 5


def test_runs_of_others_tests_and_broken_lines_are_reported_and_not_compared(folder):
    write(folder, a_run("foreign", 5, origin=Origin.TRANSFORMERS), origin=Origin.TRANSFORMERS)
    write(folder, a_run("lost", 6))
    (folder / "lost-1.jsonl").unlink()
    for word, message in (("foreign", "own tests"), ("lost", "results of checks, but no plan")):
        done = invoke("compare", word)
        assert done.code == 5
        assert message in done.err
    assert data("previous")["now"]["runs"][0]["run_id"] == RED
    with (folder / f"{RED}-2.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"half a li')
    shown = invoke("compare", "previous", "--format", "json")
    assert shown.code == 1
    assert shown.document["counts"]["worse"] == 2
    assert "skipped 1 broken line(s)" in shown.err


def test_two_folders_are_two_sides_and_files_go_to_the_requested_folder(folder, tmp_path):
    other = tmp_path / "elsewhere"
    write(other, a_run("r7", 7, BERT, machine="lab"))
    found = data(str(folder), str(other))
    assert [found[name]["runs"][0]["machine"] for name in ("before", "now")] == ["desk", "lab"]
    assert found["counts"]["better"] == 1
    assert compare("previous", "--output-dir", str(tmp_path / "out"), "--format", "json") == 1
    assert json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))["counts"]["worse"] == 2
    assert compare("previous", "--output-dir", str(tmp_path / "out"), "--format", "html") == 1
    page = (tmp_path / "out" / "comparison.html").read_text(encoding="utf-8")
    assert 'aria-label="2 worse"' in page
    assert "version torch" in page


def test_a_flaky_cell_is_a_warning(folder):
    for day in (4, 5, 6):
        write(folder, a_run(f"r{day}", day, BERT), BROKEN if day == 5 else ())
    (change,) = [one for one in data("last-green")["changes"] if one["cell"] == BERT]
    assert (change["kind"], change["severity"], change["now"]["state"]) == ("flaky", "warning", "green")
    assert [one["run_id"] for one in change["alternating"]] == [GREEN, "r4", "r5", "r6"]
    assert compare("r5", "r6") == 0
    assert compare("r5", "r6", "--fail-on", "warning") == 1
