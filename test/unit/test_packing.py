"""What is packed, and what a run of it, or of the main job, ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from hardware.errors import BrokenInput
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.revisions import PREFIX, checker_versions, modified_parts
from hardware.files import package_files
from hardware.testing.bundle_runner import read_bundle
from hardware.testing.session import exit_code

ROOT = Path(__file__).parents[2]
LINE = CheckLine(
    run_id="r",
    cell_id="bert/fill-mask/cpu/float32",
    check_name="builds",
    outcome=Outcome.PASSED,
    subject="tiny",
    requested_target="cpu",
    actual_target="cpu",
    precision="float32",
    model="bert",
    task="fill-mask",
    suite_hash="0",
    started_at="2026-11-21T00:00:00+00:00",
    duration_s=0.1,
)
PASSED, FAILED = LINE, replace(LINE, outcome=Outcome.FAILED)
UNREACHED = replace(LINE, outcome=Outcome.NOT_RUN, error_type="not_reached")
LEFT_OUT = replace(LINE, outcome=Outcome.NOT_RUN, error_type="deselected")


def generate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "run_test_generation.py", "--output-dir", str(folder / "suites"), *arguments],
        cwd=ROOT,
        env={**os.environ, "HWCOMPAT_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of suites that were generated just before."""
    folder = tmp_path_factory.mktemp("packed")
    asked = ("--model", "bert", "--device", "auto", "--device", "cuda")
    assert generate(folder, *asked).returncode == 0
    done = generate(folder, *asked, "--bundle", str(folder / "suite.zip"))
    assert done.returncode == 0, done.stderr
    return folder / "suite.zip"


@pytest.fixture
def unpacked(packed: Path, tmp_path: Path) -> Path:
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "suite"


def test_an_untouched_bundle_is_whole_and_of_the_revisions_that_made_it(unpacked: Path):
    assert (unpacked / "run.py").is_file()
    assert "Real weights" not in (unpacked / "README.md").read_text(encoding="utf-8")
    required = {str(one.suite.cell.target): one.required for one in read_bundle(unpacked)}
    assert [name for name, named in required.items() if named] == ["cuda"]
    assert checker_versions(unpacked) == checker_versions()
    assert modified_parts(checker_versions(unpacked)) == ()


def test_a_bundle_whose_checking_code_was_edited_is_a_modified_checker(unpacked: Path):
    code = unpacked / "hardware/compare.py"
    code.write_text(code.read_text().replace("_SMALLEST_SCALE = 1e-12", "_SMALLEST_SCALE = 1e3"))
    page = unpacked / "hardware/workers/web/index.html"
    page.write_text(page.read_text() + " ")
    assert modified_parts(checker_versions(unpacked)) == ("backend webgpu", "backend webnn", "runner")


def test_a_bundle_that_lacks_a_part_is_a_modified_checker(unpacked: Path):
    (unpacked / "hardware/evidence/packed_parts.json").unlink()
    assert "check builds" in modified_parts(checker_versions(unpacked))
    assert checker_versions(unpacked)[f"{PREFIX}check builds"] == "1+missing"


def test_every_file_of_the_package_is_of_a_kind_that_is_packed():
    done = subprocess.run(["git", "ls-files", "hardware"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no checkout")
    there = {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}
    assert there
    assert there <= {f"hardware/{name}" for name in package_files(ROOT / "hardware")}


def test_a_bundle_that_is_not_whole_is_refused(unpacked: Path):
    whole = json.loads((unpacked / "bundle.json").read_text())
    for plan in ("{", json.dumps({**whole, "schema_version": 99})):
        (unpacked / "bundle.json").write_text(plan)
        with pytest.raises(BrokenInput, match="Unpack the bundle again"):
            read_bundle(unpacked)
    (unpacked / "bundle.json").write_text(json.dumps(whole))
    (unpacked / "suites" / whole["suites"][0]["file"]).unlink()
    with pytest.raises(BrokenInput, match="Unpack the bundle again"):
        read_bundle(unpacked)


def test_code_of_the_users_own_is_not_packed(tmp_path: Path):
    (tmp_path / "own_net.py").write_text(
        "import torch\n\nexample_inputs = {'input': torch.ones(2, 3)}\n\n\n"
        "def make():\n    return torch.nn.Linear(3, 4)\n"
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "run_test_generation.py"), "--model", "own_net:make", "--device", "cpu",
         "--bundle", str(tmp_path / "suite.zip")],
        cwd=tmp_path, env={**os.environ, "HWCOMPAT_CACHE": str(tmp_path / "cache")},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "own_net:make cannot be packed" in done.stderr
    assert not (tmp_path / "suite.zip").exists()


def test_the_exit_code_of_a_run_follows_its_lines():
    for lines, missing, code in (
        ([PASSED], False, 0),
        ([PASSED, LEFT_OUT], False, 0),
        ([PASSED, UNREACHED], False, 1),
        ([PASSED, FAILED], False, 1),
        ([PASSED], True, 1),
        ([LEFT_OUT, LEFT_OUT], False, 5),
        ([UNREACHED], False, 1),
        ([], False, 5),
    ):
        assert exit_code(lines, missing=missing) == code
