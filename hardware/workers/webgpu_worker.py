"""The worker's side of `webgpu:native`: ONNX Runtime's WebGPU provider without a browser.

It runs with another environment's Python and imports nothing of ours but what lies beside it: onnxruntime and NumPy.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

PROVIDER = "WebGpuExecutionProvider"
_KERNEL = "_kernel_time"

_placed: dict[int, dict[str, Any]] = {}
"""By session, where its nodes ran: by its profile of the first run, which ends with that."""


def _files() -> Any:
    return importlib.import_module("onnx_files")


def describe() -> dict[str, Any]:
    """What is here. Which adapter the provider takes it doesn't tell; a session that can't be opened says so."""
    runtime = _files().runtime()
    missing = PROVIDER not in runtime.get_available_providers()
    return {"onnxruntime": runtime.__version__, "reason": f"this onnxruntime has no {PROVIDER}" if missing else ""}


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


def run(*, model: str, subject: str, settings: dict[str, Any], **places: str) -> dict[str, Any]:
    """One pass between the files `inputs`, `outputs` and `execution`, and where each node ran."""
    files = _files()

    def options() -> Any:
        found = files.options_of("ORT_DISABLE_ALL", {})
        found.enable_profiling = True
        found.profile_file_prefix = str(Path(tempfile.mkdtemp(prefix="hwcompat-profile-")) / "profile")
        return found

    session = files.session_of(model, settings, options, providers=[PROVIDER])
    if session.get_providers()[0] != PROVIDER:
        raise RuntimeError(f"the session has {', '.join(session.get_providers())} alone")

    def told() -> dict[str, Any]:
        if id(session) not in _placed:
            profile = Path(session.end_profiling())
            _placed[id(session)] = placed_by(json.loads(profile.read_text(encoding="utf-8")))
            shutil.rmtree(profile.parent, ignore_errors=True)
        return {"placed": _placed[id(session)], "said": []}

    found: dict[str, Any] = files.run_pass(session, **places, told=told)
    return found


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    importlib.import_module("serving").serve({"describe": describe, "run": run})
