"""The line to a lab machine: answers are limited, printed as text or refused; a line that breaks is made again."""

from __future__ import annotations

import pytest
from lab_without_ssh import host_that_says

from hardware.errors import BrokenInput, UsageError
from hwcompat.plugins.fleet.lab_line import LabMachine, LineLost

GREETS = "say(token + b'\\n')\n"


def test_what_a_login_prints_before_is_left_out(monkeypatch):
    script = "say(b'Welcome!\\n' * 9)\n" + GREETS + 'say(b\'{"is": "here"}\\n\')'
    lab = LabMachine(host_that_says(monkeypatch, script))
    assert lab.ask("hello") == {"is": "here"}
    assert lab.received == len(b'{"is": "here"}\n')
    assert lab.sent > 1000, "the agent was sent"


def test_an_answer_that_is_no_object_or_too_long_is_refused(monkeypatch):
    for script, words in (
        (GREETS + "say(b'no JSON\\n')", "the answer of lab is invalid"),
        (GREETS + "say(b'[1]\\n')", "the answer of lab is invalid"),
        (GREETS + "say(b'{\"bytes\": NaN}\\n')", "the answer of lab is invalid"),
        (GREETS + "say(b'[' * 100000 + b'\\n')", "the answer of lab is invalid"),
        (GREETS + "say(b'x' * (17 << 20) + b'\\n')", "the answer of lab is invalid"),
        ("say(b'x' * 200000 + b'\\n')", "64 KiB"),  # a flood before any answer
    ):
        with pytest.raises(BrokenInput, match=words) as error:
            LabMachine(host_that_says(monkeypatch, script)).ask("hello")
        assert str(error.value).isprintable()
    says = "say(json.dumps({'refused': 'no\\x1b[2J ::error::'}).encode() + b'\\n')"
    with pytest.raises(UsageError) as refused:
        LabMachine(host_that_says(monkeypatch, GREETS + says)).ask("run")
    assert "lab can't do that (run): no" in str(refused.value)
    assert str(refused.value).isprintable()
    assert "::error::" not in str(refused.value)


def test_a_host_that_cannot_be_reached_is_an_error_at_once_with_its_cause(monkeypatch):
    for printed, why, fix in (
        ("Host key verification failed.", "its host key is unknown", "ssh lab"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "has changed", ""),
        ("u@lab: Permission denied (publickey).", "needs a password", "BatchMode=yes"),
        ("ssh: Could not resolve hostname lab: Name or service not known", "can't be resolved", "name"),
        ("sh: 1: python3: command not found", "that Python doesn't exist", "--host-python"),
        ("\x1b[2Jsomething else", "x1b[2Jsomething else", "must work first"),
    ):
        says = f"sys.stderr.write({printed!r} + '\\n'); sys.exit(255)"
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
    assert "the connection to lab broke" in notes[0]
    assert notes[1:] == ["connected to lab again"]


def test_a_line_that_stays_away_or_silent_is_given_up(monkeypatch, tmp_path):
    script = FIRST.format(str(tmp_path / "away")) + "if not first: sys.exit(255)\n" + GREETS + "say(b'{}\\n')"
    lab = LabMachine(host_that_says(monkeypatch, script), patience_s=0.2)
    lab.ask("hello")
    with pytest.raises(LineLost):
        lab.ask("hello")
    script = FIRST.format(str(tmp_path / "silent")) + GREETS
    script += "say(b'{}\\n')\nif not first: import subprocess; subprocess.run(['sleep', '600'])"
    lab = LabMachine(host_that_says(monkeypatch, script), patience_s=0)
    lab.ask("hello")
    answers = lab.answers("run", lambda: ({}, b""), limit_s=2)
    next(answers)
    with pytest.raises(LineLost, match="no answer for 2 s"):
        next(answers)
