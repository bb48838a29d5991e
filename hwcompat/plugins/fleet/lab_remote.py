"""What answers on a lab machine. Its text is sent there over ssh and run by the Python there, so that it imports
nothing but the standard library and says itself which Python it met.

A request is a line of JSON and the bytes that it announces; so is its answer. Whatever runs is detached: it outlives
the line, and a lock that its processes hold tells whether it goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from typing import TYPE_CHECKING, Any, NoReturn

_IDLE_S = 300
"""Who asks nothing for so long is gone, whatever the network still believes."""
_LOCK_S = 20.0
_RECORD_S = 100
_LOOK_S = 0.2
_LOG_TAIL = 8000
_RECORD = """
import sys
sys.path[0] = sys.argv[1]
from pathlib import Path
from hardware.detection import detect
from hardware.machine import LiveMachine
from hardware.recording import Recorder
recorder = Recorder(LiveMachine())
detect(recorder)
recorder.write(Path(sys.argv[2]))
"""

if TYPE_CHECKING:  # an old Python says which one it is, and doesn't fail here
    Plain = dict[str, Any]


class _Refused(Exception):
    """Says why something can't be done here."""


class _Lab:
    """One folder of this machine: packages, bundles, one folder of evidence, and what became of runs."""

    def __init__(self, folder: str) -> None:
        self.folder = _below_home(folder)
        self.evidence = os.path.join(self.folder, "evidence")
        self._first_lines: dict[str, tuple[bool, list[str]]] = {}

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def hello(self, asked: Plain) -> Plain:
        """What is here, before anything is written."""
        there = self.folder
        while not os.path.exists(there):
            there = os.path.dirname(there)
        return {
            "python": platform.python_version(),
            "executable": sys.executable,
            "system": platform.system(),
            "folder": self.folder,
            "writable": os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK),
            "free_bytes": shutil.disk_usage(there).free,
            "packages": {name: _version(name) for name in asked["packages"]},
            "has_package": os.path.isdir(self.path("packages", asked["package"])),
            "has_bundle": os.path.isdir(self.path("bundles", asked.get("bundle") or "none")),
            "no_folders": [name for name in asked.get("folders", []) if not os.path.isdir(_below_home(name))],
        }

    def put(self, asked: Plain, data: bytes) -> Plain:
        """Unpack what was sent, whole or not at all, into the folder that its hash names."""
        if hashlib.sha256(data).hexdigest() != asked["sha256"]:
            raise _Refused("what arrived isn't what was sent")
        place = self.path(asked["kind"], asked["name"])
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        part = f"{place}.{os.getpid()}.part"
        shutil.rmtree(part, ignore_errors=True)
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for name in archive.namelist():
                    if name.startswith("/") or ".." in name.split("/"):
                        raise _Refused(f"{name!r} is no name of a file")
                    os.makedirs(os.path.join(part, os.path.dirname(name)), exist_ok=True)
                    with open(os.path.join(part, name), "wb") as file:
                        file.write(archive.read(name))
            if asked["kind"] == "bundles":
                os.symlink(self.path("packages", asked["package"], "hardware"), os.path.join(part, "hardware"))
            if not os.path.isdir(place):
                os.rename(part, place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return {}

    def inventory(self, asked: Plain) -> tuple[Plain, bytes]:
        """What this machine's tools say, as files by name: the inventory is made of them at home."""
        record = self.path(f"recording.{os.getpid()}")
        try:
            done = subprocess.run(
                [sys.executable, "-c", _RECORD, self.path("packages", asked["package"]), record],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_RECORD_S,
            )
            if done.returncode:
                raise _Refused(done.stderr.decode(errors="replace")[-1000:])
            found = {}
            for folder, _, names in os.walk(record):
                for name in names:
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        found[os.path.relpath(path, record)] = file.read()
            return {}, json.dumps(found).encode()
        finally:
            shutil.rmtree(record, ignore_errors=True)

    def state(self, key: str) -> Plain:
        """`none`, `running`, `ended` with its code, `gone` (no end was written), or `busy` with another run."""
        own = self.path("runs", key)
        told = _read(os.path.join(own, "exit"))
        collected = os.path.exists(os.path.join(own, "collected"))
        if told:
            return {"state": "ended", "code": int(told), "collected": collected}
        if self._is_live():
            current = _read(self.path("current"))
            if current == key:
                return {"state": "running"}
            other = _table(self.path("runs", current, "run.json"))
            return {"state": "busy", "command": other.get("command", ""), "since": other.get("started_at", "")}
        return {"state": "gone" if os.path.exists(os.path.join(own, "run.json")) else "none"}

    def _is_live(self) -> bool:
        try:
            with open(self.path("lock"), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def start(self, asked: Plain) -> Plain:
        """Start the run, detached, unless one goes on. With `again` what an earlier part of it left counts for it."""
        os.makedirs(self.path("runs", asked["key"]), mode=0o700, exist_ok=True)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _detach(self.path("runs", asked["key"], "log"))
            self._supervise(asked, write)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        if said.startswith("failed "):
            raise _Refused(said[7:])
        return self.state(asked["key"])

    def _supervise(self, asked: Plain, pipe: int) -> NoReturn:
        """Hold the lock, run, and write with which code it ended. Never returns."""
        try:
            lock = open(self.path("lock"), "ab")  # noqa: SIM115 - held until this process ends
            if not self._take(lock.fileno()):
                os._exit(0)
            own = self.path("runs", asked["key"])
            if self._ended_since(own):
                os._exit(0)
            before = _table(os.path.join(own, "run.json")) if asked["again"] else {}
            about = {
                "command": asked["command"],
                "started_at": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
                "before": before.get("before", self._names()),
            }
            _write(self.path("current"), asked["key"])
            for name in ("exit", "end.json", "collected", "result.json", "pid"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(own, name))
            _write(os.path.join(own, "run.json"), json.dumps(about))
            checkpoints = [word for name in asked["checkpoints"] for word in ("--checkpoint", _below_home(name))]
            words = [
                *asked["words"],
                *checkpoints,
                "--evidence",
                self.evidence,
                "--result",
                os.path.join(own, "result.json"),
            ]
            run = subprocess.Popen(
                [sys.executable, "run.py", *words],
                cwd=self.path("bundles", asked["bundle"]),
                env={"HWCOMPAT_CACHE": self.path("cache"), **os.environ},
                pass_fds=[lock.fileno()],  # what it started may outlive this process, and is told by the lock too
            )
            _write(os.path.join(own, "pid"), str(run.pid))
            os.write(pipe, b"started")
            os.close(pipe)
            code = run.wait()
            _write(os.path.join(own, "end.json"), json.dumps({"names": self._names()}))  # others' may follow
            _write(os.path.join(own, "exit"), str(code))
        except BaseException as error:  # whoever asked reads it; there is nobody else to tell
            with contextlib.suppress(OSError):
                os.write(pipe, f"failed {type(error).__name__}: {error}".encode())
        os._exit(0)

    def _take(self, descriptor: int) -> bool:
        """Take the lock, unless a run holds it. What is about to end, and who only looks, is waited for."""
        until = time.monotonic() + _LOCK_S
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            own = self.path("runs", _read(self.path("current")))
            if os.path.exists(os.path.join(own, "pid")) and not os.path.exists(os.path.join(own, "exit")):
                return False
            time.sleep(_LOOK_S)
        return False

    def _ended_since(self, own: str) -> bool:
        """Whether the run came to its end while the lock was waited for, by another's doing: it isn't run twice."""
        told = _read(os.path.join(own, "exit"))
        return bool(told) and int(told) >= 0 and not os.path.exists(os.path.join(own, "collected"))

    def _names(self) -> list[str]:
        return sorted(map(os.path.basename, glob.glob(os.path.join(glob.escape(self.evidence), "*.jsonl"))))

    def _files(self, key: str) -> list[str]:
        """Names of the run's files, and of those of runs that it goes on with: the ones that hold a plan first, so
        that no end is read before all that it seals."""
        own = self.path("runs", key)
        names: list[str] = _table(os.path.join(own, "end.json")).get("names") or self._names()
        before = set(_table(os.path.join(own, "run.json")).get("before", []))
        result = _table(os.path.join(own, "result.json"))
        wanted = {_run_of(name) for name in names if name not in before} | set(result.get("runs", {}).values())
        size = 0
        while size != len(wanted):
            size = len(wanted)
            wanted.update(*(self._first_line(name)[1] for name in names if _run_of(name) in wanted))
        kept = [name for name in names if _run_of(name) in wanted]
        return sorted(kept, key=lambda name: not self._first_line(name)[0])

    def _first_line(self, name: str) -> tuple[bool, list[str]]:
        """Whether a file begins with a plan, and the runs that it resumes."""
        if name not in self._first_lines:
            with open(os.path.join(self.evidence, name), "rb") as file:
                line = file.readline()
            if not line.endswith(b"\n"):
                return False, []
            try:
                plain = json.loads(line)
                self._first_lines[name] = plain.get("kind") == "run", list(plain.get("resumes", []))
            except (ValueError, AttributeError):  # it is refused at home, which says why
                self._first_lines[name] = False, []
        return self._first_lines[name]

    def files(self, asked: Plain) -> Plain:
        """Names of the run's files, and of those that are at home already whether they begin as those do."""
        same = {}
        for name, (size, digest) in asked["have"].items():
            with open(os.path.join(self.evidence, os.path.basename(name)), "rb") as file:
                same[name] = hashlib.sha256(file.read(size)).hexdigest() == digest
        return {"files": self._files(asked["key"]), "same": same}

    def look(self, asked: Plain) -> tuple[Plain, bytes]:
        """What is new of the run's evidence, and its state, which is read first: of an ended run all is there."""
        until = time.monotonic() + asked["wait_s"]
        while True:
            state = self.state(asked["key"])
            sizes = {name: os.stat(os.path.join(self.evidence, name)).st_size for name in self._files(asked["key"])}
            new = [(name, asked["have"].get(name, 0), size) for name, size in sizes.items()]
            new = [(name, at, size) for name, at, size in new if size > at]
            if new or state["state"] != "running" or time.monotonic() > until:
                break
            time.sleep(_LOOK_S)
        parts, data = [], b""
        for name, at, size in new:
            take = min(size - at, asked["most"] - len(data))
            if take <= 0:
                break
            with open(os.path.join(self.evidence, name), "rb") as file:
                file.seek(at)
                data += file.read(take)
            parts.append({"name": name, "at": at, "size": take})
        whole = sum(one["size"] for one in parts) == sum(size - at for _, at, size in new)
        answer = {**state, "parts": parts, "whole": whole}
        if state["state"] in ("ended", "gone"):
            own = self.path("runs", asked["key"])
            answer["log"] = _read(os.path.join(own, "log"))[-_LOG_TAIL:]
            answer["result"] = _table(os.path.join(own, "result.json"))
        return answer, data

    def stop(self, asked: Plain) -> Plain:
        """Ask the run to end; it records what it cut off."""
        pid = _read(self.path("runs", asked["key"], "pid"))
        if pid and self.state(asked["key"])["state"] == "running":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
        return {}

    def collected(self, asked: Plain) -> Plain:
        """All of the run's evidence is at home: asked for again, it runs anew."""
        _write(self.path("runs", asked["key"], "collected"), "")
        return {}


def _detach(log: str) -> None:
    """Go on in a process without a terminal and without the line, whose output goes to a file."""
    os.setsid()
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    told = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    signal.alarm(0)
    os.dup2(nothing, 0)
    os.dup2(told, 1)
    os.dup2(told, 2)


def _below_home(name: str) -> str:
    return os.path.join(os.path.expanduser("~"), name)


def _run_of(name: str) -> str:
    return name.rpartition("-")[0]


def _version(name: str) -> str:
    try:
        return str(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _table(path: str) -> Plain:
    found: Plain = json.loads(_read(path) or "{}")
    return found


def _write(path: str, text: str) -> None:
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def _answer(lab: _Lab, asked: Plain, data: bytes) -> tuple[Plain, bytes]:
    if asked["verb"] in ("inventory", "look"):
        return lab.look(asked) if asked["verb"] == "look" else lab.inventory(asked)
    if asked["verb"] in ("put", "state"):
        return lab.put(asked, data) if asked["verb"] == "put" else lab.state(asked["key"]), b""
    verbs = {"hello": lab.hello, "start": lab.start, "files": lab.files, "stop": lab.stop, "collected": lab.collected}
    return verbs[asked["verb"]](asked), b""


def main(token: str) -> None:
    """Answer until nobody asks any more."""
    os.umask(0o077)
    read, write = sys.stdin.buffer, sys.stdout.buffer
    write.write(b"\n%s\n" % token.encode())
    write.flush()
    labs: dict[str, _Lab] = {}
    while True:
        signal.alarm(_IDLE_S)
        line = read.readline()
        if not line:
            return
        asked = json.loads(line)
        data = read.read(asked.get("bytes", 0))
        try:
            lab = labs.setdefault(asked["folder"], _Lab(asked["folder"]))
            answer, body = _answer(lab, asked, data)
        except Exception as error:  # it is told at home
            answer, body = {"refused": f"{type(error).__name__}: {error}"[-1000:]}, b""
        plain = {**answer, "number": asked["number"], "bytes": len(body)}
        write.write(json.dumps(plain).encode() + b"\n" + body)
        write.flush()


if __name__ == "__main__":
    main(sys.argv[2])
