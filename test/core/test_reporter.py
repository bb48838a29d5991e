"""The reporter collects findings from every part, grades what did not compute, and stays in its output folder."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
from evidence_lines import BERT, check_line, planned_cell, run_line
from recorded_machines import machine

from hardware.command_names import command_of
from hardware.detection import detect
from hardware.errors import OutputError, UsageError
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, EndLine, Outcome, RunLine
from hardware.evidence.revisions import checker_versions
from hardware.evidence.store import BrokenLine, Evidence
from hardware.values import data_file
from hwcompat.plugins.placement.pool import ResourcePool
from reports import report, reporter
from reports.finding import SCHEMA, Severity
from reports.reporter import HardwareCompatibilityReporter
from reports.stack import StackResult

CHECKS = ("builds", "matches_reference")
FAILED = check_line("matches_reference", Outcome.FAILED, error_type="unknown", error_message="boom")


def evidence(*lines: CheckLine, runs: tuple[RunLine, ...] = (), broken: tuple[BrokenLine, ...] = ()) -> Evidence:
    ends = tuple(EndLine(run_id=one.run_id, ended_at="", reason="finished", counts={}) for one in runs)
    return Evidence(runs=runs, checks=lines, ends=ends, broken=broken)


def of_run(**changes: object) -> HardwareCompatibilityReporter:
    """A reporter with a run of which both planned checks passed."""
    run = run_line(planned_cell(checks=CHECKS), **changes)
    return HardwareCompatibilityReporter(evidence(*map(check_line, CHECKS), runs=(run,)))


def as_json(one: HardwareCompatibilityReporter) -> dict:
    data = json.loads(one.generate_report(format="json"))
    jsonschema.validate(data, data_file(SCHEMA))
    return data


def test_the_newest_result_counts_and_a_planned_check_without_one_was_not_run():
    passed = replace(FAILED, outcome=Outcome.PASSED, error_type="", run_id="r2", started_at="2026-01-02")
    assert HardwareCompatibilityReporter(evidence(FAILED, passed)).collect_compatibility_test_errors() == []
    planned = run_line(planned_cell(checks=("builds", "backward")))
    found = read_latest(evidence(check_line("builds"), runs=(planned,))).checks
    assert {one.check_name: one.outcome for one in found} == {"builds": "passed", "backward": "not_run"}


def test_findings_are_those_of_the_requested_models_once_each():
    (finding,) = HardwareCompatibilityReporter().collect_compatibility_test_errors()
    assert (finding.error_type, finding.severity) == ("not_measured", Severity.INFO)
    one = HardwareCompatibilityReporter(evidence(FAILED))
    assert [f.model_name for f in one.collect_compatibility_test_errors(["bert"])] == ["bert"]
    (finding,) = one.collect_compatibility_test_errors(["gpt2"])
    assert finding.error_type == "not_measured"
    command = command_of("run", "--model", "gpt2", "--device", "auto")
    assert finding.recommendations == (f"Measure it: `{command}`",)
    for text in (*one.get_recommendations("cpu", "not_measured"), *one.get_recommendations("cpu", "suite_edited")):
        assert "{" not in text
        assert "NAME" not in text
    one.collect_compatibility_test_errors()
    one.collect_hardware_detection_errors()
    before = len(one.findings)
    one.collect_compatibility_test_errors()
    one.collect_hardware_detection_errors()
    assert len(one.findings) == before
    assert [finding.error_type for finding in one.findings].count("unknown") == 1
    data = as_json(one)
    assert data["error_counts"]["error"] == 1
    assert len(data["hardware_errors"]["cpu"]) == 1


def test_broken_lines_interrupted_runs_and_modified_checkers_are_findings():
    broken = BrokenLine(file="x.jsonl", number=3, reason="not an object")
    killed = Evidence(runs=(run_line(run_id="r9"),), checks=(check_line(),), ends=(), broken=(broken,))
    found = HardwareCompatibilityReporter(killed).collect_compatibility_test_errors()
    texts = {finding.error_type: finding.message for finding in found}
    assert "x.jsonl" in texts["broken_evidence"]
    assert "r9" in texts["interrupted"]
    changed = of_run(versions={**checker_versions(), "checker/runner": "1+0123456789ab"})
    (finding,) = (one for one in changed.collect_compatibility_test_errors() if one.error_type == "modified_checker")
    assert (finding.hardware_type, finding.severity, finding.model_name) == ("cpu", Severity.ERROR, "bert")
    assert f"1 cell(s), for example {BERT}: modified checker: the code of runner" in finding.message
    assert "hardware.evidence.revisions check" in finding.recommendations[0]


def test_report_has_a_verdict_for_each_cell():
    one = of_run()
    one.collect_compatibility_test_errors()
    data = as_json(one)
    assert [verdict["cell"] for verdict in data["verdicts"]] == [BERT]
    assert [(check["check_name"], check["outcome"]) for check in data["checks"]] == [(c, "passed") for c in CHECKS]
    assert f"| {BERT} | unknown (nothing measured) | tiny | cpu | cpu | - | 2 passed |" in one.generate_report()


def test_an_added_error_is_graded_advised_and_redacted():
    one = HardwareCompatibilityReporter()
    finding = one.add_error("cuda", "memory_pressure", "token=hunter2hunter2 is low")
    assert finding.severity is Severity.WARNING
    assert "hunter2" not in finding.message
    assert any("Close other applications" in text for text in one.get_recommendations())
    with pytest.raises(UsageError, match="is not a severity"):
        one.add_error("cuda", "unknown", "x", severity="fatal")
    one.add_error("cuda", "device_lost", "y")
    assert "Xid" in one.get_recommendations()[0]  # the worst first
    assert one.get_recommendations("mps", "device_absent")[0].startswith("MPS is only available on Macs")


# Parts of this machine


def test_parts_that_are_missing_or_fail_are_findings_and_the_others_are_tried(monkeypatch):
    def broken() -> object:
        raise RuntimeError("no such folder")

    gone = {"torch": Severity.CRITICAL, "transformers": Severity.CRITICAL, "openvino": Severity.WARNING}
    monkeypatch.setattr(report, "is_installed", lambda module: module not in gone)
    monkeypatch.setattr(report, "_rules", broken)
    one = HardwareCompatibilityReporter()
    parts = one.check_components()
    assert {name for name, part in parts.items() if part.state == "missing"} == set(gone)
    assert [name for name, part in parts.items() if part.state == "failed"] == ["compatibility_rules"]
    assert parts["hardware_detection"].state == parts["resource_pool"].state == "available"
    assert {f.component: f.severity for f in one.findings if f.error_type == "missing_dependency"} == gone
    assert any("Install torch: `pip install" in text for text in one.get_recommendations())
    assert any("no such folder" in finding.message for finding in one.findings)
    monkeypatch.setattr(ResourcePool, "get_resource", lambda self, *_asked: object())
    assert one.check_components()["resource_pool"].state == "failed"


def test_an_unknown_model_and_a_failed_detection_are_findings(monkeypatch):
    one = HardwareCompatibilityReporter()
    assert one.collect_model_integration_errors("bert") == []
    (finding,) = one.collect_model_integration_errors("brt")
    assert (finding.error_type, finding.model_name) == ("unknown_model", "brt")
    assert "'bert'" in finding.message
    inventory = one.inventory()
    (nvidia,) = [facts for facts in inventory.vendors if facts.vendor == "NVIDIA"]
    unusable = {"driver": "missing", "library": "ok", "reason": "no driver", "simulated": False}
    present = replace(nvidia, hardware=type(nvidia.hardware)("present"), **unusable)
    one._inventory = replace(inventory, vendors=(present,))
    (finding,) = one.collect_hardware_detection_errors()
    assert (finding.hardware_type, finding.error_type) == ("cuda", "driver_missing")
    assert finding.severity is Severity.ERROR
    monkeypatch.setattr(one, "inventory", lambda: 1 / 0)
    (finding,) = one.collect_hardware_detection_errors()
    assert finding.error_type == "component_failed"
    assert "ZeroDivisionError" in finding.traceback


def test_each_target_that_did_not_compute_is_graded(monkeypatch):
    requests: list[str] = []
    for target, state, reason, error_type, severity in (
        ("cuda", "absent", "no NVIDIA GPU is on the bus", "device_absent", "info"),
        ("webgpu", "absent", "needs a browser: no Chromium is installed", "browser_required", "info"),
        ("cuda", "absent", "torch 2.13.0+cpu is built for cpu, not for cuda", "wrong_build", "info"),
        ("openvino", "absent", "openvino isn't installed: pip install openvino", "missing_dependency", "info"),
        ("tpu", "absent", "no TPU is on the bus", "device_absent", "info"),
        ("cpu", "absent", "torch isn't installed: pip install torch", "missing_dependency", "error"),
        ("cuda", "failed", "ended by SIGSEGV", "crash", "critical"),
        ("mps", "failed", "it computed something else (got [0.0])", "numerical_mismatch", "error"),
    ):
        result = StackResult(
            target=target, state=state, reason=reason, recorded="crashed" if error_type == "crash" else ""
        )

        def run_stack(statuses, result=result, **_options):
            requests.extend(one.target for one in statuses)
            return (result,)

        monkeypatch.setattr(reporter, "run_stack", run_stack)
        one = HardwareCompatibilityReporter()
        one.test_full_hardware_stack()
        (finding,) = one.findings
        assert (finding.hardware_type, finding.error_type, finding.severity) == (target, error_type, severity)
        assert finding.recommendations
    unloaded = "no NVIDIA GPU is seen by a driver (present but unusable): Driver Not Loaded"
    broken = StackResult(target="cuda", state="absent", reason=unloaded)
    monkeypatch.setattr(reporter, "run_stack", lambda _statuses, **_options: (broken,))
    for here, asked, severity in (("nvidia/h100-x8", (), "error"), ("amd/mi300x-x2", (), "info"),
                                  ("amd/mi300x-x2", ("cuda",), "error")):  # fmt: skip
        one = HardwareCompatibilityReporter()
        inventory = detect(machine(here))
        monkeypatch.setattr(one, "inventory", lambda inventory=inventory: inventory)
        one.test_full_hardware_stack(asked=asked)
        assert [(finding.error_type, finding.severity) for finding in one.findings] == [("device_unusable", severity)]
    named = {"cpu", "cuda", "rocm", "mps", "xpu", "tpu", "openvino", "qnn", "webnn", "webgpu", "simulated"}
    assert named <= set(requests)


# Files


def test_report_is_saved_whole_in_the_output_folder_and_nowhere_else(tmp_path):
    folder = tmp_path / "out"
    one = HardwareCompatibilityReporter(output_folder=folder)
    for name in ("../x.md", "/tmp/x.md", "a/b.md", "..", "", ".hidden", "a\\b", "x\n.md", "a..b"):
        with pytest.raises(UsageError, match="not the name of a report"):
            one.save_to_file("x", name)
    assert not folder.exists()
    path = one.save_to_file("first\n", "report.md")
    assert path == folder / "report.md"
    with pytest.raises(UnicodeEncodeError):
        one.save_to_file("second, and then \ud800", "report.md")
    assert path.read_text(encoding="utf-8") == "first\n"
    assert list(folder.iterdir()) == [path]
    (folder / "link.md").symlink_to(tmp_path / "elsewhere.md")
    with pytest.raises(OutputError, match="links are not followed"):
        one.save_to_file("x", "link.md")
    assert not (tmp_path / "elsewhere.md").exists()
