"""Code that runs on a node of a Ray cluster. It is sent by value, so that the node doesn't need hwcompat, and imports
the standard library only.

Each of Ray's processes unpacks its own copy of the bundle and keeps one runner of it alive (`run.py --on-request`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOLDER = "suite"
"""The folder in the archive that holds all its files."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")
_RUNNERS: dict[str, Any] = {}


class RunnerLost(Exception):
    """The runner ended during a request; the end of its output is the message."""


class NodeRunner:
    """One runner: its process, and its bundle, unpacked at `root` until the runner is closed."""

    def __init__(self, bundle: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            for name in archive.namelist():
                if name.startswith("/") or ".." in name.split("/") or name.endswith("/"):
                    raise ValueError(f"{name[:80]!r} in the bundle is outside its folder")
            self._folder = tempfile.TemporaryDirectory(prefix="hwcompat-node-", ignore_cleanup_errors=True)
            self.root = Path(self._folder.name)
            for name in archive.namelist():
                path = self.root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, str(self.root / FOLDER / "run.py"), "--on-request"],
            cwd=self.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,  # a worker that is ended closes the pipe, which ends its runner
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can answer."""
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises `RunnerLost`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:  # Ray cancels a task by an interruption
            self.close()
            raise
        if not line.endswith(b"\n"):
            raise RunnerLost(self._last_words())
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the runner and its children."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._said.close()
        self._folder.cleanup()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read()[-2000:].decode(errors="replace").strip()
        return f"the runner ended with {code}: {said[-500:] or 'no output'}"


def answer(bundle: tuple[str, Callable[[], bytes]], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of this process's runner of a bundle (its SHA-256, and a function for its bytes) to a
    request, with the `files` of the evidence that it wrote, by name. Raises `ValueError` if the bytes differ."""
    runner = _runner(*bundle)
    with tempfile.TemporaryDirectory(prefix="run-", dir=runner.root) as folder:
        found = runner.ask({**request, "evidence": folder})
        found["files"] = {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.jsonl"))}
    return found


def _runner(digest: str, packed: Callable[[], bytes]) -> NodeRunner:
    """Return the runner of a bundle with the devices of this task; one at a time in a process."""
    key = json.dumps([digest, [os.environ.get(name) for name in _VISIBLE]])
    runner = _RUNNERS.get(key)
    if runner is None or not runner.is_alive:
        for other in _RUNNERS.values():
            other.close()
        _RUNNERS.clear()
        data = packed()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("the bundle arrived damaged: its hash differs")
        runner = _RUNNERS[key] = NodeRunner(data)
    found: NodeRunner = runner
    return found


def run_on_node(
    bundle: tuple[str, list[Any]], request: Mapping[str, Any], beside: Mapping[str, int]
) -> dict[str, Any]:
    """Run a task of Ray: return the answer to a request, with the `node` that ran it.

    `bundle` is its digest and, in a list so that Ray doesn't fetch it for every task, the reference to its bytes.
    `beside` maps nodes to how many cells run there at a time.
    """
    import ray

    node = ray.get_runtime_context().get_node_id()
    digest, (reference,) = bundle
    there = {**request, "node": node, "beside": beside.get(node) or max(beside.values(), default=1)}
    return {**answer((digest, lambda: bytes(ray.get(reference))), there), "node": node}
