"""Evidence that was compacted, and evidence that this repository keeps: contradictions are found in both."""

from __future__ import annotations

from dataclasses import replace

from evidence_lines import write_lines
from made_runs import BERT, GPT2, a_run, lines_of

from benchmarks.calibration import kept_places
from generators.compatibility.judge import judge
from generators.compatibility.verdict import Level
from hardware.detection import detect
from hardware.evidence.compacted import compact
from hardware.evidence.damage import contradiction
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, Origin, RunLine
from hardware.evidence.shipped_evidence import read_shipped

RUN, OTHER = "20260102T000000Z-bbbbbb", "20260103T000000Z-cccccc"


def test_a_line_in_the_file_of_another_run_says_nothing_after_compaction(tmp_path):
    run, later = a_run(RUN, 2), a_run(OTHER, 3, GPT2, resumes=(RUN,))
    write_lines(tmp_path / f"{RUN}-1.jsonl", run, *lines_of(run, ("matches_reference",)))
    origins = (Origin.CHANGED, Origin.IMPORTED, Origin.HWCOMPAT)
    strange = [replace(lines_of(run)[0], check_name="x", origin=origin) for origin in origins]
    names = (f"{OTHER}-1.jsonl", "more.jsonl")
    for name in names:
        write_lines(tmp_path / name, *strange)
    write_lines(tmp_path / f"{OTHER}-2.jsonl", later)
    compact(tmp_path)
    found = read_latest(tmp_path)
    assert {(line.file, line.number) for line in found.broken} == {(name, n) for name in names for n in (1, 2, 3)}
    assert [verdict.level for verdict in judge(found, detect(), cells=[BERT])] == [Level.UNSUPPORTED]
    assert "x" not in {line.check_name for line in (*found.checks, *found.imported, *found.others.other_checks)}


def test_nothing_that_is_kept_contradicts_itself():
    for place in kept_places():
        lines = read_shipped(place)
        runs = {line.run_id: line for line in lines if isinstance(line, RunLine)}
        weights = {(run.run_id, one.cell_id): [one.subject] for run in runs.values() for one in run.plan}
        wrong = [
            line.evidence_id
            for line in lines
            if isinstance(line, CheckLine)
            and contradiction(
                line,
                weights=weights.get((line.run_id, line.cell_id), ()),
                run_started_at=runs[line.run_id].started_at,
            )
        ]
        assert wrong == [], place
