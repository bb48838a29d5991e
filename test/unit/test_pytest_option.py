"""`pytest --hwcompat` in somebody else's repository, where the plugin comes from its entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from front_doors import invoke

from generators.compatibility.judge import judge
from hardware.basic_detection import inventory_here
from hardware.evidence.latest import read_latest

ROOT = Path(__file__).parents[2]
TESTS = """
import sys
import pytest

def test_nothing_is_imported(request):
    loaded = {"torch", "hwcompat.hardware"} & set(sys.modules)
    assert not loaded or request.config.getoption("--hwcompat")

@pytest.fixture
def ranker():
    import torch
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Softmax(-1))

@pytest.fixture
def x():
    import torch
    return torch.randn(2, 8, generator=torch.Generator().manual_seed(1))

@pytest.mark.parametrize("target", ["cpu", "simulated", "mps"])
def test_rank(device_cell, ranker, x, target):
    device_cell(ranker, {"input": x}, target, name="rank").check({"input": x[:1]})

def test_fails_unexpectedly(device_cell, ranker, x):
    device_cell(lambda: ranker, (x,), "simulated").check()

def test_passes_now(device_cell, ranker, x):
    device_cell(ranker, (x,), "cpu").check()

def test_own_assertion(device_cell, ranker, x, pytestconfig):
    from hwcompat.hardware.testing.foreign_plugins import unknown_plugins
    assert "hwcompat" not in " ".join(unknown_plugins(pytestconfig.pluginmanager))  # suites beside it count
    cell = device_cell(ranker, (x,), "cpu", "bfloat16", name="own")
    assert cell.error(cell.run(cell.inputs), cell.reference(cell.inputs)) <= cell.tolerance
    with pytest.raises(Exception, match="tested twice"):
        device_cell(ranker, (x,), "cpu", "bfloat16", name="own")
    with pytest.raises(Exception, match="needs a reason"):
        device_cell(ranker, (x,), "cpu", name="own", tolerance=1e-3)
"""
EXPECTED = """name,accuracy
rank/module-forward/simulated/float32,fail_accuracy
test_own.test_passes_now/module-forward/cpu/float32,fail_to_run
gone/module-forward/cpu/float32,pass
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "test_own.py").write_text(TESTS, encoding="utf-8")
    (folder / "expected.csv").write_text(EXPECTED, encoding="utf-8")
    installed = folder / "site" / "hwcompat-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: hwcompat\nVersion: 1\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text("[pytest11]\nhwcompat = hwcompat.pytest_option\n", encoding="utf-8")
    return folder


def ran(repository: Path, *arguments: str, evidence: Path | None = None) -> tuple[int, str]:
    """Return pytest's exit code and output in a repository, with a device that multiplies matrices wrongly."""
    path = os.pathsep.join((str(ROOT), str(repository / "site")))
    cleared = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "HWCOMPAT"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments],
        cwd=repository,
        env={**cleared, "PYTHONPATH": path, "HWCOMPAT_SIMULATED_FAULT": "wrong:aten.addmm"}
        | ({"HWCOMPAT_EVIDENCE": str(evidence)} if evidence else {}),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_without_the_option_nothing_is_imported_and_tests_of_devices_are_skipped_by_name(repository: Path) -> None:
    code, said = ran(repository)
    assert (code, "1 passed, 6 skipped" in said) == (0, True), said
    assert "device_cell needs --hwcompat" in said
    assert not (repository / "hwcompat-out").exists()


def test_results_are_judged_by_the_expected_ones_and_recorded(repository: Path, monkeypatch) -> None:
    code, said = ran(repository, "--hwcompat", "--hwcompat-expected", "expected.csv")
    assert code == 1, said
    assert "XFAIL test_own.py::test_rank[simulated]" in said
    assert "PASSED test_own.py::test_rank[cpu]" in said
    assert "mps isn't available" in said
    assert "fail_accuracy (expected: pass): matches_reference failed: off by" in said
    assert "passes now; fail_to_run is expected, line 3 of expected.csv: change it to pass" in said
    assert "PASSED test_own.py::test_own_assertion" in said
    assert "Expected and not tested here: gone/module-forward/cpu/float32" in said
    latest = read_latest(repository / "hwcompat-out" / "evidence")
    assert latest.broken == ()
    found = {one.cell: one for one in judge(latest, inventory_here())}
    assert {cell: str(one.level) for cell, one in found.items()} == {
        "rank/module-forward/cpu/float32": "unknown",  # two checks alone don't show that it works
        "rank/module-forward/simulated/float32": "unsupported",
        "test_own.test_fails_unexpectedly/module-forward/simulated/float32": "unsupported",
        "test_own.test_passes_now/module-forward/cpu/float32": "unknown",
    }
    proofs = [line for line in latest.checks if line.check_name == "runs_natively" and line.native_ops]
    assert len(proofs) == 4
    monkeypatch.chdir(repository)
    assert "rank/module-forward/simulated/float32 | unsupported" in invoke("report").out


def test_expected_results_without_the_option_are_a_usage_error(repository: Path) -> None:
    code, said = ran(repository, "--hwcompat-expected", "expected.csv")
    assert (code, "--hwcompat-expected needs --hwcompat" in said) == (4, True), said


def test_a_factory_with_inputs_and_evidence_that_cannot_be_written_are_said(tmp_path: Path, repository: Path) -> None:
    own = tmp_path / "test_pair.py"
    text = """
import torch

def test_pair(device_cell):
    device_cell(lambda: (torch.nn.Linear(2, 2), torch.ones(1, 2)), (torch.zeros(1, 2),), "cpu").check()

def test_right(device_cell):
    device_cell(torch.nn.Linear(2, 2), (torch.ones(1, 2),), "cpu").check()
"""
    own.write_text(text, encoding="utf-8")
    (tmp_path / "hwcompat-out").write_text("no folder", encoding="utf-8")
    code, said = ran(repository, "--hwcompat", f"--rootdir={tmp_path}", str(own), evidence=tmp_path / "hwcompat-out")
    assert (code, "INTERNALERROR" in said, "Evidence: not written" in said) == (4, False, True), said
    assert "the factory returns example inputs too" in said
    assert "1 failed, 1 passed" in said


def test_a_file_of_expected_results_that_cannot_be_read_is_a_usage_error(repository: Path) -> None:
    code, said = ran(repository, "--hwcompat", "--hwcompat-expected", "none.csv")
    assert (code, "the expected results 'none.csv' can't be read" in said) == (4, True), said
