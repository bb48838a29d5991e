"""The reporter computes on targets in child processes, imports little, and works with few packages.

The reporter collects low memory and failed loads of the resource pool.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from evidence_lines import check_line, planned_cell, run_line
from front_doors import ROOT

from generators.compatibility.matrix import SCHEMA
from hardware.errors import OutOfMemory
from hardware.evidence.store import Evidence
from hardware.expected_targets import TargetStatus
from hwcompat.plugins.placement.pool import ResourcePool, pool
from hwcompat.plugins.placement.pool.device_memory import MemoryReading
from reports.finding import Severity
from reports.reporter import HardwareCompatibilityReporter
from reports.stack import run_stack


def status(target: str, expected: bool = True, reason: str = "") -> TargetStatus:
    return TargetStatus(target=target, expected=expected, reason=reason)


def python(code: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)


def test_cpu_computes_in_a_child_and_a_child_that_dies_or_hangs_is_a_result():
    (result,) = run_stack([status("cpu")])
    assert (result.state, result.reason) == ("computed", "")
    assert result.device_name
    assert "torch" not in sys.modules or result.duration_s is not None
    for code, recorded, words in (
        ("import os; os.abort()", "crash", "SIGABRT"),
        ("import sys; sys.exit(7)", "crash", "exit code 7"),
        ("import time; time.sleep(60)", "timeout", "no answer in 1 s"),
    ):
        command = (sys.executable, "-c", code)
        statuses = [status("cuda"), status("mps", False, "needs macOS")]
        cuda, mps = run_stack(statuses, timeout_s=1, command=command)
        assert (cuda.state, cuda.recorded) == ("failed", recorded)
        assert words in cuda.reason
        assert (mps.state, mps.reason) == ("absent", "needs macOS")


def test_matrix_shows_assumed_levels_and_what_was_measured():
    run = run_line(planned_cell(checks=("builds", "matches_reference")))
    lines = tuple(check_line(name) for name in run.plan[0].checks)
    data = HardwareCompatibilityReporter(Evidence(runs=(run,), checks=lines)).generate_compatibility_matrix()
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assumed = data["compatibility"]["multimodal"]["webnn"]
    assert (assumed["counts"]["measured"], assumed["basis"]) == (0, "assumed")
    imported = data["compatibility"]["vision"]["openvino"]
    assert (imported["level"], imported["basis"]) == (None, "imported")
    assert sum(imported["levels"].values()) + imported["counts"]["said"] > imported["counts"]["said"] > 0
    predicted = data["compatibility"]["vision"]["cpu"]
    assert (predicted["level"], predicted["basis"]) == (None, "predicted")
    assert 0 < sum(predicted["levels"].values()) == predicted["counts"]["said"]
    assert "bert/fill-mask/float32" in data["models"]


def test_both_commands_start_and_import_no_framework(tmp_path):
    path = str(ROOT / "test" / "hardware_compatibility_reporter.py")
    done = python(
        "import runpy, sys\n"
        "sys.argv = ['x', '--matrix', '--collect-all', '--format', 'json']\n"
        "try:\n"
        f"    runpy.run_path({path!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    heavy = {'torch', 'transformers', 'openvino', 'duckdb', 'pandas'} & set(sys.modules)\n"
        "    print(end.code, sorted(heavy), file=sys.stderr)\n",
        tmp_path,
    )
    assert json.loads(done.stdout)["models_tested"] == []
    assert done.stderr.splitlines()[-1] == "0 []"
    heavy = ["torch", "transformers", "pandas", "duckdb", "jsonschema", "numpy"]
    done = python(
        "import sys; from generators.compatibility import judge, matrix, rules, selection; "
        f"matrix.build_matrix(rules.load_rules(), timestamp='t'); print(set(sys.modules) & set({heavy}))"
    )
    assert done.stdout.strip() == "set()"
    done = python(
        "import sys; from hwcompat.cli.main_program import main; main(['report', '--help'])\n"
        f"print(set(sys.modules) & set({[*heavy, 'psutil', 'generators.plan', 'hwcompat.generators.plan']}))"
    )
    assert "--check-model" in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"


def test_the_reporter_works_without_torch_transformers_and_openvino(tmp_path):
    import click
    import numpy
    import packaging
    import platformdirs
    import psutil
    import pygments
    import rich
    import rich_click
    import tabulate

    few = tmp_path / "few"
    few.mkdir()
    for module in (click, numpy, packaging, platformdirs, psutil, pygments, rich, rich_click, tabulate):
        folder = Path(module.__file__).parent
        for path in (folder, folder.with_name(f"{folder.name}.libs")):
            if path.exists():
                (few / path.name).symlink_to(path)
    arguments = ["--collect-all", "--test-hardware", "--matrix", "--check-model", "bert", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "hardware_compatibility_reporter.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(few)},
    )
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    missing = {name for name, part in data["components_available"].items() if part["state"] == "missing"}
    assert {"torch", "transformers", "openvino"} <= missing
    assert data["hardware_stack"]["cpu"]["state"] == "absent"
    assert data["matrix"]["compatibility"]["vision"]["cuda"]["level"] == "high"
    assert "transformers isn't installed" in data["model_checks"][0]["cause"]


@pytest.fixture
def own_pool(monkeypatch) -> ResourcePool:
    """A global pool for one test, on a machine with memory to spare, with a budget of 1000 bytes."""
    spare = MemoryReading(total_bytes=10**9, free_bytes=10**9)
    one = ResourcePool(budgets={"cpu": 1000, "simulated": 1000}, memory=lambda device: spare)
    monkeypatch.setattr(pool, "_global", [one])
    return one


def test_low_memory_of_the_pool_is_a_remark_and_memory_pressure_a_warning(own_pool):
    one = HardwareCompatibilityReporter()
    assert one.collect_resource_pool_errors() == []
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
    by_model = {one.model_name: one for one in HardwareCompatibilityReporter().collect_resource_pool_errors()}
    assert by_model["large"].error_type == "out_of_memory"
    assert "MemoryError: no 3 GB" in by_model["large"].message
    assert by_model["other"].error_type == "missing_dependency"
    assert "sentencepiece" in by_model["other"].message
    assert any("pip install" in text for text in by_model["other"].recommendations)
