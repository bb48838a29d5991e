"""A server of one page, for a browser on this machine: on loopback only, with the headers that WebGPU needs."""

from __future__ import annotations

import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

_IDLE_S = 300
"""Seconds after which an idle connection is closed: a browser opens another when it needs one."""


class PageServer:
    """A server on a free port of 127.0.0.1, which has one page and accepts no data, until `close` is called.

    Only requests for `address` are answered, which contains a secret token. Requests under other host names are
    refused.
    """

    def __init__(self, page: bytes) -> None:
        self.page = page
        self.word = secrets.token_urlsafe(16)
        self.server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": self}))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The port of 127.0.0.1 that it listens on."""
        return int(self.server.server_address[1])

    @property
    def address(self) -> str:
        """The address to open, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}/{self.word}"

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnected or was idle for too long; print every other error."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    site: ClassVar[PageServer]
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_GET(self) -> None:
        hosts = [one.lower() for one in self.headers.get_all("Host", [])]
        word = self.path.partition("?")[0].strip("/").encode(errors="replace")
        known = hosts in ([f"127.0.0.1:{self.site.port}"], [f"localhost:{self.site.port}"])
        allowed = known and secrets.compare_digest(word, self.site.word.encode())
        body = self.site.page if allowed else b""
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests are of no interest."""
