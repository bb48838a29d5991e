"""A Ray cluster on this machine's loopback, each node started by `ray start` as a user would, in processes whose ids
are known: what tests kill and benchmarks measure."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from hwcompat.plugins.fleet.ray_cluster import SILENCE

_START_S = 60.0
_STORE_BYTES = 80_000_000


@dataclass(frozen=True, kw_only=True)
class LocalNode:
    """One node: its process, its address on loopback, and the folder that all it writes goes to."""

    process: subprocess.Popen[bytes]
    ip: str
    folder: Path

    def begun(self) -> dict[str, str]:
        """Cells that it has begun and not finished, by the run that they are in."""
        found = {}
        for path in self.folder.glob("hwcompat-node-*/run-*/*.jsonl"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                if [one["kind"] for one in lines] == ["run"]:
                    found[lines[0]["run_id"]] = lines[0]["plan"][0]["cell_id"]
        return found

    @property
    def raylet(self) -> int:
        """The id of the process that is the node for the others."""
        children = psutil.Process(self.process.pid).children()
        return next(one.pid for one in children if one.name() == "raylet")


class LocalCluster:
    """A head that offers nothing, and the nodes that are added. Every node has an address of its own, since Ray takes
    127.0.0.1 for the machine's outer one."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # its sockets' paths may be 107 long
        self.token = secrets.token_hex(32)
        self.nodes: list[LocalNode] = []
        self.address = f"127.0.0.2:{_free_port('127.0.0.2')}"
        self._environment = {**os.environ, **(environment or {}), **SILENCE, **self.variables}
        path = self._environment.get("PYTHONPATH", "")
        if importlib.util.find_spec("amdsmi"):  # Ray doesn't survive AMD's bindings without their library
            (self.folder / "python").mkdir()
            (self.folder / "python" / "amdsmi.py").write_text('raise ImportError("not here")\n', encoding="utf-8")
            path = os.pathsep.join(filter(None, [str(self.folder / "python"), path]))
        self._environment["PYTHONPATH"] = path
        port = self.address.rpartition(":")[2]
        own = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self.folder / 'r'}")
        try:
            self.head = self._start("127.0.0.2", {}, 0, *own)
        except BaseException:
            self.close()
            raise

    @property
    def variables(self) -> dict[str, str]:
        """What a driver has in its environment, so that the cluster knows it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def add_node(self, resources: Mapping[str, float], cpus: int = 1) -> LocalNode:
        """Start one more node, and wait until it is one."""
        node = self._start(f"127.0.0.{len(self.nodes) + 3}", resources, cpus, f"--address={self.address}")
        self.nodes.append(node)
        return node

    def _start(self, ip: str, resources: Mapping[str, float], cpus: int, *words: str) -> LocalNode:
        folder = self.folder / ip
        folder.mkdir()
        log = folder / "said"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", *words, f"--node-ip-address={ip}"),
                    *(f"--num-cpus={cpus}", f"--resources={json.dumps(dict(resources))}", "--disable-usage-stats"),
                    *(f"--object-store-memory={_STORE_BYTES}", "--block"),
                ],
                env={**self._environment, "HWCOMPAT_CACHE": str(folder), "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        node = LocalNode(process=process, ip=ip, folder=folder)
        until = time.monotonic() + _START_S
        while b"Ray runtime started" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                _end(process.pid)
                raise RuntimeError(f"no node of Ray came up: {log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.1)
        return node

    def kill(self, node: LocalNode) -> None:
        """Kill a node as a loss of power would, with all that works on it: the others learn of it by its silence."""
        raylet = psutil.Process(node.raylet)
        every = [raylet, *raylet.children(recursive=True)]
        for sign in (signal.SIGSTOP, signal.SIGKILL):  # held first: a worker could end its cell beside a dead raylet
            for one in every:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.send_signal(sign)

    def close(self) -> None:
        """End all that was started, and remove what it left."""
        for node in (*self.nodes, *([self.head] if hasattr(self, "head") else [])):
            _end(node.process.pid)
            node.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _end(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        every = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
        for one in every:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(every, timeout=10)


def _free_port(host: str) -> int:
    with socket.socket() as free:
        free.bind((host, 0))
        port: int = free.getsockname()[1]
    return port
