"""What a node of a Ray cluster does for a driver. It is sent there by value, so that the node needs nothing of ours,
and imports the standard library alone.

A node unpacks the bundle once, and each of Ray's processes keeps one runner of it at work (`run.py --on-request`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOLDER = "suite"
"""The folder in the archive that all its files lie in."""

_KEPT_S = 7 * 24 * 3600
"""How long a bundle stays that nobody uses, in seconds."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")
_RUNNERS: dict[str, Any] = {}


class RunnerLost(Exception):
    """The runner ended in the middle of a request; its last words are the message."""


class Runner:
    """One runner: its process, and the bundle at `root` that it runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, str(root / FOLDER / "run.py"), "--on-request"],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,  # a worker that is told to end ends its runner by the pipe
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises `RunnerLost`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:  # Ray cancels a task by an interruption: what runs is of no use any more
            self.close()
            raise
        if not line.endswith(b"\n"):
            raise RunnerLost(self._last_words())
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End it, and what it runs."""
        with contextlib.suppress(OSError):
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._said.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read()[-2000:].decode(errors="replace").strip()
        return f"the runner ended with {code}: {said[-500:] or 'it said nothing'}"


def bundles_folder() -> Path:
    """Where bundles are unpacked: below `HWCOMPAT_CACHE`, or in this user's cache, where nobody else may write."""
    named = os.environ.get("HWCOMPAT_CACHE")
    cache = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hwcompat"
    folder = cache / "bundles"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def unpacked(digest: str, packed: Callable[[], bytes], parent: Path) -> Path:
    """The bundle whose bytes have the SHA-256 `digest`, unpacked below `parent`. What wasn't used there for a week is
    removed.

    It appears whole or not at all. `packed` gives the bytes and is asked only where it isn't there yet. Raises
    `ValueError` where they are others.
    """
    root = parent / digest
    if not root.is_dir():
        data = packed()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("the bundle that came isn't the one that was sent")
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=parent))
        try:
            _write_files(data, part)
            os.rename(part, root)
        except OSError:
            if not root.is_dir():  # no other process was quicker
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    os.utime(root)
    for left in parent.iterdir():
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < time.time() - _KEPT_S:
                shutil.rmtree(left, ignore_errors=True)
    return root


def _write_files(data: bytes, folder: Path) -> None:
    """The files of an archive, below `folder`. Raises `ValueError` where one would lie elsewhere."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()) or name.endswith("/"):
                raise ValueError(f"{name[:80]!r} in the bundle would lie outside its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))


def answer(bundle: tuple[str, Callable[[], bytes]], request: Mapping[str, Any]) -> dict[str, Any]:
    """What this process's runner of a bundle (its digest, and how its bytes come) answers to a request, with the
    `files` of the evidence that it wrote, by name."""
    runner = _runner(*bundle)
    os.utime(runner.root)
    with tempfile.TemporaryDirectory(prefix="run-", dir=runner.root, ignore_cleanup_errors=True) as folder:
        found = runner.ask({**request, "evidence": folder})
        found["files"] = {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.jsonl"))}
    return found


def _runner(digest: str, packed: Callable[[], bytes]) -> Runner:
    """The runner of a bundle with the devices that this task was given; one at a time in a process."""
    key = json.dumps([digest, [os.environ.get(name) for name in _VISIBLE]])
    runner = _RUNNERS.get(key)
    if runner is None or not runner.is_alive:
        for other in _RUNNERS.values():
            other.close()
        _RUNNERS.clear()
        runner = _RUNNERS[key] = Runner(unpacked(digest, packed, bundles_folder()))
    found: Runner = runner
    return found


def run_on_node(
    bundle: tuple[str, list[Any]], request: Mapping[str, Any], beside: Mapping[str, int]
) -> dict[str, Any]:
    """A task of Ray: the answer to a request, with the `node` that gave it.

    `bundle` is its digest and, in a list so that Ray doesn't fetch it for every task, the reference to its bytes.
    `beside` says by node how many cells run there at a time.
    """
    import ray

    node = ray.get_runtime_context().get_node_id()
    digest, (reference,) = bundle
    there = {**request, "node": node, "beside": beside.get(node) or max(beside.values(), default=1)}
    return {**answer((digest, lambda: bytes(ray.get(reference))), there), "node": node}
