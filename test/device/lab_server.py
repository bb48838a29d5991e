"""A lab machine for tests: OpenSSH's server on 127.0.0.1, with a home folder and keys of its own, and the line to it,
which a test can cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
LIMIT_S = 30


class CutLine:
    """Hands bytes on between a port of its own and another one. `cut` ends connections, `down` refuses new ones."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.down = False
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                if self.down:
                    near.close()
                    continue
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self._to)) as far:
            self._open.append(near)
            back = threading.Thread(target=_hand_on, args=(far, near), daemon=True)
            back.start()
            _hand_on(near, far)
            back.join()

    def cut(self) -> None:
        while self._open:
            with contextlib.suppress(OSError):  # it was over already
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.down = True
        self.cut()
        self._server.close()


def _hand_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The host `lab` of a configuration of ssh; `home` is the home folder there."""

    root: Path
    home: Path
    line: CutLine

    @property
    def folder(self) -> Path:
        return self.home / ".cache" / "hwcompat" / "lab"

    def ssh(self, *options: str) -> dict[str, str]:
        return {"HWCOMPAT_SSH": " ".join(["ssh", *options, "-F", str(self.root / "config")])}

    def words(self, *more: str) -> tuple[str, ...]:
        return ("--host", "lab", "--host-python", sys.executable, *more)

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=LIMIT_S)
    return " ".join(path.with_suffix(".pub").read_text(encoding="ascii").split()[:2])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def lab_server(root: Path) -> Iterator[Lab]:
    """A server that lets one key in, as the user who runs the tests. Skips where there is none."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("openssh-server and openssh-client aren't both installed")
    if os.geteuid() == 0:  # what its package's service makes; it is empty
        Path("/run/sshd").mkdir(exist_ok=True)
    home, port = root / "home", _free_port()
    home.mkdir()
    host_key, own_key = _key(root / "host_key"), _key(root / "own_key")
    _key(root / "other_key")
    (root / "authorized").write_text(own_key + "\n", encoding="ascii")
    server = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": root / "host_key",
        "AuthorizedKeysFile": root / "authorized",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "UseDNS": "no",
        "StrictModes": "no",
        "PidFile": "none",
        "SetEnv": f"HOME={home} OMP_NUM_THREADS=1",
    }
    (root / "sshd_config").write_text(
        "".join(f"{name} {value}\n" for name, value in server.items()), encoding="ascii"
    )
    line = CutLine(port)
    (root / "known").write_text(f"[127.0.0.1]:{line.port} {host_key}\n", encoding="ascii")
    client = {
        "HostName": "127.0.0.1",
        "Port": line.port,
        "IdentityFile": root / "own_key",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": root / "known",
        "GlobalKnownHostsFile": "/dev/null",
    }
    config = "Host lab\n" + "".join(f"  {name} {value}\n" for name, value in client.items())
    (root / "config").write_text(config, encoding="ascii")
    with (root / "sshd.log").open("w") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", root / "sshd_config"], stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        _wait_for(port, process, root / "sshd.log")
        yield Lab(root=root, home=home, line=line)
    finally:
        line.close()
        process.terminate()
        process.wait(timeout=LIMIT_S)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    pytest.fail(f"sshd didn't begin to listen: {log.read_text(encoding='utf-8')}")
