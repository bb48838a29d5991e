"""Names and reasons are text in every output: no terminal, server, spreadsheet or reader of Markdown obeys them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_lines import BERT, check_line, planned_cell, run_line, write_lines
from front_doors import invoke
from report_parts import because
from rich.console import Console

from generators.compatibility.prediction_scores import Scored, Scores
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import Outcome
from hardware.inventory.system.processor_telemetry import CpuTelemetry
from hardware.inventory.telemetry import DeviceSample, HostSample, Sample
from hardware.inventory_text import list_text
from hwcompat.plugins.stress.monitor import View
from hwcompat.plugins.study.calibration import Calibration, calibration_text

COMMAND = "\n::error::gone\x1b[31m\x9b2J\u202e ##[error]x"
MARKUP = "[red]x[/red] [/nothing] <b>|`a` [x](javascript:1)"


def lines_that_are_obeyed(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.lstrip().startswith("::") or "##[" in line]


def check(text: str) -> None:
    assert lines_that_are_obeyed(text) == []
    assert text.replace("\n", "").isprintable()


def test_the_check_finds_what_it_looks_for() -> None:
    assert lines_that_are_obeyed("a\n  ::error::b") == ["  ::error::b"]
    for wrong in ("a\n::error::b", "a ##[error]", "\x9b"):
        with pytest.raises(AssertionError):
            check(wrong)


def test_the_inventory_names_devices_as_text() -> None:
    here = detect()
    strange = replace(here, cpu=replace(here.cpu, model=f"{COMMAND}{MARKUP}"))
    for form in ("table", "markdown", "json"):
        check(list_text(strange, form))
    shown = list_text(strange, "markdown")
    assert "&lt;b&gt;\\|\\`a\\` \\[x](javascript:1)" in shown
    assert "<b>" not in shown


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
        predicted=Verdict(level=Level.HIGH, basis=Basis.PREDICTED, reasons=because(COMMAND), **made),
        measured=Verdict(level=Level.UNSUPPORTED, basis=Basis.MEASURED, reasons=because(f"{COMMAND}<b>"), **made),
        run_id="r",
    )


def test_a_calibration_names_rules_and_reasons_as_text() -> None:
    calibration = Calibration(scores=Scores(cells=tuple(scored(f"m{n}") for n in range(20))))
    table, page = (calibration_text(calibration, form) for form in ("table", "markdown"))
    for text in (table, page):
        check(text)
        assert "error" in text
    assert "<b>" not in page


def test_the_chain_behind_a_measured_cell_is_text(tmp_path: Path) -> None:
    failed = check_line("builds", Outcome.FAILED, error_type=COMMAND, error_message=COMMAND)
    write_lines(tmp_path / "r1-1.jsonl", run_line(planned_cell(BERT, ("builds",))), failed)
    done = invoke("explain", BERT, "--evidence", tmp_path)
    assert done.code == 0
    assert "Measured" in done.out
    check(done.out)
