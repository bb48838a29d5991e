"""Environments of targets that have their own: what is installed there, which browser is taken, what a page loads."""

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
from hardware.workers.web_worker import _Open
from hardware.workers.worker import SCRIPTS

CHROME = {"variable": "HWCOMPAT_CHROMIUM", "name": "chromium", "missing": "no Chromium (how to get one)"}


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs, as if packages had put them there; no environment is here."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(environments, "_PACKAGED", folder.resolve())
    monkeypatch.setattr(environments, "_DPKG", tmp_path / "status")
    for name in ("QNN", "XLA", "WEB"):
        monkeypatch.setenv(f"HWCOMPAT_{name}_PYTHON", "missing/bin/python")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The interpreter of an environment without packages."""
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    return python


def put(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def install(python: Path, name: str, version: str) -> None:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    folder = python.parents[1] / "lib" / "python3.11" / "site-packages" / info
    folder.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")


def test_a_missing_environment_is_reported_with_the_command_that_makes_it(environment, monkeypatch):
    missing = "HWCOMPAT_QNN_PYTHON doesn't name a Python interpreter (make setup-qnn)"
    for path in ("missing/bin/python", "x" * 5000, "a/" * 3000, "~nobody/python", "/dev/zero"):
        monkeypatch.setenv("HWCOMPAT_QNN_PYTHON", path)
        assert (environment_of("qnn").python, environment_of("qnn").reason) == (None, missing)
    assert environment_versions() == {}
    for name, variable, command in (
        ("qnn", "HWCOMPAT_QNN_PYTHON", "make setup-qnn"),
        ("tpu", "HWCOMPAT_XLA_PYTHON", "make setup-xla"),
        ("tpu:xla-cpu", "HWCOMPAT_XLA_PYTHON", "make setup-xla"),
    ):
        assert get_backend(name).unavailable() == f"{variable} doesn't name a Python interpreter ({command})"
        assert get_backend(name).device_count == 0
    monkeypatch.setenv("HWCOMPAT_QNN_PYTHON", str(environment))
    assert environment_of("qnn").python is None
    assert "onnxruntime-qnn isn't installed in its environment (make setup-qnn)" in environment_of("qnn").reason


def test_versions_are_read_without_starting_anything(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(environment, "onnxruntime-qnn", "2.7.0")
    install(environment, "onnxruntime", "1.31.1")
    monkeypatch.setenv("HWCOMPAT_QNN_PYTHON", str(environment))
    assert environment_of("qnn").python == environment
    assert environment_versions() == {"onnxruntime-qnn": "2.7.0", "onnxruntime (qnn)": "1.31.1"}


def test_versions_of_npm_packages_are_read(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(environment, "playwright", "1.2.3")
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", str(environment))
    assert environment_of("webnn").reason == "onnxruntime-web isn't installed in its environment (make setup-web)"
    for name in ("onnxruntime-web", "@sparticuz/chromium"):
        package = environment.parents[1] / "web" / "node_modules" / name
        package.mkdir(parents=True)
        (package / "package.json").write_text('{"version": "9.8.7"}', encoding="utf-8")
    found = environment_of("webnn")
    assert (found.reason, found.versions["onnxruntime-web"]) == ("", "9.8.7")
    assert "@sparticuz/chromium" not in found.versions, "it isn't unpacked"
    assert found.browser is not None
    assert "make setup-web" in found.browser.reason
    monkeypatch.setenv("HWCOMPAT_WEBNN_CHROMIUM", sys.executable)
    assert "bytes of" in environment_versions()["@sparticuz/chromium (webnn)"]
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", sys.executable)
    assert "bytes of" in environment_of("webgpu").versions["chromium"]


def test_without_a_browser_the_provider_needs_only_its_own_package(environment, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", str(environment))
    native, in_browser = get_backend("webgpu:native"), get_backend("webgpu")
    assert native.unavailable() == "onnxruntime-webgpu isn't installed in its environment (make setup-web)"
    assert "playwright" in in_browser.unavailable()
    install(environment, "onnxruntime-webgpu", "1.2.3")
    assert environment_versions()["onnxruntime-webgpu"] == "1.2.3"
    assert native.missing() == ""
    needed = relevant_versions(Cell.parse("bert/fill-mask/webgpu:native/float32"), {"onnxruntime-webgpu": "1.2.3"})
    assert needed["onnxruntime-webgpu"] == "1.2.3"
    assert not {"playwright", "onnxruntime-web (webgpu)"} & set(needed)
    assert "webgpu" in expired_by("onnxruntime-webgpu")


def test_swiftshader_of_the_named_browser_is_used(environment, tmp_path, monkeypatch):
    install(environment, "playwright", "1.2.3")
    monkeypatch.setenv("HWCOMPAT_WEB_PYTHON", str(environment))
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", str(put(tmp_path, "chrome")))
    assert software_variables() == {}
    icd = put(tmp_path, "vk_swiftshader_icd.json")
    assert software_variables() == {"VK_ICD_FILENAMES": str(icd), "LD_LIBRARY_PATH": str(tmp_path)}


def test_a_browser_has_the_version_of_an_installed_package_or_its_size(programs: Path, tmp_path: Path) -> None:
    known = {**CHROME, "programs": {"chromium": "chromium", "google-chrome": "google-chrome-stable"}}
    assert find_browser(known, tmp_path, {}) == Browser(name="chromium", reason=CHROME["missing"])
    chrome = put(programs, "google-chrome")
    entry = "Package: {}\nStatus: {}\nVersion: 150.0-1\nDescription: a browser\n Version: 1\n\n"
    for status, version in (
        ("install ok installed", "150.0-1"),
        ("deinstall ok config-files", "10 bytes of "),
        (None, "10 bytes of "),
    ):
        listed = entry.format("other", "install ok installed")
        listed += entry.format("google-chrome-stable", status) if status else ""
        (tmp_path / "status").write_text(listed, encoding="utf-8")
        found = find_browser(known, tmp_path, {})
        assert found.path == chrome, "Chrome alone is a browser too"
        assert found.version.startswith(version), status


def test_the_named_browser_comes_first_and_a_missing_one_is_reported(programs, tmp_path, monkeypatch):
    known = {**CHROME, "programs": {"chromium": "chromium"}}
    put(programs, "chromium")
    named = put(tmp_path, "mine")
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", str(named))
    found = find_browser(known, tmp_path, {})
    assert (found.path, found.reason) == (named, "")
    assert "bytes of" in found.version
    monkeypatch.setenv("HWCOMPAT_CHROMIUM", str(tmp_path / "none"))
    assert find_browser(known, tmp_path, {}).reason == "HWCOMPAT_CHROMIUM doesn't name a file"


def test_a_browser_from_npm_counts_once_it_is_unpacked(tmp_path: Path) -> None:
    known, packages = {**CHROME, "file": "unpacked/chromium"}, {"chromium": "149.0.0"}
    assert find_browser(known, tmp_path, packages).reason == CHROME["missing"]
    path = put(tmp_path / "unpacked", "chromium")
    assert find_browser(known, tmp_path, packages) == Browser(name="chromium", path=path, version="149.0.0")


def test_a_browser_reaches_only_loopback() -> None:
    for api in ("webgpu", "webnn"):
        given = arguments(api, software=False)
        assert {"--proxy-server=127.0.0.1:9", "--proxy-bypass-list=<-loopback>;127.0.0.1"} <= set(given)
        assert SOFTWARE_ADAPTER not in given
    assert SOFTWARE_ADAPTER in arguments("webgpu", software=True)


def test_a_page_loads_files_of_two_folders_and_nothing_else(tmp_path: Path) -> None:
    folders = {"dist": tmp_path, "web": Path(browsers.__file__).parent}
    for path, file in {
        "index.html": "web/index.html",
        "runtime/ort.all.min.mjs": "dist/ort.all.min.mjs",
        "runtime/../../secret": "dist/secret",
        "a/../../../etc/passwd": "web/passwd",
        "runtime%2f..%2fsecret": "web/runtime%2f..%2fsecret",
    }.items():
        context, route = mock.MagicMock(), mock.MagicMock()
        browsers.Page.open(mock.MagicMock(new_context=lambda context=context: context), tmp_path / "dist")
        route.request.url = f"http://localhost/{path}"
        context.route.call_args.args[1](route)
        assert route.fulfill.call_args.kwargs["path"] == folders[file.partition("/")[0]] / file


def test_an_answer_of_a_page_is_returned_and_an_error_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(Exception):
        """Playwright's error."""

    class Limit(Crash):
        """Playwright's TimeoutError."""

    monkeypatch.setitem(sys.modules, "playwright", mock.Mock())
    monkeypatch.setitem(sys.modules, "playwright.sync_api", mock.Mock(TimeoutError=Limit, Error=Crash))

    def ask(**facts: Any) -> Any:
        return browsers.Page(page=mock.Mock(**facts), said=[]).ask("run", {}, limit_s=3, files=[Path("a")])

    assert ask(**{"evaluate.return_value": {"result": [1]}}) == [1]
    for lost, shown in (("", "Fail: no kernel"), ("gone", "Fail: no kernel (device lost: gone)")):
        answer = {"error": {"name": "Fail", "message": "no kernel", "lost": lost}}
        with pytest.raises(browsers.PageFailed) as caught:
            ask(**{"evaluate.return_value": answer})
        assert (str(caught.value), caught.value.name) == (shown, "Fail")
    with pytest.raises(TimeoutError, match="run in the page took longer than 3 s"):
        ask(**{"wait_for_function.side_effect": Limit("slow")})
    with pytest.raises(browsers.PageFailed, match="PageCrashed: it is gone"):
        ask(**{"evaluate.side_effect": Crash("it is\n gone")})


def test_warnings_of_a_page_are_kept_without_colors() -> None:
    opened: Any = _Open()
    assert opened.warnings() == []
    opened.page = mock.Mock(said=[("log", "a"), ("warning", "\x1b[31mb\x1b[0m"), ("error", "c" * 400)])
    assert opened.warnings() == ["b", "c" * 300]


def test_software_adapters_are_recognized_by_their_names_too() -> None:
    for adapter, software in (
        ({"vendor": "google", "architecture": "swiftshader", "fallback": False}, True),
        ({"vendor": "nvidia", "architecture": "ampere", "fallback": False}, False),
        ({"vendor": "intel", "architecture": "xe", "fallback": True}, True),
        ({"vendor": "mesa", "architecture": "", "description": "llvmpipe (LLVM 19)", "fallback": False}, True),
        ({"vendor": "microsoft", "device": "Microsoft Basic Render Driver", "fallback": False}, True),
    ):
        assert is_software(adapter) is software, adapter


def test_errors_of_a_page_have_a_type() -> None:
    types = {
        "Error: A valid external Instance reference no longer exists.": "context_lost",
        "failed (device lost: unknown: gone)": "context_lost",
        "Program Cast requires f16 but the device does not support it.": "unsupported_dtype",
        "RuntimeError: memory access out of bounds": "out_of_memory",
        "Error: [WebNN] Unsupported operator GridSample": "unsupported_operator",
        "Could not find an implementation for GridSample(16) node with name 'a'": "unsupported_operator",
        "Non-zero status code returned while running Resize node. Mode is not supported": "unsupported_operator",
        "Failed to execute 'conv2d' on 'MLGraphBuilder': Unsupported data type int4": "unsupported_operator",
        "Error: WebGPU is not supported in current environment": "browser_required",
        "Error: WebNN is not supported in current environment": "browser_required",
        "Failed to get GPU adapter. You may need to enable flag": "browser_required",
        "SharedArrayBuffer is not supported here": "unknown",
        "TypeError: x is undefined": "unknown",
    }
    assert {text: _web._kind_of(text) for text in types} == types


def test_a_call_may_take_as_long_as_all_waits_in_it() -> None:
    """A browser that starts slowly, a session that opens slowly and a slow pass are each no hang."""
    driver = mock.MagicMock()
    page = browsers.Page.open(browsers.launch(driver, "webgpu", Path("chromium"), software=False), Path("dist")).page
    calls = (driver.chromium.launch, page.goto, page.wait_for_function)
    waited = [call.call_args.kwargs["timeout"] / 1000 for call in calls]
    assert sum(waited) == browsers.START_LIMIT_S
    for name in ("webgpu", "webnn"):
        backend: Any = backend_class(name)
        assert backend.CALL_LIMIT_S > browsers.START_LIMIT_S + 2 * _web.PASS_LIMIT_S
        assert backend.CALL_LIMIT_S < backend.DEADLINE_S, "the worker is ended before the child is"


def test_scripts_of_workers_import_nothing_of_the_product() -> None:
    for name in ("onnx_worker", "web_worker", "browsers", "serve"):
        lines = [line.strip() for line in (SCRIPTS / f"{name}.py").read_text(encoding="utf-8").splitlines()]
        assert not [line for line in lines if line.startswith(("from .", "import hardware", "from hardware"))], name


def test_only_an_emulator_is_called_one_and_each_machine_has_it_or_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for machine, kinds, target, name in (
        ("x86_64", ["CPU"], "qnn:emulator", "htp (emulator)"),
        ("AMD64", ["CPU"], "qnn:emulator", "htp (emulator)"),
        ("x86_64", ["CPU", "NPU"], "qnn", "htp"),
        ("aarch64", ["CPU"], "qnn", "htp"),
        ("ARM64", ["CPU"], "qnn", "htp"),
    ):
        backend: Any = get_backend(target)
        other: Any = get_backend("qnn" if backend.emulated else "qnn:emulator")
        other.described = {"machine": machine, "devices": [{"kind": kind} for kind in kinds]}
        assert f" {target} is the HTP itself" in other.refused() or f"its emulator is {target}" in other.refused()
        monkeypatch.setattr(backend, "unavailable", lambda: "")
        versions = {"qnn": "2.40", "onnxruntime": "1.31", "onnxruntime_qnn": "2.7"}
        backend.described = {**versions, "machine": machine, "devices": [{"kind": kind} for kind in kinds]}
        assert (backend.device, backend.refused()) == (name, "")
        assert ("emulator" in backend.facts()) is ("emulator" in name)
        assert ("emulator" in backend.get_device_info().device_name.lower()) is ("emulator" in name)
