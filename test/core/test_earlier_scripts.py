"""The earlier scripts: each line of theirs is a line of the program, with the same output and exit code."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from front_doors import ROOT, invoke
from recorded_machines import XEON, computer

from hardware.errors import UsageError
from hwcompat.cli.earlier_scripts import (
    GENERATION,
    REPORTER,
    commands_of,
    generation_main,
    hardware_main,
    reporter_main,
)

CELL = "bert/fill-mask/cpu/float32"
OF_GENERATION = {
    "--model bert --device cpu": ["generate --model bert --device cpu"],
    "--model bert --list": ["generate --model bert --list"],
    "--model bert --run --device=auto": ["run --model bert --device=auto"],
    "--model bert --run --list": ["generate --model bert --list"],
    "--config hwcompat.toml --run --resume": ["run --config hwcompat.toml --resume"],
    "--list-devices --format json": ["devices list --format json"],
    "--hardware-compatibility --by model": ["matrix --by model"],
    "--coverage-report --targets cpu": ["coverage --targets cpu"],
    "--calibration": ["calibration"],
    "--backlog qnn": ["backlog qnn"],
    "--place --model bert": ["place --model bert"],
    "--model bert --mesh data=2": ["mesh data=2 --model bert"],
    "--refresh --dry-run": ["evidence refresh --dry-run"],
    "--upstream checkout --model bert": ["upstream checkout --model bert"],
    "--check suites": ["check suites"],
    "--update suites --force": ["update suites --force"],
    "--verify": ["verify"],
    "--verify suites": ["verify suites"],
    "--verify --model bert": ["verify --model bert"],
    "--bundle=x.zip --model bert": ["bundle x.zip --model bert"],
    "--web-page x.zip --model bert": ["web-page x.zip --model bert"],
    f"--explain {CELL}": [f"explain {CELL}"],
    "--model bert --explain": ["explain --model bert"],
    "--model bert --run --explain": ["explain --model bert"],
}
OF_REPORTER = {
    "--collect-all": ["report --collect-all"],
    "--matrix --format json": ["report --matrix --format json"],
    "--check-model bert": ["report --check-model bert"],
    "--test-hardware": ["report --test-hardware"],
    "--merge a --merge b --evidence c": ["evidence merge a --evidence c", "evidence merge b --evidence c"],
    "--merge a --collect-all": ["evidence merge a", "report --collect-all"],
    "--compact --evidence=c": ["evidence compact --evidence=c"],
    "--evidence c --publish s3://b/x": ["evidence publish s3://b/x --evidence c"],
    "--stress run.json": ["devices show-stress run.json"],
    "--compare": ["compare"],
    "--compare a b": ["compare a b"],
    "--compare last-green --format json": ["compare last-green --format json"],
    "--diagnose -": ["diagnose -"],
    f"--localize {CELL}": [f"localize {CELL}"],
    f"--repro {CELL}": [f"repro {CELL}"],
    "--try-remedies a/*/*/* --try-remedies b/*/*/*": ["fix a/*/*/* b/*/*/*"],
}


@pytest.fixture(autouse=True)
def recorded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.detection.LiveMachine", lambda: computer(XEON))


def test_every_job_of_the_scripts_is_a_command() -> None:
    for lines, jobs, default in ((OF_GENERATION, GENERATION, "generate"), (OF_REPORTER, REPORTER, "report")):
        for line, wanted in lines.items():
            assert [" ".join(words) for words in commands_of(line.split(), jobs, default)] == wanted
        named = {word.partition("=")[0] for line in lines for word in line.split()}
        assert named >= jobs.keys()
    with pytest.raises(UsageError, match="--calibration and --backlog are two jobs"):
        commands_of(["--calibration", "--backlog", "qnn"], GENERATION, "generate")


def of(script: Callable[[Sequence[str]], int], line: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = script(line.split())
    return code, out.getvalue()


def test_a_line_of_a_script_prints_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text("RuntimeError: No CUDA GPUs are available\n", encoding="utf-8")
    for script, line, command in (
        (generation_main, "--model bert --device cpu --list", "generate --model bert --device cpu --list"),
        (generation_main, "--hardware-compatibility --targets cpu --jobs 2", "matrix --targets cpu"),
        (generation_main, f"--explain {CELL} --report-dir x", f"explain {CELL}"),
        (generation_main, "--calibration", "calibration"),
        (generation_main, "--place --pin bert", "place --pin bert"),
        (generation_main, "--list-devices --output-dir x --evidence y", "devices list"),
        (generation_main, "--model no-such-model --device cpu", "generate --model no-such-model --device cpu"),
        (reporter_main, "--collect-all --format json", "report --format json"),
        (reporter_main, "--diagnose a.log --evidence x", "diagnose a.log"),
        (reporter_main, "--compare previous", "compare previous"),
        (hardware_main, "list --format markdown", "devices list --format markdown"),
        (hardware_main, "doctor --no-check", "doctor --no-check"),
    ):
        done = invoke(*command.split())
        code, out = of(script, line)
        moments = r"\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00)?"
        assert (code, re.sub(moments, "", out)) == (done.code, re.sub(moments, "", done.out)), line


@pytest.mark.parametrize(
    "words", [["run_test_generation.py"], ["hardware_compatibility_reporter.py"], ["-m", "hardware"]]
)
def test_each_script_shows_help_and_refuses_an_unknown_option_in_one_line(words: Sequence[str]) -> None:
    def start(word: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words, word]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    done = start("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: hwcompat" in done.stdout
    done = start("--modle")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
    assert done.stderr.startswith("error: ")
    assert "--modle" in done.stderr


def test_the_reporter_without_an_option_is_refused_and_its_class_is_where_it_was() -> None:
    assert of(reporter_main, "") == (4, "")
    found = runpy.run_path(str(ROOT / "hardware_compatibility_reporter.py"))
    assert found["HardwareCompatibilityReporter"].__name__ == "HardwareCompatibilityReporter"
