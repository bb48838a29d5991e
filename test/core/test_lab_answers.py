"""Lab machines: names of hosts, answers of the right types, and merged evidence."""

from __future__ import annotations

import ast
import base64
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judged_cells import line
from recorded_machines import machine

from hardware.detection import detect
from hardware.errors import BrokenInput, UsageError
from hardware.evidence.record import EndLine, Outcome, RunLine, to_dict
from hardware.evidence.store import read_folder
from hardware.evidence.writer import now
from hardware.recording import MachineRecorder
from hardware.testing.progress import Progress
from hardware.testing.suite_file import SuiteFile, read_suite
from hwcompat.plugins.fleet import lab_line
from hwcompat.plugins.fleet.lab_answers import (
    NEEDED_PACKAGES,
    is_dead,
    last_words,
    read_greeting,
    read_look,
    refuse_unready,
)
from hwcompat.plugins.fleet.lab_evidence import opened_evidence
from hwcompat.plugins.fleet.lab_line import DEFAULT_FOLDER, LabHost
from hwcompat.plugins.fleet.lab_run import _replayed

RUN = "20261121T120000Z-abcdef"
NAME = f"{RUN}-7.jsonl"
CELL = "bert/fill-mask/cpu/float32"
GREETING: Mapping[str, Any] = {
    "python": "3.12.1", "executable": "/usr/bin/python3", "system": "Linux", "folder": "/home/u/lab",
    "writable": True, "free_bytes": 1 << 40, "packages": dict.fromkeys(NEEDED_PACKAGES, "2.0"),
    "missing": [], "no_folders": [], "state": "none",
}  # fmt: skip
LOOK: Mapping[str, Any] = {"state": "running", "parts": [{"name": NAME, "at": 0, "data": "YWI="}], "whole": True}


def refusal(**changes: Any) -> str:
    there = read_greeting("lab", {**GREETING, **changes})
    with pytest.raises(UsageError, match="lab isn't ready, and nothing was copied") as error:
        refuse_unready("lab", there, runs=True)
    return str(error.value)


def test_a_machine_is_ready_or_all_that_is_missing_is_listed():
    there = read_greeting("lab", GREETING)
    assert there == GREETING
    refuse_unready("lab", there, runs=True)
    refuse_unready("lab", read_greeting("lab", {**GREETING, "packages": {}}), runs=False)
    for changes, reason in (
        ({"python": "3.10.9"}, "is Python 3.10.9, and suites need 3.11 (choose one with --host-python)"),
        ({"python": "strange"}, "is Python strange"),
        ({"system": "Windows"}, "runs Windows"),
        (
            {"packages": {"transformers": "5"}},
            "torch, pytest, numpy, safetensors isn't installed in /usr/bin/python3",
        ),
        ({"writable": False}, "/home/u/lab can't be written (choose another: --host lab:FOLDER)"),
        ({"free_bytes": 1 << 20}, "1 MiB are free for /home/u/lab, and 256 MiB are needed"),
        ({"no_folders": ["w\x1b[2J"]}, r"folder w\x1b[2J of --host-checkpoint doesn't exist"),
    ):
        assert reason in refusal(**changes)
    assert refusal(python="3.9", writable=False, packages={}).count(";") == 2


def test_a_greeting_of_other_types_is_refused():
    for key, known in GREETING.items():
        for value in (None, [], {"a": []}, 1.5, "x", True):
            answer = {**GREETING, key: value}
            same = isinstance(value, type(known)) and isinstance(value, bool) == isinstance(known, bool)
            if same and key != "state":
                assert read_greeting("lab", answer) == answer
            else:
                with pytest.raises(BrokenInput, match=key):
                    read_greeting("lab", answer)


def test_a_look_that_cannot_be_is_refused():
    for changes in (
        {"state": "flying"},
        {"state": 1},
        {"state": "ended"},
        {"state": "ended", "code": "0"},
        {"state": "ended", "code": True},
        {"parts": {}},
        {"parts": [1]},
        {"parts": [{"name": "../../planted.jsonl", "at": 0, "data": ""}]},
        {"parts": [{"name": f"{RUN}-7.jsonl/..", "at": 0, "data": ""}]},
        {"parts": [{"name": f"{NAME}\n", "at": 0, "data": ""}]},
        {"parts": [{"name": 7, "at": 0, "data": ""}]},
        {"parts": [{"name": NAME, "at": -1, "data": ""}]},
        {"parts": [{"name": NAME, "at": 0, "data": "no base64"}]},
        {"parts": [{"name": NAME, "at": 0}]},
        {"parts": [{"name": NAME, "at": "0", "data": ""}]},
        {"result": {"runs": []}},
        {"result": {"runs": {CELL: 7}}},
    ):
        with pytest.raises(BrokenInput, match="the answer of lab is invalid"):
            read_look("lab", {**LOOK, **changes})
    states = {code: is_dead({"state": "ended", "code": code}) for code in (0, 1, 2, -9)}
    assert states == {0: False, 1: False, 2: False, -9: True}
    assert is_dead({"state": "gone"})
    assert last_words("one\n\x1b[31mtwo\n\n") == r"\x1b[31mtwo"
    assert last_words("") == "it printed nothing"


def test_the_inventory_of_another_machine_is_read_like_any_recording(tmp_path: Path, monkeypatch):
    recorder = MachineRecorder(machine("machines/xeon-two-sockets"))
    here = detect(recorder)
    recorder.write(tmp_path / "recorded")
    paths = [path for path in (tmp_path / "recorded").rglob("*") if path.is_file()]
    files = {path.relative_to(tmp_path / "recorded").as_posix(): path.read_text() for path in paths}
    assert _replayed("lab", {"files": files}).cpu == here.cpu
    (tmp_path / "deep" / "inside").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "deep" / "inside"))
    for broken in (
        None, [], {}, {"machine.json": 1}, {"machine.json": "{}"}, {"/planted": ""}, {"a\0": ""},
        {"../planted": ""}, {"a/../../planted": ""}, {"": ""}, {"a": "", "a/b": ""},
    ):  # fmt: skip
        with pytest.raises(BrokenInput):
            _replayed("lab", {"files": broken})
    assert [path.name for path in (tmp_path / "deep").rglob("*")] == ["inside"]


class Heard(Progress):
    """Progress as a list of texts."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def planned(self, suites: int) -> None:
        self.told.append(f"{suites} planned")

    def began(self, suite: SuiteFile, check: str) -> None:
        self.told.append(f"{check} began")

    def ended(self, suite: SuiteFile, outcomes: Mapping[Outcome, int]) -> None:
        self.told.append(f"ended with {dict(outcomes)[Outcome.PASSED]} passed")


@pytest.fixture
def suite(tmp_path: Path) -> SuiteFile:
    path = tmp_path / "test_suite.py"
    path.write_text(f"CELL = {CELL!r}\n\n\ndef test_builds():\n    pass\n\n\ndef test_backward():\n    pass\n")
    found = read_suite(path)
    assert found is not None
    return found


def lines_of(suite: SuiteFile, run_id: str = RUN, suite_hash: str = "") -> list[bytes]:
    """The lines of a run of one suite: its plan, two checks, its end."""
    planned = replace(suite.planned({}), suite_hash=suite_hash or suite.suite_hash)
    run = RunLine(
        run_id=run_id, started_at=now(), command="c", machine="m", inventory={}, versions={}, plan=(planned,)
    )
    where = {"cell_id": CELL, "model": "bert", "task": "fill-mask", "requested_target": "cpu", "actual_target": "cpu"}
    values = {"run_id": run_id, "suite_hash": planned.suite_hash, "started_at": now()}
    checks = [line(name, **where, **values) for name in suite.checks]
    end = EndLine(run_id=run_id, ended_at=now(), reason="finished", counts={"passed": 2})
    return [json.dumps(to_dict(one)).encode() + b"\n" for one in (run, *checks, end)]


def looked(at: int, data: bytes, *, state: str = "gone", whole: bool = True, name: str = NAME):
    part = {"name": name, "at": at, "data": base64.b64encode(data).decode()}
    return read_look("lab", {"state": state, "parts": [part], "whole": whole})


def test_evidence_comes_in_as_it_grows_and_is_told(suite: SuiteFile, tmp_path: Path):
    run, first, second, end = lines_of(suite)
    heard = Heard()
    with opened_evidence("lab", tmp_path / "here", [suite], heard) as kept:
        begin = run + first[:10]
        kept.take(looked(0, begin))
        assert (tmp_path / "here" / NAME).read_bytes() == run, "half a line isn't taken in"
        kept.take(looked(len(begin), first[10:]))
        assert heard.told == ["1 planned", "backward began"]
        kept.take(looked(len(run + first), second, whole=False))
        assert (tmp_path / "here" / NAME).read_bytes() == run + first, "what another file speaks of may be missing"
        kept.take(looked(len(run + first + second), end))
        assert heard.told[2:] == ["ended with 2 passed"]
        assert kept.runs({}) == {CELL: RUN}
        assert kept.runs({CELL: "another"}) == {CELL: RUN}, "a run that nobody saw speaks for nothing"
    assert len(read_folder(tmp_path / "here").checks) == 2
    assert [path.name for path in (tmp_path / "here").iterdir() if path.is_dir()] == []


def test_what_lies_here_already_is_gone_on_with(suite: SuiteFile, tmp_path: Path):
    run, first, second, end = lines_of(suite)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / NAME).write_bytes(run + first)
    with opened_evidence("lab", tmp_path / "here", [suite], Progress()) as kept:
        assert kept.sizes() == {}
        kept.take(looked(0, run + first + second))
        assert kept.sizes() == {NAME: len(run + first + second)}
        kept.take(looked(len(run + first + second), end))
        assert kept.runs({}) == {CELL: RUN}
    assert (tmp_path / "here" / NAME).read_bytes() == run + first + second + end


def test_evidence_that_no_run_of_this_suite_wrote_is_refused(suite: SuiteFile, tmp_path: Path, monkeypatch):
    def refused(reason: str, at: int, data: bytes, *, whole: bool = True) -> None:
        here = opened_evidence("lab", tmp_path / "here", [suite], Progress())
        with here as kept, pytest.raises(BrokenInput, match=reason or None):
            kept.take(looked(at, data, whole=whole))

    refused("has a gap", 1, b"x")
    refused("has a gap", 99999999, b"x")
    for data in (b"no JSON\n", b"{}\n", b'{"kind": "check"}\n', b"[" * 9999 + b"\n"):
        refused("", 0, data)
    with monkeypatch.context() as patch:
        patch.setattr("hwcompat.plugins.fleet.lab_evidence.LARGEST_MERGE", 10)
        refused("larger than", 0, b"x" * 11, whole=False)
    assert list((tmp_path / "here").glob("*.jsonl")) == []
    own = b"".join(lines_of(suite)[:2])
    (tmp_path / "here" / NAME).write_bytes(own)
    refused("with different content", 0, b"".join(lines_of(suite)).replace(b'"machine": "m"', b'"machine": "x"'))
    assert (tmp_path / "here" / NAME).read_bytes() == own
    with opened_evidence("lab", tmp_path / "other", [suite], Progress()) as kept:
        kept.take(looked(0, b"".join(lines_of(suite, suite_hash="0" * 16))))
        with pytest.raises(BrokenInput, match="measured another suite"):
            kept.runs({})


# Names of hosts


def test_a_host_is_a_name_and_a_folder_and_never_an_option_or_code(monkeypatch):
    for text, name, folder in (
        ("lab", "lab", DEFAULT_FOLDER),
        ("user@lab.example", "user@lab.example", DEFAULT_FOLDER),
        ("lab:/data/hw compat/", "lab", "/data/hw compat"),
        ("lab:~/hw", "lab", "hw"),
        ("lab:$(reboot)", "lab", "$(reboot)"),  # a folder is sent as data and never seen by a shell
    ):
        host = LabHost.parse(text)
        assert (host.name, host.folder) == (name, folder)
    for text in (
        "", ":", "-oProxyCommand=x", "user@-lab", "@lab", "a b", "lab;reboot", "lab\nreboot", "$(reboot)", "`reboot`",
        "a@b@c", "lab:../up", "lab:a/../../b", "lab:-x", "lab:\x1b[2J", "lab:" + "x" * 1001, "x" * 300, "lаb\u202e",
    ):  # fmt: skip
        with pytest.raises(UsageError) as error:
            LabHost.parse(text)
        assert str(error.value).isprintable()
    for python in ("", "-c", "a\nb", "\x1b"):
        with pytest.raises(UsageError, match="a path of Python"):
            LabHost.parse("lab", python)
    for value in ("no-such-program-here", "'unclosed"):
        monkeypatch.setenv("HWCOMPAT_SSH", value)
        with pytest.raises(UsageError, match="HWCOMPAT_SSH"):
            LabHost.parse("lab").command(1, "t")


def test_the_words_for_ssh_hold_the_host_behind_the_options_and_the_python_as_one_word(monkeypatch):
    monkeypatch.setenv("HWCOMPAT_SSH", shlex.join([sys.executable, "a b"]))
    words = LabHost.parse("u@lab", "~/my python; reboot").command(7, "token")
    assert words[:2] == [sys.executable, "a b"]
    assert words[-3:-1] == ["--", "u@lab"]
    assert "BatchMode=yes" in words, "nobody is asked for a password in the middle"
    assert "ForwardAgent=no" in words
    there = shlex.split(words[-1])
    assert (there[0], there[1], there[-2:]) == ("my python; reboot", "-c", ["7", "token"])


def test_the_agent_is_readable_for_an_old_python():
    """Annotations of a newer Python are never evaluated there, and no syntax of one is used."""
    tree = ast.parse(lab_line._AGENT.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(name=node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
    }
    assert imported <= set(sys.stdlib_module_names)
    exec("\n".join(line for line in lab_line._AGENT.read_text().splitlines() if line.startswith("from hardware")), {})
