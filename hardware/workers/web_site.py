"""What a browser is served from: loopback alone, with the headers that WebAssembly's threads and WebGPU want.

Imports nothing of ours: it runs with the Python of another environment.
"""

from __future__ import annotations

import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".wasm": "application/wasm",
    ".css": "text/css",
    ".json": "application/json",
}
_LARGEST = 2**31
_IDLE_S = 300
"""Seconds after which a connection that says nothing is closed: a browser opens another when it has to."""


class Site:
    """A server on a free port of 127.0.0.1: the files of `folders` by their prefix, and what is put in `given`.

    Only who was told `address` is answered: its path begins with a word that can't be guessed, and a browser that
    opened it has that word in a cookie for what the page asks by paths of its own. Other hosts' names for this
    machine, and pages of other origins, are refused. What is posted to `/results/…` lies in `taken`; a site without
    folders, which is one page alone, takes nothing. It ends with `close`.
    """

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = {prefix: folder.resolve() for prefix, folder in folders.items()}
        self.given: dict[str, bytes | Path] = {}
        self.taken: dict[str, bytes] = {}
        self.word = secrets.token_urlsafe(16)
        handler = type("Handler", (_Handler,), {"site": self})
        self.server = _Server(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def address(self) -> str:
        """Where it is opened, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}/{self.word}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which it may be asked for."""
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    @property
    def cookie(self) -> str:
        """Name and value of the cookie; cookies know no ports, so that its name does."""
        return f"site{self.port}={self.word}"

    def found(self, path: str) -> bytes | None:
        """What lies at a path; None where nothing does, or where it would be outside of the folders."""
        if path in self.given:
            one = self.given[path]
            return one.read_bytes() if isinstance(one, Path) else one
        for prefix, folder in self.folders.items():
            if path.startswith(prefix):
                try:
                    file = (folder / path[len(prefix) :]).resolve()
                    if file.is_relative_to(folder) and file.is_file():
                        return file.read_bytes()
                except (OSError, ValueError):  # no name that a file can have, or none that may be read
                    return None
        return None

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that is gone, or that is silent for too long, is no error of ours; everything else is said."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    site: ClassVar[Site]
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_GET(self) -> None:
        path = self._path()
        if path is None:
            return
        path = "/index.html" if path == "/" else path
        body = self.site.found(path)
        self._answer(
            404 if body is None else 200, body or b"", _TYPES.get(Path(path).suffix, "application/octet-stream")
        )

    def do_HEAD(self) -> None:
        """As GET, without content: browsers and those who look whether a page is there ask so."""
        self.do_GET()

    def do_POST(self) -> None:
        path = self._path()
        if path is None:
            return
        if not self.site.folders:
            self._refuse(405)
            return
        if not path.startswith("/results/"):
            self._refuse(404)
            return
        size = self._size()
        if size is None:
            return
        data = self.rfile.read(size)
        if len(data) < size:  # its sender is gone
            self.close_connection = True
            return
        self.site.taken[path] = data
        self._answer(200, b"", "text/plain")

    def _path(self) -> str | None:
        """The path that is asked for, below the site's word; None where the request was refused."""
        host, origin = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(host) != 1 or host[0].lower() not in self.site.hosts or origin not in ([], [f"http://{host[0]}"]):
            self._refuse(403)
            return None
        path = self.path.partition("?")[0]
        word, slash, rest = path.removeprefix("/").partition("/")
        if _same(word, self.site.word):
            return slash + rest or "/"
        cookies = "; ".join(self.headers.get_all("Cookie", [])).split("; ")
        if any(_same(one, self.site.cookie) for one in cookies):
            return path
        self._refuse(403)
        return None

    def _size(self) -> int | None:
        """The length of what is posted, in bytes; None where it isn't said, or wasn't accepted."""
        said = self.headers.get_all("Content-Length", [])
        if not said or "Transfer-Encoding" in self.headers:
            self._refuse(411)
        elif len(said) > 1 or not (said[0].isascii() and said[0].isdecimal()):
            self._refuse(400)
        elif len(said[0]) > len(str(_LARGEST)) or int(said[0]) > _LARGEST:
            self._refuse(413)
        else:
            return int(said[0])
        return None

    def _refuse(self, status: int) -> None:
        """Answer without content. A body that may follow isn't read: it would pass for the next request."""
        self.close_connection = True
        self._answer(status, b"", "text/plain")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        if status == 200:
            self.send_header("Set-Cookie", f"{self.site.cookie}; Path=/; HttpOnly; SameSite=Strict")
        for name, value in (
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Embedder-Policy", "require-corp"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a server's log isn't evidence."""


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(errors="replace"), other.encode())
