"""The server of one page: whoever wasn't told its address gets nothing."""

from __future__ import annotations

import contextlib
import http.client
import socket
from typing import Any

import pytest

from hwcompat.plugins.web_page.web_page_command import PageServer


@pytest.mark.fuzz(60)
def test_a_request_without_the_address_gets_nothing(fuzz: Any) -> None:
    with contextlib.closing(PageServer(b"inside")) as site:
        for hostile in fuzz:
            path = hostile.choice((f"/{hostile.name()}", f"/{site.word[:-1]}/", "/"))
            host = hostile.choice((f"127.0.0.1:{site.port}", "evil.example", hostile.text()))
            head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {hostile.text()}\r\nConnection: close\r\n\r\n"
            with socket.create_connection(("127.0.0.1", site.port), timeout=20) as client:
                client.sendall(head.encode(errors="replace"))
                client.shutdown(socket.SHUT_WR)
                answer = b""
                while part := client.recv(65536):
                    answer += part
            assert b"inside" not in answer.partition(b"\r\n\r\n")[2]
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)) as client:
            client.request("GET", f"/{site.word}/")
            assert client.getresponse().read() == b"inside"
