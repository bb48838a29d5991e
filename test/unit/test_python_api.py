"""The public API: its names, its tables for pandas, and the JSON of all commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_lines import BERT
from front_doors import ROOT, commands, invoke
from recorded_machines import XEON, computer, machine
from whole_runs import write_run

import hwcompat
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware import accelerators, backends
from hardware.detection import detect
from hardware.errors import HwCompatError
from hardware.evidence.latest import Latest
from hwcompat.plugins.stress.stress_result import StressRun

EVIDENCE = "hwcompat-out/evidence"
LINES = (
    *("classify bert", "devices list", "devices capabilities", "devices fit", "devices compare a.json a.json"),
    *("devices doctor --no-check", "devices monitor --count 1", "devices show-stress s.json", "doctor --no-check"),
    *("generate --model bert --list", "generate --model bert --output-dir s", "check s", "update s", "matrix"),
    *(
        "ops qnn --mode support",
        "coverage",
        f"explain {BERT}",
        "explain --model bert",
        "calibration",
        "backlog qnn",
        "report",
    ),
    *(
        f"compare {EVIDENCE} {EVIDENCE}",
        "diagnose a.log",
        "evidence refresh --dry-run",
        "devices recommend --architecture speech",
    ),
)
SLOW = {
    "run",
    "verify",
    "compare-devices",
    "localize",
    "fix",
    "fit",
    "place",
    "mesh",
    "devices stress",
    "devices probe",
}
"""Commands that build or run a model, or load devices."""


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the evidence of one run."""
    monkeypatch.chdir(tmp_path)
    predicted = Verdict(cell=BERT, level=Level.HIGH, basis=Basis.PREDICTED, rule_ids=("a-rule",))
    write_run(Path(EVIDENCE), BERT, predicted=predicted)


def test_every_public_name_is_there_and_no_other_is_made_up():
    assert all(getattr(getattr(hwcompat, name), "__name__", name) == name for name in hwcompat.__all__)
    assert all(
        name in dir(hwcompat) and getattr(backends, name) is getattr(hwcompat, name) for name in backends.__all__
    )
    assert all(getattr(accelerators, name) == getattr(hwcompat, name) for name in accelerators.__all__)
    assert {*hwcompat.__all__} <= {*dir(hwcompat)}
    with pytest.raises(AttributeError, match="detcet"):
        hwcompat.detcet  # noqa: B018


def test_without_packages_the_api_is_imported_and_programs_say_what_to_install():
    def python(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-S", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert python("-c", "from hwcompat import Cell, Verdict, detect").returncode == 0
    for words in ("-m hwcompat", "-m hardware", "run_test_generation.py", "hardware_compatibility_reporter.py"):
        done = python(*words.split())
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert re.search("missing.* click, rich_click.* -m pip install -r requirements.txt", done.stderr)


def test_the_example_of_the_page_makes_tables(measured):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/reference/python.md").read_text(), re.DOTALL)
    exec(code, found := {})
    assert [(one.cell, one.level) for one in found["verdicts"]] == [(BERT, Level.HIGH)]
    _, results, cells = found["tables"]
    assert {*results[["outcome", "machine"]].itertuples(index=False)} == {("passed", "a-machine")}
    assert {*results["max_rel_error"]} == {1e-6}
    (own,) = cells[cells["cell"] == BERT].to_dict("records")
    assert (own["model"], own["target"], own["level"], own["basis"]) == ("bert", "cpu", "high", "measured")


def test_a_table_of_devices_has_sizes_in_bytes():
    disks = detect(computer(XEON)).storage
    frame = replace(detect(machine("nvidia/h100-x8")), storage=disks).to_frame()
    assert [*frame["kind"]] == ["processor", *["accelerator"] * 8, *["storage"] * len(disks)]
    assert frame["memory_bytes"][:9].min() > 2**36
    assert frame["capacity_bytes"].sum() == sum(one.capacity_bytes or 0 for one in disks) > 2**40


def test_without_pandas_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HwCompatError, match="pip install pandas"):
        Latest().to_frame()


def test_all_json_is_an_object_with_a_schema_version(measured):
    Path("a.log").write_text("RuntimeError: No CUDA GPUs are available\n")
    stress = StressRun(started_at="", host={}, versions={}, interval_s=1.0, results=())
    Path("s.json").write_text(json.dumps(stress.to_dict()))
    Path("a.json").write_text(invoke("devices", "list", "--format", "json").out)
    for line in LINES:
        assert invoke(*line.split(), "--format", "json").document["schema_version"] >= 1, line
    options = {
        " ".join(words): [getattr(one.type, "choices", ()) for one in found.params] for words, found in commands()
    }
    printing = {name for name, choices in options.items() if any("json" in one for one in choices)}
    assert {name for name in printing if not any(f"{line} ".startswith(f"{name} ") for line in LINES)} == SLOW
