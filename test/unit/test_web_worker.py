"""The worker's side of the web targets without a browser: its log, what a page loads, which browser it takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hardware.backends import _web
from hardware.backends._native_webgpu import software_variables
from hardware.backends.factory import backend_class, get_backend
from hardware.cell import Cell
from hardware.evidence.versions import expired_by, relevant_versions
from hardware.software import is_software
from hardware.workers import browsers, environment_of, environment_versions, environments
from hardware.workers.browsers import SOFTWARE_ADAPTER, arguments
from hardware.workers.environments import Browser, find_browser

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
    ("path", "file"),
    [
        ("index.html", "web/index.html"),
        ("runtime/ort.all.min.mjs", "dist/ort.all.min.mjs"),
        ("runtime/../../secret", "dist/secret"),
        ("a/../../../etc/passwd", "web/passwd"),
        ("runtime%2f..%2fsecret", "web/runtime%2f..%2fsecret"),
    ],
)
def test_a_page_loads_what_lies_in_two_folders_and_nothing_else(path: str, file: str, tmp_path: Path):
    context = mock.MagicMock()
    browsers.Page.open(mock.MagicMock(new_context=lambda: context), tmp_path / "dist")
    route = mock.MagicMock()
    route.request.url = f"http://localhost/{path}"
    context.route.call_args.args[1](route)
    found = route.fulfill.call_args.kwargs["path"]
    assert found == {"dist": tmp_path, "web": Path(browsers.__file__).parent}[file.partition("/")[0]] / file


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
    browsers.Page.open(browser, Path("dist"))
    assert len([one for one in waited if one]) == 3, "each has a limit"
    assert sum(waited) == browsers.START_LIMIT_S
    for name in ("webgpu", "webnn"):
        backend = backend_class(name)
        assert backend.CALL_LIMIT_S > browsers.START_LIMIT_S + 2 * _web.PASS_LIMIT_S
        assert backend.CALL_LIMIT_S < backend.DEADLINE_S, "the worker is ended before the child is"
