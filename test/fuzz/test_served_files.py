"""The site that a browser is served from: whatever path is asked for, nothing outside of its folders is found, and
whoever wasn't told its address gets nothing."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import MARK, Hostile, draws

from hardware.workers.web_site import Site

SECRET = f"{MARK}-secret".encode()


@pytest.fixture
def site(place: Path) -> Iterator[Site]:
    (place.parent / "secret").write_bytes(SECRET)
    (place / "inside.js").write_bytes(b"inside")
    (place / "linked").symlink_to("../secret")
    (place / "up").symlink_to("..")
    made = Site({"/files/": place})
    yield made
    made.close()


@pytest.mark.fuzz(150)
def test_nothing_outside_of_the_folders_is_found(fuzz: Any, site: Site) -> None:
    assert site.found("/files/inside.js") == b"inside"

    def one(draw: random.Random) -> None:
        hostile = Hostile(draw)
        parts = ("..", ".", "linked", "up", "secret", "%2e%2e", "inside.js", "", hostile.name())
        path = "/".join(draw.choice(parts) for _ in range(draw.randint(1, 5)))
        for asked in (f"/files/{path}", f"/{path}", path, f"/files/../{path}"):
            assert site.found(asked) in (None, b"inside")

    fuzz(one, draw=draws())


@pytest.mark.fuzz(60)
def test_a_request_without_the_address_gets_nothing(fuzz: Any, site: Site) -> None:
    def one(draw: random.Random) -> None:
        hostile = Hostile(draw)
        path = draw.choice((f"/{hostile.name()}", "/files/inside.js", f"/{site.word[:-1]}/files/inside.js", "/"))
        host = draw.choice((f"127.0.0.1:{site.port}", "evil.example", hostile.text()))
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {hostile.text()}\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as asked:
            asked.sendall(head.encode(errors="replace"))
            asked.shutdown(socket.SHUT_WR)
            answer = b""
            while part := asked.recv(65536):
                answer += part
        assert b"inside" not in answer.partition(b"\r\n\r\n")[2]
        assert SECRET not in answer
        assert not site.taken

    fuzz(one, draw=draws())
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)) as told:
        told.request("GET", f"/{site.word}/files/inside.js")
        assert told.getresponse().read() == b"inside"
