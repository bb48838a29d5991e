"""The agent on a lab machine, run here without ssh: unpacks whole or not at all, runs once, outlives the line.

The line to a lab machine: answers are limited, printed as text or refused; a line that breaks is made again.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from lab_without_ssh import host_here, host_that_says

from hardware.errors import BrokenInput, UsageError
from hwcompat.plugins.fleet.lab_line import LabMachine, LineLost

RUN = "20261121T120000Z-abcdef"
RESUMED = "20261121T130000Z-abcdef"
RUNS = f"""
import argparse, json, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--evidence", type=pathlib.Path)
parser.add_argument("--result", type=pathlib.Path)
parser.add_argument("--resume", action="store_true")
asked = parser.parse_args()
asked.evidence.mkdir(exist_ok=True)
print("it runs", flush=True)
with (asked.evidence / ("{RESUMED}-8.jsonl" if asked.resume else "{RUN}-7.jsonl")).open("a") as file:
    file.write('{{"kind": "run", "resumes": []}}\\n')
    file.flush()
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    file.write('{{"kind": "end"}}\\n')
asked.result.write_text(json.dumps({{"runs": {{"a/b/cpu/float32": "{RUN}"}}}}))
sys.exit(3)
"""


def archive(files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as one:
        for name, text in files.items():
            one.writestr(name, text)
    return data.getvalue()


Archives = dict[str, bytes]
PACKAGE: Archives = {"packages/p": archive({"hwcompat/__init__.py": ""})}
BUNDLE: Archives = {"bundles/b": archive({"run.py": RUNS})}


def asked(archives: Archives | None = None, *, key: str = "k", sha256: str = "", **changes: Any) -> dict[str, Any]:
    """What a run is asked for with."""
    told = [
        {
            "place": place,
            "size": len(data),
            "sha256": sha256 or hashlib.sha256(data).hexdigest(),
            "package": "packages/p" if place.startswith("bundles") else "",
        }
        for place, data in (archives or {}).items()
    ]
    values = {"key": key, "bundle": "bundles/b", "checkpoints": [], "have": {}, "words": [], "again": False}
    return {
        **values,
        "command": "a command",
        "archives": told,
        "start": True,
        "payload": b"".join((archives or {}).values()),
        **changes,
    }


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LabMachine:
    return LabMachine(host_here(monkeypatch, tmp_path / "home"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The lab's folder; its bundle runs until it is told to end."""
    found = tmp_path / "home" / ".cache" / "hwcompat" / "lab"
    yield found
    if (found / "bundles" / "b").is_dir():
        (found / "bundles" / "b" / "go").touch()  # nothing outlives the test


def start(lab: LabMachine, key: str = "k", **changes: Any) -> str:
    return str(lab.ask("run", **asked(PACKAGE | BUNDLE, key=key, **changes))["state"])


def state(lab: LabMachine, key: str = "k") -> str:
    return str(hello(lab, key)["state"])


def hello(lab: LabMachine, key: str = "k", **changes: Any) -> Mapping[str, Any]:
    values = {"packages": [], "archives": [], "checkpoints": [], **changes}
    return lab.ask("hello", key=key, **values)


def look(lab: LabMachine, have: dict[str, int] | None = None) -> Mapping[str, Any]:
    return lab.ask("run", **asked(start=False, have=have or {}))


def data_of(told: Mapping[str, Any]) -> dict[str, bytes]:
    return {one["name"]: base64.b64decode(one["data"]) for one in told["parts"]}


def end(lab: LabMachine, folder: Path) -> None:
    (folder / "bundles" / "b" / "go").touch()
    until(lambda: state(lab) == "ended")


def until(done: Callable[[], bool]) -> None:
    last = time.monotonic() + 30
    while not done():
        assert time.monotonic() < last
        time.sleep(0.02)


def test_it_tells_what_is_there_and_writes_nothing(lab: LabMachine, tmp_path: Path):
    packages = ["pytest", "no-such-package"]
    told = hello(lab, packages=packages, archives=["packages/p"], checkpoints=["weights"])
    assert told["packages"]["pytest"] == pytest.__version__
    assert told["packages"]["no-such-package"] == ""
    assert (told["executable"], told["writable"], told["missing"]) == (sys.executable, True, ["packages/p"])
    assert (told["no_folders"], told["state"]) == (["weights"], "none")
    assert list((tmp_path / "home").iterdir()) == []


def test_an_archive_arrives_whole_or_not_at_all(lab: LabMachine, folder: Path):
    start(lab)
    assert (folder / "bundles" / "b" / "hwcompat" / "__init__.py").is_file(), "the package stands beside the suites"
    with pytest.raises(UsageError, match="arrived damaged"):
        lab.ask("run", **asked({"bundles/c": archive({"run.py": ""})}, sha256="0" * 64))
    with pytest.raises(UsageError, match="isn't a file name"):
        lab.ask("run", **asked({"bundles/c": archive({"run.py": "", "../../up.py": ""})}))
    with pytest.raises(UsageError, match="BadZipFile"):
        lab.ask("run", **asked({"bundles/c": b"no archive"}))
    assert [path.name for path in (folder / "bundles").iterdir()] == ["b"]


def test_a_run_outlives_the_line_and_is_found_again(lab: LabMachine, folder: Path):
    assert start(lab) == "running"
    pid = (folder / "runs" / "k" / "pid").read_text()
    assert os.getsid(int(pid)) != os.getsid(0), "what ends one ends both"
    assert state(lab) == "running"
    assert start(lab, key="other") == "busy"
    assert start(lab) == "running", "asked for twice it runs once"
    end(lab, folder)
    assert start(lab) == "ended", "somebody else began and ended it since this was looked at"
    told = look(lab)
    assert (told["code"], told["collected"], told["log"]) == (3, False, "it runs\n")
    assert told["result"] == {"runs": {"a/b/cpu/float32": RUN}}
    assert data_of(told) == {f"{RUN}-7.jsonl": (folder / "evidence" / f"{RUN}-7.jsonl").read_bytes()}
    lab.ask("collected", key="k")
    assert hello(lab)["collected"] is True
    assert (folder / "runs" / "k" / "pid").read_text() == pid


def test_a_run_whose_machine_went_down_is_gone_and_goes_on(lab: LabMachine, folder: Path):
    start(lab)
    pid = int((folder / "runs" / "k" / "pid").read_text())
    until(lambda: any((folder / "evidence").glob("*.jsonl")))
    os.killpg(os.getsid(pid), signal.SIGKILL)  # with what watches it, as a reboot does
    until(lambda: state(lab) == "gone")
    assert start(lab, again=True, words=["--resume"]) == "running"
    until(lambda: len([one for one in (folder / "evidence").glob("*.jsonl") if one.stat().st_size]) == 2)
    assert list(data_of(look(lab))) == [f"{RUN}-7.jsonl", f"{RESUMED}-8.jsonl"], "both parts count"
    end(lab, folder)


def test_a_run_that_is_ended_says_by_what(lab: LabMachine, folder: Path):
    """It doesn't react to the signal that stops it."""
    start(lab)
    lab.ask("stop", key="k")
    until(lambda: state(lab) == "ended")
    assert look(lab)["code"] == -signal.SIGTERM
    start(lab, key="again")
    os.kill(int((folder / "runs" / "again" / "pid").read_text()), signal.SIGKILL)
    until(lambda: state(lab, "again") == "ended")
    assert lab.ask("run", **asked(start=False, key="again"))["code"] == -signal.SIGKILL


def test_only_new_evidence_is_sent_in_pieces_that_join(lab: LabMachine, folder: Path):
    evidence, name = folder / "evidence", f"{RUN}-7.jsonl"
    evidence.mkdir(parents=True)
    (evidence / "20250101T000000Z-000000-1.jsonl").write_text("of an earlier run\n")
    start(lab)
    until((evidence / name).exists)
    with (evidence / name).open("ab") as file:
        file.write(b"x" * (9 << 20))
    end(lab, folder)
    data = (evidence / name).read_bytes()
    (part,) = look(lab, {name: len(data) - 9})["parts"]
    assert (part["at"], base64.b64decode(part["data"])) == (len(data) - 9, data[-9:])
    assert look(lab, {name: len(data)})["parts"] == []
    answers = lab.answers("run", lambda: ({k: v for k, v in asked(start=False).items() if k != "payload"}, b""))
    first, second = next(answers), next(answers)
    answers.close()
    assert (first["whole"], second["whole"]) == (False, True)
    assert data_of(first).keys() == {name}
    assert data_of(first)[name] + data_of(second)[name] == data


def test_a_run_that_never_started_or_cannot_start_is_over(lab: LabMachine, folder: Path):
    first = look(lab)  # as after Ctrl-C before anything was heard
    assert (first["state"], first["parts"], first["whole"]) == ("none", [], True)
    assert lab.ask("collected", key="k") == lab.ask("stop", key="k") == {}
    assert not folder.exists()
    with pytest.raises(UsageError, match="FileNotFoundError"):
        start(lab, bundle="bundles/none")
    assert state(lab) == "gone"
    with pytest.raises(UsageError, match="AttributeError"):
        lab.ask("no_such_verb")


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
