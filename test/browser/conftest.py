"""A browser that tests drive: pages open from a file, without the network."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.workers.browsers import QUIET

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

Browse = Callable[..., str]


class Browser:
    """A Chromium that is driven by the DevTools protocol over pipes; `said` are the messages of its consoles."""

    def __init__(self, program: str, profile: Path):
        (theirs, self.out), (self.back, written) = os.pipe(), os.pipe()
        # The protocol's files are 3 and 4 in the browser: they may not be those that are put there.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs, written)]
        start = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        )
        command = ["bash", "-c", start, "-", program, *flags, *QUIET]
        self.process = subprocess.Popen(command, pass_fds=high, stderr=subprocess.DEVNULL)
        for fd in (theirs, written, *high):
            os.close(fd)
        self.number, self.read, self.said = 0, b"", list[str]()

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the protocol, to a page if `session` names one."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        os.write(self.out, json.dumps({**message, **({"sessionId": session} if session else {})}).encode() + b"\0")
        while True:
            while b"\0" not in self.read:
                assert select.select([self.back], [], [], 120)[0], f"{method} wasn't answered"
                self.read += os.read(self.back, 1 << 20)
            text, _, self.read = self.read.partition(b"\0")
            got = json.loads(text)
            if got.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(got["params"]))
            if got.get("id") == self.number:
                assert "error" not in got, got
                return dict(got["result"])

    def close(self) -> None:
        self.send("Browser.close")
        self.process.wait(30)
        os.close(self.out)
        os.close(self.back)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser was found; looked for {', '.join(NAMES)}")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


_WHEN = """new Promise((done) => {
    const end = Date.now() + 20000;
    const look = () =>
        (%s) ? done(document.documentElement.outerHTML) : Date.now() > end ? done("") : setTimeout(look, 20);
    if (document.readyState === "complete") look();
    else addEventListener("load", () => setTimeout(look));
})"""


@pytest.fixture
def browse(tmp_path: Path, browser: Browser) -> Browse:
    """Opens a page, or an address, and returns its document when all `steps` are true, one after the other.

    Each is tried for 20 s. A message on the console is an error."""

    def document(text: str, fragment: str = "", *steps: str, width: int = 1400, **media: str) -> str:
        page = tmp_path / "page.html"
        page.write_text(text, encoding="utf-8")
        address = text if text.startswith("http://") else page.as_uri()
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for method in ("Page.enable", "Runtime.enable", "Log.enable"):
            browser.send(method, session)
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.send("Emulation.setDeviceMetricsOverride", session, **screen)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        browser.send("Emulation.setEmulatedMedia", session, features=features)
        browser.send("Page.navigate", session, url=f"{address}{fragment}")
        for step in steps or ("true",):
            asked = {"expression": _WHEN % step, "awaitPromise": True, "returnByValue": True}
            found = str(browser.send("Runtime.evaluate", session, **asked)["result"]["value"])
            assert found, f"it never was true: {step}"
        browser.send("Target.closeTarget", targetId=target)
        said, browser.said = browser.said, []
        assert not said
        return found

    return document
