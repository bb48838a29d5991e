"""What answers on a lab machine, run here without ssh: unpacks whole or not at all, runs once, outlives the line."""

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
from lab_without_ssh import host_here

from hardware.errors import UsageError
from hwcompat.plugins.fleet.lab_line import LabMachine

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
PACKAGE: Archives = {"packages/p": archive({"hardware/__init__.py": ""})}
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
    assert (folder / "bundles" / "b" / "hardware" / "__init__.py").is_file(), "the package stands beside the suites"
    with pytest.raises(UsageError, match="isn't what was sent"):
        lab.ask("run", **asked({"bundles/c": archive({"run.py": ""})}, sha256="0" * 64))
    with pytest.raises(UsageError, match="is no name of a file"):
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
    end(lab, folder)
    told = look(lab)
    assert (told["code"], told["collected"], told["log"]) == (3, False, "it runs\n")
    assert told["result"] == {"runs": {"a/b/cpu/float32": RUN}}
    assert data_of(told) == {f"{RUN}-7.jsonl": (folder / "evidence" / f"{RUN}-7.jsonl").read_bytes()}
    lab.ask("collected", key="k")
    assert hello(lab)["collected"] is True
    assert (folder / "runs" / "k" / "pid").read_text() == pid


def test_asked_for_twice_it_runs_once(lab: LabMachine, folder: Path):
    start(lab)
    pid = (folder / "runs" / "k" / "pid").read_text()
    assert start(lab) == "running"
    end(lab, folder)
    assert start(lab) == "ended", "somebody else began and ended it since this was looked at"
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


def test_a_run_that_cannot_be_started_says_why(lab: LabMachine, folder: Path):
    with pytest.raises(UsageError, match="FileNotFoundError"):
        start(lab, bundle="bundles/none")
    assert state(lab) == "gone"


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_run_that_is_ended_says_by_what(lab: LabMachine, folder: Path, ends: str):
    start(lab)
    if ends == "stop":
        lab.ask("stop", key="k")
    else:
        os.kill(int((folder / "runs" / "k" / "pid").read_text()), signal.SIGKILL)
    until(lambda: state(lab) == "ended")
    assert look(lab)["code"] == (-signal.SIGTERM if ends == "stop" else -signal.SIGKILL), "run.py doesn't listen"


def test_only_what_is_new_comes(lab: LabMachine, folder: Path):
    evidence = folder / "evidence"
    evidence.mkdir(parents=True)
    (evidence / "20250101T000000Z-000000-1.jsonl").write_text("of an earlier run\n")
    start(lab)
    end(lab, folder)
    name = f"{RUN}-7.jsonl"
    data = (evidence / name).read_bytes()
    assert data_of(look(lab)) == {name: data}
    (part,) = look(lab, {name: 9})["parts"]
    assert (part["at"], base64.b64decode(part["data"])) == (9, data[9:])
    assert look(lab, {name: len(data)})["parts"] == []


def test_much_evidence_comes_in_pieces_that_join(lab: LabMachine, folder: Path):
    start(lab)
    name = f"{RUN}-7.jsonl"
    until((folder / "evidence" / name).exists)
    with (folder / "evidence" / name).open("ab") as file:
        file.write(b"x" * (9 << 20))
    end(lab, folder)
    answers = lab.answers("run", lambda: ({k: v for k, v in asked(start=False).items() if k != "payload"}, b""))
    first, second = next(answers), next(answers)
    answers.close()
    assert (first["whole"], second["whole"]) == (False, True)
    assert data_of(first)[name] + data_of(second)[name] == (folder / "evidence" / name).read_bytes()


def test_what_was_never_started_is_over(lab: LabMachine, folder: Path):
    """As after Ctrl-C before anything was heard."""
    told = look(lab)
    assert (told["state"], told["parts"], told["whole"]) == ("none", [], True)
    assert lab.ask("collected", key="k") == lab.ask("stop", key="k") == {}
    assert not folder.exists()


def test_a_mistake_is_answered(lab: LabMachine):
    with pytest.raises(UsageError, match="AttributeError"):
        lab.ask("no_such_verb")


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
