"""The reporter computes on targets in child processes, imports little, and works with few packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
from evidence_lines import check_line, planned_cell, run_line
from front_doors import ROOT

from generators.compatibility.matrix import SCHEMA
from hardware.evidence.store import Evidence
from hardware.expected_targets import TargetStatus
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
