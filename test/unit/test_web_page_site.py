"""The server of one page: who asks for it without its address, or by another name, gets nothing."""

from __future__ import annotations

import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from hwcompat.plugins.web_page.page_server import PageServer


@pytest.fixture
def site() -> Iterator[PageServer]:
    found = PageServer(b"a page")
    yield found
    found.close()


def raw(site: PageServer, first: str, *headers: str) -> str:
    """What a request that is written by hand is answered, until the server ends the connection."""
    lines = [first, *headers, "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def status(answer: str) -> int:
    return int(answer.split()[1])


def test_it_serves_loopback_alone_with_the_headers_of_isolation(site: PageServer):
    for address in (site.address, f"{site.address}/"):
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.read() == b"a page"
            assert answer.headers["Content-Type"].startswith("text/html")
            assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert site.server.server_address[0] == "127.0.0.1"


def test_only_who_was_told_the_address_is_answered(site: PageServer):
    host = f"Host: 127.0.0.1:{site.port}"
    for path in ("/", f"/{site.word}x", f"/{site.word[:-1]}", f"/{site.word}/../secret", "/\u0663"):
        assert status(raw(site, f"GET {path} HTTP/1.1", host)) == 403
    assert status(raw(site, f"GET /{site.word} HTTP/1.1", host)) == 200
    assert status(raw(site, f"POST /{site.word} HTTP/1.1", host, "Content-Length: 0")) == 501


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7", "127.0.0.1"])
def test_a_name_that_somebody_pointed_at_this_machine_reads_nothing(site: PageServer, name: str):
    for host in (f"{name}:{site.port}" if name != "127.0.0.1" else f"{name}:{site.port + 1}", name):
        answer = raw(site, f"GET /{site.word} HTTP/1.1", f"Host: {host}")
        assert status(answer) == 403
        assert "a page" not in answer
    assert status(raw(site, f"GET /{site.word} HTTP/1.0")) == 403
    assert status(raw(site, f"GET /{site.word} HTTP/1.1", f"Host: LocalHost:{site.port}")) == 200


def test_a_browser_that_goes_away_is_no_traceback(capfd: pytest.CaptureFixture[str]):
    site = PageServer(b"x" * 2**25)
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset
        connection.sendall(f"GET /{site.word} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
        connection.recv(10)
    until = time.monotonic() + 10
    while any("process_request_thread" in one.name for one in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    site.close()
    assert capfd.readouterr().err == ""


def test_a_server_that_is_closed_answers_no_more(site: PageServer):
    host, port = site.server.server_address[:2]
    site.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((str(host), int(port)), timeout=2):
        pass
