"""The worker's side of `webgpu:native`: ONNX Runtime's WebGPU provider without a browser.

It runs with another environment's Python and imports nothing of ours but what lies beside it: onnxruntime and NumPy.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

PROVIDER = "WebGpuExecutionProvider"
_RECORD = {"session.record_ep_graph_assignment_info": "1"}


def _files() -> Any:
    return importlib.import_module("onnx_files")


def describe() -> dict[str, Any]:
    """What is here. Which adapter the provider takes it doesn't tell; a session that can't be opened says so."""
    runtime = _files().runtime()
    missing = PROVIDER not in runtime.get_available_providers()
    return {"onnxruntime": runtime.__version__, "reason": f"this onnxruntime has no {PROVIDER}" if missing else ""}


def run(*, model: str, subject: str, settings: dict[str, Any], **places: str) -> dict[str, Any]:
    """One pass between the files `inputs`, `outputs` and `execution`, and where each node was."""
    files = _files()
    session = files.session_of(
        model, settings, lambda: files.options_of("ORT_DISABLE_ALL", _RECORD), providers=[PROVIDER]
    )
    if session.get_providers()[0] != PROVIDER:
        raise RuntimeError(f"the session has {', '.join(session.get_providers())} alone")
    found: dict[str, Any] = files.run_pass(session, **places, told=lambda: {"nodes": _nodes(session), "said": []})
    return found


def _nodes(session: Any) -> dict[str, list[list[str]]]:
    nodes: dict[str, list[list[str]]] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes.setdefault(part.ep_name, []).extend([node.op_type, node.name] for node in part.get_nodes())
    return nodes


def main() -> None:
    """Answer until standard input ends."""
    sys.path.append(str(Path(__file__).parent))
    importlib.import_module("serving").serve({"describe": describe, "run": run})


if __name__ == "__main__":
    main()
