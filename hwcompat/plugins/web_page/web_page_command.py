"""`hwcompat web-page`: seal a cell's checks in one page, pack it into a zip file, and serve it on request."""

from __future__ import annotations

import errno
import json
import re
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from hwcompat.generators.options import Options
from hwcompat.generators.suites.bundle import zipped
from hwcompat.hardware.backends._web import WebBackend
from hwcompat.hardware.backends.factory import get_backend
from hwcompat.hardware.command_line import note
from hwcompat.hardware.errors import BackendUnavailable, UsageError
from hwcompat.hardware.evidence.pages import keep_seal
from hwcompat.hardware.evidence.store import Evidence, read_folder
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.export.onnx_export import missing_packages
from hwcompat.hardware.files import write_whole, writing
from hwcompat.hardware.target import Target
from hwcompat.hardware.workers import environment_of, web_folder

from .page_seal import PRECISION, Runtime, known_of, require_page, seal
from .render_page import render, require_small

if TYPE_CHECKING:
    from hwcompat.generators.plan import PlannedSuite
    from hwcompat.hardware.detection import HardwareInfo

_MAP = re.compile(rb"\s*//# sourceMappingURL=\S+\s*$")
_WASM = re.compile(rb"ort-wasm-simd-threaded\.\w+\.wasm")


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


def write_web_page(
    options: Options, path: Path, planned: Sequence[PlannedSuite], inventory: HardwareInfo, command: str
) -> int:
    """Make the page of the chosen cell, write the zip file, and store the page's seal beside the evidence.

    Return the exit code. Raises `UsageError` for a cell without a page, `BackendUnavailable` without ONNX Runtime
    Web; before the export `ModelError` if the page would be too large, `OutputError` if it can't be written.
    """
    if path.suffix != ".zip":
        raise UsageError(f"{path} isn't the name of a zip file", fix="For example: hwcompat web-page page.zip")
    one = require_page(planned)
    require_small(one.profile.memory_needed(PRECISION))
    require_place(path)
    runtime = runtime_of(one.cell.target)
    note(f"exporting {one.cell.model} and computing its reference …")
    evidence = read_folder(options.evidence) if options.evidence.is_dir() else Evidence()
    known = known_of(one, inventory, evidence)
    page = seal(one, versions_of(inventory), known, runtime, command)
    text = render(page)
    name = f"hwcompat_{one.cell.slug}.html"
    keep_seal(options.evidence, page.text)  # first: without its seal, evidence of a page can't be merged
    write_page(path, name, text)
    click.echo(f"{path}  ({name}, {len(text) / 2**20:.1f} MiB; prediction stored: {one.verdict.level})")
    note(
        "Open it on the device. Copy the file that the page saves to your machine and import it with: "
        f"hwcompat evidence merge FILE --evidence {options.evidence}"
    )
    if unasked := page.sealed["not_captured"]:
        note(
            f"the page can't run {', '.join(unasked)} ({'; '.join(dict.fromkeys(unasked.values()))}), so "
            f"{one.cell.id} stays unknown until a run on a machine includes them"
        )
    if options.serve:
        serve(text)
    return 0


def runtime_of(target: Target) -> Runtime:
    """Return ONNX Runtime Web with the target's provider, from the environment of the web targets.

    Raises `BackendUnavailable` with the command that installs it.
    """
    environment = environment_of(target.name)
    reason = environment.reason or missing_packages()
    if environment.python is None or reason:
        raise BackendUnavailable("no page can be made here", why=reason)
    backend = get_backend(target)
    assert isinstance(backend, WebBackend)
    folder = web_folder(environment.python) / "node_modules" / "onnxruntime-web"
    try:
        script = (folder / "dist" / backend.BUNDLE.replace(".min.mjs", ".bundle.min.mjs")).read_bytes()
        named = _WASM.findall(script)
        wasm = (folder / "dist" / named[0].decode()).read_bytes()
        version = str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, IndexError) as error:
        why = f"ONNX Runtime Web is incomplete: {error}"
        raise BackendUnavailable("no page can be made here", why=why) from error
    return Runtime(version=version, script=_MAP.sub(b"\n", script), wasm=wasm)


def require_place(path: Path) -> None:
    """Raise `OutputError` if the page can't be written, before a model is exported."""
    fix = "" if path.parent.is_dir() else f"Create the folder {path.parent}, or choose another."
    with writing(f"{path} cannot be written", fix):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def write_page(path: Path, name: str, text: str) -> None:
    """Write the page into a zip file. Raises `OutputError`."""
    with writing(f"{path} cannot be written"):
        write_whole(path, zipped({name: text.encode()}))


def serve(text: str, wait: Callable[[], None] = lambda: time.sleep(3600)) -> None:
    """Serve the page on loopback until Ctrl-C."""
    site = PageServer(text.encode())
    try:
        click.echo(f"{site.address}/  (reachable from this machine only; stop with Ctrl-C)")
        while True:
            wait()
    except KeyboardInterrupt:
        note("server stopped")
    finally:
        site.close()
