"""The agent on a lab machine. Its source is sent over ssh and run by the Python there, so that it imports only the
standard library and reports the version of that Python itself.

A request is a line of JSON followed by bytes; each answer is a line of JSON. Runs are detached: they outlive the
connection, and a lock that their processes hold shows whether they are running.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

_IDLE_S = 300
"""After this many seconds without reading an answer a connection counts as dead."""
_LOCK_S = 20.0
_RECORD_S = 100
_LOOK_S = 0.2
_SAY_S = 2.0
"""Seconds between the answers of a run without new evidence."""
_MOST_BYTES = 8 * 1024 * 1024
"""The most bytes of evidence in one answer."""
_LOG_TAIL = 8000
_RECORD = """
import sys
sys.path[0] = sys.argv[1]
from pathlib import Path
from hwcompat.hardware.detection import detect
from hwcompat.hardware.machine import LiveMachine
from hwcompat.hardware.recording import MachineRecorder
recorder = MachineRecorder(LiveMachine())
detect(recorder)
recorder.write(Path(sys.argv[2]))
"""

if TYPE_CHECKING:  # so that an old Python doesn't fail here and can report its version
    from collections.abc import Iterator

    Plain = dict[str, Any]


class _Refused(Exception):
    """The reason why a request can't be fulfilled here."""


class _Lab:
    """One folder of this machine: packages, bundles, one folder of evidence, and the states of runs. Each request is
    a method that yields its answers."""

    def __init__(self, folder: str) -> None:
        self.folder = Path.home() / folder
        self.evidence = self.folder / "evidence"
        self._first_lines: dict[str, tuple[bool, list[str]]] = {}

    def of_run(self, key: str) -> Path:
        return self.folder / "runs" / key

    def hello(self, asked: Plain, data: bytes) -> Iterator[Plain]:
        """Describe this machine, before anything is written, and the state of a run."""
        there = next(one for one in (self.folder, *self.folder.parents) if one.exists())
        yield {
            "python": platform.python_version(),
            "executable": sys.executable,
            "system": platform.system(),
            "folder": str(self.folder),
            "writable": there.is_dir() and os.access(there, os.W_OK | os.X_OK),
            "free_bytes": shutil.disk_usage(there).free,
            "packages": {name: _version(name) for name in asked["packages"]},
            "missing": [one for one in asked["archives"] if not (self.folder / one).is_dir()],
            "no_folders": [name for name in asked["checkpoints"] if not (Path.home() / name).is_dir()],
            **self._state(asked["key"]),
        }

    def _unpack_archives(self, archives: list[Plain], data: bytes) -> None:
        """Unpack the sent archives, each atomically, into a folder named by its hash."""
        for one in archives:
            archive, data = data[: one["size"]], data[one["size"] :]
            if hashlib.sha256(archive).hexdigest() != one["sha256"]:
                raise _Refused("an archive arrived damaged: its hash differs")
            place = self.folder / one["place"]
            part = Path(f"{place}.{os.getpid()}.part")
            part.mkdir(parents=True)
            try:
                _unpack(archive, part)
                if one["package"]:
                    (part / "hwcompat").symlink_to(self.folder / one["package"] / "hwcompat")
                if not place.is_dir():
                    part.rename(place)
            finally:
                shutil.rmtree(part, ignore_errors=True)

    def inventory(self, asked: Plain, data: bytes) -> Iterator[Plain]:
        """Return the output of this machine's tools, as files by name, for an inventory."""
        self._unpack_archives(asked["archives"], data)
        record = self.folder / f"recording.{os.getpid()}"
        try:
            done = subprocess.run(
                [sys.executable, "-c", _RECORD, str(self.folder / asked["package"]), str(record)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_RECORD_S,
            )
            if done.returncode:
                raise _Refused(done.stderr.decode(errors="replace")[-1000:])
            files = [path for path in record.rglob("*") if path.is_file()]
            yield {"files": {path.relative_to(record).as_posix(): _read(path) for path in files}}
        finally:
            shutil.rmtree(record, ignore_errors=True)

    def _state(self, key: str) -> Plain:
        """Return `none`, `running`, `ended` with its code, `gone` (no end was written), or `busy` (another run)."""
        own = self.of_run(key)
        if code := _read(own / "exit"):
            return {"state": "ended", "code": int(code), "collected": (own / "collected").exists()}
        if self._is_live():
            current = _read(self.folder / "current")
            if current == key:
                return {"state": "running"}
            other = _table(self.of_run(current) / "run.json")
            return {"state": "busy", "command": other.get("command", ""), "since": other.get("started_at", "")}
        return {"state": "gone" if (own / "run.json").exists() else "none"}

    def _is_live(self) -> bool:
        try:
            with open(self.folder / "lock", "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def run(self, asked: Plain, data: bytes) -> Iterator[Plain]:
        """Start a run if requested, and yield its new evidence until it ends. The state is read before the evidence,
        so that the evidence of an ended run is complete. `have` is the size of each file at the other side."""
        if asked["start"]:
            self._unpack_archives(asked["archives"], data)
            self._start(asked)
        sizes, said = asked["have"], 0.0
        while True:
            state = self._state(asked["key"])
            parts, room, whole = [], _MOST_BYTES, True
            for name in self._files(asked["key"]):
                at = sizes.get(name, 0)
                with open(self.evidence / name, "rb") as file:
                    file.seek(at)
                    new = file.read(room)
                    whole = whole and not file.read(1)
                if new:
                    room -= len(new)
                    sizes[name] = at + len(new)
                    parts.append({"name": name, "at": at, "data": base64.b64encode(new).decode()})
            is_over = whole and state["state"] != "running"
            if parts or is_over or time.monotonic() > said + _SAY_S:
                said = time.monotonic()
                answer = {**state, "parts": parts, "whole": whole}
                if is_over:
                    own = self.of_run(asked["key"])
                    answer["log"] = _read(own / "log")[-_LOG_TAIL:]
                    answer["result"] = _table(own / "result.json")
                yield answer
            if is_over:
                return
            time.sleep(_LOOK_S)

    def _start(self, asked: Plain) -> None:
        """Start the run, detached, unless one is running. With `again` it resumes an earlier part of the run."""
        own = self.of_run(asked["key"])
        own.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "ab") as lock:
            if not self._take_lock(lock.fileno()) or self._ended_since(own):
                return
            before = _table(own / "run.json") if asked["again"] else {}
            about = {
                "command": asked["command"],
                "started_at": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
                "before": before.get("before", self._names()),
            }
            _write(self.folder / "current", asked["key"])
            for name in ("exit", "end.json", "collected", "result.json", "pid"):
                with contextlib.suppress(FileNotFoundError):
                    (own / name).unlink()
            _write(own / "run.json", json.dumps(about))
            child = os.fork()
            if child == 0:
                self._supervise(asked, own, lock.fileno())
        while not (own / "pid").exists():
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                raise _Refused(_read(own / "log")[-1000:] or "the run couldn't be started")
            time.sleep(0.01)

    def _supervise(self, asked: Plain, own: Path, lock: int) -> None:
        """Run in a process without a terminal and without the connection, and write its exit code. Never returns."""
        try:
            _detach(own / "log")
            checkpoints = [
                word for name in asked["checkpoints"] for word in ("--checkpoint", str(Path.home() / name))
            ]
            where = ["--evidence", str(self.evidence), "--result", str(own / "result.json")]
            run = subprocess.Popen(
                [sys.executable, "run.py", *asked["words"], *checkpoints, *where],
                cwd=self.folder / asked["bundle"],
                env={"HWCOMPAT_CACHE": str(self.folder / "cache"), **os.environ},
                pass_fds=[lock],  # its children may outlive this process and also hold the lock
            )
            _write(own / "pid", str(run.pid))
            code = run.wait()
            _write(own / "end.json", json.dumps({"names": self._names()}))  # files of other runs may follow
            _write(own / "exit", str(code))
        except BaseException as error:  # the other side reads it from the log
            os.write(2, f"{type(error).__name__}: {error}".encode())
        os._exit(0)

    def _take_lock(self, descriptor: int) -> bool:
        """Take the lock, unless a run holds it. Waits for a short holder: a run that ends, or a check of the lock."""
        until = time.monotonic() + _LOCK_S
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            own = self.of_run(_read(self.folder / "current"))
            if (own / "pid").exists() and not (own / "exit").exists():
                return False
            time.sleep(_LOOK_S)
        return False

    def _ended_since(self, own: Path) -> bool:
        """Whether another request finished the run while this one waited for the lock, so that it doesn't run
        twice."""
        code = _read(own / "exit")
        return bool(code) and int(code) >= 0 and not (own / "collected").exists()

    def _names(self) -> list[str]:
        return sorted(path.name for path in self.evidence.glob("*.jsonl"))

    def _files(self, key: str) -> list[str]:
        """Return names of the files of the run and of the runs that it resumes: those with a plan first, so that no
        end line is read before the lines that it counts."""
        own = self.of_run(key)
        names: list[str] = _table(own / "end.json").get("names") or self._names()
        before = set(_table(own / "run.json").get("before", []))
        result = _table(own / "result.json")
        wanted = {_run_of(name) for name in names if name not in before} | set(result.get("runs", {}).values())
        size = 0
        while size != len(wanted):
            size = len(wanted)
            wanted.update(*(self._first_line(name)[1] for name in names if _run_of(name) in wanted))
        kept = [name for name in names if _run_of(name) in wanted]
        return sorted(kept, key=lambda name: not self._first_line(name)[0])

    def _first_line(self, name: str) -> tuple[bool, list[str]]:
        """Return whether a file begins with a plan, and the runs that it resumes."""
        if name not in self._first_lines:
            with open(self.evidence / name, "rb") as file:
                line = file.readline()
            if not line.endswith(b"\n"):
                return False, []
            try:
                plain = json.loads(line)
                self._first_lines[name] = plain.get("kind") == "run", list(plain.get("resumes", []))
            except (ValueError, AttributeError):  # the other side refuses the file with the reason
                self._first_lines[name] = False, []
        return self._first_lines[name]

    def stop(self, asked: Plain, data: bytes) -> Iterator[Plain]:
        """Stop the run, which records the interrupted checks."""
        pid = _read(self.of_run(asked["key"]) / "pid")
        if pid and self._state(asked["key"])["state"] == "running":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
        yield {}

    def collected(self, asked: Plain, data: bytes) -> Iterator[Plain]:
        """Record that all of the run's evidence was fetched: the same request starts a new run."""
        with contextlib.suppress(FileNotFoundError):  # it was never started
            _write(self.of_run(asked["key"]) / "collected", "")
        yield {}


def _detach(log: Path) -> None:
    os.setsid()
    signal.alarm(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for here, there in enumerate((nothing, output, output)):
        os.dup2(there, here)


def _unpack(data: bytes, folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.startswith("/") or ".." in name.split("/"):
                raise _Refused(f"{name!r} isn't a file name")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))


def _run_of(name: str) -> str:
    return name.rpartition("-")[0]


def _version(name: str) -> str:
    try:
        return str(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _table(path: Path) -> Plain:
    found: Plain = json.loads(_read(path) or "{}")
    return found


def _write(path: Path, text: str) -> None:
    part = Path(f"{path}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def main(token: str) -> None:
    """Answer one request."""
    os.umask(0o077)
    signal.alarm(_IDLE_S)
    asked, data = json.loads(sys.stdin.buffer.readline()), sys.stdin.buffer.read()
    print(f"\n{token}", flush=True)
    try:
        for answer in getattr(_Lab(asked["folder"]), asked["verb"])(asked, data):
            print(json.dumps(answer), flush=True)
            signal.alarm(_IDLE_S)
    except Exception as error:  # the other side reports it
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"[-1000:]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[2])
