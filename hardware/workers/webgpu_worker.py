"""The worker's side of `webgpu:native`: ONNX Runtime's WebGPU provider without a browser.

It runs with another environment's Python and imports nothing of ours but the loop that answers: onnxruntime and
NumPy.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

PROVIDER = "WebGpuExecutionProvider"
_sessions: dict[str, Any] = {}


def _runtime() -> Any:
    return importlib.import_module("onnxruntime")


def describe() -> dict[str, Any]:
    """What is here. Which adapter the provider takes it doesn't tell; a session that can't be opened says so."""
    runtime = _runtime()
    if PROVIDER not in runtime.get_available_providers():
        return {"onnxruntime": runtime.__version__, "reason": f"this onnxruntime has no {PROVIDER}"}
    return {"onnxruntime": runtime.__version__, "reason": ""}


def _session(model: str, settings: dict[str, Any]) -> Any:
    key = json.dumps([model, settings], sort_keys=True)
    if key not in _sessions:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        # Without this a session whose provider fails is made again on the CPU, with a line on standard output.
        _sessions[key] = runtime.InferenceSession(model, options, providers=[PROVIDER], enable_fallback=0)
    return _sessions[key]


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
    session = _session(model, settings)
    if session.get_providers()[0] != PROVIDER:
        raise RuntimeError(f"the session has {', '.join(session.get_providers())} alone")
    with np.load(inputs) as file:
        given = {one.name: file[one.name] for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    started = time.perf_counter()
    results = session.run(names, given)
    seconds = time.perf_counter() - started
    np.savez(outputs, **dict(zip(names, results)))  # noqa: B905 - also runs on Python 3.9
    nodes: dict[str, list[list[str]]] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes.setdefault(part.ep_name, []).extend([node.op_type, node.name] for node in part.get_nodes())
    proof = {"nodes": nodes, "seconds": seconds, "said": []}
    Path(execution).write_text(json.dumps(proof), encoding="utf-8")
    return proof


def main() -> None:
    """Answer until standard input ends."""
    sys.path.append(str(Path(__file__).parent))
    importlib.import_module("serving").serve({"describe": describe, "run": run})


if __name__ == "__main__":
    main()
