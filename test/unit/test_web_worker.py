"""The worker's side of the web targets without a browser: its log, its server, which browser it takes."""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.backends import _web
from hardware.backends._native_webgpu import software_variables
from hardware.backends.factory import backend_class, get_backend
from hardware.cell import Cell
from hardware.evidence.versions import expired_by, relevant_versions
from hardware.software_adapters import is_software
from hardware.workers import browsers, environment_of, environment_versions, environments
from hardware.workers.browsers import SOFTWARE_ADAPTER, arguments
from hardware.workers.environments import Browser, find_browser
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


@pytest.mark.parametrize(
    "path",
    ["/../secret.txt", "/link", "/%2e%2e/secret.txt", "/nothing", "//etc/passwd", "/" + "n" * 300, "/run.mjs%00"],
)
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


def raw(site: Site, first: str, *headers: str, body: bytes = b"") -> str:
    """What a request that is written by hand is answered, until the server ends the connection."""
    lines = [first, *headers, "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def status(answer: str) -> int:
    return int(answer.split()[1])


def test_only_who_was_told_the_address_is_answered(site: Site):
    host = f"Host: 127.0.0.1:{site.port}"
    assert status(raw(site, "GET /run.mjs HTTP/1.1", host)) == 403
    assert status(raw(site, f"GET /{site.word}x/run.mjs HTTP/1.1", host)) == 403
    assert status(raw(site, "GET /run.mjs HTTP/1.1", host, f"Cookie: site{site.port}=guessed")) == 403
    opened = raw(site, f"GET /{site.word} HTTP/1.1", host)
    assert status(opened) == 200
    cookie = next(line for line in opened.splitlines() if line.startswith("Set-Cookie: "))
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    own = cookie.removeprefix("Set-Cookie: ").partition(";")[0]
    assert "export {};" in raw(site, "GET /run.mjs HTTP/1.1", host, f"Cookie: other=1; {own}")
    posted = raw(site, "POST /results/3 HTTP/1.1", host, f"Cookie: {own}", "Content-Length: 1", body=b"x")
    assert status(posted) == 200
    assert site.taken == {"/results/3": b"x"}


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7", "127.0.0.1"])
def test_a_name_that_somebody_pointed_at_this_machine_reads_nothing(site: Site, name: str):
    for host in (f"{name}:{site.port}" if name != "127.0.0.1" else f"{name}:{site.port + 1}", name):
        answer = raw(site, f"GET /{site.word}/run.mjs HTTP/1.1", f"Host: {host}")
        assert status(answer) == 403
        assert "export" not in answer
        assert "Set-Cookie" not in answer
    assert status(raw(site, f"GET /{site.word}/run.mjs HTTP/1.0")) == 403
    assert status(raw(site, f"GET /{site.word}/run.mjs HTTP/1.1", f"Host: LocalHost:{site.port}")) == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost:{port}"])
def test_a_page_of_another_origin_gives_no_results(site: Site, origin: str):
    told = (f"Host: 127.0.0.1:{site.port}", "Content-Type: text/plain", "Content-Length: 5")
    first = f"POST /{site.word}/results/0 HTTP/1.1"
    refused = raw(site, first, *told, f"Origin: {origin.format(port=site.port)}", body=b"wrong")
    assert status(refused) == 403
    assert site.taken == {}
    taken = raw(site, first, *told, f"Origin: http://127.0.0.1:{site.port}", body=b"right")
    assert status(taken) == 200
    assert site.taken == {"/results/0": b"right"}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (["Content-Length: -1"], 400),
        (["Content-Length: abc"], 400),
        (["Content-Length: \u0663"], 400),
        (["Content-Length: 1", "Content-Length: 2"], 400),
        (["Content-Length: " + "9" * 5000], 413),
        ([f"Content-Length: {2**31 + 1}"], 413),
        ([], 411),
        (["Transfer-Encoding: chunked", "Content-Length: 1"], 411),
    ],
)
def test_results_whose_length_is_no_length_are_refused_at_once(
    site: Site, capfd: pytest.CaptureFixture[str], headers: list[str], code: int
):
    host = f"Host: 127.0.0.1:{site.port}"
    answer = raw(site, f"POST /{site.word}/results/0 HTTP/1.1", host, *headers, body=b"x")
    assert status(answer) == code
    assert answer.count("HTTP/1.1 ") == 1  # the body wasn't read as a request
    assert site.taken == {}
    assert capfd.readouterr().err == ""


def test_a_site_that_awaits_nothing_takes_nothing():
    site = Site({})
    site.given["/index.html"] = b"a page"
    try:
        with fetch(site, "/") as answer:
            assert answer.read() == b"a page"
        head = urllib.request.Request(f"{site.address}/", method="HEAD")
        with urllib.request.urlopen(head, timeout=10) as answer:
            assert (answer.read(), answer.headers["Content-Length"]) == (b"", "6")
        host = f"Host: 127.0.0.1:{site.port}"
        answer = raw(site, f"POST /{site.word}/results/0 HTTP/1.1", host, "Content-Length: 1", body=b"x")
        assert status(answer) == 405
        assert site.taken == {}
    finally:
        site.close()


def test_a_browser_that_goes_away_is_no_traceback_and_half_a_result_is_none(
    site: Site, capfd: pytest.CaptureFixture[str]
):
    site.given["/large"] = b"x" * 2**25
    host = f"Host: 127.0.0.1:{site.port}"
    for first, more in (("GET /{}/large", ""), ("POST /{}/results/0", "Content-Length: 9\r\n")):
        with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset
            connection.sendall(f"{first.format(site.word)} HTTP/1.1\r\n{host}\r\n{more}\r\nhalf".encode())
            if not more:
                connection.recv(10)
    until = time.monotonic() + 10
    while any("process_request_thread" in one.name for one in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    assert site.taken == {}
    assert capfd.readouterr().err == ""
    with fetch(site, "/run.mjs") as answer:
        assert answer.read() == b"export {};"


def test_an_error_of_ours_is_said(site: Site, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    site.given["/gone"] = tmp_path / "gone"
    with pytest.raises(http.client.RemoteDisconnected):
        fetch(site, "/gone")
    assert "FileNotFoundError" in capfd.readouterr().err


def test_a_server_that_is_closed_answers_no_more(site: Site):
    host, port = site.server.server_address[:2]
    site.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((str(host), int(port)), timeout=2):
        pass


CHROME = {"variable": "HWCOMPAT_CHROMIUM", "name": "chromium", "missing": "no Chromium (how to get one)"}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where programs are, as if packages had put them there, with dpkg's list beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(environments, "_PACKAGED", folder.resolve())
    monkeypatch.setattr(environments, "_DPKG", tmp_path / "status")
    for name in ("HWCOMPAT_CHROMIUM", "HWCOMPAT_WEBNN_CHROMIUM"):
        monkeypatch.delenv(name, raising=False)
    return folder


def put(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def entry(package: str, status: str) -> str:
    return f"Package: {package}\nStatus: {status}\nVersion: 150.0-1\nDescription: a browser\n Version: 1\n\n"


@pytest.mark.parametrize(
    ("status", "told"),
    [("install ok installed", "150.0-1"), ("deinstall ok config-files", "10 bytes of "), ("", "10 bytes of ")],
)
def test_a_browser_has_the_version_of_a_package_that_is_installed_or_its_size(
    programs: Path, tmp_path: Path, status: str, told: str
):
    list_of = entry("other", "install ok installed") + (entry("google-chrome-stable", status) if status else "")
    (tmp_path / "status").write_text(list_of, encoding="utf-8")
    known = {**CHROME, "programs": {"chromium": "chromium", "google-chrome": "google-chrome-stable"}}
    assert find_browser(known, tmp_path, {}) == Browser(name="chromium", reason=CHROME["missing"])
    chrome = put(programs, "google-chrome")
    found = find_browser(known, tmp_path, {})
    assert found.path == chrome, "Chrome alone is a browser too"
    assert found.version.startswith(told)


def test_a_browser_that_is_named_is_taken_and_one_that_is_missing_is_told(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    known = {**CHROME, "programs": {"chromium": "chromium"}}
    put(programs, "chromium")
    named = put(tmp_path, "mine")
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", str(named))
    found = find_browser(known, tmp_path, {})
    assert (found.path, found.reason) == (named, "")
    assert "bytes of" in found.version
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", str(tmp_path / "none"))
    assert find_browser(known, tmp_path, {}).reason == "HWCOMPAT_CHROMIUM names no file"


def test_what_npm_brought_is_a_browser_once_it_is_unpacked(programs: Path, tmp_path: Path):
    known = {**CHROME, "file": "unpacked/chromium"}
    assert find_browser(known, tmp_path, {"chromium": "149.0.0"}).reason == CHROME["missing"]
    (tmp_path / "unpacked").mkdir()
    path = put(tmp_path / "unpacked", "chromium")
    assert find_browser(known, tmp_path, {"chromium": "149.0.0"}) == Browser(
        name="chromium", path=path, version="149.0.0"
    )


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
        ("Program Cast requires f16 but the device does not support it.", "unsupported_dtype"),
        ("RuntimeError: memory access out of bounds", "out_of_memory"),
        ("Error: [WebNN] Unsupported operator GridSample", "unsupported_operator"),
        ("Could not find an implementation for GridSample(16) node with name 'a'", "unsupported_operator"),
        (
            "Non-zero status code returned while running Resize node. Mode cubic is not supported",
            "unsupported_operator",
        ),
        ("Failed to execute 'conv2d' on 'MLGraphBuilder': Unsupported data type int4", "unsupported_operator"),
        ("Error: WebGPU is not supported in current environment", "browser_required"),
        ("Error: WebNN is not supported in current environment", "browser_required"),
        ("Failed to get GPU adapter. You may need to enable flag", "browser_required"),
        ("SharedArrayBuffer is not supported here", "unknown"),
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
    monkeypatch.delenv("HWCOMPAT_WEBNN_CHROMIUM", raising=False)
    assert environment_of("webnn").reason == "onnxruntime-web isn't in its environment (make setup-web)"
    for name in ("onnxruntime-web", "@sparticuz/chromium"):
        package = tmp_path / "web" / "node_modules" / name
        package.mkdir(parents=True)
        (package / "package.json").write_text('{"version": "9.8.7"}', encoding="utf-8")
    found = environment_of("webnn")
    assert (found.reason, found.versions["onnxruntime-web"]) == ("", "9.8.7")
    assert "@sparticuz/chromium" not in found.versions, "it isn't unpacked"
    assert "make setup-web" in found.browser.reason
    monkeypatch.setenv("HWCOMPAT_WEBNN_CHROMIUM", sys.executable)
    assert "bytes of" in environment_versions()["@sparticuz/chromium (webnn)"]
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", sys.executable)
    assert "bytes of" in environment_of("webgpu").versions["chromium"]


def test_without_a_browser_the_provider_needs_its_own_package_alone(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", str(python))
    native, browsers = get_backend("webgpu:native"), get_backend("webgpu")
    assert native.unavailable() == "onnxruntime-webgpu isn't in its environment (make setup-web)"
    assert "playwright" in browsers.unavailable()
    (tmp_path / "lib" / "python3.11" / "site-packages" / "onnxruntime_webgpu-1.2.3.dist-info").mkdir(parents=True)
    assert environment_versions()["onnxruntime-webgpu"] == "1.2.3"
    assert native.missing() == ""
    needed = relevant_versions(Cell.parse("bert/fill-mask/webgpu:native/float32"), {"onnxruntime-webgpu": "1.2.3"})
    assert needed["onnxruntime-webgpu"] == "1.2.3"
    assert not {"playwright", "onnxruntime-web (webgpu)"} & set(needed)
    assert "webgpu" in expired_by("onnxruntime-webgpu")


def test_swiftshader_is_taken_of_the_browser_that_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "env"
    (folder / "lib" / "python3.11" / "site-packages" / "playwright-1.2.3.dist-info").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", str(python))
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", str(put(tmp_path, "chrome")))
    assert software_variables() == {}
    icd = put(tmp_path, "vk_swiftshader_icd.json")
    assert software_variables() == {"VK_ICD_FILENAMES": str(icd), "LD_LIBRARY_PATH": str(tmp_path)}


def test_a_call_may_take_as_long_as_all_that_is_waited_for_in_it(monkeypatch):
    """A browser that starts slowly, a session that opens slowly and a slow pass are no hang each."""
    waited: list[float] = []

    class Slow:
        """A browser and a page that use up what they are given."""

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **given: self._waits(given)

        def _waits(self, given: dict[str, Any]) -> Any:
            waited.append(given.get("timeout", 0) / 1000)
            return self

    driver = Slow()
    driver.chromium = Slow()
    browser = browsers.launch(driver, "webgpu", Path("chromium"), software=False)
    browsers.Page.open(browser, "http://127.0.0.1:1")
    assert len([one for one in waited if one]) == 3, "each has a limit"
    assert sum(waited) == browsers.START_LIMIT_S
    for name in ("webgpu", "webnn"):
        backend = backend_class(name)
        assert backend.CALL_LIMIT_S > browsers.START_LIMIT_S + 2 * _web.PASS_LIMIT_S
        assert backend.CALL_LIMIT_S < backend.DEADLINE_S, "the worker is ended before the child is"
