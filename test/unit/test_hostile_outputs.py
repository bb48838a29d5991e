"""Names and reasons that anybody wrote are text in every output: no terminal, server, spreadsheet or reader of
Markdown does what they say."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from generators.compatibility.matrix import Matrix, build_matrix
from generators.compatibility.prediction_scores import Scored, Scores
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.cell import Cell
from hardware.detection import HardwareInfo, detect
from hardware.evidence.record import CheckLine, Outcome, to_dict
from hardware.inventory.system.processor_telemetry import CpuTelemetry
from hardware.inventory.telemetry import DeviceSample, HostSample, Sample
from hardware.inventory_text import list_text
from hwcompat.plugins.stress.monitor import View
from hwcompat.plugins.study.calibration import Calibration, calibration_text
from reports.matrix_text import matrix_text
from run_test_generation import main

COMMAND = "\n::error::gone\x1b[31m\x9b2J\u202e ##[error]x"
MARKUP = "[red]x[/red] [/nothing] <b>|`a` [x](javascript:1)"
CELL = "bert/fill-mask/cuda/float32"


def lines_that_are_obeyed(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.lstrip().startswith("::") or "##[" in line]


def check(text: str) -> None:
    assert lines_that_are_obeyed(text) == []
    assert text.replace("\n", "").isprintable()


def test_what_the_check_looks_for_is_seen() -> None:
    assert lines_that_are_obeyed("a\n  ::error::b") == ["  ::error::b"]
    for wrong in ("a\n::error::b", "a ##[error]", "\x9b"):
        with pytest.raises(AssertionError):
            check(wrong)


def said(words: str) -> tuple[Reason, ...]:
    """Words as a reason that wasn't flattened."""
    return (Reason("text", (("text", words),)),)


def matrix(reason: str) -> Matrix:
    verdict = Verdict(
        cell=CELL, level=Level.UNSUPPORTED, basis=Basis.MEASURED, evidence_ids=("r/c/builds",), reasons=said(reason)
    )
    devices = {view: {COMMAND: [verdict], f"{MARKUP}\t": [verdict]} for view in ("accelerator", "machine")}
    return build_matrix(load_rules(), [verdict], {"bert": "embedding"}, timestamp=COMMAND, devices=devices)


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
@pytest.mark.parametrize("by", ["model", "accelerator", "machine"])
def test_a_matrix_names_devices_as_text(form: str, by: str) -> None:
    text = matrix_text(matrix(COMMAND), form, by=by)
    check(text.replace("\t", "") if form == "csv" else text)


@pytest.mark.parametrize("start", ["=", "＝", "＋", "－", "＠", " =", "\t=", "\n@", "\n", "\t"])
def test_no_spreadsheet_takes_a_reason_for_a_formula(start: str) -> None:
    text = matrix_text(matrix(f"{start}cmd()"), "csv", by="model")
    (reason,) = (row["reasons"] for row in csv.DictReader(io.StringIO(text)) if row["hardware"] == "cuda")
    assert reason.endswith("cmd()")
    assert reason.startswith(("'", "\\"))


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return detect()


def test_the_inventory_names_devices_as_text(here: HardwareInfo) -> None:
    strange = replace(here, cpu=replace(here.cpu, model=f"{COMMAND}{MARKUP}"))
    for form in ("table", "markdown", "json"):
        check(list_text(strange, form))
    told = list_text(strange, "markdown")
    assert "&lt;b&gt;\\|\\`a\\` \\[x](javascript:1)" in told
    assert "<b>" not in told


def test_the_live_view_takes_no_name_for_markup() -> None:
    host = HostSample(cpu_model=MARKUP, cpu=CpuTelemetry(), memory_used_bytes=1, memory_total_bytes=2)
    device = DeviceSample(vendor="[b]V[/]", index=0, device_type="gpu", model=MARKUP, reason=f"{MARKUP}{COMMAND}")
    view = View()
    view.add(Sample(time="2026-01-02T03:04:05.000+00:00", elapsed_s=7.0, host=host, devices=(device,)))
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    console.print(view.render(200, None))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    check(shown)
    assert "[b]V[/] 0: [red]x[/red] [/nothing]" in shown


def scored(model: str) -> Scored:
    made = {"cell": f"{model}/fill-mask/cpu/float32", "rule_ids": (f"a|{COMMAND}",)}
    return Scored(
        cell=Cell.parse(f"{model}/fill-mask/cpu/float32"),
        family="text",
        held_out=False,
        predicted=Verdict(level=Level.HIGH, basis=Basis.PREDICTED, reasons=said(COMMAND), **made),
        measured=Verdict(level=Level.UNSUPPORTED, basis=Basis.MEASURED, reasons=said(f"{COMMAND}<b>"), **made),
        run_id="r",
    )


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_calibration_names_rules_and_reasons_as_text(form: str) -> None:
    text = calibration_text(Calibration(scores=Scores(cells=tuple(scored(f"m{n}") for n in range(20)))), form)
    check(text)
    assert "error" in text
    assert form == "table" or "<b>" not in text


def test_what_a_command_says_of_evidence_and_files_is_text(tmp_path: Path) -> None:
    """The chain behind a cell, as measured; and the names of files that are compared."""
    cell = "bert/fill-mask/cpu/float32"
    plan = {"cell_id": cell, "checks": ["builds"], "suite": "t.py", "suite_hash": "0", "subject": "tiny"}
    run = {"kind": "run", "schema_version": 1, "run_id": "r", "started_at": "2026-01-01T00:00:00+00:00"}
    run |= {"command": "", "machine": "m", "inventory": {}, "versions": {}, "plan": [plan]}
    failed = to_dict(
        CheckLine(
            run_id="r", cell_id=cell, check_name="builds", outcome=Outcome.FAILED, subject="tiny", model="bert",
            requested_target="cpu", actual_target="cpu", precision="float32", task="fill-mask", suite_hash="0",
            started_at="2026-01-01T00:00:00+00:00", duration_s=0.1, error_type=COMMAND, error_message=COMMAND,
        )
    )  # fmt: skip
    (tmp_path / "r-1.jsonl").write_text(f"{json.dumps(run)}\n{json.dumps(failed)}\n")
    done = CliRunner().invoke(main, ["--explain", cell, "--evidence", str(tmp_path)], standalone_mode=False)
    assert done.exception is None
    assert "Measured" in done.stdout
    check(done.stdout)
