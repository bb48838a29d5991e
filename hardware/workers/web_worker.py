"""Worker of the web targets: a browser that runs ONNX files through ONNX Runtime Web.

It runs with another environment's Python and imports only its neighbors of the product, Playwright and NumPy.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_WARNINGS = ("error", "warning")
_MOST_WARNINGS = 5
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class _Open:
    """The browser of one model, its page, and the sessions opened there."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self.browser: Any = None
        self.page: Any = None
        self.key = ""
        self.sessions: dict[str, dict[str, Any]] = {}
        self.started_s = 0.0

    def page_for(self, settings: dict[str, Any], weights: str) -> Any:
        """Return a page of a browser that has run no other model."""
        key = json.dumps([settings["api"], settings["software"], weights])
        if self.key != key:
            self.close()
            browsers = importlib.import_module("browsers")
            started = time.perf_counter()
            driver = self.stack.enter_context(browsers.playwright())
            program = Path(settings["browser"])
            self.browser = browsers.launch(driver, settings["api"], program, software=settings["software"])
            self.stack.callback(self._end)
            self.page = browsers.Page.open(self.browser, _dist(settings))
            self.key, self.started_s = key, time.perf_counter() - started
        return self.page

    def session(self, model: str, weights: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what the page reports of a file's session, opened on first use."""
        page = self.page_for(settings, weights)
        key = json.dumps([model, settings], sort_keys=True)
        if key not in self.sessions:
            wanted = {"key": key, **{name: settings[name] for name in ("bundle", "provider")}}
            files = [Path(model), _dist(settings) / settings["wasm"]]
            opened = page.ask("open", wanted, limit_s=settings["limit_s"], files=files)
            self.sessions[key] = {**opened, "key": key}
            self.sessions = {one: self.sessions[one] for one in opened["open"]}
        return self.sessions[key]

    def _end(self) -> None:
        with contextlib.suppress(Exception):  # a crashed browser is gone already
            self.browser.close()

    def warnings(self) -> list[str]:
        """Return the errors and warnings of the page's console."""
        said = [text for kind, text in (self.page.said if self.page else []) if kind in _WARNINGS]
        return [_COLORS.sub("", text)[:300] for text in said]

    def close(self) -> None:
        self.sessions.clear()
        self.key, self.page = "", None
        stack, self.stack = self.stack, contextlib.ExitStack()
        stack.close()


def _dist(settings: dict[str, Any]) -> Path:
    return Path(settings["runtime"]) / "node_modules/onnxruntime-web/dist"


_open = _Open()


def describe(*, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the browser, its adapter or its contexts, and the runtime. Without an adapter the browser is started
    with its software one: `software` says which one it is."""
    api = settings["api"]
    for software in (False, True) if api == "webgpu" else (False,):
        try:
            page = _open.page_for({**settings, "software": software}, "describe")
            found = page.ask("describe", {"api": api, "contexts": ["cpu", "gpu", "npu"]}, limit_s=30)
            version = _open.browser.version
        finally:
            _open.close()
        if api == "webnn" or found.get("adapter"):
            break
    package = Path(settings["runtime"]) / "node_modules/onnxruntime-web/package.json"
    return {
        **found,
        "software": software,
        "browser": version,
        "onnxruntime_web": json.loads(package.read_text(encoding="utf-8"))["version"],
        "started_s": _open.started_s,
    }


def run(
    *,
    model: str,
    weights: str,
    settings: dict[str, Any],
    inputs: str,
    outputs: str,
    execution: str,
) -> dict[str, Any]:
    """Run a pass: read the file `inputs`, and write the files `outputs` and `execution` (where it ran).

    A failure ends the browser: a broken context would break the next model.
    """
    np = importlib.import_module("numpy")
    try:
        opened = _open.session(model, weights, settings)
        with np.load(inputs) as file, tempfile.TemporaryDirectory() as folder:
            arrays = [file[name] for name in opened["inputs"]]
            files = [Path(folder) / str(place) for place in range(len(arrays))]
            for one, array in zip(files, arrays, strict=True):
                array.tofile(one)
            given = [{"type": str(array.dtype), "dims": list(array.shape)} for array in arrays]
            asked = {"key": opened["key"], "inputs": given}
            found = _open.page.ask("run", asked, limit_s=settings["limit_s"], files=files)
        results = {one["name"]: np.frombuffer(base64.b64decode(one["data"]), one["type"]) for one in found}
        np.savez(outputs, **{one["name"]: results[one["name"]].reshape(one["dims"]) for one in found})
    except Exception as error:
        shown = "; ".join(one for one in _open.warnings()[-3:] if one not in str(error))
        _open.close()
        kind = TimeoutError if type(error).__name__ == "TimeoutError" else RuntimeError  # Playwright's is another
        raise kind(f"{error}; {shown}" if shown else str(error)) from error
    proof = {"placed": opened["placed"], "adapter": opened["adapter"], "said": _open.warnings()[:_MOST_WARNINGS]}
    Path(execution).write_text(json.dumps(proof), encoding="utf-8")
    return proof


if __name__ == "__main__":
    sys.path.append(str(_HERE))
    try:
        importlib.import_module("serve").serve({"describe": describe, "run": run})
    finally:
        _open.close()
