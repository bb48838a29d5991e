"""A bundle's way: packed here, run with another environment's torch, transformers and pytest alone, brought home."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine

from hardware.evidence.record import Outcome
from hardware.evidence.store import read_folder

CELL = "bert/fill-mask/cpu/float32"
OTHER = "gpt2/text-generation/cpu/float32"
ABSENT = "bert/fill-mask/cuda/float32"
LIMIT_S = 240
PACKED = ("--model", "bert", "--model", "gpt2", "--device", "cpu", "--device", "cuda", "--bundle")


@pytest.fixture(scope="module")
def bare_python() -> Path:
    """An interpreter with torch, transformers and pytest and none of our other requirements."""
    python = REPOSITORY / ".venv-bundle" / "bin" / "python"
    if not python.exists():
        pytest.skip("make bundle-environment makes the environment that this needs")
    script = "import sys, torch, transformers, pytest, importlib.util as u; print(*filter(u.find_spec, sys.argv[1:]))"
    extra = ["psutil", "platformdirs", "duckdb", "jsonschema", "optimum", "openvino"]
    lacking = subprocess.run(
        [python, "-c", script, *extra], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert lacking.stdout.split() == [], "the bare environment has more than a lab machine"
    return python


@pytest.fixture(scope="module")
def packed(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    ran = command_line.run(folder, *PACKED, str(folder / "suite.zip"))
    assert ran.code == 0, ran.err
    return folder / "suite.zip"


@pytest.fixture
def carried(packed: Path, tmp_path: Path) -> Path:
    """The bundle unpacked beside a folder `hwcompat` that is somebody else's, on the lab machine."""
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "hwcompat").mkdir()
    (tmp_path / "hwcompat" / "__init__.py").write_text("raise ImportError('not this one')\n")
    return tmp_path / "suite"


def start(python: Path, root: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HWCOMPAT_")}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment |= {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [python, str(root / "run.py"), *arguments], cwd=root.parent, env=environment, text=True, **streams
    )


def run(python: Path, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = start(python, root, *arguments)
    out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def outcomes(root: Path, cell: str) -> dict[str, Outcome]:
    return {line.check_name: line.outcome for line in read_folder(root / "evidence").checks if line.cell_id == cell}


def test_it_runs_with_bare_packages_and_its_evidence_comes_home(
    bare_python: Path, carried: Path, command_line: CommandLine, tmp_path: Path
):
    done = run(bare_python, carried, "--device", "cpu", "--machine", "lab")
    assert done.returncode == 0, done.stderr
    assert set(outcomes(carried, CELL).values()) == {Outcome.PASSED}
    line = read_folder(carried / "evidence").runs[0]
    assert line.machine == "lab"
    assert all(cell.verdict and cell.verdict["level"] == "high" for cell in line.plan), "sealed before it ran"

    home = tmp_path / "home"
    merge = ("--merge", carried / "evidence", "--evidence", home, "--collect-all")
    merged = command_line.python(tmp_path / "report", "hardware_compatibility_reporter.py", *merge)
    assert merged.code == 0, merged.err
    assert CELL in merged.out
    assert read_folder(home) == read_folder(carried / "evidence")


@pytest.mark.nightly
def test_a_device_that_is_not_there_is_no_pass(bare_python: Path, carried: Path, without_cuda: None):
    for chosen in (("--device", "cuda"), ("--select", "*/cuda/*")):
        done = run(bare_python, carried, *chosen)
        assert done.returncode == 1, "the device was named when the bundle was packed"
        assert Outcome.PASSED not in outcomes(carried, ABSENT).values()
        assert "cuda" in done.stdout


@pytest.mark.extended
def test_a_crash_costs_one_suite_and_a_kill_is_resumed(bare_python: Path, carried: Path):
    suite = carried / "suites" / "test_gpt2_text_generation_cpu_float32.py"
    text = suite.read_text()
    crash = "import os\n\n\ndef test_falls(case):\n    os.kill(os.getpid(), 11)\n"
    suite.write_text(f"{text}\n{crash}")
    done = run(bare_python, carried, "--device", "cpu")
    assert done.returncode == 1
    assert outcomes(carried, OTHER)["falls"] is Outcome.CRASHED
    assert set(outcomes(carried, CELL).values()) == {Outcome.PASSED}
    suite.write_text(text)
    shutil.rmtree(carried / "evidence")

    process = start(bare_python, carried, "--device", "cpu", "--jobs", "1")
    assert process.stderr is not None
    for said in process.stderr:
        if said.startswith("[1/2") and CELL in said:  # one suite has ended, and the other has begun
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    time.sleep(0.5)  # its child ends with it
    assert Outcome.PASSED in outcomes(carried, CELL).values()
    resumed = run(bare_python, carried, "--device", "cpu", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "1 cell(s) are done, 1 run" in resumed.stderr
    assert set(outcomes(carried, OTHER).values()) == {Outcome.PASSED}
    newest = max(read_folder(carried / "evidence").runs, key=lambda one: one.started_at)
    assert [cell.cell_id for cell in newest.plan] == [OTHER]


def test_wrong_words_are_told_with_the_next_step(bare_python: Path, carried: Path):
    for arguments, code, said in (
        (["--device", "mps"], 5, "no suite for mps"),
        (["--device", "cdua"], 4, "Did you mean 'cuda'"),
        (["--select", "t5/*"], 5, "matches no cells"),
        (["--jobs", "0"], 4, "is not a positive number"),
    ):
        done = run(bare_python, carried, *arguments)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
