"""What answers on a lab machine, run here without ssh: unpacks whole or not at all, runs once, outlives the line."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_without_ssh import host_here

from hardware.errors import UsageError
from hwcompat.plugins.fleet.lab_line import MOST_BYTES
from hwcompat.plugins.fleet.lab_machine import LabMachine

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


def put(lab: LabMachine, kind: str, name: str, data: bytes, sha256: str = "") -> None:
    digest = sha256 or hashlib.sha256(data).hexdigest()
    lab.ask("put", kind=kind, name=name, sha256=digest, package="p", payload=data)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LabMachine]:
    with LabMachine(host_here(monkeypatch, tmp_path / "home")) as one:
        yield one


@pytest.fixture
def folder(lab: LabMachine, tmp_path: Path) -> Iterator[Path]:
    """The lab's folder with a bundle that runs until it is told to end."""
    put(lab, "packages", "p", archive({"hardware/__init__.py": ""}))
    put(lab, "bundles", "b", archive({"run.py": RUNS}))
    found = tmp_path / "home" / ".cache" / "hwcompat" / "lab"
    yield found
    (found / "bundles" / "b" / "go").touch()  # nothing outlives the test


def start(lab: LabMachine, key: str = "k", *, again: bool = False, resume: bool = False) -> str:
    words = ["--resume"] if resume else []
    answer = lab.ask("start", key=key, bundle="b", words=words, checkpoints=[], again=again, command="a command")
    return str(answer.values["state"])


def state(lab: LabMachine, key: str = "k") -> str:
    return str(lab.ask("state", key=key).values["state"])


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def look(lab: LabMachine, have: dict[str, int], most: int = MOST_BYTES) -> tuple[dict, bytes]:
    answer = lab.ask("look", key="k", have=have, wait_s=0.0, most=most)
    return dict(answer.values), answer.body


def test_it_tells_what_is_there_and_writes_nothing(lab: LabMachine, tmp_path: Path):
    told = lab.ask("hello", packages=["pytest", "no-such-package"], package="p", folders=["weights"]).values
    assert told["packages"]["pytest"] == pytest.__version__
    assert told["packages"]["no-such-package"] == ""
    assert (told["executable"], told["writable"], told["has_package"]) == (sys.executable, True, False)
    assert told["no_folders"] == ["weights"]
    assert list((tmp_path / "home").iterdir()) == []


def test_an_archive_arrives_whole_or_not_at_all(lab: LabMachine, folder: Path):
    assert (folder / "bundles" / "b" / "hardware" / "__init__.py").is_file(), "the package stands beside the suites"
    data = archive({"run.py": "x = 1\n"})
    with pytest.raises(UsageError, match="isn't what was sent"):
        put(lab, "bundles", "c", data, sha256="0" * 64)
    with pytest.raises(UsageError, match="is no name of a file"):
        put(lab, "bundles", "c", archive({"run.py": "", "../../up.py": ""}))
    with pytest.raises(UsageError, match="BadZipFile"):
        put(lab, "bundles", "c", b"no archive")
    assert [path.name for path in (folder / "bundles").iterdir()] == ["b"]


def test_a_run_outlives_the_line_and_is_found_again(monkeypatch, folder: Path, lab: LabMachine, tmp_path: Path):
    assert start(lab) == "running"
    assert lab._line is not None
    line = lab._line._process.pid
    assert os.getsid(int((folder / "runs" / "k" / "pid").read_text())) != os.getsid(line), "what ends one ends both"
    lab._hang_up()
    with LabMachine(host_here(monkeypatch, tmp_path / "home")) as another:
        assert state(another) == "running"
        assert start(another, key="other") == "busy"
        pid = (folder / "runs" / "k" / "pid").read_text()
        (folder / "bundles" / "b" / "go").touch()
        until(lambda: state(another) == "ended")
        told, body = look(another, {})
        assert (told["code"], told["collected"], told["log"]) == (3, False, "it runs\n")
        assert told["result"] == {"runs": {"a/b/cpu/float32": RUN}}
        assert body == (folder / "evidence" / f"{RUN}-7.jsonl").read_bytes()
        another.ask("collected", key="k")
        assert another.ask("state", key="k").values["collected"] is True
        assert (folder / "runs" / "k" / "pid").read_text() == pid


def test_asked_for_twice_it_runs_once(lab: LabMachine, folder: Path):
    start(lab)
    pid = (folder / "runs" / "k" / "pid").read_text()
    assert start(lab) == "running"
    assert (folder / "runs" / "k" / "pid").read_text() == pid
    (folder / "bundles" / "b" / "go").touch()
    until(lambda: state(lab) == "ended")
    assert start(lab) == "ended", "somebody else began and ended it since this was looked at"
    assert (folder / "runs" / "k" / "pid").read_text() == pid


def test_a_run_whose_machine_went_down_is_gone_and_goes_on(lab: LabMachine, folder: Path):
    start(lab)
    pid = int((folder / "runs" / "k" / "pid").read_text())
    until(lambda: any((folder / "evidence").glob("*.jsonl")))
    os.killpg(os.getsid(pid), signal.SIGKILL)  # with what watches it, as a reboot does
    until(lambda: state(lab) == "gone")
    assert start(lab, again=True, resume=True) == "running"
    until(lambda: len([one for one in (folder / "evidence").glob("*.jsonl") if one.stat().st_size]) == 2)
    told, _ = look(lab, {})
    assert [one["name"] for one in told["parts"]] == [f"{RUN}-7.jsonl", f"{RESUMED}-8.jsonl"], "both parts count"
    (folder / "bundles" / "b" / "go").touch()
    until(lambda: state(lab) == "ended")


def test_a_run_that_is_killed_says_by_what(lab: LabMachine, folder: Path):
    start(lab)
    os.kill(int((folder / "runs" / "k" / "pid").read_text()), signal.SIGKILL)
    until(lambda: state(lab) == "ended")
    assert look(lab, {})[0]["code"] == -signal.SIGKILL


def test_a_polite_end_is_a_signal_that_it_can_hear(lab: LabMachine, folder: Path):
    start(lab)
    lab.ask("stop", key="k")
    until(lambda: state(lab) == "ended")
    assert look(lab, {})[0]["code"] == -signal.SIGTERM, "this run.py doesn't listen"


def test_only_what_is_new_comes_in_pieces_that_join(lab: LabMachine, folder: Path):
    evidence = folder / "evidence"
    evidence.mkdir()
    (evidence / "20250101T000000Z-000000-1.jsonl").write_text("of an earlier run\n")
    (folder / "bundles" / "b" / "go").touch()
    start(lab)
    until(lambda: state(lab) == "ended")
    name = f"{RUN}-7.jsonl"
    found = b""
    while not (told := look(lab, {name: len(found)}, most=10))[0]["whole"]:
        assert told[0]["parts"] == [{"name": name, "at": len(found), "size": 10}]
        found += told[1]
    found += told[1]
    assert found == (evidence / name).read_bytes()
    assert look(lab, {name: len(found)})[1] == b""


def test_files_that_are_at_home_are_held_against_those_there(lab: LabMachine, folder: Path):
    (folder / "bundles" / "b" / "go").touch()
    start(lab)
    until(lambda: state(lab) == "ended")
    name = f"{RUN}-7.jsonl"
    begin = (folder / "evidence" / name).read_bytes()[:9]
    for data, same in ((begin, True), (b"something", False)):
        have = {name: [9, hashlib.sha256(data).hexdigest()]}
        told = lab.ask("files", key="k", have=have).values
        assert (told["files"], told["same"]) == ([name], {name: same})


def test_a_mistake_is_answered_and_the_line_stays(lab: LabMachine):
    with pytest.raises(UsageError, match="KeyError"):
        lab.ask("no-such-verb")
    assert state(lab) == "none"


def test_what_answers_can_be_read_by_an_old_python_that_says_which_it_is():
    """Annotations of a newer Python are never looked at there, and no syntax of one is used."""
    import ast

    from hwcompat.plugins.fleet import lab_line

    tree = ast.parse(lab_line._AGENT.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(name=node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
    }
    assert imported <= set(sys.stdlib_module_names)
