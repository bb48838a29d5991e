"""The latest results of a folder, and what a report says of them: the same from JSON lines, Parquet and memory."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.compatibility.matrix_groups import UNNAMED, by_device
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.detection import detect
from hardware.errors import BrokenInput, HwCompatError
from hardware.evidence import latest, reduce
from hardware.evidence.compacted import compact
from hardware.evidence.evidence_table import EvidenceTable, UnusualEvidenceError
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import CheckLine, EndLine, Line, Origin, Outcome, PlannedCell, RunLine, to_dict
from hardware.evidence.runs import LAST_RUNS
from hardware.evidence.store import Evidence, read_folder, read_line, read_run
from reports.formats.json import report_object
from reports.reporter import HardwareCompatibilityReporter

BERT, GPT2 = "bert/fill-mask/cpu/float32", "gpt2/text-generation/cuda/float16"
CHECKS = ("builds", "matches_reference", "backward")
OUTCOMES = (Outcome.PASSED, Outcome.PASSED, Outcome.FAILED, Outcome.AMBIGUOUS, Outcome.SKIPPED, Outcome.NOT_RUN)


def write(folder: Path, name: str, *lines: Line) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(to_dict(line)) + "\n" for line in lines)
    return path


def run(run_id: str, *cells: str, machine: str = "here", day: int = 1, **changes: object) -> RunLine:
    plan = tuple(
        PlannedCell(cell_id=cell, checks=CHECKS, suite="s.py", suite_hash=run_id, subject="tiny") for cell in cells
    )
    line = RunLine(
        run_id=run_id,
        started_at=f"2026-01-{day:02}",
        command="",
        machine=machine,
        inventory={},
        versions={"torch": run_id},
        plan=plan,
    )
    return replace(line, **changes)


def check(run_id: str, cell: str, name: str = "builds", day: int = 1, **changes: object) -> CheckLine:
    model, task, target, precision = cell.split("/")
    line = CheckLine(
        run_id=run_id,
        cell_id=cell,
        check_name=name,
        outcome=Outcome.PASSED,
        subject="tiny",
        requested_target=target,
        actual_target=target,
        precision=precision,
        model=model,
        task=task,
        suite_hash=run_id,
        started_at=f"2026-01-{day:02}T",
        duration_s=0.1,
        accelerator="A",
    )
    return replace(line, **changes)


def end(run_id: str) -> EndLine:
    return EndLine(run_id=run_id, ended_at="2026-02-01", reason="done", counts={})


def a_folder(folder: Path, seed: int) -> None:
    """Runs that plan more or less than what they have lines of, on machines and accelerators that take turns."""
    draw = random.Random(seed)
    cells = [f"m{number}/some-task/{target}/float32" for number in range(6) for target in ("cpu", "cuda")]
    cells.append("no cell at all")
    for number in range(7):
        run_id = f"r{number}"
        own = draw.sample(cells, 9)
        tidy = draw.random() < 0.5
        lines: list[Line] = []
        origin, at = Origin.HWCOMPAT, draw.randrange(1, 28)
        if draw.random() < 0.9:
            origin = Origin.TRANSFORMERS if draw.random() < 0.1 else Origin.HWCOMPAT
            lines.append(run(run_id, *own, machine=draw.choice(("a", "b")), day=at, origin=origin))
        for cell in own[:-1]:
            for name in CHECKS if tidy else draw.choices((*CHECKS, "unplanned"), k=4):
                cell = cell if "/" in cell else cells[0]
                changes = {} if tidy else odd(draw, cell)
                lines.append(check(run_id, cell, name, day=draw.randrange(at, 29), origin=origin, **changes))
        write(folder, run_id, *lines, end(run_id))


def odd(draw: random.Random, cell: str) -> dict[str, object]:
    outcome = draw.choice(OUTCOMES)
    silent = outcome is Outcome.NOT_RUN
    return {
        "outcome": outcome,
        "error_type": draw.choice(("not_reached", "interrupted", "else")) if silent else "",
        "accelerator": draw.choice(("A", "B™", None, "")),
        "requested_target": draw.choice(("cpu", "cpu:1") if "/cpu/" in cell else ("cuda", "cuda:1")),
        "substitution_reason": "" if silent else draw.choice(("", "", "it isn't here")),
        **({"started_at": "2999-01-01"} if draw.random() < 0.1 else {}),
    }


def same(one: Latest, other: Latest) -> bool:
    """Whether two are the same; of lines that are in memory it isn't known in which file they were."""
    reasons = [{line.reason for line in found.broken} for found in (one, other)]
    return reasons[0] == reasons[1] and replace(one, broken=()) == replace(other, broken=())


@pytest.fixture(autouse=True)
def no_way_back(monkeypatch):
    """The folder isn't read as objects behind the table's back."""

    def refuse(folder: Path) -> None:
        raise AssertionError(f"{folder} was read as objects")

    monkeypatch.setattr(latest, "read_folder", refuse)


@pytest.mark.parametrize("seed", range(4))
def test_raw_and_compacted_say_what_objects_say(tmp_path, seed):
    a_folder(tmp_path, seed)
    wanted = read_latest(read_folder(tmp_path))
    assert len(wanted.checks) > 30
    assert same(read_latest(tmp_path), wanted)
    done = compact(tmp_path)
    assert (done.files, done.left) == (7, ())
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / ".lock", *done.paths}
    assert same(read_latest(tmp_path), wanted)
    assert same(read_latest(read_folder(tmp_path)), wanted)


def test_what_a_later_run_replaces_is_left_out_before_it_is_an_object(tmp_path):
    cell = "bert/fill-mask/cpu/float32"
    for day in range(1, 9):
        lines = [check(f"r{day}", cell, name, day=day) for name in CHECKS]
        write(tmp_path, f"r{day}", run(f"r{day}", cell, day=day), *lines)
    with EvidenceTable(tmp_path) as table:
        left = reduce.reduce_checks(table.connection)
    assert {one.run_id for one in left} == {"r8"}
    assert len(left) == len(CHECKS)


def test_broken_lines_are_told_and_hide_nothing(tmp_path):
    cell = "bert/fill-mask/cpu/float32"
    path = write(tmp_path, "r1", run("r1", cell), check("r1", cell))
    with path.open("ab") as file:
        file.write(b'{"kind": "che\n\n\xff\xfe\n[1]\n')
    write(tmp_path, "r1", check("r1", cell, "backward", error_message="\udc80"))
    write(tmp_path, "r2", run("r2", cell, day=2), check("r2", cell, "builds", day=2))
    found = read_latest(tmp_path)
    assert found == read_latest(read_folder(tmp_path))
    assert [(one.file, one.number) for one in found.broken] == [
        ("r1-1.jsonl", 3),
        ("r1-1.jsonl", 5),
        ("r1-1.jsonl", 6),
    ]
    assert {(one.run_id, one.check_name) for one in found.checks} >= {("r2", "builds"), ("r1", "backward")}


def test_a_line_that_only_looks_whole_counts_for_nothing_and_the_one_before_it_does(tmp_path):
    cell = "bert/fill-mask/cpu/float32"
    write(tmp_path, "r1", run("r1", cell), *(check("r1", cell, name) for name in CHECKS))
    path = write(tmp_path, "r2", run("r2", cell, day=2))
    wrong = to_dict(check("r2", cell, day=2, outcome=Outcome.FAILED)) | {"batch": "three"}
    path.write_text(path.read_text() + json.dumps(wrong) + "\n", encoding="utf-8")
    found = read_latest(tmp_path)
    assert found == read_latest(read_folder(tmp_path))
    assert [one.number for one in found.broken] == [2]
    assert next(one for one in found.checks if one.check_name == "builds").run_id == "r1"


def test_a_version_that_is_a_truth_value_costs_its_own_line_alone(tmp_path):
    path = write(tmp_path, "r1", run("r1", BERT), check("r1", BERT), check("r1", BERT, "backward"))
    lines = path.read_text().splitlines()
    version = f'"schema_version": {json.loads(lines[1])["schema_version"]}'
    lines[1] = lines[1].replace(version, '"schema_version": true')
    path.write_text("\n".join(lines) + "\n")
    assert [one.check_name for one in read_folder(tmp_path).checks] == ["backward"]
    known = [one.check_name for one in read_latest(tmp_path).checks if one.outcome is Outcome.PASSED]
    assert known == ["backward"]


def test_two_lines_of_one_run_keep_the_worse_one(tmp_path):
    cell = "bert/fill-mask/cpu/float32"
    lines = [check("r1", cell, outcome=one) for one in (Outcome.PASSED, Outcome.FAILED, Outcome.PASSED)]
    write(tmp_path, "r1", run("r1", cell), *lines)
    assert [one.outcome for one in read_latest(tmp_path).checks if one.check_name == "builds"] == [Outcome.FAILED]


@pytest.mark.parametrize("error_type", reduce.SETUP)
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.NOT_RUN])
def test_a_mistake_of_the_set_up_hides_no_earlier_result(tmp_path, outcome, error_type):
    write(tmp_path, "r1", run("r1", BERT), check("r1", BERT))
    mistaken = check("r2", BERT, outcome=outcome, error_type=error_type, accelerator=None, actual_target=None, day=2)
    write(tmp_path, "r2", run("r2", BERT, day=2), mistaken)
    found = [one for one in read_latest(tmp_path).checks if one.check_name == "builds"]
    assert [(one.run_id, one.outcome) for one in found] == [("r1", Outcome.PASSED)]


def test_a_checkpoint_that_was_missing_is_answered_by_a_later_run_of_its_weights(tmp_path):
    asked, fetched = (f"{name}/fill-mask/cpu/float32" for name in ("mine", "mine@1377e9af"))
    changes = {"outcome": Outcome.NOT_RUN, "error_type": "weights_missing", "accelerator": None}
    write(tmp_path, "r1", run("r1", asked), check("r1", asked, **changes))
    assert read_latest(tmp_path).cells == {asked}
    write(tmp_path, "r2", run("r2", fetched, day=2), check("r2", fetched, day=2))
    assert read_latest(tmp_path).cells == {fetched}
    write(tmp_path, "r3", run("r3", asked, day=3), check("r3", asked, day=3, **changes))
    assert read_latest(tmp_path).cells == {asked, fetched}  # it is missing again


def test_a_folder_that_is_not_there_and_an_empty_one(tmp_path):
    with pytest.raises(BrokenInput, match="--run"):
        read_latest(tmp_path / "none")
    found = read_latest(tmp_path)
    assert isinstance(found, Latest)
    assert (found.checks, found.cells, found.broken) == ((), frozenset(), ())


def test_compacting_leaves_what_goes_on_and_what_is_broken(tmp_path):
    cell = "bert/fill-mask/cpu/float32"
    write(tmp_path, "done", check("done", cell, "backward")).rename(tmp_path / "done-2.jsonl")
    write(tmp_path, "done", run("done", cell), check("done", cell), end("done"))
    write(tmp_path, "going", run("going", cell), check("going", cell))
    cut = write(tmp_path, "cut", run("cut", cell), end("cut"))
    cut.write_bytes(cut.read_bytes() + b'{"half')
    before = read_folder(tmp_path)
    done = compact(tmp_path)
    assert (done.files, done.lines) == (2, 4)
    assert dict(done.left) == {
        "going-1.jsonl": "its run has no end",
        "cut-1.jsonl": "not all of its lines are whole lines of this version",
    }
    assert read_folder(tmp_path) == before
    assert compact(tmp_path).files == 0
    assert [one.check_name for one in read_run(tmp_path, "done").checks] == ["builds", "backward"]


def test_a_file_that_is_there_itself_counts_instead_of_its_compacted_copy(tmp_path):
    cell = "bert/fill-mask/cpu/float32"
    path = write(tmp_path, "r1", run("r1", cell), check("r1", cell), end("r1"))
    data = path.read_bytes()
    compact(tmp_path)
    path.write_bytes(data + json.dumps(to_dict(check("r1", cell, "backward"))).encode() + b"\n")
    assert [one.check_name for one in read_folder(tmp_path).checks] == ["builds", "backward"]
    assert read_latest(tmp_path) == read_latest(read_folder(tmp_path))


def test_parquet_of_another_kind_is_refused_by_name(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no, not really PAR1")
    with pytest.raises(BrokenInput, match=r"x\.parquet"):
        read_folder(tmp_path)
    with pytest.raises(BrokenInput, match=r"x\.parquet"):
        read_latest(tmp_path)


def test_an_accelerator_without_a_name_is_listed_only_where_something_ran():
    line = check("r1", "bert/fill-mask/cpu/float32", accelerator=None)
    one = SimpleNamespace(checks=(line,), machines={})

    def named(level: Level) -> object:
        verdict = Verdict(cell=line.cell_id, level=level, basis=Basis.MEASURED, evidence_ids=("r1",))
        return by_device(one, [verdict], lambda part: pytest.fail("nothing is shared"))["accelerator"]

    assert named(Level.UNKNOWN) == {}
    assert [verdict.level for verdict in named(Level.HIGH)[UNNAMED]] == [Level.HIGH]


@pytest.mark.parametrize(
    "changes",
    [{"run_id": "r2"}, {"cell_id": "x/y/cpu/float32"}, {"check_name": "backward"}, {"accelerator": "B"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_line_that_is_not_what_the_table_says_is_not_believed(changes):
    line = check("r1", "bert/fill-mask/cpu/float32")
    where = reduce.LinePlace(cell_id=line.cell_id, check_name="builds", target="cpu", machine="here", planned=True)
    row = reduce.Reduced(place=0, run_id="r1", where=where, accelerator="A")
    ((_, told),) = latest._placed({}, [row], {0: line})
    assert told == line
    with pytest.raises(UnusualEvidenceError, match="the table"):
        list(latest._placed({}, [row], {0: replace(line, **changes)}))


def test_an_empty_file_in_the_place_of_a_compacted_one_takes_nothing_away(tmp_path):
    a_folder(tmp_path, 0)
    compact(tmp_path)
    wanted = read_latest(tmp_path)
    (tmp_path / "r3-1.jsonl").touch()
    assert read_latest(tmp_path) == wanted
    assert same(read_latest(read_folder(tmp_path)), wanted)


@pytest.mark.parametrize("kind", ["check", "run", "end"])
def test_no_field_of_a_line_takes_what_is_of_another_kind(kind):
    cell = "bert/fill-mask/cpu/float32"
    whole = to_dict({"check": check("r1", cell), "run": run("r1", cell), "end": end("r1")}[kind])
    assert read_line(json.dumps(whole).encode())
    for name in whole.keys() - {"kind"}:
        with pytest.raises((ValueError, HwCompatError)):
            read_line(json.dumps({**whole, name: [["x"]]}).encode())


def test_no_field_of_a_planned_cell_takes_what_is_of_another_kind():
    whole = to_dict(run("r1", "bert/fill-mask/cpu/float32"))
    (planned,) = whole["plan"]
    for name in planned:
        with pytest.raises((ValueError, HwCompatError)):
            read_line(json.dumps({**whole, "plan": [{**planned, name: [["x"]]}]}).encode())


# With details, and as a report


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Three runs of two machines: one that ended, one that the third resumes, and the third, killed within a line."""

    def planned(day: int, **changes: object) -> RunLine:
        line = run(f"r{day}", BERT, GPT2, machine=f"lab-{day % 2}", day=day, **changes)
        verdict = {"level": "high", "basis": "predicted", "rule_ids": [f"rule.{day}"]}
        plan = tuple(replace(one, verdict={"cell": one.cell_id, **verdict}) for one in line.plan)
        return replace(line, plan=plan, inventory={"cpu": {"model": f"of run {day}"}})

    folder = tmp_path / "evidence"
    for day in (1, 2):
        lines = [check(f"r{day}", cell, name, day) for cell in (BERT, GPT2) for name in CHECKS]
        write(folder, f"r{day}", planned(day), *lines, *([end("r1")] if day == 1 else []))
    wrong = {"outcome": Outcome.FAILED, "error_type": "numerical_mismatch", "error_message": "off by far"}
    failed = check("r3", BERT, "matches_reference", 3, max_rel_error=float("nan"), tolerance=2e-5, **wrong)
    path = write(folder, "r3", planned(3, resumes=("r2",)), failed, check("r3", BERT, "builds", 3))
    path.write_text(path.read_text(encoding="utf-8") + '{"kind": "check", "run', encoding="utf-8")
    return folder


def reported(source: Evidence | Latest) -> dict[str, object]:
    """The report of some evidence as JSON, with the parts of it that only a page shows."""
    reporter = HardwareCompatibilityReporter(source, inventory=detect())
    reporter.collect_compatibility_test_errors()
    report = reporter.report()
    found = report_object(report)
    for error in found["errors"]:  # findings about the evidence itself are dated now
        error["timestamp"] = ""
    return {**found, "timestamp": "", "history": report.history, "predictions": reporter.latest.predictions}


def types_of(report: dict[str, object]) -> list[str]:
    return sorted(error["error_type"] for error in report["errors"])


@pytest.mark.parametrize("compacted", [False, True])
def test_a_report_says_the_same_of_a_folder_and_of_its_evidence_in_memory(killed, compacted):
    if compacted:
        assert compact(killed).files == 2
    wanted, found = reported(read_folder(killed)), reported(read_latest(killed, details=True))
    assert found == wanted
    assert types_of(found) == ["broken_evidence", "interrupted", "numerical_mismatch"]
    assert found["predictions"][BERT]["rule_ids"] == ["rule.3"]


def test_a_folder_that_duckdb_cant_read_is_read_line_by_line(killed, monkeypatch):
    wanted = reported(read_latest(killed, details=True))

    def of_objects_only(source: Path | Evidence, **how: object) -> EvidenceTable:
        if isinstance(source, Path):
            raise UnusualEvidenceError("as if")
        return EvidenceTable(source, **how)

    monkeypatch.setattr(latest, "EvidenceTable", of_objects_only)
    monkeypatch.setattr(latest, "read_folder", read_folder)
    assert reported(read_latest(killed, details=True)) == wanted


def test_details_are_of_the_newest_runs(killed):
    (killed / "r3-1.jsonl").unlink()
    found = read_latest(killed, details=True)
    assert {line.run_id for line in found.checks} == {"r2", "r1"}
    assert found.unfinished == ("r2",)
    assert [one.machine for one in found.runs] == ["lab-0", "lab-1"]


def test_the_history_keeps_the_last_runs_of_a_cell_and_counts_all(tmp_path):
    for day in range(1, LAST_RUNS + 3):
        outcome = Outcome.FAILED if day % 2 else Outcome.PASSED
        write(
            tmp_path,
            f"r{day:02}",
            run(f"r{day:02}", BERT, day=day),
            check(f"r{day:02}", BERT, day=day, outcome=outcome),
        )
    found = read_latest(tmp_path, details=True).history
    assert found == read_latest(read_folder(tmp_path), details=True).history
    past = found.cells[BERT]
    assert [found.runs[place].run_id for place, _ in past] == [f"r{day:02}" for day in range(3, LAST_RUNS + 3)]
    assert [dict(outcomes) for _, outcomes in past[:2]] == [{"failed": 1}, {"passed": 1}]
    assert sum(sum(one.outcomes.values()) for one in found.runs) == LAST_RUNS + 2
    assert found.runs[0].versions == {"torch": "r01"}


def test_checks_without_a_run_line_have_a_place_in_the_history(tmp_path):
    write(tmp_path, "r5", check("r5", BERT, day=5))
    found = read_latest(tmp_path, details=True).history
    assert found == read_latest(read_folder(tmp_path), details=True).history
    assert [(one.run_id, one.machine, dict(one.outcomes)) for one in found.runs] == [("r5", "", {"passed": 1})]


@pytest.mark.parametrize(
    "changes",
    [{"versions": "torch 2"}, {"plan": [{"cell_id": BERT, "checks": [1]}]}, {"inventory": []}, {"command": 1}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_run_whose_line_cant_be_read_is_reported_as_broken(killed, changes, monkeypatch):
    path = killed / "r2-1.jsonl"  # whole but for its first line, as tables have it
    first, *rest = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join([json.dumps({**json.loads(first), **changes}), *rest]), encoding="utf-8")
    monkeypatch.setattr(latest, "read_folder", read_folder)
    wanted, found = reported(read_folder(killed)), reported(read_latest(killed, details=True))
    assert found == wanted
    assert "broken_evidence" in types_of(found)
    assert any("r2-1.jsonl" in error["message"] for error in found["errors"])


def test_a_run_that_ended_did_end_whatever_else_its_file_holds(killed):
    path = killed / "r1-1.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + '{"kind": "something new"}\n', encoding="utf-8")
    found, wanted = read_latest(killed, details=True), read_latest(read_folder(killed), details=True)
    assert found.unfinished == wanted.unfinished == ("r3",)
