"""How a lab machine is named and asked: a host is data, and what comes back is limited, told as text, or refused."""

from __future__ import annotations

import shlex
import sys

import pytest
from lab_without_ssh import host_that_says

from hardware.errors import BrokenInput, UsageError
from hwcompat.plugins.fleet.lab_host import DEFAULT_FOLDER, LabHost
from hwcompat.plugins.fleet.lab_line import Line, LineDropped, Traffic, refused
from hwcompat.plugins.fleet.lab_machine import LabMachine, LineLost


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
    host = host_that_says(
        monkeypatch, "say(b'Welcome!\\n' * 9)\n" + GREETS + 'say(b\'{"number": 1, "bytes": 2}\\nab\')'
    )
    traffic = Traffic()
    line = Line(host, traffic)
    answer = line.ask("hello")
    line.close()
    assert (answer.values["number"], answer.body) == (1, b"ab")
    assert traffic.received == len(answer.body) + len(b'{"number": 1, "bytes": 2}\n')
    assert traffic.sent > 1000, "what answers there was sent"


def test_an_answer_that_nobody_waited_for_is_passed_over(monkeypatch):
    says = 'say(b\'{"number": 0, "bytes": 1}\\nx{"number": 1, "bytes": 0, "is": "mine"}\\n\')'
    line = Line(host_that_says(monkeypatch, GREETS + says), Traffic())
    assert line.ask("hello").values["is"] == "mine"
    line.close()


@pytest.mark.parametrize(
    "says",
    [
        "say(b'no JSON\\n')",
        "say(b'[1]\\n')",
        "say(b'{}\\n')",
        "say(b'{\"bytes\": -1}\\n')",
        "say(b'{\"bytes\": 1e9}\\n')",
        "say(b'{\"bytes\": 99999999999}\\n')",
        "say(b'{\"bytes\": NaN}\\n')",
        "say(b'[' * 100000 + b'\\n')",
        "say(b'x' * 1100000 + b'\\n')",
    ],
)
def test_what_is_no_answer_is_refused(monkeypatch, says: str):
    line = Line(host_that_says(monkeypatch, GREETS + says), Traffic())
    with pytest.raises(BrokenInput, match="what lab answered can't be used") as error:
        line.ask("hello")
    line.close()
    assert str(error.value).isprintable()


def test_a_flood_before_any_answer_is_refused(monkeypatch):
    with pytest.raises(BrokenInput, match="64 KiB"):
        Line(host_that_says(monkeypatch, "say(b'x' * 200000 + b'\\n')"), Traffic())


def test_what_the_other_side_refuses_is_told_as_text(monkeypatch):
    says = "say(json.dumps({'number': 1, 'bytes': 0, 'refused': 'no\\x1b[2J ::error::'}).encode() + b'\\n')"
    line = Line(host_that_says(monkeypatch, GREETS + says), Traffic())
    with pytest.raises(UsageError) as error:
        line.ask("put")
    line.close()
    assert "lab can't do that (put): no" in str(error.value)
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
    says = f"sys.stderr.write({told!r} + '\\n'); sys.exit(255)"
    with pytest.raises(LineDropped) as dropped:
        Line(host_that_says(monkeypatch, says), Traffic())
    error = refused(LabHost.parse("lab"), dropped.value)
    assert why in str(error)
    assert fix in error.fix
    assert str(error).isprintable()


def test_a_machine_that_was_never_reached_is_an_error_at_once(monkeypatch):
    host = host_that_says(monkeypatch, "sys.exit(255)")
    with pytest.raises(UsageError, match="lab cannot be used"), LabMachine(host, patience_s=1000):
        pass


def test_a_line_that_breaks_is_made_again_and_the_question_asked_again(monkeypatch, tmp_path):
    flag = tmp_path / "was here"
    script = (
        f"import pathlib\nflag = pathlib.Path({str(flag)!r})\nfirst = not flag.exists()\nflag.touch()\n"
        + GREETS
        + 'if first: sys.exit(0)\nsay(b\'{"number": 1, "bytes": 0, "is": "back"}\\n\')'
    )
    notes: list[str] = []
    with LabMachine(host_that_says(monkeypatch, script), on_note=notes.append) as lab:
        assert lab.ask("hello").values["is"] == "back"
    assert "the line to lab broke" in notes[0]
    assert notes[1:] == ["the line to lab is back"]


def test_a_line_that_stays_away_is_given_up(monkeypatch, tmp_path):
    flag = tmp_path / "was here"
    script = (
        f"import pathlib\nflag = pathlib.Path({str(flag)!r})\nif flag.exists(): sys.exit(255)\nflag.touch()\n"
        + GREETS
        + "sys.stdin.buffer.read1()\nsys.exit(0)"
    )
    with (
        LabMachine(host_that_says(monkeypatch, script), patience_s=0.2) as lab,
        pytest.raises(LineLost),
    ):
        lab.ask("hello")
