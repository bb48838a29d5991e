"""What a user does after `pip install 'hwcompat[openvino]'`: in a clean environment that `make test-package` made."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from built_package import ROOT, foreign_folder, run
from evidence_lines import BERT_CHECKS

from benchmarks.dependencies import requirements_in
from hardware.evidence.record import Outcome
from hardware.evidence.revisions import PREFIX, checker_versions, modified_parts
from hardware.evidence.store import read_folder

pytestmark = pytest.mark.slow

ASKED = ("run", "--model", "bert", "--device", "openvino")


class User:
    """Somebody in a folder of their own, whose packages are called as ours are."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = foreign_folder(folder)

    def types(self, program: str, *words: str, folder: str = "") -> CompletedProcess[str]:
        cache = str(self.folder.with_name("cache"))
        return run([str(self.programs / program), *words], self.folder / folder, HWCOMPAT_CACHE=cache)


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest) -> Path:
    named = request.config.getoption("--clean-environment")
    if named is None:
        pytest.skip("make test-package makes the clean environment, and names it with --clean-environment")
    return Path(named).absolute() / "bin"


@pytest.fixture(scope="module")
def user(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(programs, tmp_path_factory.mktemp("somebody") / "a folder")


def test_nothing_is_missing_and_all_is_as_it_was_tested(user: User) -> None:
    done = user.types("python", "-m", "pip", "check")
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n"), done.stderr
    told = json.loads(user.types("python", "-m", "pip", "list", "--format", "json").stdout)
    versions = {one["name"].lower().replace("_", "-"): one["version"].partition("+")[0] for one in told}
    for one in requirements_in(ROOT / "requirements.txt"):
        assert versions[one.name.lower().replace("_", "-")] in one.specifier, one


def test_nothing_of_the_checkout_can_be_imported_and_the_inventory_is_a_module_too(user: User) -> None:
    code = "import hwcompat.hardware as own, json, sys; print(json.dumps([*sys.path, own.__file__]))"
    told = json.loads(user.types("python", "-P", "-c", code).stdout)
    assert [place for place in told if place and Path(place).is_relative_to(ROOT)] == []
    for name in ("benchmarks", "test.conftest", "hwcompat.benchmarks"):
        assert user.types("python", "-P", "-c", f"import {name}").returncode == 1
    for name in ("hardware", "generators", "reports", "run_test_generation"):
        assert user.types("python", "-P", "-c", f"import {name}").returncode == 1, "the wheel has one package"
    (user.folder.parent / "empty").mkdir()
    done = user.types("python", "-m", "hwcompat.hardware", "list", "--format", "json", folder="../empty")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packages"]["openvino"]


def test_the_main_job_passes_on_openvino_and_the_report_shows_it(user: User) -> None:
    ran = user.types("hwcompat", *ASKED)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "warning" not in ran.stdout
    evidence = read_folder(user.folder / "hwcompat-out" / "evidence")
    (run_line,) = evidence.runs
    assert {name: one for name, one in run_line.versions.items() if name.startswith(PREFIX)} == checker_versions()
    assert modified_parts(run_line.versions) == ()
    assert run_line.command == f"hwcompat {' '.join(ASKED)}"
    assert {(line.outcome, line.actual_target) for line in evidence.checks} == {(Outcome.PASSED, "openvino")}
    done = user.types("hwcompat", "report", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "bert/fill-mask/openvino/float32" in done.stdout


def test_a_suite_passes_under_plain_pytest(user: User) -> None:
    made = user.types("hwcompat", "generate", "--model", "vit", "--device", "cpu", "--output-dir", "mine")
    assert made.returncode == 0, made.stderr
    done = user.types("python", "-m", "pytest", "-q", ".", folder="mine")
    assert done.returncode == 0, done.stdout
    assert "hwcompat run isolates each suite" in done.stdout


def test_a_bundle_runs_away_from_what_was_installed(user: User) -> None:
    done = user.types("hwcompat", "bundle", "suite.zip", "--model", "bert", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(user.folder / "suite.zip") as archive:
        archive.extractall(user.folder.parent / "lab")
    done = user.types("python", "suite/run.py", folder="../lab")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"bert/fill-mask/cpu/float32  {BERT_CHECKS} passed of {BERT_CHECKS}" in done.stdout
    merged = user.types("hwcompat", "evidence", "merge", "../lab/suite/evidence")
    assert merged.returncode == 0, merged.stderr
    assert "bert/fill-mask/cpu/float32" in user.types("hwcompat", "report", "--format", "json").stdout
