"""How a lab machine is named and asked: a host is data, and what comes back is limited, told as text, or refused."""

from __future__ import annotations

import shlex
import sys

import pytest
from lab_without_ssh import host_that_says

from hardware.errors import BrokenInput, UsageError
from hwcompat.plugins.fleet.lab_line import DEFAULT_FOLDER, LabHost, LabMachine, LineLost


@pytest.mark.parametrize(
    ("text", "name", "folder"),
    [
        ("lab", "lab", DEFAULT_FOLDER),
        ("user@lab.example", "user@lab.example", DEFAULT_FOLDER),
        ("lab:/data/hw compat/", "lab", "/data/hw compat"),
        ("lab:~/hw", "lab", "hw"),
        ("lab:$(reboot)", "lab", "$(reboot)"),  # a folder is sent as data and never seen by a shell
    ],
)
def test_a_host_and_its_folder(text: str, name: str, folder: str):
    host = LabHost.parse(text)
    assert (host.name, host.folder) == (name, folder)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "-oProxyCommand=x", "user@-lab", "@lab", "a b", "lab;reboot", "lab\nreboot", "$(reboot)", "`reboot`",
        "a@b@c", "lab:../up", "lab:a/../../b", "lab:-x", "lab:\x1b[2J", "lab:" + "x" * 1001, "x" * 300, "lаb\u202e",
    ],
)  # fmt: skip
def test_what_could_be_an_option_or_code_is_no_host(text: str):
    with pytest.raises(UsageError) as error:
        LabHost.parse(text)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("python", ["", "-c", "a\nb", "\x1b"])
def test_what_is_no_python(python: str):
    with pytest.raises(UsageError, match="is no Python"):
        LabHost.parse("lab", python)


def test_the_words_for_ssh_hold_the_host_behind_the_options_and_the_python_as_one_word(monkeypatch):
    monkeypatch.setenv("HWCOMPAT_SSH", shlex.join([sys.executable, "a b"]))
    words = LabHost.parse("u@lab", "~/my python; reboot").command(7, "token")
    assert words[:2] == [sys.executable, "a b"]
    assert words[-3:-1] == ["--", "u@lab"]
    assert "BatchMode=yes" in words, "nobody is asked for a password in the middle"
    assert "ForwardAgent=no" in words
    there = shlex.split(words[-1])
    assert (there[0], there[1], there[-2:]) == ("my python; reboot", "-c", ["7", "token"])


@pytest.mark.parametrize("value", ["no-such-program-here", "'unclosed"])
def test_without_ssh_it_is_told_what_to_do(monkeypatch, value: str):
    monkeypatch.setenv("HWCOMPAT_SSH", value)
    with pytest.raises(UsageError, match="HWCOMPAT_SSH"):
        LabHost.parse("lab").command(1, "t")


GREETS = "say(token + b'\\n')\n"


def test_what_a_login_prints_before_is_left_out(monkeypatch):
    lab = LabMachine(
        host_that_says(monkeypatch, "say(b'Welcome!\\n' * 9)\n" + GREETS + 'say(b\'{"is": "here"}\\n\')')
    )
    assert lab.ask("hello") == {"is": "here"}
    assert lab.received == len(b'{"is": "here"}\n')
    assert lab.sent > 1000, "what answers there was sent"


@pytest.mark.parametrize(
    "says",
    [
        "say(b'no JSON\\n')",
        "say(b'[1]\\n')",
        "say(b'{\"bytes\": NaN}\\n')",
        "say(b'[' * 100000 + b'\\n')",
        "say(b'x' * (17 << 20) + b'\\n')",
    ],
)
def test_what_is_no_answer_is_refused(monkeypatch, says: str):
    lab = LabMachine(host_that_says(monkeypatch, GREETS + says))
    with pytest.raises(BrokenInput, match="what lab answered can't be used") as error:
        lab.ask("hello")
    assert str(error.value).isprintable()


def test_a_flood_before_any_answer_is_refused(monkeypatch):
    with pytest.raises(BrokenInput, match="64 KiB"):
        LabMachine(host_that_says(monkeypatch, "say(b'x' * 200000 + b'\\n')")).ask("hello")


def test_what_the_other_side_refuses_is_told_as_text(monkeypatch):
    says = "say(json.dumps({'refused': 'no\\x1b[2J ::error::'}).encode() + b'\\n')"
    with pytest.raises(UsageError) as error:
        LabMachine(host_that_says(monkeypatch, GREETS + says)).ask("run")
    assert "lab can't do that (run): no" in str(error.value)
    assert str(error.value).isprintable()
    assert "::error::" not in str(error.value)


@pytest.mark.parametrize(
    ("told", "why", "fix"),
    [
        ("Host key verification failed.", "its key isn't known here", "ssh lab"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "another one",
            "another",
        ),
        ("u@lab: Permission denied (publickey).", "needs a password", "BatchMode=yes"),
        ("ssh: Could not resolve hostname lab: Name or service not known", "no machine", "name"),
        ("sh: 1: python3: command not found", "no such Python", "--host-python"),
        ("\x1b[2Jsomething else", "x1b[2Jsomething else", "must work first"),
    ],
)
def test_why_a_host_was_not_reached(monkeypatch, told: str, why: str, fix: str):
    """Which is an error at once, however long a line that broke would be tried again."""
    says = f"sys.stderr.write({told!r} + '\\n'); sys.exit(255)"
    with pytest.raises(UsageError, match="lab cannot be used") as error:
        LabMachine(host_that_says(monkeypatch, says), patience_s=1000).ask("hello")
    assert why in str(error.value)
    assert fix in error.value.fix
    assert str(error.value).isprintable()


FIRST = "import pathlib\nflag = pathlib.Path({!r})\nfirst = not flag.exists()\nflag.touch()\n"


def test_a_line_that_breaks_is_made_again_and_the_question_asked_again(monkeypatch, tmp_path):
    script = FIRST.format(str(tmp_path / "was here")) + GREETS
    script += 'say(b\'{"is": "first"}\\n\' if first else b\'{"is": "back"}\\n\')\nsys.exit(0)'
    notes: list[str] = []
    lab = LabMachine(host_that_says(monkeypatch, script), on_note=notes.append)
    answers = lab.answers("run", lambda: ({}, b""))
    assert [next(answers)["is"], next(answers)["is"]] == ["first", "back"]
    answers.close()
    assert "the line to lab broke" in notes[0]
    assert notes[1:] == ["the line to lab is back"]


def test_a_line_that_stays_away_is_given_up(monkeypatch, tmp_path):
    script = FIRST.format(str(tmp_path / "was here")) + "if not first: sys.exit(255)\n" + GREETS + "say(b'{}\\n')"
    lab = LabMachine(host_that_says(monkeypatch, script), patience_s=0.2)
    lab.ask("hello")
    with pytest.raises(LineLost):
        lab.ask("hello")


def test_a_line_that_says_nothing_is_given_up(monkeypatch, tmp_path):
    script = FIRST.format(str(tmp_path / "was here")) + GREETS
    script += "say(b'{}\\n')\nif not first: import subprocess; subprocess.run(['sleep', '600'])"
    lab = LabMachine(host_that_says(monkeypatch, script), patience_s=0)
    lab.ask("hello")
    answers = lab.answers("run", lambda: ({}, b""), limit_s=2)
    next(answers)
    with pytest.raises(LineLost, match="nothing came for 2 s"):
        next(answers)
