"""The latest results of a folder: the same from JSON lines, Parquet and memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from evidence_folders import (
    CHECKS,
    a_check,
    a_run,
    an_end,
    append,
    write_killed_run,
    write_random_runs,
)
from evidence_lines import BERT

from generators.compatibility.matrix_groups import UNNAMED, by_device
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.errors import BrokenInput
from hardware.evidence import latest, reduce
from hardware.evidence.compacted import compact
from hardware.evidence.evidence_table import EvidenceTable
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import Outcome, to_dict
from hardware.evidence.runs import LAST_RUNS
from hardware.evidence.store import read_folder, read_run


@pytest.fixture(autouse=True)
def no_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to read the folder as objects behind the table's back."""

    def refuse(folder: Path) -> None:
        raise AssertionError(f"{folder} was read as objects")

    monkeypatch.setattr(latest, "read_folder", refuse)


def passed(found: Latest) -> dict[str, str]:
    """Return the run of each check that passed."""
    return {one.check_name: one.run_id for one in found.checks if one.outcome is Outcome.PASSED}


def same(one: Latest, other: Latest) -> bool:
    """Whether two are the same; of lines that are in memory it isn't known in which file they were."""
    reasons = [{line.reason for line in found.broken} for found in (one, other)]
    return reasons[0] == reasons[1] and replace(one, broken=()) == replace(other, broken=())


def test_raw_and_compacted_lines_give_what_objects_give(tmp_path: Path) -> None:
    write_random_runs(tmp_path, 0)
    wanted = read_latest(read_folder(tmp_path))
    assert len(wanted.checks) > 30
    assert same(read_latest(tmp_path), wanted)
    done = compact(tmp_path)
    assert (done.files, done.left) == (7, ())
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / ".lock", *done.paths}
    assert same(read_latest(tmp_path), wanted)
    (tmp_path / "r3-1.jsonl").touch()  # an empty file in the place of a compacted one takes nothing away
    assert same(read_latest(tmp_path), wanted)
    assert same(read_latest(read_folder(tmp_path)), wanted)


def test_what_a_later_run_replaces_is_left_out_before_it_is_an_object(tmp_path: Path) -> None:
    for day in range(1, 9):
        lines = [a_check(f"r{day}", name=name, day=day) for name in CHECKS]
        append(tmp_path, f"r{day}", a_run(f"r{day}", BERT, day=day), *lines)
    with EvidenceTable(tmp_path) as table:
        left = reduce.reduce_checks(table.connection)
    assert [one.run_id for one in left] == ["r8"] * len(CHECKS)


def test_broken_lines_are_reported_and_hide_nothing(tmp_path: Path) -> None:
    path = append(tmp_path, "r1", a_run("r1", BERT), a_check("r1"))
    with path.open("ab") as file:
        file.write(b'{"kind": "che\n\n\xff\xfe\n[1]\n')
    append(tmp_path, "r1", a_check("r1", name="backward", error_message="\udc80"))
    append(tmp_path, "r2", a_run("r2", BERT, day=2), a_check("r2", day=2))
    wrong = [to_dict(a_check("r2", name=name, day=2)) for name in ("backward", "matches_reference")]
    wrong = [wrong[0] | {"batch": "three"}, wrong[1] | {"schema_version": True}]
    with (tmp_path / "r2-1.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in wrong)
    found = read_latest(tmp_path)
    assert found == read_latest(read_folder(tmp_path))
    places = [("r1-1.jsonl", 3), ("r1-1.jsonl", 5), ("r1-1.jsonl", 6), ("r2-1.jsonl", 3), ("r2-1.jsonl", 4)]
    assert [(one.file, one.number) for one in found.broken] == places
    assert passed(found) == {"builds": "r2", "backward": "r1"}


def test_of_two_lines_of_one_run_the_worse_one_counts(tmp_path: Path) -> None:
    lines = [a_check("r1", outcome=one) for one in (Outcome.PASSED, Outcome.FAILED, Outcome.PASSED)]
    append(tmp_path, "r1", a_run("r1", BERT), *lines)
    assert [one.outcome for one in read_latest(tmp_path).checks if one.check_name == "builds"] == [Outcome.FAILED]


def test_a_mistake_of_the_set_up_hides_no_earlier_result(tmp_path: Path) -> None:
    mistakes = [(outcome, one) for outcome in (Outcome.FAILED, Outcome.NOT_RUN) for one in reduce.SETUP]
    cells = [f"m{number}/fill-mask/cpu/float32" for number in range(len(mistakes))]
    append(tmp_path, "r1", a_run("r1", *cells), *(a_check("r1", cell) for cell in cells))
    nowhere = {"accelerator": None, "actual_target": None, "day": 2}
    append(
        tmp_path,
        "r2",
        a_run("r2", *cells, day=2),
        *(
            a_check("r2", cell, outcome=outcome, error_type=error_type, **nowhere)
            for cell, (outcome, error_type) in zip(cells, mistakes, strict=True)
        ),
    )
    found = [one for one in read_latest(tmp_path).checks if one.check_name == "builds"]
    assert {(one.cell_id, one.run_id, one.outcome) for one in found} == {(c, "r1", Outcome.PASSED) for c in cells}


def test_a_checkpoint_that_was_missing_is_answered_by_a_later_run_of_its_weights(tmp_path: Path) -> None:
    asked, fetched = (f"{name}/fill-mask/cpu/float32" for name in ("mine", "mine@1377e9af"))
    changes = {"outcome": Outcome.NOT_RUN, "error_type": "weights_missing", "accelerator": None}
    append(tmp_path, "r1", a_run("r1", asked), a_check("r1", asked, **changes))
    assert read_latest(tmp_path).cells == {asked}
    append(tmp_path, "r2", a_run("r2", fetched, day=2), a_check("r2", fetched, day=2))
    assert read_latest(tmp_path).cells == {fetched}
    append(tmp_path, "r3", a_run("r3", asked, day=3), a_check("r3", asked, day=3, **changes))
    assert read_latest(tmp_path).cells == {asked, fetched}  # it is missing again


def test_folders_without_evidence(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="hwcompat run"):
        read_latest(tmp_path / "none")
    found = read_latest(tmp_path)
    assert (found.checks, found.cells, found.broken) == ((), frozenset(), ())
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no, not really PAR1")
    for read in (read_folder, read_latest):
        with pytest.raises(BrokenInput, match=r"x\.parquet"):
            read(tmp_path)


def test_compacting_leaves_what_goes_on_and_what_is_broken(tmp_path: Path) -> None:
    append(tmp_path, "done", a_check("done", name="backward")).rename(tmp_path / "done-2.jsonl")
    path = append(tmp_path, "done", a_run("done", BERT), a_check("done"), an_end("done"))
    append(tmp_path, "going", a_run("going", BERT), a_check("going"))
    cut = append(tmp_path, "cut", a_run("cut", BERT), an_end("cut"))
    cut.write_bytes(cut.read_bytes() + b'{"half')
    before, data = read_folder(tmp_path), path.read_bytes()
    done = compact(tmp_path)
    assert (done.files, done.lines) == (2, 4)
    assert dict(done.left) == {
        "going-1.jsonl": "its run has no end",
        "cut-1.jsonl": "not all of its lines are whole lines of this version",
    }
    assert read_folder(tmp_path) == before
    assert compact(tmp_path).files == 0
    assert [one.check_name for one in read_run(tmp_path, "done").checks] == ["builds", "backward"]
    path.write_bytes(data)  # a file that is there itself counts instead of its compacted copy
    append(tmp_path, "done", a_check("done", name="matches_reference"))
    assert len(read_run(tmp_path, "done").checks) == 3
    assert read_latest(tmp_path) == read_latest(read_folder(tmp_path))


def test_an_accelerator_without_a_name_is_listed_only_if_something_ran() -> None:
    line = a_check("r1", accelerator=None)
    one = SimpleNamespace(checks=(line,), machines={})

    def named(level: Level) -> object:
        verdict = Verdict(cell=line.cell_id, level=level, basis=Basis.MEASURED, evidence_ids=("r1",))
        return by_device(one, [verdict], lambda part: pytest.fail("nothing is shared"))["accelerator"]

    assert named(Level.UNKNOWN) == {}
    assert [verdict.level for verdict in named(Level.HIGH)[UNNAMED]] == [Level.HIGH]


# With details


def test_details_are_of_the_newest_runs(tmp_path: Path) -> None:
    write_killed_run(tmp_path)
    path = tmp_path / "r1-1.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + '{"kind": "something new"}\n', encoding="utf-8")
    found, wanted = read_latest(tmp_path, details=True), read_latest(read_folder(tmp_path), details=True)
    assert found.unfinished == wanted.unfinished == ("r3",), "r1 has an end, whatever else its file holds"
    assert found.predictions[BERT]["rule_ids"] == ["rule.3"]
    assert (found.plans[BERT].recipe, found.plans[BERT].modeling) == ("digest", "0123456789ab")
    (tmp_path / "r3-1.jsonl").unlink()
    found = read_latest(tmp_path, details=True)
    assert {line.run_id for line in found.checks} == {"r2", "r1"}
    assert found.unfinished == ("r2",)
    assert [one.machine for one in found.runs] == ["lab-0", "lab-1"]


def test_the_history_keeps_the_last_runs_of_a_cell_and_counts_all(tmp_path: Path) -> None:
    days = range(1, LAST_RUNS + 3)
    for day in days:
        outcome, run_id = Outcome.FAILED if day % 2 else Outcome.PASSED, f"r{day:02}"
        append(tmp_path, run_id, a_run(run_id, BERT, day=day), a_check(run_id, day=day, outcome=outcome))
    append(tmp_path, "x", a_check("x", "gpt2/text-generation/cpu/float32", day=28))  # without a run line
    found = read_latest(tmp_path, details=True).history
    assert found == read_latest(read_folder(tmp_path), details=True).history
    past = found.cells[BERT]
    assert [found.runs[place].run_id for place, _ in past] == [f"r{day:02}" for day in days[2:]]
    assert [dict(outcomes) for _, outcomes in past[:2]] == [{"failed": 1}, {"passed": 1}]
    assert [dict(one.outcomes) for one in found.runs] == [{"failed" if day % 2 else "passed": 1} for day in days] + [
        {"passed": 1}
    ]
    assert found.runs[0].versions == {"torch": "r01"}
    assert (found.runs[-1].run_id, found.runs[-1].machine) == ("x", "")
