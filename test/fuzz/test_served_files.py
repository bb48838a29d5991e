"""The server of one page: whoever wasn't told its address gets nothing."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
from typing import Any

import pytest
from hostile import Hostile, draws

from hwcompat.plugins.web_page.page_server import PageServer


@pytest.mark.fuzz(60)
def test_a_request_without_the_address_gets_nothing(fuzz: Any) -> None:
    site = PageServer(b"inside")

    def one(draw: random.Random) -> None:
        hostile = Hostile(draw)
        path = draw.choice((f"/{hostile.name()}", f"/{site.word[:-1]}/", "/"))
        host = draw.choice((f"127.0.0.1:{site.port}", "evil.example", hostile.text()))
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {hostile.text()}\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as asked:
            asked.sendall(head.encode(errors="replace"))
            asked.shutdown(socket.SHUT_WR)
            answer = b""
            while part := asked.recv(65536):
                answer += part
        assert b"inside" not in answer.partition(b"\r\n\r\n")[2]

    with contextlib.closing(site):
        fuzz(one, draw=draws())
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)) as told:
            told.request("GET", f"/{site.word}/")
            assert told.getresponse().read() == b"inside"
