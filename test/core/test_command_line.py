"""Command lines: one line for an error, the documented exit code, and commands that can be typed as shown."""

from __future__ import annotations

import errno
import functools
import importlib
import re
import sys
import tomllib
from pathlib import Path

import click
import pytest
from front_doors import ROOT, commands, invoke
from hypothesis import given
from hypothesis import strategies as st

from hardware import command_names, errors
from hardware.command_line import run_command_line
from hardware.command_names import as_runnable, command_of, interpreter, is_installed, own_arguments, own_command
from hardware.errors import HwCompatError, did_you_mean, echo
from hardware.requirements import main as check_requirements
from hardware.requirements import missing
from hwcompat.cli.main_program import COMMANDS, program


def door(raised: BaseException | None = None, returned: object = None, arguments: tuple[str, ...] = ()) -> int:
    @click.command()
    @click.option("--debug", is_flag=True)
    def command(debug: bool) -> object:
        if raised is not None:
            raise raised
        return returned

    return run_command_line(command, arguments, program="prog")


def test_a_command_that_succeeds_gives_its_own_exit_code():
    codes = ((None, 0), (0, 0), (1, 1), (5, 5), ("text", 0))
    assert [door(returned=returned) for returned, _ in codes] == [code for _, code in codes]


def test_an_error_is_one_line_with_the_exit_code_of_its_class(capsys):
    documented = {
        "HwCompatError": 3,
        "UsageError": 4,
        "BrokenInput": 4,
        "OutputError": 4,
        "ModelError": 4,
        "ModelMissing": 1,
        "ModelRefused": 1,
        "NothingMatched": 5,
        "BackendUnavailable": 1,
        "BrokenPlugin": 3,
        "OutOfMemory": 1,
        "WouldDeadlock": errors.WouldDeadlock.exit_code,
    }
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and name[0] != "_"}
    assert {name for name in classes if issubclass(getattr(errors, name), Exception)} == set(documented)
    for name, code in documented.items():
        assert door(getattr(errors, name)("it broke", why="it\nwas old", fix="Buy another.")) == code, name
        assert capsys.readouterr() == ("", "error: it broke: it was old. Buy another.\n")
    assert str(HwCompatError("it broke")) == "it broke"
    assert str(HwCompatError("it broke", fix="Mend it.")) == "it broke. Mend it."


def test_an_interrupt_is_2_and_an_unexpected_error_3(capsys):
    assert [door(one) for one in (KeyboardInterrupt(), click.Abort(), ZeroDivisionError("oh"))] == [2, 2, 3]
    assert "internal error: ZeroDivisionError: oh. Run it again with --debug" in capsys.readouterr().err
    assert door(OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300 + "\x1b")) == 4
    said = capsys.readouterr().err
    assert said.startswith("error: 'xxx")
    assert said.endswith(" is too long for the name of a file\n")
    assert len(said) < 200
    assert door(OSError(errno.EIO, "Input/output error", "x")) == 3


def test_a_traceback_is_shown_only_on_request(capsys, monkeypatch):
    door(ZeroDivisionError("oh"))
    assert "Traceback" not in capsys.readouterr().err
    door(ZeroDivisionError("oh"), arguments=("--debug",))
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("LOGLEVEL", "debug")
    door(errors.UsageError("oh"))
    assert "Traceback" in capsys.readouterr().err


def test_control_characters_never_reach_the_terminal(capsys):
    for text in ("a\x1b[31mred", "a\x07b", "a\u202eb", "a\x9b31m", "a\x00b", "a\ud800b", "a\rb"):
        for error in (errors.UsageError(text), ValueError(text), click.ClickException(text)):
            door(error)
            line = capsys.readouterr().err
            assert line.endswith("\n")
            assert line[:-1].isprintable()


def test_a_wrong_option_is_a_usage_error_with_a_suggestion(capsys):
    assert door(arguments=("--help",)) == 0
    assert "Usage: prog" in capsys.readouterr().out
    assert door(arguments=("--debgu",)) == 4
    message = capsys.readouterr().err
    assert "--debug" in message
    assert "prog --help" in message


def test_every_help_begins_with_a_verb_and_shows_examples_before_options(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    pages = {words: invoke(*words, "--help") for words in ((), *(words for words, _ in commands()))}
    assert len(pages) > 40
    assert {done.code for done in pages.values()} == {0}
    for words, done in pages.items():
        assert done.err == ""
        lines = [line.strip() for line in done.out.splitlines() if line.strip()]
        assert lines[0].startswith(" ".join(("Usage: hwcompat", *words)))
        assert done.out.find("Examples:") < done.out.index("─ Options ─"), words
        assert all(len(line) <= 80 for line in lines)
    first = {words: (command.help or "").split()[0] for words, command in commands()}
    assert {word for word in first.values() if not word[0].isupper() or word.endswith(("s", "ing"))} == set()
    texts = [text or "" for _, command in commands() for text in (command.help, command.short_help)]
    assert [text for text in texts if not text or "Say" in text.split() or text.split()[0] == "The"] == []


def test_the_program_without_a_command_shows_its_help_and_is_a_usage_error():
    done = invoke()
    assert (done.code, done.out) == (4, "")
    assert "Usage: hwcompat [OPTIONS] COMMAND" in done.err
    done = invoke("rum")
    assert (done.code, done.err.count("\n")) == (4, 1)
    assert "Did you mean 'run'?" in done.err
    assert [command_names.COMMAND_NAMES, tuple(COMMANDS)] == [tuple(COMMANDS), tuple(program.list_commands(None))]


@given(st.text(max_size=300))
def test_an_echoed_text_is_short_and_printable(text):
    assert echo(text).isprintable()
    assert len(echo(text)) <= 80


def test_echoes_and_suggestions_are_readable():
    assert echo("bert") == "'bert'"
    assert echo("a\x1b[31mb") == r"'a\x1b[31mb'"
    hints = {"brt": "Did you mean 'bert'?", "BERT": "Did you mean 'bert'?", "zzzzzz": "", "b" * 10_000: ""}
    assert {name: did_you_mean(name, ["bert", "gpt2"]) for name in hints} == hints


def test_a_command_begins_with_the_interpreter_that_runs(tmp_path, monkeypatch):
    own = tmp_path / "some where" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(own))
    monkeypatch.chdir(tmp_path)
    for path, wanted in ((str(own.parent), "python"), ("", "'some where/bin/python'")):
        monkeypatch.setenv("PATH", path)
        assert interpreter() == wanted


TEXT = "hwcompat run --model bert; hwcompat devices list; hwcompat --help; pip install -r requirements.txt"


@pytest.fixture(autouse=True)
def _fresh():
    is_installed.cache_clear()
    command_names._script.cache_clear()
    yield
    is_installed.cache_clear()
    command_names._script.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of scripts, on the search path, of a folder in which the product is installed."""
    site, scripts = tmp_path / "site", tmp_path / "bin"
    (site / "cli").mkdir(parents=True)
    scripts.mkdir()
    (scripts / "hwcompat").touch(mode=0o755)
    monkeypatch.setattr(command_names, "_ROOT", site)
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(scripts))
    monkeypatch.setenv("PATH", str(scripts))
    return scripts


def test_texts_of_a_checkout_name_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr(command_names, "_script", functools.cache(lambda: ""))
    monkeypatch.setattr(command_names, "interpreter", lambda: "python")
    monkeypatch.chdir(ROOT)
    assert not is_installed()
    shown = TEXT.replace("hwcompat", "python -m hwcompat")
    assert as_runnable(TEXT) == shown == as_runnable(shown)
    assert command_of("run", "--model", "a b") == "python -m hwcompat run --model 'a b'"
    monkeypatch.chdir(tmp_path)
    place = as_runnable("hwcompat run").removeprefix("python ").removesuffix(" run")
    assert Path(place).expanduser() == ROOT / "hwcompat"
    assert as_runnable(f"python {place} run") == f"python {place} run"
    for other in (
        "hwcompat-out/run hwcompat fits",
        "python -m hwcompat.plugins.stress.stress_child",
        "my-hwcompat run",
    ):
        assert as_runnable(other) == other


def test_extras_of_a_checkout_are_installed_from_it():
    assert as_runnable("onnx isn't installed (pip install 'hwcompat[onnx]')") == (
        "onnx isn't installed (pip install -e '.[onnx]')"
    )


def test_texts_of_a_bundle_keep_the_name_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(command_names, "_ROOT", tmp_path)
    assert not is_installed()
    assert as_runnable(TEXT) == TEXT


def test_texts_of_an_installed_package_name_its_script_and_extras(installed):
    assert as_runnable(TEXT) == TEXT.replace("-r requirements.txt", "'hwcompat[openvino-only]'")
    assert as_runnable("pip install 'hwcompat[onnx]', make setup-object-storage or make setup-xla") == (
        "pip install 'hwcompat[onnx]', pip install 'hwcompat[object-storage]' or pip install 'hwcompat[tpu]'"
    )
    assert "HWCOMPAT_WEB_PYTHON" in as_runnable("make setup-web")


def test_a_script_that_no_shell_finds_is_named_by_its_path(installed, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(installed.parent)
    assert command_of("run") == "bin/hwcompat run"
    command_names._script.cache_clear()
    (installed / "deeper").mkdir()
    monkeypatch.chdir(installed / "deeper")
    monkeypatch.setenv("HOME", str(installed.parent))
    assert command_of("run") == "~/bin/hwcompat run"  # pages don't name whose home it is
    command_names._script.cache_clear()
    (installed / "hwcompat").unlink()
    monkeypatch.setattr(command_names, "interpreter", lambda: "python3.11")
    assert command_of("run") == "python3.11 -m hwcompat run"


def test_the_own_command_is_the_line_without_a_path():
    seen = []

    @click.command()
    @click.argument("words", nargs=-1)
    def command(words: tuple[str, ...]) -> None:
        seen.append((own_command(), own_arguments()))

    assert run_command_line(command, ["a b", "c"], program="prog") == 0
    assert seen == [("hwcompat 'a b' c", ("a b", "c"))]
    assert own_command() == "hwcompat"


def test_scripts_and_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for place in project["project"]["scripts"].values():
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
    extras = project["project"]["optional-dependencies"]
    targets = re.findall(r"make setup-([\w-]+)", (ROOT / "Makefile").read_text(encoding="utf-8").split(".PHONY")[0])
    assert len(targets) > 5
    named = [command_names._install(target) for target in targets if target not in ("web", "s3-server")]
    assert [one for one in named if one.split("[")[1].removesuffix("]'") not in extras] == []
    for path in (
        path for place in ("hardware", "generators", "reports", "hwcompat") for path in (ROOT / place).rglob("*")
    ):
        if path.suffix in (".py", ".toml"):
            for extra in re.findall(r"pip install 'hwcompat\[([\w-]+)\]'", path.read_text(encoding="utf-8")):
                assert extra in extras, path


def test_data_whose_commands_were_replaced_can_still_be_read(installed):
    data = (
        *(ROOT / "reports").rglob("*.toml"),
        ROOT / "hardware" / "doctor" / "remedies.toml",
        ROOT / "hardware" / "workers" / "environments.toml",
        ROOT / "hwcompat" / "plugins" / "triage" / "remedies" / "remedies.toml",
    )
    for path in data:
        text = as_runnable(path.read_text(encoding="utf-8"))
        tomllib.loads(text)
        left = text.replace(command_names._WEB, "")
        words = ("install -r requirements", "make setup-", "run_test_generation.py", "python -m hardware ")
        assert [word for word in words if word in left] == [], path


def test_missing_packages_are_listed_with_their_versions(tmp_path, monkeypatch, capsys):
    text = "# comment\ntorch==2.13.0\nno-such-package==1.0\nanother_absent>=2\npytest==9.2.0\n"
    assert missing(text) == ["no-such-package==1.0", "another_absent>=2"]
    monkeypatch.setattr("hardware.requirements._is_installed", lambda _name: False)
    for name, code in (("transformers", 4), ("openvino", 0)):  # the main job needs the one, not the other
        file = tmp_path / "requirements.txt"
        file.write_text(f"{name}==1.0\n", encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["requirements", str(file)])
        assert check_requirements() == code
        said = capsys.readouterr().err
        assert name in said
        assert ("pip install" in said) == (code == 4)
