"""`enable`: each step is asked with words that its command takes, and one that finds anything fails the whole."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwcompat.cli import enable_command
from hwcompat.cli.enable_command import Step, steps
from hwcompat.cli.main_program import main, program
from hwcompat.hardware.process import Ended


@pytest.mark.parametrize("model", ["", "bert"])
def test_the_commands_take_the_words_of_their_steps(model: str, tmp_path: Path) -> None:
    contract, *others = steps("cpu", model, tmp_path)
    assert contract.words[contract.words.index("--backend") + 1] == "cpu"
    for step in others:
        command: Any = program
        words = list(step.words)
        while hasattr(command, "get_command"):
            command = command.get_command(None, words.pop(0))
        parameters = command.make_context(step.name, words).params
        assert "cpu" in str(parameters), "the target is asked"
        assert (model in str(parameters)) if model and step.name != "probe" else True


@pytest.mark.parametrize(("words", "why"), [(["cuda"], "cuda can't be used"), (["cpu", "--model", "bertt"], "bertt")])
def test_what_is_not_here_is_refused_before_the_first_step(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["enable", *words, "--output-dir", str(tmp_path / "new")]) != 0
    assert why in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("step", "ending", "code", "shown"),
    [
        ("ops", 0, 0, "clean"),
        ("ops", 1, 1, "findings"),
        ("ops", -11, 1, "ended with signal 11"),
        ("ops", None, 1, "took longer than 1440 minutes"),
        ("pytest", 2, 1, "the contract couldn't be collected"),
        ("ops", 2, 2, ""),
        ("ops", KeyboardInterrupt, 2, ""),
    ],
)
def test_what_a_step_finds_decides_the_exit_code_and_is_in_the_report(
    step: str, ending: Any, code: int, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(command: Sequence[str], *, stdout: Any, limit_s: float, **how: Any) -> Ended:
        asked = " ".join(command)
        stdout.write(f"# {asked}\n".encode())
        found = ending if f" {step} " in asked else 0
        if found is KeyboardInterrupt:
            raise KeyboardInterrupt
        return Ended(returncode=found, stdout="", stderr="", seconds=1.0, limit_s=limit_s)

    monkeypatch.setattr(enable_command, "run", ended)
    assert main(["enable", "cpu", "--output-dir", str(tmp_path / "new")]) == code
    report = (tmp_path / "new" / "enable.md").read_text()
    assert report.count("\n## ") == (4 if shown else 2), "what was done is kept"
    assert shown in report


def test_what_a_failed_step_said_last_is_shown_and_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "import sys; print('here', file=sys.stderr); sys.exit('error: the device is lost')"
    failing = Step(name="ops", question="does it?", words=("-c", script), start=(sys.executable,), limit_minutes=1)
    hanging = replace(failing, words=("-c", "import time; time.sleep(60)"), limit_minutes=0)
    monkeypatch.setattr(enable_command, "steps", lambda *_: [failing, hanging])
    assert main(["enable", "cpu", "--output-dir", str(tmp_path)]) == 1
    assert "here" in capfd.readouterr().err
    report = (tmp_path / "enable.md").read_text()
    assert "took longer than 0 minutes" in report
    assert "error: the device is lost" in report.partition("Last on standard error")[2]
