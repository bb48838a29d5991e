"""Every command says the same about a cell, whatever its evidence is, and none shows a pass that didn't run."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from evidence_lines import check_line, planned_cell, run_line, write_lines

from generators.chosen_models import choose_models, profiles_of
from generators.compatibility import matrix
from generators.compatibility.judge import judge
from generators.compatibility.matrix import current_matrix
from generators.compatibility.published_rows import shipped_verdicts
from generators.compatibility.verdict import Basis, Level, Verdict, is_final
from generators.compatibility.verdict_cache import judged_in
from generators.models.recipe_store import stored_recipes
from generators.options import Options
from generators.project.project_finding import ProjectFindingKind
from generators.project.project_outcome import judge_project, runs_of
from generators.project.project_reader import parse_project
from generators.run import CellResult, JobResult, WrittenSuite, plan_job, result_of_runs, write_suites
from hardware.basic_detection import inventory_here
from hardware.cell import Cell
from hardware.detection import HardwareInfo
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import EDITED, CheckLine, Origin, Outcome, RunLine
from hardware.evidence.versions import versions_of
from hardware.testing.suite_file import SuiteFile, read_suite
from reports import explain_command
from reports.explain_command import measured_verdict
from reports.model_check import check_model
from reports.reason_text import reason_text
from reports.reporter import HardwareCompatibilityReporter
from reports.run_command import write_run_reports
from reports.run_table import run_text

MODELS = ("bert", "gpt2", "vit", "t5")
DEVICES = ("cpu", "openvino", "simulated", "cuda", "qnn")
START = datetime(2026, 1, 1, tzinfo=UTC)
WORKS = (Level.HIGH, Level.MEDIUM)
ELSEWHERE = {"actual_target": "cpu", "substitution_reason": "it isn't here"}


@dataclass(frozen=True)
class Made:
    """One made-up run of a cell. `broken` is the outcome of its check number `at`, None if all passed; checks from
    `reached` on have no line. `facts` are fields of all its lines."""

    machine: str
    versions: str
    suite: str
    broken: Outcome | None
    at: int
    reached: int
    ahead: bool
    imported: bool
    facts: Mapping[str, object]

    @property
    def elsewhere(self) -> bool:
        return "substitution_reason" in self.facts

    @property
    def edited(self) -> bool:
        return "conditions" in self.facts


OUTCOMES = [Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.AMBIGUOUS, Outcome.SKIPPED, Outcome.NOT_RUN]
ODD = [{"subject": "checkpoint"}, {"accelerator": "B"}, {"conditions": {EDITED: "by hand"}}, ELSEWHERE]


def a_run(draw: Random) -> Made:
    return Made(
        machine=draw.choice(["here"] * 7 + ["other"]),
        versions=draw.choice(["now", "now", "now", "old", "lost"]),
        suite=draw.choice(["same"] * 7 + ["older"]),
        broken=draw.choice([None] * 12 + OUTCOMES),
        at=draw.randrange(9),
        reached=draw.choice([99, 99, 99, 0, 1, 3]),
        ahead=draw.random() < 0.1,
        imported=draw.random() < 0.1,
        facts=draw.choice([{}] * 6 + ODD),
    )


@cache
def inventory() -> HardwareInfo:
    return inventory_here()


@cache
def written_suites() -> tuple[WrittenSuite, ...]:
    """The suites of all cells."""
    chosen = choose_models(MODELS, priority=None, architectures=(), read_list=list)
    profiles, _, _ = profiles_of(chosen, (), dims="tiny")
    planned = plan_job(profiles, DEVICES, ("float32",), inventory())
    return write_suites(planned, Path(tempfile.mkdtemp(prefix="suites-")), force=True)


def run_of(number: int, made: Made, suite: SuiteFile) -> RunLine:
    """Return the run line of the `number`-th run of a cell."""
    versions = versions_of(inventory())
    if made.versions == "old":
        versions |= {"torch": "1.0", "openvino": "1.0", "onnxruntime-qnn": "1.0"}
    suite_hash = suite.suite_hash if made.suite == "same" else "older"
    return run_line(
        planned_cell(suite.cell.id, suite.checks, suite_hash=suite_hash),
        run_id=f"{suite.cell.slug}-{number}",
        started_at=(START + timedelta(days=number)).isoformat(),
        machine=made.machine,
        versions=versions,
        origin=Origin.IMPORTED if made.imported else Origin.HWCOMPAT,
    )


def outcome_of(made: Made, place: int, checks: int) -> Outcome:
    if made.broken is None or made.at % checks != place:
        return Outcome.PASSED_ON_FALLBACK if made.elsewhere else Outcome.PASSED
    return made.broken


def lines_of(run: RunLine, made: Made, suite: SuiteFile) -> list[CheckLine]:
    """Return the results that a run left of its cell."""
    moment = datetime.now(UTC) + timedelta(days=30) if made.ahead else datetime.fromisoformat(run.started_at)
    found = []
    for place, check in enumerate(suite.checks[: made.reached]):
        outcome = outcome_of(made, place, len(suite.checks))
        facts = {
            "run_id": run.run_id,
            "cell_id": suite.cell.id,
            "suite_hash": run.plan[0].suite_hash,
            "started_at": (moment + timedelta(seconds=place)).isoformat(),
            "accelerator": "A",
            "actual_dtype": "float32",
            "error_type": "interrupted" if outcome is Outcome.NOT_RUN else "",
            "native_ops": {"aten.addmm": 1} if check == "runs_natively" else {},
            "origin": run.origin,
        }
        facts |= {"max_rel_error": 1e-6, "tolerance": 2e-5} if outcome is Outcome.PASSED else {}
        found.append(check_line(check, outcome, **{**facts, **made.facts}))
    return found


def write_history(folder: Path, suite: SuiteFile, history: Sequence[Made]) -> str:
    """Write a cell's runs; return the id of its newest own run that has a run line, empty if there is none."""
    newest = ""
    for number, made in enumerate(history):
        run = run_of(number, made, suite)
        is_lost = made.versions == "lost" and not made.imported
        write_lines(folder / f"{run.run_id}-1.jsonl", *([] if is_lost else [run]), *lines_of(run, made, suite))
        newest = newest if is_lost or made.imported else run.run_id
    return newest


def can_be_a_pass(suite: SuiteFile, history: Sequence[Made]) -> bool:
    """Whether each check passed in some run with everything as it is now: the least that a measured pass needs."""

    planned = [made for made in history if made.versions != "lost" and not made.imported]

    def counts(made: Made) -> bool:
        strange = made.edited or made.elsewhere or made.ahead or made.imported
        return made.versions == "now" and made.suite == planned[-1].suite and not strange

    checks = len(suite.checks)
    return all(
        any(
            counts(made) and place < made.reached and outcome_of(made, place, checks) is Outcome.PASSED
            for made in history
        )
        for place in range(checks)
    )


def said_by_reports(result: JobResult, folder: Path) -> dict[str, tuple[str, str]]:
    """Return level and basis of each cell in the reports of a run, after JSON, Markdown, HTML and JUnit agreed."""
    _, path = write_run_reports(result, folder)
    texts = {suffix: path.with_suffix(suffix).read_text() for suffix in (".json", ".md", ".html", ".xml")}
    verdicts = json.loads(texts[".json"])["verdicts"]
    markdown = re.findall(r"^## ([^\n]+)\n+- verdict: \*\*(\w+)\*\*", texts[".md"], re.MULTILINE)
    rows = re.findall(r'<tr class="cell[^"]*" id="([^"]+)">.*?class="tag level (\w+)', texts[".html"], re.DOTALL)
    junit = {}
    for suite in ElementTree.fromstring(texts[".xml"]).iter("testsuite"):
        values = {one.get("name"): one.get("value") for one in suite.iter("property")}
        if "verdict" in values:
            junit[values["cell"]] = values["verdict"].partition(" ")[0]
    levels = {one["cell"]: one["level"] for one in verdicts}
    assert levels.keys() >= {cell.verdict.cell for cell in result.cells}
    assert {cell.replace("\\", ""): level for cell, level in markdown} == levels
    assert dict(rows) == levels
    assert junit == levels
    return {one["cell"]: (one["level"], shown_basis(one["level"], one["basis"])) for one in verdicts}


def shown_basis(level: str, basis: str) -> str:
    return "" if level == "unknown" else basis


def says(verdict: Verdict) -> tuple[str, str]:
    return str(verdict.level), shown_basis(str(verdict.level), str(verdict.basis))


def test_all_commands_agree_and_none_shows_a_pass_that_did_not_run(tmp_path, monkeypatch) -> None:
    """8 folders of 20 cells: 160 histories, each of up to four runs."""
    seen = {one for seed in range(8) for one in check_folder(tmp_path / str(seed), Random(seed), monkeypatch)}
    assert {("high", "measured"), ("high", "expired"), ("unsupported", "measured"), ("unknown", "")} <= seen


def check_folder(folder: Path, draw: Random, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Compare what commands show of a folder. Return level and basis of its cells."""
    monkeypatch.setattr(matrix, "stored_recipes", lambda: [r for r in stored_recipes() if r.model_type in MODELS])
    suites = written_suites()
    files = {one.planned.cell.id: read_suite(one.path) for one in suites}
    by_cell = {cell: [a_run(draw) for _ in range(draw.randint(1, 4))] for cell in files}
    newest = {cell: write_history(folder, files[cell], history) for cell, history in by_cell.items()}
    latest = read_latest(folder, details=True)
    monkeypatch.setattr(explain_command, "read_latest", lambda _folder: latest)  # twenty times the same
    verdicts = {one.cell: one for one in judge(latest, inventory())}
    measured = {cell: one for cell, one in verdicts.items() if one.basis is Basis.MEASURED}

    for cell, verdict in measured.items():
        if verdict.level in WORKS:
            assert can_be_a_pass(files[cell], by_cell[cell]), f"{cell} is {verdict.level}: {by_cell[cell]}"

    check_matrix(folder, verdicts)
    check_reporter(latest, verdicts)
    for cell, verdict in verdicts.items():
        explained = measured_verdict(Options(evidence=folder, config=None), Cell.parse(cell), inventory())
        assert explained is None or says(explained) == says(verdict)
        assert explained is not None or verdict.level is Level.UNKNOWN
        answer = check_model(*cell.split("/")[0:3:2], latest, inventory())
        if answer.measured.basis is Basis.IMPORTED and verdict.level is Level.UNKNOWN and not is_final(verdict):
            assert answer.measured.level is shipped_verdicts(answer.model)[cell].level
        else:
            assert says(answer.measured) == says(verdict)

    own = [one for one in suites if newest[one.planned.cell.id]]
    if own:
        runs = {cell: run for cell, run in newest.items() if run}
        result = result_of_runs(own, runs, folder, inventory())
        check_run(result, verdicts, folder.with_name(f"{folder.name}-reports"))
    return set(map(says, verdicts.values()))


def check_matrix(folder: Path, verdicts: Mapping[str, Verdict]) -> None:
    matrix = current_matrix(judged_in(folder, inventory()), inventory(), timestamp="now")
    shown = {one.cell: one for row in matrix.rows for one in row.verdicts.values()}
    for cell, verdict in verdicts.items():
        if verdict.level is not Level.UNKNOWN:
            assert says(shown[cell]) == says(verdict), cell
        else:
            hidden = shown[cell].basis in (Basis.PREDICTED, Basis.ASSUMED, Basis.IMPORTED)
            assert shown[cell].level is Level.UNKNOWN or (hidden and not is_final(verdict)), cell


def check_reporter(latest: Latest, verdicts: Mapping[str, Verdict]) -> None:
    reporter = HardwareCompatibilityReporter(latest, inventory=inventory())
    reporter.collect_compatibility_test_errors()
    shown = json.loads(reporter.generate_report("json"))["verdicts"]
    found = {one["cell"]: (one["level"], shown_basis(one["level"], one["basis"])) for one in shown}
    assert found == {cell: says(verdict) for cell, verdict in verdicts.items()}


def did_not_run(cell: CellResult) -> bool:
    """Whether a check of the run wasn't reached, or ran on another target."""
    return {line.check_name for line in cell.lines} != set(cell.checks) or any(
        line.outcome in (Outcome.NOT_RUN, Outcome.PASSED_ON_FALLBACK) or line.substitution_reason
        for line in cell.lines
    )


def check_run(result: JobResult, verdicts: Mapping[str, Verdict], folder: Path) -> None:
    table = run_text(result)
    said = said_by_reports(result, folder)
    for cell in result.cells:
        assert says(cell.verdict) == said[cell.verdict.cell] == says(verdicts[cell.verdict.cell])
    overview = dict(re.findall(r"^(\S+/\S+/\S+/\S+) +\w+ +(\w+) ", table, re.MULTILINE))
    assert overview == {cell.verdict.cell: str(cell.verdict.level) for cell in result.cells}
    known = [cell.verdict for cell in result.cells if cell.verdict.level is not Level.UNKNOWN]
    lock = "".join(f'"{one.cell}" = "{one.level}"\n' for one in known)
    project = parse_project(f'schema_version = 1\n[[model]]\nname = "bert"\n[expected]\n{lock}', folder / "h.toml")
    judged = judge_project(project, runs_of(result, allow_fallback=True), date(2026, 2, 1), words=reason_text)
    met = {one.cell for one in judged.of_kind(ProjectFindingKind.MET)}
    by_id = {cell.verdict.cell: cell for cell in result.cells}
    ran = {one.cell for one in known if one.basis is Basis.MEASURED and not did_not_run(by_id[one.cell])}
    whole = {
        one for one in ran if {line.evidence_id for line in by_id[one].lines} == set(by_id[one].verdict.evidence_ids)
    }
    assert whole <= met <= ran
    if result.exit_code(allow_fallback=True) == 0:
        assert all(line.outcome is not Outcome.FAILED for cell in result.cells for line in cell.lines)
