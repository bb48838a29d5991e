"""Worker that runs ONNX files with one execution provider, built in or registered as a plugin library.

It runs with another environment's Python and imports only its neighbors of the product: onnxruntime, NumPy and, to
quantize, onnx.
"""

from __future__ import annotations

import functools
import importlib
import json
import platform
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

_KERNEL = "_kernel_time"

_sessions: dict[str, Any] = {}
_placed: dict[int, dict[str, Any]] = {}
"""Places of nodes by session of a built-in provider: from the profile of its first run, which ends with it."""


def _runtime() -> Any:
    return importlib.import_module("onnxruntime")


def _devices(module: str) -> list[Any]:
    """Return the devices of a plugin's provider, an NPU first; its library is registered once."""
    runtime, plugin = _runtime(), importlib.import_module(module)
    name = plugin.get_ep_name()
    if not any(one.ep_name == name for one in runtime.get_ep_devices()):
        runtime.register_execution_provider_library(name, plugin.get_library_path())
    found = [one for one in runtime.get_ep_devices() if one.ep_name == name]
    if not found:
        raise RuntimeError(f"{module} is registered but offers no device")
    return sorted(found, key=lambda one: _kind(one) != "NPU")


def _kind(device: Any) -> str:
    return str(device.device.type).rpartition(".")[2]


def describe(*, module: str = "", provider: str = "") -> dict[str, Any]:
    """Return versions, the machine, and the devices of a plugin's provider, an NPU first. A built-in provider doesn't
    report its device; opening a session fails if it has none."""
    if not module:
        missing = provider not in _runtime().get_available_providers()
        reason = f"this onnxruntime has no {provider}" if missing else ""
        return {"onnxruntime": _runtime().__version__, "reason": reason}
    found = _devices(module)
    build = importlib.import_module(f"{module}.build_and_package_info")
    return {
        "onnxruntime": _runtime().__version__,
        module: build.__version__,
        "qnn": getattr(build, "qnn_version", ""),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "devices": [{"kind": _kind(one), "vendor": one.ep_vendor, "provider": one.ep_name} for one in found],
    }


def options_of(settings: dict[str, Any]) -> Any:
    """Return a session's options: optimization level, configuration, and the devices of a plugin's provider."""
    options = _runtime().SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(_runtime().GraphOptimizationLevel, settings["optimisation"])
    for name, value in settings.get("config", {}).items():
        options.add_session_config_entry(name, value)
    if "module" in settings:
        options.add_provider_for_devices(_devices(settings["module"])[:1], settings["options"])
    else:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(_profiles().name) / f"profile{len(_sessions)}")
    return options


@functools.cache
def _profiles() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of profiles, which is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="hwcompat-profile-")


def _session(model: str, settings: dict[str, Any]) -> Any:
    """Return the session of a file with these settings, opened on first use."""
    key = json.dumps([model, settings], sort_keys=True)
    if key not in _sessions:
        named = [settings["provider"]] if "provider" in settings else []
        # Otherwise a session whose provider fails is opened again on the CPU, with a line on standard output.
        session = _runtime().InferenceSession(model, options_of(settings), enable_fallback=0, providers=named or None)
        if session.get_providers()[:1] != named and named:
            raise RuntimeError(f"the session only has {', '.join(session.get_providers())}")
        _sessions[key] = session
    return _sessions[key]


def _assigned(session: Any) -> dict[str, dict[str, int]]:
    """Return the number of nodes of each operator by provider, as the runtime recorded it."""
    found: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        counts = found.setdefault(part.ep_name, Counter())
        counts.update(f"{node.domain}.{node.op_type}".removeprefix(".") for node in part.get_nodes())
    return {provider: dict(counts) for provider, counts in found.items()}


def placed_by(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return which provider ran each node, by operator and name, in the form that pages use."""
    ran: dict[str, dict[str, str]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            facts = event["args"]
            ran.setdefault(facts["provider"], {})[event["name"][: -len(_KERNEL)]] = facts["op_name"]
    providers = {
        provider: {"stated": len(nodes), "all": False, "listed": [[kind, name] for name, kind in nodes.items()]}
        for provider, nodes in ran.items()
    }
    return {"providers": providers, "taken": {"stated": 0, "listed": []}}


def _profiled(session: Any) -> dict[str, Any]:
    """Return where the nodes of a session ran."""
    if id(session) not in _placed:
        profile = Path(session.end_profiling())
        _placed[id(session)] = placed_by(json.loads(profile.read_text(encoding="utf-8")))
        profile.unlink()
    return _placed[id(session)]


def run(
    *, model: str, settings: dict[str, Any], inputs: str, outputs: str, execution: str, weights: str = ""
) -> dict[str, Any]:
    """Run a pass: read the file `inputs`, and write the files `outputs` and `execution` (where it ran)."""
    np = importlib.import_module("numpy")
    session = _session(model, settings)
    with np.load(inputs) as file:
        given = {one.name: file[one.name] for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    np.savez(outputs, **dict(zip(names, session.run(names, given))))  # noqa: B905 - also runs on Python 3.9
    proof = {"assigned": _assigned(session)} if "module" in settings else {"placed": _profiled(session), "said": []}
    Path(execution).write_text(json.dumps(proof), encoding="utf-8")
    return proof


def placement(*, model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return where the nodes of a model are placed, without running it."""
    return {"assigned": _assigned(_session(model, settings))}


def precompile(*, model: str, settings: dict[str, Any], context: str) -> dict[str, Any]:
    """Compile ahead of time: write the provider's binary in an ONNX file of one node, EPContext."""
    config = {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": context}
    _session(model, {**settings, "config": {**settings["config"], **config}})
    return {"bytes": Path(context).stat().st_size}


_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
"""Operators that are quantized: those with weights. Others stay in floating point: the range of a mask would leave no
digits to scores of 16 bits."""


def quantise(*, model: str, inputs: list[str], quantised: str) -> dict[str, Any]:
    """Quantize activations to 16 bits and weights to 8, as QDQ nodes, calibrated on arrays of the `inputs`."""
    np = importlib.import_module("numpy")
    quantization = importlib.import_module("onnxruntime.quantization")
    qnn = importlib.import_module("onnxruntime.quantization.execution_providers.qnn")
    arrays = []
    for name in inputs:
        with np.load(name) as file:
            arrays.append({key: file[key] for key in file.files})
    session = _runtime().InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.left = iter([{name: one[name] for name in names} for one in arrays])

        def get_next(self) -> Any:
            return next(self.left, None)

    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        ready = prepared if qnn.qnn_preprocess_model(model, prepared) else model
        config = qnn.get_qnn_qdq_config(
            ready,
            Reader(),
            activation_type=quantization.QuantType.QUInt16,
            weight_type=quantization.QuantType.QInt8,
            weight_symmetric=True,
            per_channel=True,
        )
        config.op_types_to_quantize = list(_PRODUCTS)
        quantization.quantize(ready, quantised, config)
    return {"bytes": Path(quantised).stat().st_size}


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    importlib.import_module("serve").serve(
        {
            "describe": describe,
            "run": run,
            "placement": placement,
            "precompile": precompile,
            "quantise": quantise,
        }
    )
