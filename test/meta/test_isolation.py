"""The promises of `conftest.py`: a test cannot reach the network, nor write where the user keeps things."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from hardware.paths import cache_folder


@pytest.mark.parametrize("host", ["example.org", "192.0.2.1", "2001:db8::1", "0.0.0.0", "10.0.0.1", b"example.org"])
def test_a_test_cannot_look_up_or_reach_another_machine(host):
    with pytest.raises(AssertionError, match="tried to reach"):
        socket.getaddrinfo(host, 80)
    with pytest.raises(AssertionError, match="tried to reach"):
        socket.create_connection((host, 80), timeout=0.1)
    with socket.socket() as one, pytest.raises(AssertionError, match="tried to reach"):
        one.connect((host, 80))
    with socket.socket(type=socket.SOCK_DGRAM) as one, pytest.raises(AssertionError, match="tried to reach"):
        one.sendto(b"x", (host, 80))


def test_a_test_can_reach_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("localhost", port), timeout=5) as client:
            client.sendall(b"x")
            with server.accept()[0] as accepted:
                assert accepted.recv(1) == b"x"


def test_caches_and_evidence_lie_in_a_temporary_folder():
    temporary = Path(tempfile.gettempdir()).resolve()
    assert cache_folder("recipes").resolve().is_relative_to(temporary)
    assert Path(os.environ["HWCOMPAT_EVIDENCE"]).resolve().is_relative_to(temporary)
    assert list(cache_folder("recipes").iterdir()) == []
