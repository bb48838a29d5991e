"""`--hardware-compatibility` and `--matrix` from the command line: views, formats, precisions and baselines."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from current_runs import CELL, OLD, evidence, inventory, line, matrix, passed, run, says
from front_doors import invoke

from generators.compatibility.judge import judge
from generators.compatibility.verdict import Basis, Level
from hardware.evidence.latest import read_latest
from hardware.evidence.record import Outcome

FAILED, UNKNOWN, UNSUPPORTED = Outcome.FAILED, Level.UNKNOWN, Level.UNSUPPORTED


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Run the command; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        done = invoke("matrix", *arguments)
        return done.code, done.out or done.err

    return run


def test_one_view_can_be_shown_alone_and_both_commands_make_the_same_page(ask):
    pages = {by: ask("--format", "html", *(["--by", by] if by else [])) for by in ("family", "model", "")}
    assert {code for code, _ in pages.values()} == {0}
    tables = {by: re.findall(r'<table class="matrix" id="(\w+)">', page) for by, (_, page) in pages.items()}
    assert tables == {"family": ["families"], "model": ["models"], "": ["families", "architectures", "models"]}
    assert "No machine has evidence yet." in pages[""][1]
    of_report = invoke("report", "--matrix", "--format", "html")
    assert of_report.code == 0
    moments = r"\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00)?"
    assert re.sub(moments, "", pages[""][1]) == re.sub(moments, "", of_report.out)
    whole = invoke("report", "--collect-all", "--matrix", "--format", "html").out
    assert whole.count("<!DOCTYPE html>") == 1
    assert 'id="matrix-data"' in whole
    assert 'id="components"' in whole


def broken(**changes: object):
    """A failure of one check, and passes of the others."""
    return [line("builds", FAILED, **changes), *passed(**changes)[1:]]


def test_the_matrix_shows_what_was_measured_and_counts_what_is_measured_today():
    def of(model: str, precision: str = "float32", **changes: object):
        cell = replace(CELL, model=model, precision=precision)
        where = {"cell_id": cell.id, "model": model, "precision": precision, "run_id": f"{model} {precision}"}
        return run(f"{model} {precision}", cell_id=cell.id, **changes), where

    bert, at_bert = of("bert")
    old, at_old = of("albert", versions={**run().versions, "torch": "2.12.0"})
    int4, at_int4 = of("electra", "int4")
    fnet, at_half = of("nystromformer", "bfloat16")
    cpu = {"cell_id": "nystromformer/fill-mask/cpu/bfloat16", "requested_target": "cpu", "actual_target": "cpu"}
    fnet = replace(fnet, plan=(replace(fnet.plan[0], cell_id=cpu["cell_id"]),))
    lines = [
        *broken(**at_bert, error_message="no kernel"),
        *passed(**at_old),
        line("builds", FAILED, **at_int4),
        line("builds", FAILED, **{**at_half, **cpu}),
        line("builds", cell_id="no cell", run_id=bert.run_id),
    ]
    everything = evidence(bert, old, int4, fnet, lines=lines)
    found = matrix(everything)
    rows = {row.id: row.verdicts for row in found.rows}
    assert says(rows["bert/fill-mask/float32"]["cuda"]) == (UNSUPPORTED, Basis.MEASURED)
    assert says(rows["albert/fill-mask/float32"]["cuda"]) == OLD
    assert says(rows["electra/fill-mask/int4"]["cuda"]) == (UNSUPPORTED, Basis.MEASURED)
    counts = found.families["embedding"]["cuda"].counts
    assert (counts.supported, counts.measured) == (0, 1)
    # The rest is predicted.
    roberta = rows["roberta/fill-mask/float32"]
    assert says(roberta["cpu"]) == (Level.HIGH, Basis.PREDICTED)
    assert says(roberta["cuda"]) == (Level.HIGH, Basis.PREDICTED)
    assert says(roberta["qnn"]) == (Level.MEDIUM, Basis.PREDICTED)
    assert says(roberta["tpu"]) == (Level.MEDIUM, Basis.PREDICTED)
    others = [one for id_, row in rows.items() if id_.startswith("roberta") for one in row.values()]
    assert Basis.MEASURED not in {one.basis for one in others}
    half = rows["nystromformer/fill-mask/bfloat16"]["cuda"]
    assert says(half) == (UNSUPPORTED, Basis.PREDICTED)
    assert "code.padding_heard_widely" in half.rule_ids
    in_int4 = matrix(everything, precision="int4").families["embedding"]["cuda"].counts
    assert (in_int4.supported, in_int4.measured) == (0, 1)
    assert "no cell" not in {verdict.cell for verdict in judge(read_latest(everything), inventory())}


def test_the_command_fails_only_on_the_requested_changes(ask):
    cpu, old = ("--targets", "cpu"), Path("old.json")
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
    assert ask(*compared, "--by", "family")[0] == 4
    code, text = ask(*cpu, "--fail-on", "worse")
    assert code == 4
    assert "--baseline FILE.json" in text
