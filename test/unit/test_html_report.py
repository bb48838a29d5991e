"""The page of a report: verdicts and what is no pass are plain to see, and nothing untrusted becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from generators.project.project_finding import ProjectFinding, ProjectFindingKind, ProjectOutcome
from hardware.detection import detect
from hardware.errors import OutputError
from hardware.evidence.latest import read_latest
from hardware.evidence.record import EDITED, CheckLine, EndLine, Outcome, PlannedCell, RunLine
from hardware.evidence.store import read_run
from hardware.evidence.writer import EvidenceWriter
from reports.cell_report import CellReport
from reports.finding import Finding, Remedy, Severity
from reports.formats import report_text
from reports.html import report_view
from reports.report import Report
from reports.run_command import _prepare, write_run_reports

CPU, CUDA = "bert/fill-mask/cpu/float32", "bert/fill-mask/cuda/float32"
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> \"'`{{ 7*7 }}\u2028\x1b[31m\u202e"
)


_SEPARATE = ("th", "td", "small", "span", "dt", "dd", "li")


class Page(HTMLParser):
    """A page's elements with their attributes and all text in them, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        texts: list[str] = []
        self.elements.append((tag, dict(attributes), texts))
        if tag not in ("meta", "br", "wbr", "input"):
            self._open.append(texts)

    def handle_endtag(self, tag):
        self._open.pop()
        for texts in self._open if tag in _SEPARATE else ():
            texts.append(" ")

    def handle_data(self, data):
        for texts in self._open:
            texts.append(data)

    def find(self, tag: str, **wanted: str) -> list[str]:
        """The texts of elements with these attributes; `class_` is one of the element's classes."""
        name = wanted.pop("class_", "")
        return [
            " ".join("".join(texts).split())
            for found, attributes, texts in self.elements
            if found == tag
            and name in ("", *(attributes.get("class") or "").split())
            and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def line(check: str, outcome: Outcome = Outcome.PASSED, cell: str = CPU, **changes: object) -> CheckLine:
    values = {
        "run_id": "r1",
        "cell_id": cell,
        "check_name": check,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": cell.split("/")[2],
        "actual_target": "cpu",
        "precision": "float32",
        "model": "bert",
        "task": "fill-mask",
        "suite_hash": "h",
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 0.25,
    }
    return CheckLine(**{**values, **changes})


def verdict(level: Level = Level.HIGH, cell: str = CPU, **changes: object) -> Verdict:
    return Verdict(cell=cell, level=level, **{"basis": Basis.MEASURED, "evidence_ids": ("e",), **changes})


def because(words: str) -> tuple[Reason, ...]:
    """Words as a reason that wasn't flattened."""
    return (Reason("text", (("text", words),)),)


def result_of(folder: Path) -> SimpleNamespace:
    """A job's result of the run `r1` in a folder of evidence, of which no cell has a verdict yet."""
    latest = read_latest(folder, details=True)
    return SimpleNamespace(run_id="r1", cells=(), own=read_run(folder, "r1"), latest=latest, inventory=detect())


def run_line(**changes: object) -> RunLine:
    values = {
        "run_id": "r1",
        "started_at": "2026-01-01T00:00:00+00:00",
        "command": "python run_test_generation.py --model bert --run",
        "machine": "lab",
        "inventory": {"cpu": {"model": "some CPU", "cores": 2, "threads": 4}, "accelerators": []},
        "versions": {"torch": "2.13.0+cpu"},
        "plan": (),
    }
    return RunLine(**{**values, **changes})


def page_of(*lines: CheckLine, cells: tuple[CellReport, ...] = (), **changes: object) -> Page:
    values = {"timestamp": "2026-01-02T00:00:00+00:00", "findings": (), "checks": lines, "cells": cells}
    return Page(report_text(Report(**{**values, **changes}), "html"))


def test_a_cell_shows_verdict_prediction_and_what_each_check_measured():
    lines = (
        line("builds", peak_memory_bytes=400 * 1024 * 1024),
        line(
            "matches_reference",
            Outcome.FAILED,
            max_rel_error=0.5,
            tolerance=2e-5,
            error_message="off by far\nsecond line",
            traceback="Traceback: here",
            offloaded_ops={"aten.mm": 3},
            native_ops={"aten.add": 7},
        ),
    )
    sealed = verdict(basis=Basis.PREDICTED, rule_ids=("rule.x",), evidence_ids=())
    cell = CellReport(
        verdict=verdict(Level.UNSUPPORTED, reasons=because("it failed")), lines=lines, stored=sealed.to_dict()
    )
    page = page_of(*lines, cells=(cell,), runs=(run_line(),))
    row = next(text for text in page.find("tr") if text.startswith(CPU))
    assert "unsupported measured high predicted worse than predicted cpu cpu tiny" in row
    assert "1 passed 1 failed it failed" in row
    checks = page.find("table", class_="checks")[0]
    assert "builds passed cpu cpu – 0.25 s 400 MiB" in checks
    assert "matches_reference failed cpu cpu 5.0e-01 / 2e-05 too large" in checks
    for said in ("off by far", "second line", "Traceback: here", "aten.mm × 3", "aten.add × 7"):
        assert said in checks
    assert "python run_test_generation.py --model bert --task fill-mask --device cpu --run" in page.find("code")
    assert any("random weights" in text for text in page.find("p"))
    text = page.find("main")[0]
    for said in ("torch 2.13.0+cpu", "some CPU, 2 cores, 4 threads", "2026-01-01 00:00:00 UTC"):
        assert said in text


def test_a_pass_on_another_target_never_looks_like_a_pass():
    away = line("builds", Outcome.PASSED_ON_FALLBACK, CUDA, substitution_reason="no CUDA here")
    page = page_of(away)
    assert page.find("span", class_="passed") == []
    assert page.find("span", class_="passed_on_fallback")
    assert any(text.startswith("passed on fallback no CUDA here builds") for text in page.find("tr"))


def test_a_pass_of_an_edited_suite_is_listed_as_no_pass():
    page = page_of(line("builds", conditions={EDITED: "by hand"}))
    assert "passed, edited suite" in page.find("span")
    assert any("edited by hand" in text for text in page.find("td", class_="said"))
    assert page.find("h2", id="not-passed")


def test_cells_with_trouble_are_open_and_others_closed():
    cells = [
        CellReport(verdict=verdict(cell=f"bert/fill-mask/{target}/float32"), lines=(line("builds", outcome),))
        for target, outcome in (("cpu", Outcome.PASSED), ("cuda", Outcome.CRASHED), *([("mps", Outcome.PASSED)] * 4))
    ]
    page = page_of(cells=tuple(cells))
    opened = [a["id"] for tag, a, _ in page.elements if tag == "details" and a.get("class") == "cell" and "open" in a]
    assert opened == [CUDA]


def test_each_level_is_counted_and_can_be_chosen():
    cells = [CellReport(verdict=verdict(level, f"m{i}/fill-mask/cpu/float32")) for i, level in enumerate(Level)]
    page = page_of(cells=tuple(cells))
    for level in Level:
        assert f"1 {level}" in page.find("span", class_=str(level))
        assert page.find("option").count(str(level)) == 1


def test_findings_stand_worst_first_with_commands_that_can_be_copied():
    findings = [
        Finding(
            hardware_type="cuda",
            error_type="wrong_build",
            severity=severity,
            message=f"message {severity}",
            component="x",
            timestamp="2026-01-01",
            remedies=(Remedy(do="Ask: `nvidia-smi`"),),
        )
        for severity in (Severity.CRITICAL, Severity.INFO)
    ]
    page = page_of(findings=tuple(findings))
    assert [text.split()[0] for text in page.find("article", class_="finding")] == ["critical", "info"]
    assert page.find("code").count("nvidia-smi") == 2
    assert "1 remark (info)" in page.find("summary")


def hostile_report() -> Report:
    lines = (
        line(
            "builds", Outcome.FAILED, error_message=HOSTILE, traceback=HOSTILE, native_ops={HOSTILE: 1}, model=HOSTILE
        ),
        line(HOSTILE, Outcome.SKIPPED, error_message=HOSTILE, accelerator=HOSTILE, substitution_reason=HOSTILE),
    )
    finding = Finding(
        hardware_type=HOSTILE,
        error_type=HOSTILE,
        severity=Severity.ERROR,
        message=HOSTILE,
        component=HOSTILE,
        timestamp=HOSTILE,
        model_name=HOSTILE,
        remedies=(Remedy(do=HOSTILE), Remedy(do=f"`{HOSTILE}`")),
        traceback=HOSTILE,
        cells=(HOSTILE,),
        evidence_ids=(HOSTILE,),
    )
    plan = PlannedCell(
        cell_id=CPU,
        checks=(),
        suite="s.py",
        suite_hash="h",
        subject="tiny",
        selection={"steps": [{"target": HOSTILE, "reason": HOSTILE}]},
    )
    cell = CellReport(verdict=verdict(reasons=because(HOSTILE), conditions=because(HOSTILE)), lines=lines)
    run = run_line(
        command=HOSTILE, machine=HOSTILE, versions={HOSTILE: HOSTILE}, inventory={HOSTILE: HOSTILE}, plan=(plan,)
    )
    return Report(timestamp=HOSTILE, findings=(finding,), checks=lines, cells=(cell,), runs=(run,))


def test_untrusted_text_is_shown_and_never_becomes_markup():
    text = report_text(hostile_report(), "html")
    page = Page(text)
    tags = [tag for tag, _, _ in page.elements]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not {name for _, attributes, _ in page.elements for name in attributes if name.startswith("on")}
    assert "<img src=x onerror=alert(1)>" in page.find("pre")[0]
    assert "{{ 7*7 }}" in text
    assert not {"\u2028", "\x1b", "\u202e"} & set(text)


def test_a_page_fetches_nothing_and_its_policy_names_its_style_and_script():
    text = report_text(hostile_report(), "html")
    page = Page(text)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _, _ in page.elements}
    assert not [attributes for _, attributes, _ in page.elements if "src" in attributes or "style" in attributes]
    assert {a["href"][0] for _, a, _ in page.elements if "href" in a} == {"#"}
    policy = next(a["content"] for _, a, _ in page.elements if a.get("http-equiv"))
    for tag in ("style", "script"):
        source = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_every_table_has_headings_with_a_scope_and_every_control_a_label():
    page = Page(report_text(hostile_report(), "html"))
    headings = [attributes for tag, attributes, _ in page.elements if tag == "th"]
    assert headings
    assert all(attributes.get("scope") in ("col", "row") for attributes in headings)
    assert all(a.get("aria-label") for _, a, _ in page.elements if a.get("role") == "region")
    labels = page.find("label")
    assert len(labels) == sum(tag in ("input", "select") for tag, _, _ in page.elements)
    assert all(labels)


def test_an_inventory_of_another_shape_costs_no_page():
    for inventory in ({"cpu": "x", "memory": [], "accelerators": {"a": 1}}, {"accelerators": ["x"]}, {}):
        assert "not recorded" in page_of(runs=(run_line(inventory=inventory),)).find("main")[0]


def test_an_accepted_failure_stays_a_failure_and_says_why_it_is_accepted():
    failed = line("builds", Outcome.FAILED, error_message="boom")
    finding = ProjectFinding(
        kind=ProjectFindingKind.ACCEPTED, cell=CPU, message="known: HOSTILE <b>", fix="wait", quote="[[x]]"
    )
    accepted = {failed.evidence_id: "the vendor knows"}
    outcome = ProjectOutcome(file="hwcompat.toml", findings=(finding,), accepted=accepted)
    page = page_of(failed, project=outcome)
    assert any(text.startswith("builds failed accepted cpu") for text in page.find("tr"))
    assert any("accepted failure: the vendor knows; boom" in text for text in page.find("td", class_="said"))
    text = page.find("main")[0]
    assert "hwcompat.toml: 1 accepted. Nothing breaks the build." in text
    assert "known: HOSTILE <b>" in text


def test_a_report_without_anything_says_so():
    text = page_of().find("main")[0]
    assert "Nothing was measured" in text
    assert "No findings." in text


def test_answers_for_single_models_are_on_the_page():
    answer = {
        "model": "bert",
        "verdict": verdict(Level.LOW).to_dict(),
        "predicted": verdict().to_dict(),
        "cause": "matmul on the host",
        "change": "try cuda",
        "suggestions": {"hardware": [verdict(cell=CUDA).to_dict()], "models": [], "reasons": ["none known"]},
        "notes": ["a note"],
    }
    shown = page_of(model_checks=(answer,)).find("article")[0]
    for said in (f"{CPU} low measured", "matmul on the host", "try cuda", f"{CUDA} high", "none known", "a note"):
        assert said in shown


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_leaves_a_page_beside_its_other_reports(tmp_path, ended):
    writer = EvidenceWriter(tmp_path / "e", "r1")
    plan = PlannedCell(cell_id=CPU, checks=("builds", "backward"), suite="s.py", suite_hash="h", subject="tiny")
    writer.write(run_line(plan=(plan,)))
    writer.write(line("builds"))
    if ended:
        writer.write(line("backward"))
        writer.write(EndLine(run_id="r1", ended_at="2026-01-01T00:00:02", reason="finished", counts={}))
    writer.close()
    _, written = write_run_reports(result_of(tmp_path / "e"), tmp_path / "r")
    assert {path.name for path in (tmp_path / "r").iterdir()} == {"r1.md", "r1.html", "r1.json", "r1.sarif", "r1.xml"}
    page = Page((tmp_path / "r" / "r1.html").read_text(encoding="utf-8"))
    row = next(text for text in page.find("tr") if text.startswith("backward"))
    assert row.startswith("backward passed" if ended else "backward not run")
    assert any(text.startswith("not run no result was recorded") for text in page.find("tr")) is not ended
    assert f"`{run_line().command}`" in written.read_text(encoding="utf-8")


def test_reports_that_cannot_be_written_are_refused_before_a_run_and_say_afterwards_what_is_kept(tmp_path):
    with pytest.raises(OutputError, match="--report-dir"):
        _prepare(Path("/proc/self"))  # it is there, and nobody may write to it
    _prepare(tmp_path / "r")
    assert list((tmp_path / "r").iterdir()) == []
    writer = EvidenceWriter(tmp_path / "e", "r1")
    writer.write(run_line())
    writer.close()
    result = result_of(tmp_path / "e")
    with pytest.raises(OutputError, match=r"The evidence is kept.*--report-dir.*--resume"):
        write_run_reports(result, Path("/proc/self"))


def test_of_the_targets_that_auto_looked_at_the_last_was_chosen():
    steps = [{"target": "cuda", "reason": "absent"}, {"target": "openvino", "reason": "here"}]
    plan = PlannedCell(
        cell_id=CPU, checks=(), suite="s.py", suite_hash="h", subject="tiny", selection={"steps": steps}
    )
    found = list(report_view._choice(CPU, [run_line(plan=(plan,))]))
    assert found == [("passed over", "cuda: absent"), ("chosen by auto", "openvino: here")]
