"""`run --measure`: the speed of a cell stands beside its verdict, in evidence, table and reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine

pytestmark = pytest.mark.slow

CELL = "gpt2/text-generation/cpu/float32"


@pytest.mark.extended
def test_a_measured_run_has_the_verdict_and_speed_of_a_decoder(command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path, "--model", "gpt2", "--device", "cpu", "--run", "--measure")
    assert (ran.code, ran.verdict(CELL)) == (0, "high"), ran.err
    assert "(tiny)" in ran.out
    assert "latency" in ran.out
    assert [run.jobs for run in ran.evidence.runs] == [1]
    (line,) = (line for line in ran.evidence.checks if line.speed)
    assert line.check_name == ran.evidence.runs[0].plan[0].checks[-1], "after the cell's checks"
    assert {name: len(calls) for name, calls in line.speed["ms"].items()} == dict.fromkeys(
        ("batch 1", "batch 2", "batch 4", "batch 8", "first token", "per token"), 30
    )
    (report,) = ran.reports.glob("*Z-*.json")
    (speed,) = json.loads(report.read_text(encoding="utf-8"))["speed"]
    assert (speed["cell"], speed["meaningful"], speed["times_eager"]) == (CELL, False, None)
    assert "## Speed" in report.with_suffix(".md").read_text(encoding="utf-8")


def test_what_does_not_go_with_measuring_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    for more in (("--jobs", "2"), ("--host", "other"), ("--distributed", "ray")):
        ran = command_line.run(tmp_path, "--model", "bert", "--device", "cpu", "--run", "--measure", *more)
        assert ran.code == 4
        assert "doesn't go with --measure" in ran.err or "--measure doesn't go with" in ran.err
