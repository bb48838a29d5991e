"""`enable`: each step is asked with words that its command takes, and one that finds anything fails the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hwcompat.cli import enable_command
from hwcompat.cli.enable_command import steps
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


def test_a_device_that_is_not_here_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["enable", "cuda"]) != 0
    assert "cuda can't be used" in capsys.readouterr().err


@pytest.mark.parametrize(("ending", "code"), [(0, 0), (1, 1), (-11, 1), (2, 2)])
def test_what_a_step_finds_decides_the_exit_code_and_is_in_the_report(
    ending: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(command: Sequence[str], *, stdout: Any, **how: Any) -> Ended:
        asked = " ".join(command)
        stdout.write(f"# {asked}\n".encode())
        return Ended(returncode=ending if " ops " in asked else 0, stdout="", stderr="", seconds=1.0, limit_s=None)

    monkeypatch.setattr(enable_command, "run", ended)
    assert main(["enable", "cpu", "--output-dir", str(tmp_path / "new")]) == code
    said = capsys.readouterr().out
    if ending == 2:
        assert not said, "an interrupted run tells nothing"
        return
    report = (tmp_path / "new" / "enable.md").read_text()
    assert [line[3:].partition(":")[0] for line in report.splitlines() if line.startswith("## ")] == [
        *("contract", "probe", "operators", "models")
    ]
    assert {-11: "failed with exit code -11", 0: "clean", 1: "findings"}[ending] in said
