"""The promises of `conftest.py`: a test cannot reach the network, nor write where the user keeps things."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import network_watch
import pytest
from network_watch import foreign

from hardware.files import cache_folder


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _connect(host: str) -> None:
    with socket.socket(_family(host)) as one:
        one.connect((host, 80))


def _send_to(host: str) -> None:
    with socket.socket(_family(host), socket.SOCK_DGRAM) as one:
        one.sendto(b"x", (host, 80))


def _send_message(host: str) -> None:
    with socket.socket(_family(host), socket.SOCK_DGRAM) as one:
        one.sendmsg([b"x"], [], 0, (host, 80))


def _native(host: str) -> None:
    """By the C library alone: nothing of Python's is asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    family = _family(host)
    port = (80).to_bytes(2, "big")
    packed = socket.inet_pton(family, host)
    address = (
        family.to_bytes(2, sys.byteorder) + port + (packed if len(packed) == 4 else bytes(4) + packed + bytes(4))
    )
    one = libc.socket(int(family), 1, 0)
    try:
        if libc.connect(one, address, len(address)) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        libc.close(one)


def test_a_test_cannot_reach_another_machine(network) -> None:
    for reach in (_connect, _send_to, _send_message, _native):
        for host in ("192.0.2.1", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.1"):
            with pytest.raises(OSError, match="Network is unreachable"):
                reach(host)
            (attempt,) = network.take()
            assert host.rpartition(":")[2] in attempt.address
            assert attempt.address.endswith("port 80")


def test_a_test_cannot_look_a_name_up(network) -> None:
    for host in ("example.org", b"example.org"):
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo(host, 80)
        assert {one.address.partition(" at ")[0] for one in network.take()} == {"look-up"}


def test_what_a_test_starts_is_watched_whatever_it_is_written_in(network) -> None:
    connects = 'import socket; socket.create_connection(("192.0.2.1", 80))'
    programs = [
        [sys.executable, "-c", connects],
        ["sh", "-c", f"{sys.executable} -c '{connects}'; exit 1"],
        ["node", "-e", "require('net').connect(80, '192.0.2.1').on('error', () => process.exit(1))"],
        ["bash", "-c", "echo > /dev/tcp/192.0.2.1/80"],
    ]
    for words in (one for one in programs if shutil.which(one[0])):
        done = subprocess.run(words, capture_output=True, timeout=60, check=False)
        assert done.returncode != 0, words
        assert {one.address for one in network.take()} == {"192.0.2.1 port 80"}, words


PLANTED = """
import contextlib, socket


def test_quiet():
    pass


def test_swallows():
    with contextlib.suppress(OSError):
        socket.create_connection(("192.0.2.1", 80))


def test_asks(network):
    assert network.take() == []
"""


def _pytest(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Pytest over a copy of our `conftest.py` and a test that swallows what it is refused."""
    root = Path(__file__).parents[2]
    (folder / "conftest.py").write_text((root / "test" / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_planted.py").write_text(PLANTED, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment, "PYTHONPATH": os.pathsep.join([str(root), str(root / "test")])},
        check=False,
    )


def test_a_test_that_reaches_out_fails_even_where_it_swallows_the_error(tmp_path: Path, network) -> None:
    done = _pytest(tmp_path, dict(os.environ))
    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "network: loopback only" in done.stdout
    assert "reached beyond this machine" in done.stdout
    assert "connect 192.0.2.1 port 80" in done.stdout
    assert done.returncode == 1
    assert len(network.take()) == 1


def test_where_nothing_can_be_watched_that_is_said_and_what_rests_on_it_is_skipped(tmp_path: Path, network) -> None:
    """A process has one listener: below this watch there can't be another."""
    unwatched = {name: value for name, value in os.environ.items() if not name.startswith("TEST_NETWORK")}
    done = _pytest(tmp_path, unwatched)
    assert "2 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    why = "the kernel gives no notifications of seccomp: Device or resource busy"
    assert f"not watched: {why}" in done.stderr
    assert f"network: {why}" in done.stdout
    assert f"the network isn't watched: {why}" in " ".join(done.stdout.split())
    assert len(network.take()) == 1


def test_a_test_can_reach_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("localhost", port), timeout=5) as client:
            client.sendall(b"x")
            with server.accept()[0] as accepted:
                assert accepted.recv(1) == b"x"


SENDS = """
import os, socket
left, right = socket.socketpair()
print("begun", flush=True)
while True:
    left.sendmsg([b"x"])
    right.recv(1)
"""


def test_processes_that_are_killed_as_they_are_asked_about_stop_no_other() -> None:
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", SENDS], stdout=subprocess.PIPE) as one:
            assert one.stdout is not None
            assert one.stdout.readline() == b"begun\n"
            one.kill()
    test_a_test_can_reach_this_machine()


def test_a_question_of_a_process_that_is_dead_is_no_end_of_the_watch(tmp_path: Path) -> None:
    """Its memory reads as empty: what is raised is what stands for a process that is gone."""
    processor = network_watch._processor()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as one, open(os.devnull) as listener:
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        arguments = (3, 4096, 0, 0, 0, 0)
        question = struct.pack("@QII", 1, one.pid, 0) + struct.pack(
            "@iIQ6Q", processor.sendmsg, processor.audit, 0, *arguments
        )
        with pytest.raises(OSError, match=r"ioctl|device"):
            network_watch._answer(listener.fileno(), question, processor, tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_what_counts_as_leaving() -> None:
    for family, rest, named in (
        (socket.AF_UNIX, b"/run/user/own.sock\0", ""),
        (socket.AF_UNIX, b"/run/systemd/resolve/io.systemd.Resolve\0", "look-up at /run/systemd"),
        (socket.AF_INET, bytes([0, 53, 127, 0, 0, 53]), "look-up at 127.0.0.53"),
        (socket.AF_INET, bytes([0, 80, 127, 0, 0, 53]), ""),
        (socket.AF_PACKET, bytes(18), "family 17"),
        (socket.AF_UNSPEC, bytes(14), ""),
    ):
        found = foreign(int(family).to_bytes(2, sys.byteorder) + rest, connects=True)
        assert (found.startswith(named), bool(found)) == (True, bool(named)), (family, rest)


def test_caches_and_evidence_lie_in_a_temporary_folder():
    temporary = Path(tempfile.gettempdir()).resolve()
    assert cache_folder("recipes").resolve().is_relative_to(temporary)
    assert Path(os.environ["HWCOMPAT_EVIDENCE"]).resolve().is_relative_to(temporary)
    assert list(cache_folder("recipes").iterdir()) == []
