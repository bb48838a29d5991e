"""The output after a run has each fact once, groups failures by cause, and counts the cells that work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from generators.compatibility.selection import Selection, SelectionStep, StepResult
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.cell import Cell
from hardware.command_names import command_of
from hardware.evidence.record import Outcome, Stage
from hardware.expected_targets import TargetStatus
from reports.finding import Finding, Remedy, Severity
from reports.run_table import last_line, run_text
from reports.suites_text import selection_texts

TINY = "tiny: operators and numerics, not size"


def cell(name: str, level: Level, *conditions: str) -> SimpleNamespace:
    """A cell of a run with what `run_text` reads of it; conditions but `TINY` are those that make it medium."""
    id_ = f"{name}/fill-mask/webgpu/float32"
    found = tuple(Reason.of("text", text=text) for text in conditions)
    reasons = tuple(reason for reason in found if reason.text("text") != TINY)
    verdict = Verdict(
        cell=id_, level=level, basis=Basis.MEASURED, reasons=reasons, conditions=found, evidence_ids=("e",)
    )
    recipe = SimpleNamespace(subject="tiny", parameters=1000)
    profile = SimpleNamespace(recipe=recipe, stands_in_for="", missing="", note="", folder=None, asked=name)
    predicted = Verdict(cell=id_, level=Level.UNKNOWN, basis=Basis.PREDICTED)
    planned = SimpleNamespace(cell=Cell.parse(id_), profile=profile, verdict=predicted, selection=None)
    written = SimpleNamespace(planned=planned, path=Path(f"suites/test_{name}.py"))
    return SimpleNamespace(
        written=written, verdict=verdict, checks=(), lines=(), taken_from="", substituted="", untrusted=False
    )


def result_of(*cells: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(cells=cells, evidence=())


def said(*cells: SimpleNamespace, **how: Any) -> str:
    return " ".join(run_text(result_of(*cells), **how).split())


def failed(name: str, check: str = "matches_reference") -> SimpleNamespace:
    found = cell(name, Level.UNSUPPORTED)
    line = SimpleNamespace(
        check_name=check,
        outcome=Outcome.FAILED,
        stage=Stage.COMPARE,
        max_rel_error=0.5,
        tolerance=2e-5,
        duration_s=1.0,
        error_type="x",
        speed={},
    )
    return SimpleNamespace(**vars(found) | {"lines": (line,)})


def test_a_condition_is_printed_once() -> None:
    text = said(cell("bert", Level.MEDIUM, TINY, "static shapes", "on a software adapter"))
    assert "Medium static shapes; on a software adapter (bert/" in text
    assert f"Condition {TINY} (bert/" in text
    assert text.count("static shapes") == text.count("software adapter") == text.count(TINY) == 1


def test_a_condition_that_all_cells_share_is_printed_once() -> None:
    text = said(*(cell(f"m{i}", Level.MEDIUM, TINY, "static shapes") for i in range(6)))
    assert f"Condition {TINY} (all cells)" in text
    assert text.count(TINY) == text.count("static shapes") == 1


def test_failures_are_grouped_by_cause_with_what_to_do() -> None:
    def finding(name: str) -> Finding:
        return Finding(
            hardware_type="webgpu",
            error_type="numerical_mismatch",
            severity=Severity.ERROR,
            message=f"wrong by 0.5 in {name}",
            component="compatibility_test",
            timestamp="now",
            cells=(f"{name}/fill-mask/webgpu/float32",),
            checks=("matches_reference",),
            remedies=(Remedy(do="Update the driver."),),
        )

    cells = [failed("bert"), cell("gpt2", Level.HIGH), failed("t5")]
    text = said(*cells, findings=[finding("bert"), finding("t5")])
    assert text.count("numerical mismatch on webgpu (2 cells)") == text.count("Update the driver.") == 1
    assert "wrong by 0.5 in bert (checks: matches_reference)" in text
    line = last_line(result_of(*cells), Path("r.md"))
    command = command_of("localize", "bert/fill-mask/webgpu/float32")
    assert line == f"2 of 3 cells don't work · report r.md · next: {command}"
    for check, helps in (("backward", "repro"), ("batch_invariance", "explain")):
        line = last_line(result_of(failed("bert", check)), Path("r.md"))
        assert line.endswith(f"next: {command_of(helps, 'bert/fill-mask/webgpu/float32')}")


def test_a_missing_device_is_reported_once_for_all_cells() -> None:
    missing = [SimpleNamespace(**vars(cell(f"m{i}", Level.UNKNOWN)) | {"substituted": "no driver"}) for i in range(7)]
    text = said(*missing)
    assert text.count("webgpu isn't available: no driver (7 cells)") == text.count("no driver") == 1
    assert last_line(result_of(*missing), Path("r.md")).startswith(
        "0 of 7 cells work, 7 unknown · report r.md · next: "
    )


def test_the_last_line_counts_the_cells_that_work() -> None:
    good, part = cell("bert", Level.HIGH), cell("gpt2", Level.LOW)
    assert last_line(result_of(good), Path("r.md")) == "1 of 1 cell works · report r.md"
    assert last_line(result_of(good, part), Path("r.md")) == "1 of 2 cells works, 1 in part · report r.md"
    assert last_line(result_of(failed("t5")), Path("r.md")).startswith(
        "1 of 1 cell doesn't work · report r.md · next"
    )
    left = SimpleNamespace(**vars(failed("vit")) | {"verdict": good.verdict})
    left.lines[0].outcome = Outcome.NOT_RUN
    assert last_line(result_of(good, left), Path("r.md")) == "1 of 2 cells works, 1 not run · report r.md"
    assert "high (earlier)" in said(left)


def test_colors_are_only_for_a_terminal_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    green = "\x1b[32m"
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    result = result_of(cell("bert", Level.HIGH))
    assert green in run_text(result, is_terminal=True)
    assert "\x1b" not in run_text(result)
    monkeypatch.setenv("NO_COLOR", "1")
    assert green not in run_text(result, is_terminal=True)


def test_auto_names_each_usable_target_that_it_did_not_select() -> None:
    steps = (
        SelectionStep(target="cuda", result=StepResult.NOT_HERE, reason="no GPU"),
        SelectionStep(target="openvino", result=StepResult.NOT_PREFERRED, reason="it has no GPU or NPU"),
        SelectionStep(target="cpu", result=StepResult.TAKEN, reason="it is here"),
    )
    statuses = [TargetStatus(target=name, expected=True) for name in ("cpu", "openvino", "webgpu", "simulated")]
    said = dict(
        reversed(pair) for pair in selection_texts(Selection(target="cpu", list_name="text", steps=steps), statuses)
    )
    assert said["auto selected cpu: it is here"] == "Selected"
    assert "not openvino: it has no GPU or NPU" in said
    assert any(text.startswith("not webgpu: the priority list `text` doesn't name it") for text in said)
    assert any(text.startswith("not available: cuda (") for text in said)
