"""Browsers that run models: how one is started, and one of its pages with its console.

Imports nothing of the product: it runs with the Python of another environment.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

_PAGE = Path(__file__).parent / "web"
_ADDRESS = "http://localhost/"
"""Address of a page: browsers withhold device APIs from pages of an open network."""

_LAUNCH_LIMIT_S = 40.0
_PAGE_LIMIT_S = 20.0
START_LIMIT_S = _LAUNCH_LIMIT_S + 2 * _PAGE_LIMIT_S
"""Seconds that a browser and its first page may take: launch, navigation, and loading."""

QUIET = (
    "--proxy-server=127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>;127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--no-pings",
    "--no-first-run",
    "--metrics-recording-only",
    "--disable-dev-shm-usage",
)
"""Only loopback: the proxy is dead, and no update is requested."""

_WEBGPU = ("--enable-unsafe-webgpu", "--enable-features=Vulkan", "--ignore-gpu-blocklist")
SOFTWARE_ADAPTER = "--use-webgpu-adapter=swiftshader"
_WEBNN = ("--enable-features=WebMachineLearningNeuralNetwork", "--ignore-gpu-blocklist")


def arguments(api: str, *, software: bool) -> list[str]:
    """Return the arguments of a browser. As root, in a container, it runs without a sandbox: it opens only our own
    pages."""
    own = (*_WEBGPU, *([SOFTWARE_ADAPTER] if software else [])) if api == "webgpu" else _WEBNN
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [*QUIET, *own, *(["--no-sandbox"] if root else [])]


@dataclass
class Page:
    """A page and the messages of its console: `(type, text)`."""

    page: Any
    said: list[tuple[str, str]]

    @classmethod
    def open(cls, browser: Any, runtime: Path) -> Page:
        """Open a page in a separate context, so that it shares nothing with another. Requests are answered with
        files, those of ONNX Runtime Web from the folder `runtime`: there is no server."""
        context = browser.new_context()
        context.route("**/*", lambda route: route.fulfill(path=_file_of(route.request.url, runtime)))
        found = cls(page=context.new_page(), said=[])
        found.page.on("console", lambda message: found.said.append((message.type, message.text)))
        found.page.on("pageerror", lambda error: found.said.append(("error", str(error))))
        found.page.goto(f"{_ADDRESS}index.html", timeout=_PAGE_LIMIT_S * 1000)
        found.page.wait_for_function("() => globalThis.hwcompat !== undefined", timeout=_PAGE_LIMIT_S * 1000)
        return found

    def ask(self, what: str, given: dict[str, Any], *, limit_s: float, files: Sequence[Path] = ()) -> Any:
        """Let the page do something with `files`, which it reads itself. Raises `PageFailed`, or `TimeoutError` if it
        hangs."""
        api = importlib.import_module("playwright.sync_api")
        try:
            self.page.set_input_files("input", list(files), timeout=limit_s * 1000)
            self.page.evaluate("([what, given]) => { hwcompat.ask(what, given); }", [what, given])
            self.page.wait_for_function("() => hwcompat.answer !== null", timeout=limit_s * 1000)
            answer = self.page.evaluate("() => hwcompat.answer")
        except api.TimeoutError:
            raise TimeoutError(f"{what} in the page took longer than {limit_s:g} s") from None
        except api.Error as error:
            raise PageFailed("PageCrashed", " ".join(str(error).split())[:300]) from error
        if "error" in answer:
            lost = f" (device lost: {answer['error']['lost']})" if answer["error"]["lost"] else ""
            raise PageFailed(answer["error"]["name"], answer["error"]["message"] + lost)
        return answer["result"]


def _file_of(address: str, runtime: Path) -> Path:
    """Return the file of an address: folders have no subfolders, so that only the name counts."""
    return (runtime if address.startswith(f"{_ADDRESS}runtime/") else _PAGE) / PurePosixPath(address).name


class PageFailed(Exception):
    """An error in a page: its `name` and message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.message = name, message


@contextlib.contextmanager
def playwright() -> Iterator[Any]:
    """Yield Playwright's driver, and end what it started."""
    with importlib.import_module("playwright.sync_api").sync_playwright() as driver:
        yield driver


def launch(driver: Any, api: str, program: Path, *, software: bool) -> Any:
    """Launch a fresh headless browser of a program."""
    return driver.chromium.launch(
        executable_path=str(program),
        headless=True,
        args=arguments(api, software=software),
        handle_sigint=False,
        timeout=_LAUNCH_LIMIT_S * 1000,
    )
