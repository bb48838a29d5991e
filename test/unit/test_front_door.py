"""The command lines: one line for an error, the documented exit code, and nothing dangerous on a terminal."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hardware import errors
from hardware.__main__ import main as hardware_commands
from hardware.command_line import open_door
from hardware.command_names import interpreter

ROOT = Path(__file__).parents[2]
DOORS = (["run_test_generation.py"], ["-m", "hardware"])


def door(raised: BaseException | None = None, returned: object = None, arguments: tuple[str, ...] = ()) -> int:
    @click.command()
    @click.option("--debug", is_flag=True)
    def command(debug: bool) -> object:
        if raised is not None:
            raise raised
        return returned

    return open_door(command, arguments, program="prog")


def start(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1), (5, 5), ("text", 0)])
def test_a_command_that_ends_well_gives_its_own_code(returned, code):
    assert door(returned=returned) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [("UsageError", 4), ("NothingMatched", 5), ("BackendUnavailable", 1), ("OutputError", 4), ("HwCompatError", 3)],
)
def test_an_error_is_one_line_and_the_code_of_its_class(capsys, name, code):
    assert door(getattr(errors, name)("it broke", why="it\nwas old", fix="Buy another.")) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: it broke: it was old. Buy another.\n"


def test_an_interrupt_is_2_and_anything_unforeseen_is_3(capsys):
    assert door(KeyboardInterrupt()) == 2
    assert door(click.Abort()) == 2
    assert door(ZeroDivisionError("oh")) == 3
    assert "internal error: ZeroDivisionError: oh. Run it again with --debug" in capsys.readouterr().err


def test_a_name_too_long_for_a_file_is_the_users_error_whichever_option_named_it(capsys):
    too_long = OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300 + "\x1b")
    assert door(too_long) == 4
    said = capsys.readouterr().err
    assert said.startswith("error: 'xxx")
    assert said.endswith(" is too long for the name of a file\n")
    assert len(said) < 200
    assert door(OSError(errno.EIO, "Input/output error", "x")) == 3


def test_a_traceback_is_shown_only_when_it_was_asked_for(capsys, monkeypatch):
    door(ZeroDivisionError("oh"))
    assert "Traceback" not in capsys.readouterr().err
    door(ZeroDivisionError("oh"), arguments=("--debug",))
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("LOGLEVEL", "debug")
    door(errors.UsageError("oh"))
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a\x1b[31mred", "a\x07b", "a\u202eb", "a\x9b31m", "a\x00b", "a\ud800b", "a\rb"])
def test_control_characters_never_reach_the_terminal(capsys, text):
    for error in (errors.UsageError(text), ValueError(text), click.ClickException(text)):
        door(error)
        line = capsys.readouterr().err
        assert line.endswith("\n")
        assert line[:-1].isprintable()


def test_help_is_no_error(capsys):
    assert door(arguments=("--help",)) == 0
    assert "Usage: prog" in capsys.readouterr().out


def test_a_wrong_option_is_a_usage_error_with_a_suggestion(capsys):
    assert door(arguments=("--debgu",)) == 4
    message = capsys.readouterr().err
    assert "--debug" in message
    assert "prog --help" in message


@pytest.mark.parametrize("program", DOORS, ids=["generation", "hardware"])
def test_each_front_door_answers_help(program):
    done = start(*program, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 4, "no model was named"),
        (["--modle", "bert"], 4, "--model"),
        (["--model", "brt", "--list"], 4, "Did you mean 'bert'"),
        (["--model", "bert", "--device", "cdua", "--list"], 4, "Did you mean 'cuda'"),
        (["--model", "bert", "--precision", "float33"], 4, "float33"),
        (["--model", "bert", "--precision", "fp16"], 4, "Did you mean 'float16'?"),
        (["--model", "bert", "--device", "cpu", "--select", "gpt2/*", "--list"], 5, "bert/fill-mask/cpu/float32"),
        (["--model", "\x1b[31m", "--device", "cpu"], 4, "\\x1b[31m"),
        (["--check", "no-such-folder"], 4, "no folder of suites"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_with_its_code(arguments, code, said):
    done = start("run_test_generation.py", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr[:-1].isprintable()


def test_cells_are_listed_on_stdout_without_writing_anything(tmp_path):
    out = tmp_path / "out"
    options = ["--device", "cpu", "--device", "openvino", "--list", "--output-dir", str(out)]
    done = start("run_test_generation.py", "--model", "-", *options, input="bert\n\ngpt2\n")
    assert done.returncode == 0
    assert done.stdout.split() == [
        "bert/fill-mask/cpu/float32",
        "bert/fill-mask/openvino/float32",
        "gpt2/text-generation/cpu/float32",
        "gpt2/text-generation/openvino/float32",
    ]
    assert not out.exists()


def test_suites_are_written_checked_and_updated(tmp_path):
    folder = tmp_path / "suites"
    written = start("run_test_generation.py", "--model", "bert", "--device", "cpu", "--output-dir", str(folder))
    assert written.returncode == 0
    assert "--run" in written.stderr
    (suite,) = folder.glob("test_*.py")
    assert start("run_test_generation.py", "--check", str(folder)).returncode == 0
    suite.write_text(suite.read_text() + "\n# mine\n")
    checked = start("run_test_generation.py", "--check", str(folder))
    assert checked.returncode == 1
    assert checked.stdout.startswith("edited")
    assert start("run_test_generation.py", "--update", str(folder)).returncode == 1
    assert "# mine" in suite.read_text()
    assert start("run_test_generation.py", "--update", str(folder), "--force").returncode == 0
    assert "# mine" not in suite.read_text()


@pytest.mark.parametrize("arguments", [["--list-devices"], ["--help"]])
def test_a_reader_that_has_enough_is_no_error(arguments):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "run_test_generation.py", *arguments],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("is_on_path", [True, False])
def test_a_command_that_is_shown_begins_with_the_interpreter_that_runs(tmp_path, monkeypatch, is_on_path):
    own = tmp_path / "some where" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(own))
    monkeypatch.setenv("PATH", str(own.parent) if is_on_path else "")
    monkeypatch.chdir(tmp_path)
    assert interpreter() == ("python" if is_on_path else "'some where/bin/python'")


HELPS = [
    ["-m", "hardware"],
    *(["-m", "hardware", name] for name in sorted(hardware_commands.commands)),
    ["hardware_compatibility_reporter.py"],
    ["run_test_generation.py"],
]


@pytest.mark.parametrize("program", HELPS, ids=" ".join)
def test_help_shows_examples_before_options_and_cuts_nothing(program):
    done = start(*program, "-h", env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0
    assert 0 < done.stdout.find("Examples:") < done.stdout.index("Options:")
    assert "..." not in done.stdout.partition("Commands:")[2]


def test_a_matrix_in_a_pipe_has_the_whole_names_of_cells():
    done = start("run_test_generation.py", "--hardware-compatibility", "--by", "model", "--targets", "cpu,openvino")
    assert done.returncode == 0
    assert "…" not in done.stdout
    assert "audio-spectrogram-transformer/audio-classification/float32" in done.stdout
