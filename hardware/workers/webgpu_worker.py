"""The worker's side of `webgpu:native`: ONNX Runtime's WebGPU provider without a browser.

It runs with another environment's Python and imports nothing of ours but the loop that answers: onnxruntime and
NumPy.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROVIDER = "WebGpuExecutionProvider"
_KERNEL = "_kernel_time"


class _Open:
    """A session, and where its nodes ran: by its record of the first run, which ends with that."""

    def __init__(self, model: str) -> None:
        runtime = _runtime()
        self.folder = tempfile.TemporaryDirectory(prefix="hwcompat-profile-")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(self.folder.name) / "profile")
        # Without this a session whose provider fails is made again on the CPU, with a line on standard output.
        self.session = runtime.InferenceSession(model, options, providers=[PROVIDER], enable_fallback=0)
        self.placed: dict[str, Any] = {}

    def run(self, names: list[str], given: dict[str, Any]) -> Any:
        results = self.session.run(names, given)
        if not self.placed:
            record = Path(self.session.end_profiling())
            self.placed = placed_by(json.loads(record.read_text(encoding="utf-8")))
            self.folder.cleanup()
        return results


_sessions: dict[str, _Open] = {}


def _runtime() -> Any:
    return importlib.import_module("onnxruntime")


def describe(*, settings: dict[str, Any]) -> dict[str, Any]:
    """What is here. Which adapter the provider takes it doesn't tell; a session that can't be opened says so."""
    runtime = _runtime()
    if PROVIDER not in runtime.get_available_providers():
        return {"onnxruntime": runtime.__version__, "reason": f"this onnxruntime has no {PROVIDER}"}
    return {"onnxruntime": runtime.__version__, "reason": ""}


def placed_by(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Which provider ran each node, by operator and name, in the form in which a page tells it."""
    ran: dict[str, dict[str, str]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            told = event["args"]
            ran.setdefault(told["provider"], {})[event["name"][: -len(_KERNEL)]] = told["op_name"]
    providers = {
        provider: {"stated": len(nodes), "all": False, "listed": [[kind, name] for name, kind in nodes.items()]}
        for provider, nodes in ran.items()
    }
    return {"providers": providers, "taken": {"stated": 0, "listed": []}}


def run(
    *,
    model: str,
    subject: str,
    settings: dict[str, Any],
    inputs: str,
    outputs: str,
    execution: str,
) -> dict[str, Any]:
    """One pass: arrays from the file `inputs`, arrays to the file `outputs`, and where it ran to `execution`."""
    np = importlib.import_module("numpy")
    key = json.dumps([model, settings], sort_keys=True)
    if key not in _sessions:
        _sessions[key] = _Open(model)
    opened, session = _sessions[key], _sessions[key].session
    if session.get_providers()[0] != PROVIDER:
        raise RuntimeError(f"the session has {', '.join(session.get_providers())} alone")
    with np.load(inputs) as file:
        given = {one.name: file[one.name] for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    started = time.perf_counter()
    results = opened.run(names, given)
    seconds = time.perf_counter() - started
    np.savez(outputs, **dict(zip(names, results)))  # noqa: B905 - also runs on Python 3.9
    proof = {"placed": opened.placed, "seconds": seconds, "said": []}
    Path(execution).write_text(json.dumps(proof), encoding="utf-8")
    return proof


def main() -> None:
    """Answer until standard input ends."""
    sys.path.append(str(Path(__file__).parent))
    importlib.import_module("serving").serve({"describe": describe, "run": run})


if __name__ == "__main__":
    main()
