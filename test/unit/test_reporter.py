"""The reporter collects from every part, computes on targets in children, and stays in its output folder."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from generators.compatibility.matrix import SCHEMA as MATRIX_SCHEMA
from hardware.errors import OutOfMemory, OutputError, UsageError
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine
from hardware.evidence.revisions import checker_versions
from hardware.evidence.store import BrokenLine, Evidence
from hwcompat.plugins.placement.pool import ResourcePool, pool
from hwcompat.plugins.placement.pool.device_memory import MemoryReading
from reports import components
from reports.finding import SCHEMA, Severity
from reports.reporter import HardwareCompatibilityReporter
from reports.saved_reports import schema_of

CELL = "bert/fill-mask/cpu/float32"


def line(check_name: str = "matches_reference", outcome: Outcome = Outcome.PASSED, **changes: object) -> CheckLine:
    values = {
        "run_id": "r1",
        "cell_id": CELL,
        "check_name": check_name,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": "cpu",
        "actual_target": "cpu",
        "precision": "float32",
        "model": "bert",
        "task": "fill-mask",
        "suite_hash": "h",
        "started_at": "2026-01-01T00:00:01",
        "duration_s": 0.1,
        "accelerator": "a CPU",
    }
    return CheckLine(**{**values, **changes})


def run(run_id: str = "r1", started_at: str = "2026-01-01T00:00:00", checks: tuple[str, ...] = ()) -> RunLine:
    planned = PlannedCell(cell_id=CELL, checks=checks, suite="s.py", suite_hash="h", subject="tiny")
    return RunLine(
        run_id=run_id,
        started_at=started_at,
        command="",
        machine="",
        inventory={},
        versions={},
        plan=(planned,) if checks else (),
    )


def evidence(*lines: CheckLine, runs: tuple[RunLine, ...] = (), broken: tuple[BrokenLine, ...] = ()) -> Evidence:
    ends = tuple(EndLine(run_id=one.run_id, ended_at="", reason="finished", counts={}) for one in runs)
    return Evidence(runs=runs, checks=lines, ends=ends, broken=broken)


def test_newest_line_of_a_check_replaces_older_ones():
    failed = line(outcome=Outcome.FAILED, error_type="unknown")
    passed = line(run_id="r2", started_at="2026-01-02")
    assert read_latest(evidence(passed, failed)).checks == (passed,)
    assert HardwareCompatibilityReporter(evidence(failed, passed)).collect_compatibility_test_errors() == []


def test_other_accelerator_does_not_hide_a_failure():
    failed = line(outcome=Outcome.FAILED, error_type="unknown")
    elsewhere = line(run_id="r2", started_at="2026-01-02", accelerator="another CPU")
    assert len(read_latest(evidence(failed, elsewhere)).checks) == 2


def test_interrupted_run_does_not_hide_what_was_shown_before():
    failed = line(outcome=Outcome.FAILED, error_type="unknown")
    cut = line(run_id="r2", started_at="2026-01-02", outcome=Outcome.NOT_RUN, error_type="interrupted")
    assert read_latest(evidence(failed, cut)).checks == (failed,)


def test_planned_check_without_a_line_is_not_run():
    found = read_latest(evidence(line("builds"), runs=(run(checks=("builds", "backward")),))).checks
    assert {one.check_name: one.outcome for one in found} == {
        "builds": Outcome.PASSED,
        "backward": Outcome.NOT_RUN,
    }


def test_without_evidence_it_says_that_nothing_was_measured():
    (finding,) = HardwareCompatibilityReporter().collect_compatibility_test_errors()
    assert (finding.error_type, finding.severity) == ("not_measured", Severity.INFO)


def test_only_the_models_asked_for_are_reported():
    failed = line(outcome=Outcome.FAILED, error_type="unknown", error_message="boom")
    one = HardwareCompatibilityReporter(evidence(failed))
    assert [f.error_type for f in one.collect_compatibility_test_errors(["gpt2"])] == ["not_measured"]
    assert [f.model_name for f in one.collect_compatibility_test_errors(["bert"])] == ["bert"]


def test_broken_lines_and_killed_runs_are_findings():
    broken = BrokenLine(file="x.jsonl", number=3, reason="not an object")
    killed = Evidence(runs=(run("r9"),), checks=(line(),), ends=(), broken=(broken,))
    found = HardwareCompatibilityReporter(killed).collect_compatibility_test_errors()
    texts = {finding.error_type: finding.message for finding in found}
    assert "x.jsonl" in texts["broken_evidence"]
    assert "r9" in texts["interrupted"]


def test_same_problem_collected_twice_is_kept_once():
    one = HardwareCompatibilityReporter(evidence(line(outcome=Outcome.FAILED, error_type="unknown")))
    one.collect_compatibility_test_errors()
    one.collect_compatibility_test_errors()
    one.collect_hardware_detection_errors()
    before = len(one.findings)
    one.collect_hardware_detection_errors()
    assert len(one.findings) == before
    assert [finding.error_type for finding in one.findings].count("unknown") == 1


@pytest.fixture
def own_pool(monkeypatch) -> ResourcePool:
    """A global pool for one test, on a machine with memory to spare, with a budget of 1000 bytes."""
    spare = MemoryReading(total_bytes=10**9, free_bytes=10**9)
    one = ResourcePool(budgets={"cpu": 1000, "simulated": 1000}, memory=lambda device: spare)
    monkeypatch.setattr(pool, "_global", [one])
    return one


def test_a_pool_that_nobody_asked_for_anything_is_no_finding(own_pool):
    assert HardwareCompatibilityReporter().collect_resource_pool_errors() == []


def test_low_memory_mode_is_a_remark_and_memory_pressure_a_warning_with_advice_for_its_target(own_pool):
    one = HardwareCompatibilityReporter()
    with own_pool.lease("kept", "a", object, device="simulated", expected_bytes=790):
        assert one.collect_resource_pool_errors() == []
    with own_pool.lease("kept", "b", object, expected_bytes=850):
        (low,) = one.collect_resource_pool_errors()
    assert (low.hardware_type, low.error_type, low.severity) == ("cpu", "memory_pressure", Severity.INFO)
    assert "85 % of the pool's budget" in low.message
    with own_pool.lease("kept", "c", object, expected_bytes=950):
        findings = one.collect_resource_pool_errors()
    (pressure,) = [finding for finding in findings if finding.severity is Severity.WARNING]
    assert pressure.component == "resource_pool"
    assert "95 % of the pool's budget" in pressure.message
    assert any("Close other applications" in text for text in pressure.recommendations)


def test_a_load_that_failed_is_a_finding_with_its_reason(own_pool):
    def full() -> object:
        raise MemoryError("no 3 GB")

    def missing() -> object:
        raise ModuleNotFoundError("No module named 'sentencepiece'")

    for name, build in (("large", full), ("other", missing)):
        with pytest.raises((OutOfMemory, ModuleNotFoundError)):
            own_pool.get_model("bert", name, build, device="cpu")
    findings = HardwareCompatibilityReporter().collect_resource_pool_errors()
    by_model = {finding.model_name: finding for finding in findings}
    assert by_model["large"].error_type == "out_of_memory"
    assert "MemoryError: no 3 GB" in by_model["large"].message
    assert by_model["other"].error_type == "missing_dependency"
    assert "sentencepiece" in by_model["other"].message
    assert any("pip install" in text for text in by_model["other"].recommendations)


def test_the_pool_is_a_part_that_is_tried(monkeypatch):
    assert HardwareCompatibilityReporter().check_components()["resource_pool"].state == "available"
    monkeypatch.setattr(ResourcePool, "get_resource", lambda self, *_asked: object())
    one = HardwareCompatibilityReporter()
    assert one.check_components()["resource_pool"].state == "failed"
    assert [finding.component for finding in one.findings if finding.error_type == "component_failed"] == [
        "resource_pool"
    ]


def test_added_error_is_graded_advised_and_free_of_secrets():
    one = HardwareCompatibilityReporter()
    finding = one.add_error("cuda", "memory_pressure", "token=hunter2hunter2 is low")
    assert finding.severity is Severity.WARNING
    assert "hunter2" not in finding.message
    assert any("Close other applications" in text for text in one.get_recommendations())
    with pytest.raises(UsageError, match="is not a severity"):
        one.add_error("cuda", "unknown", "x", severity="fatal")


def test_recommendations_come_worst_first_and_for_one_pair():
    one = HardwareCompatibilityReporter()
    one.add_error("cpu", "ambiguous", "x")
    one.add_error("cuda", "device_lost", "y")
    assert "Xid" in one.get_recommendations()[0]
    assert one.get_recommendations("mps", "device_absent")[0].startswith("MPS exists on Macs")


def test_missing_packages_are_findings_and_the_rest_goes_on(monkeypatch):
    gone = ("torch", "transformers", "openvino")
    monkeypatch.setattr(components, "is_installed", lambda module: module not in gone)
    one = HardwareCompatibilityReporter()
    parts = one.check_components()
    assert {name for name, part in parts.items() if part.state == "missing"} == set(gone)
    assert parts["hardware_detection"].state == "available"
    grades = {f.component: f.severity for f in one.findings if f.error_type == "missing_dependency"}
    assert grades == {"torch": Severity.ERROR, "transformers": Severity.ERROR, "openvino": Severity.WARNING}
    assert any("Install torch: `pip install" in text for text in one.get_recommendations())


def test_part_that_fails_is_a_finding_and_the_others_are_tried(monkeypatch):
    def broken() -> object:
        raise RuntimeError("no such folder")

    monkeypatch.setattr(components, "_rules", broken)
    one = HardwareCompatibilityReporter()
    parts = one.check_components()
    assert (parts["compatibility_rules"].state, parts["model_classifier"].state) == ("failed", "available")
    assert any("no such folder" in finding.message for finding in one.findings)


def test_unknown_model_is_a_finding_and_a_known_one_is_none():
    one = HardwareCompatibilityReporter()
    assert one.collect_model_integration_errors("bert") == []
    (finding,) = one.collect_model_integration_errors("brt")
    assert (finding.error_type, finding.model_name) == ("unknown_model", "brt")
    assert "'bert'" in finding.message


def test_detection_that_fails_is_a_finding(monkeypatch):
    one = HardwareCompatibilityReporter()
    monkeypatch.setattr(one, "inventory", lambda: 1 / 0)
    (finding,) = one.collect_hardware_detection_errors()
    assert finding.error_type == "component_failed"
    assert "ZeroDivisionError" in finding.traceback


def test_report_has_a_verdict_for_each_cell():
    checks = ("builds", "matches_reference")
    one = HardwareCompatibilityReporter(evidence(line("builds"), line(), runs=(run(checks=checks),)))
    one.collect_compatibility_test_errors()
    data = json.loads(one.generate_report(format="json"))
    jsonschema.validate(data, schema_of(SCHEMA))
    assert [verdict["cell"] for verdict in data["verdicts"]] == [CELL]
    assert [(check["check_name"], check["outcome"]) for check in data["checks"]] == [
        (name, "passed") for name in checks
    ]
    assert f"| {CELL} | unknown (nothing measured) | tiny | cpu | cpu | a CPU | 2 passed |" in one.generate_report()


def test_report_of_everything_collected_fits_the_schema():
    one = HardwareCompatibilityReporter(evidence(line(outcome=Outcome.FAILED, error_type="numerical_mismatch")))
    one.check_components()
    one.collect_compatibility_test_errors()
    data = json.loads(one.generate_report(format="json"))
    jsonschema.validate(data, schema_of(SCHEMA))
    assert data["error_counts"]["error"] == 1
    assert data["hardware_errors"] == {"cpu": [data["errors"][0]["id"]]}


def test_matrix_shows_assumed_levels_and_what_was_measured():
    checks = ("builds", "matches_reference")
    data = HardwareCompatibilityReporter(
        evidence(line("builds"), line(), runs=(run(checks=checks),))
    ).generate_compatibility_matrix()
    jsonschema.validate(data, json.loads(MATRIX_SCHEMA.read_text(encoding="utf-8")))
    assumed = data["compatibility"]["multimodal"]["mps"]
    assert (assumed["level"], assumed["basis"]) == ("low", "assumed")
    predicted = data["compatibility"]["vision"]["openvino"]
    assert (predicted["level"], predicted["basis"]) == (None, "predicted")
    assert 0 < sum(predicted["levels"].values()) == predicted["counts"]["said"]
    assert "bert/fill-mask/float32" in data["models"]


@pytest.mark.parametrize("name", ["../x.md", "/tmp/x.md", "a/b.md", "..", "", ".hidden", "a\\b", "x\n.md", "a..b"])
def test_names_with_parts_of_a_path_are_refused(name, tmp_path):
    one = HardwareCompatibilityReporter(output_folder=tmp_path / "out")
    with pytest.raises(UsageError, match="not the name of a report"):
        one.save_to_file("x", name)
    assert not (tmp_path / "out").exists()


def test_report_is_saved_in_the_output_folder_and_links_are_not_followed(tmp_path):
    one = HardwareCompatibilityReporter(output_folder=tmp_path / "out")
    path = one.save_to_file("text\n", "report.md")
    assert path == tmp_path / "out" / "report.md"
    assert path.read_text(encoding="utf-8") == "text\n"
    (tmp_path / "out" / "link.md").symlink_to(tmp_path / "elsewhere.md")
    with pytest.raises(OutputError, match="links are not followed"):
        one.save_to_file("x", "link.md")
    assert not (tmp_path / "elsewhere.md").exists()


def test_report_that_cannot_be_written_whole_leaves_the_earlier_one(tmp_path, monkeypatch):
    one = HardwareCompatibilityReporter(output_folder=tmp_path)
    path = one.save_to_file("first\n", "report.md")
    with pytest.raises(UnicodeEncodeError):
        one.save_to_file("second, and then \ud800", "report.md")
    assert path.read_text(encoding="utf-8") == "first\n"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_modified_checker_measured_is_an_error_for_each_target():
    changed = {**checker_versions(), "checker/runner": "1+0123456789ab"}
    made = HardwareCompatibilityReporter(
        evidence(
            line(), line("builds"), runs=(replace(run(checks=("builds", "matches_reference")), versions=changed),)
        )
    )
    (finding,) = (one for one in made.collect_compatibility_test_errors() if one.error_type == "modified_checker")
    assert (finding.hardware_type, finding.severity, finding.model_name) == ("cpu", Severity.ERROR, "bert")
    assert (
        "1 cell(s), for example bert/fill-mask/cpu/float32: modified checker: the code of runner" in finding.message
    )
    assert "hardware.evidence.revisions check" in finding.recommendations[0]
