"""What is said of hostile evidence: in each form that the product writes it is text, and nothing that a browser, a
viewer of Markdown, a spreadsheet, a terminal or a CI server would obey."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hostile import Hostile
from made_evidence import CELLS, RUNS, files, write
from readers import (
    check_csv,
    check_github,
    check_html,
    check_json,
    check_markdown,
    check_terminal,
    check_xml,
    commands,
)
from watched import Sentinel, invoked, refused_or

from generators.compatibility.matrix import build_matrix
from generators.compatibility.prediction_scores import score
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict_cache import judged_of
from hardware.detection import HardwareInfo, detect
from hardware.evidence.latest import read_latest
from hardware.evidence.store import Evidence, read_folder
from hardware.recording import ReplayedMachine
from hardware.target import Target
from hardware.values import data_file
from hwcompat.plugins.study.backlog import backlog
from hwcompat.plugins.study.backlog_command import backlog_json, backlog_markdown, backlog_text
from hwcompat.plugins.study.calibration import Calibration, calibration_text
from reports.comparison.comparison_text import FORMATS as OF_COMPARISONS
from reports.delivery import pseudonyms_for
from reports.finding import SCHEMA
from reports.formats import FORMATS, report_text
from reports.formats.github import MOST_ANNOTATIONS
from reports.html.matrix_html import matrix_html
from reports.matrix_text import FORMATS as OF_MATRICES
from reports.matrix_text import VIEWS, matrix_text
from reports.pseudonyms import Pseudonyms
from reports.reporter import HardwareCompatibilityReporter

ROOT = Path(__file__).parents[2]
SHAPE = ("kind", "schema_version", "outcome", "stage", "origin", "run_id", "started_at", "checks", "resumes", "plan")
"""What a line has to say to be a line of a run at all."""

CHECKS: dict[str, Callable[[str], Any]] = {
    "markdown": check_markdown,
    "json": check_json,
    "html": check_html,
    "junit": check_xml,
    "sarif": check_json,
    **dict.fromkeys(("ctrf", "otlp", "benchmark"), check_json),
    "badge": ElementTree.fromstring,  # it has numbers alone
    "card": check_markdown,
    "github": lambda text: check_github(text, most=MOST_ANNOTATIONS),
    "gitlab": check_json,
    "table": check_terminal,
    "text": check_terminal,
    **dict.fromkeys(("csv", "expected"), check_csv),
}


def checked(form: str, text: str) -> Any:
    """What an output of a form says, which was looked through."""
    assert text.encode()
    return CHECKS[form](text)


@pytest.fixture(scope="module")
def inventory() -> HardwareInfo:
    return detect(ReplayedMachine(ROOT / "test" / "fixtures" / "machines" / "xeon-two-sockets"))


def told(folder: Path, hostile: Hostile) -> Evidence:
    """Evidence whose texts are hostile, as it is read from a folder. Some of its cells are real ones."""
    made = []
    for name, lines in files():
        keep = SHAPE if hostile.random() < 0.3 else (*SHAPE, "cell_id", "requested_target", "check_name", "model")
        retold = [hostile.retold(line, keep=keep, share=0.3) for line in lines]
        for line in retold:
            for planned in line.get("plan", ()):
                planned.update(hostile.retold(planned, keep=("checks", "cell_id", "verdict")))
                planned["verdict"] = hostile.retold(planned["verdict"], keep=("cell", "level", "basis"))
        made.append((name, retold))
    for path in folder.glob("*"):
        path.unlink()
    write(folder, made)
    return read_folder(folder)


@pytest.mark.fuzz(20)
@pytest.mark.parametrize("form", FORMATS.names())
def test_a_report_is_text(fuzz: Any, place: Path, sentinel: Sentinel, inventory: HardwareInfo, form: str) -> None:
    for hostile in fuzz:
        evidence = told(place, hostile)
        reporter = HardwareCompatibilityReporter(evidence, output_folder=place)
        reporter._inventory = inventory
        reporter.collect_compatibility_test_errors()
        reporter.add_error(hostile.text(), hostile.text() or "x", hostile.text(), component=hostile.text(),
                           model_name=hostile.text(), traceback=hostile.text(), cause=hostile.text())  # fmt: skip
        report = reporter.report()
        if hostile.random() < 0.2:
            report = pseudonyms_for(evidence).value(report)
        text = report_text(report, form)
        found = checked(form, text)
        if form == "json":
            jsonschema.validate(found, data_file(SCHEMA))


def test_the_annotations_of_whole_evidence_are_there(place: Path, inventory: HardwareInfo) -> None:
    write(place, files())
    reporter = HardwareCompatibilityReporter(read_folder(place), output_folder=place)
    reporter._inventory = inventory
    reporter.collect_compatibility_test_errors()
    text = report_text(reporter.report(), "github")
    assert {name for name, _ in commands(text)} == {"error"}


@pytest.mark.fuzz(80)
def test_a_matrix_is_text(fuzz: Any, place: Path, sentinel: Sentinel, inventory: HardwareInfo) -> None:
    rules = load_rules()

    for hostile in fuzz:
        concluded = judged_of(read_latest(told(place, hostile)), inventory)
        matrix = build_matrix(
            rules, concluded.measured, {cell.partition("/")[0]: "embedding" for cell in CELLS},
            timestamp=hostile.text(), devices=concluded.devices,
        )  # fmt: skip
        form = hostile.choice((*OF_MATRICES, "html"))
        if form == "html":
            text = matrix_html(matrix.to_dict(), versions={"torch": hostile.text(), hostile.text(): "1"})
        else:
            text = matrix_text(matrix, form, by=hostile.choice(VIEWS), width=hostile.randrange(20, 120))
        checked(form, text)


@pytest.mark.fuzz(60)
def test_lists_of_operators_and_of_predictions_are_text(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    for hostile in fuzz:
        evidence = told(place, hostile)
        calibration = Calibration(scores=score(evidence), passing=())
        check_markdown(calibration_text(calibration, "markdown"))
        check_terminal(calibration_text(calibration, "table"))
        checks = [line for line in evidence.checks if line.requested_target in ("cpu", "openvino")]
        found = refused_or(backlog, Target(name="cpu"), (), checks, evidence=hostile.text())
        if found is None:
            continue
        check_markdown(backlog_markdown(found))
        check_terminal(backlog_text(found))
        check_json(backlog_json(found))


@pytest.mark.fuzz(8)
def test_a_comparison_is_text(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    for hostile in fuzz:
        (place / "evidence").mkdir(exist_ok=True)
        told(place / "evidence", hostile)
        form = hostile.choice(OF_COMPARISONS)
        words = hostile.choice(((*RUNS,), (str(place / "evidence"), RUNS[0]), ("last-green",)))
        _, out, _ = invoked("compare", *words, "--evidence", str(place / "evidence"), "--format", form)
        if out:
            checked(form, out)


@pytest.mark.fuzz(100)
def test_pseudonyms_leave_no_name_and_add_nothing(fuzz: Any, sentinel: Sentinel) -> None:
    for hostile in fuzz:
        names = [hostile.text() for _ in range(hostile.randrange(5))]
        found = Pseudonyms([*names, "very-secret-model"]).value(
            {"a": [hostile.text(), "the very secret_model fails"]}
        )
        assert "secret_model" not in json.dumps(found)
