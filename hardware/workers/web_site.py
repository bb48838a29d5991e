"""What a browser is served from: loopback alone, with the headers that WebAssembly's threads and WebGPU want.

Imports nothing of ours: it runs with the Python of another environment.
"""

from __future__ import annotations

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


class Site:
    """A server on a free port of 127.0.0.1: the files of `folders` by their prefix, and what is put in `given`.

    What is posted to `/results/…` lies in `taken`. It ends with `close`.
    """

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = {prefix: folder.resolve() for prefix, folder in folders.items()}
        self.given: dict[str, bytes | Path] = {}
        self.taken: dict[str, bytes] = {}
        handler = type("Handler", (_Handler,), {"site": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def found(self, path: str) -> bytes | None:
        """What lies at a path; None where nothing does, or where it would be outside of the folders."""
        if path in self.given:
            one = self.given[path]
            return one.read_bytes() if isinstance(one, Path) else one
        for prefix, folder in self.folders.items():
            if path.startswith(prefix):
                file = (folder / path[len(prefix) :]).resolve()
                if file.is_relative_to(folder) and file.is_file():
                    return file.read_bytes()
        return None

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    site: ClassVar[Site]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        path = "/index.html" if path == "/" else path
        body = self.site.found(path)
        self._answer(
            404 if body is None else 200, body or b"", _TYPES.get(Path(path).suffix, "application/octet-stream")
        )

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if not self.path.startswith("/results/") or size > _LARGEST:
            self._answer(404, b"", "text/plain")
            return
        self.site.taken[self.path] = self.rfile.read(size)
        self._answer(200, b"", "text/plain")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Embedder-Policy", "require-corp"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a server's log isn't evidence."""
