"""The worker's side of the web targets without a browser: its log, its server, which browser it takes."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.backends import _web
from hardware.software_adapters import is_software
from hardware.workers import environment_of
from hardware.workers.browsers import SOFTWARE_ADAPTER, NoBrowser, arguments, executable
from hardware.workers.web_site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "run.mjs").write_text("export {};", encoding="utf-8")
    (folder / "index.html").write_text("<!doctype html>", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    found = Site({"/": folder})
    yield found
    found.close()


def fetch(site: Site, path: str, data: bytes | None = None) -> Any:
    return urllib.request.urlopen(urllib.request.Request(f"{site.address}{path}", data=data), timeout=10)


def test_it_serves_loopback_alone_with_the_headers_of_isolation(site: Site):
    with fetch(site, "/run.mjs") as answer:
        assert answer.read() == b"export {};"
        assert answer.headers["Content-Type"] == "text/javascript"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert site.server.server_address[0] == "127.0.0.1"
    with fetch(site, "/") as answer:
        assert answer.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("path", ["/../secret.txt", "/link", "/%2e%2e/secret.txt", "/nothing", "//etc/passwd"])
def test_nothing_outside_its_folders_is_served(site: Site, path: str):
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(site, path)
    assert caught.value.code == 404
    caught.value.close()


def test_results_are_taken_and_nothing_else_is(site: Site):
    fetch(site, "/results/0", b"\x01\x02").close()
    assert site.taken == {"/results/0": b"\x01\x02"}
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(site, "/run.mjs", b"other")
    caught.value.close()
    with fetch(site, "/run.mjs") as answer:
        assert answer.read() == b"export {};"


def test_a_server_that_is_closed_answers_no_more(site: Site):
    host, port = site.server.server_address[:2]
    site.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((str(host), int(port)), timeout=2):
        pass


def test_a_browser_that_is_named_is_taken_and_one_that_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", sys.executable)
    assert executable("webgpu", tmp_path) == Path(sys.executable)
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(NoBrowser, match="HWCOMPAT_CHROMIUM names no file"):
        executable("webgpu", tmp_path)
    monkeypatch.delenv("HWCOMPAT_WEBNN_CHROMIUM", raising=False)
    with pytest.raises(NoBrowser, match="make setup-web"):
        executable("webnn", tmp_path)


@pytest.mark.parametrize("api", ["webgpu", "webnn"])
def test_a_browser_reaches_loopback_alone(api: str):
    given = arguments(api, software=False)
    assert "--proxy-server=127.0.0.1:9" in given
    assert "--proxy-bypass-list=<-loopback>;127.0.0.1" in given
    assert SOFTWARE_ADAPTER not in given


@pytest.mark.parametrize(
    ("adapter", "software"),
    [
        ({"vendor": "google", "architecture": "swiftshader", "fallback": False}, True),
        ({"vendor": "nvidia", "architecture": "ampere", "fallback": False}, False),
        ({"vendor": "intel", "architecture": "xe", "fallback": True}, True),
        ({"vendor": "mesa", "architecture": "", "description": "llvmpipe (LLVM 19)", "fallback": False}, True),
        ({"vendor": "microsoft", "device": "Microsoft Basic Render Driver", "fallback": False}, True),
    ],
)
def test_software_adapters_are_known_by_their_names_too(adapter: dict[str, Any], software: bool):
    assert is_software(adapter) is software


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Error: A valid external Instance reference no longer exists.", "context_lost"),
        ("failed (device lost: unknown: gone)", "context_lost"),
        ("RuntimeError: memory access out of bounds", "out_of_memory"),
        ("Error: [WebNN] Unsupported operator GridSample", "unsupported_operator"),
        ("TypeError: x is undefined", "unknown"),
    ],
)
def test_what_a_page_says_has_a_kind(text: str, kind: str):
    assert _web._kind_of(text) == kind


def test_versions_of_what_npm_brought_are_read(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    site = tmp_path / "lib" / "python3.11" / "site-packages" / "playwright-1.2.3.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: playwright\nVersion: 1.2.3\n", encoding="utf-8")
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", str(python))
    assert environment_of("webnn").reason == (
        "onnxruntime-web and @sparticuz/chromium aren't in its environment (make setup-web)"
    )
    for name in ("onnxruntime-web", "@sparticuz/chromium"):
        package = tmp_path / "web" / "node_modules" / name
        package.mkdir(parents=True)
        (package / "package.json").write_text('{"version": "9.8.7"}', encoding="utf-8")
    found = environment_of("webnn")
    assert (found.reason, found.versions["onnxruntime-web"]) == ("", "9.8.7")
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", sys.executable)
    assert "bytes of" in environment_of("webgpu").versions["chromium"]
