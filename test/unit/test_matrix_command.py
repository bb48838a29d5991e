"""`--hardware-compatibility` and `--matrix` from the command line: views, formats, precisions and baselines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from current_runs import CELL, evidence, line, matrix, run
from front_doors import reporter

from hardware.command_line import open_door
from hardware.evidence.record import Outcome
from run_test_generation import main


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """Run the command; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        code = open_door(main, list(arguments), program="x")
        shown = capsys.readouterr()
        return code, shown.out or shown.err

    return run


def test_one_view_can_be_shown_alone_and_both_commands_make_the_same_page(ask, capsys):
    command = ("--hardware-compatibility", "--format", "html")
    pages = {by: ask(*command, *(["--by", by] if by else [])) for by in ("family", "model", "")}
    assert {code for code, _ in pages.values()} == {0}
    tables = {by: re.findall(r'<table class="matrix" id="(\w+)">', page) for by, (_, page) in pages.items()}
    assert tables == {"family": ["families"], "model": ["models"], "": ["families", "architectures", "models"]}
    assert "No machine has evidence yet: nothing was run." in pages[""][1]
    assert reporter.main(["--matrix", "--format", "html"]) == 0
    of_reporter = capsys.readouterr().out
    moments = r"\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00)?"
    assert re.sub(moments, "", pages[""][1]) == re.sub(moments, "", of_reporter)
    assert reporter.main(["--collect-all", "--matrix", "--format", "html"]) == 0
    whole = capsys.readouterr().out
    assert whole.count("<!DOCTYPE html>") == 1
    assert 'id="matrix-data"' in whole
    assert 'id="components"' in whole


def test_a_matrix_of_another_precision_counts_its_own_cells():
    int4 = "bert/fill-mask/cuda/int4"
    lines = [line("builds", Outcome.FAILED, cell_id=int4, precision="int4", run_id="r2")]
    found = evidence(run(), run("r2", cell_id=int4), lines=lines)
    counts = matrix(found, precision="int4").families["embedding"][str(CELL.target)].counts
    assert (counts.supported, counts.measured) == (0, 1)


def test_the_command_fails_only_on_the_requested_changes(ask):
    cpu, old = ("--hardware-compatibility", "--targets", "cpu"), Path("old.json")
    compared = (*cpu, "--baseline", "old.json")
    code, text = ask(*cpu, "--format", "json")
    data = json.loads(text)
    old.write_text(text, encoding="utf-8")
    assert code == 0
    code, text = ask(*compared, "--fail-on", "changed")
    assert code == 0
    assert "nothing changed" in text
    row = next(iter(data["models"].values()))
    row["compatibility"]["cpu"] |= {"level": "high", "basis": "measured"}
    old.write_text(json.dumps(data), encoding="utf-8")
    code, text = ask(*compared, "--fail-on", "worse,expired")
    assert code == 1
    assert "Failed on expired: 1 cell." in text
    assert ask(*compared)[0] == 0
    assert ask(*compared, "--by", "family")[0] == ask("--baseline", "old.json")[0] == 4
    code, text = ask(*cpu, "--fail-on", "worse")
    assert code == 4
    assert "--baseline FILE.json" in text
