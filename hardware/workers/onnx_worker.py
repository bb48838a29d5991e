"""The worker's side: runs ONNX files with an execution provider that is registered as a plugin library.

It runs with another environment's Python and imports nothing of ours but what lies beside it: onnxruntime, NumPy and,
to quantise, onnx.
"""

from __future__ import annotations

import importlib
import platform
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any


def _files() -> Any:
    return importlib.import_module("onnx_files")


def _runtime() -> Any:
    return _files().runtime()


def _devices(module: str) -> list[Any]:
    """The devices of a plugin's provider; its library is registered once."""
    runtime, plugin = _runtime(), importlib.import_module(module)
    name = plugin.get_ep_name()
    if not any(one.ep_name == name for one in runtime.get_ep_devices()):
        runtime.register_execution_provider_library(name, plugin.get_library_path())
    found = [one for one in runtime.get_ep_devices() if one.ep_name == name]
    if not found:
        raise RuntimeError(f"{module} is registered and offers no device")
    return sorted(found, key=lambda one: _kind(one) != "NPU")


def _kind(device: Any) -> str:
    return str(device.device.type).rpartition(".")[2]


def describe(*, module: str) -> dict[str, Any]:
    """What is here: versions, the machine, and the provider's devices, an NPU first."""
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


def _session(model: str, settings: dict[str, Any]) -> Any:
    def options() -> Any:
        found = _files().options_of(settings["optimisation"], settings["config"])
        found.add_provider_for_devices(_devices(settings["module"])[:1], settings["options"])
        return found

    return _files().session_of(model, settings, options)


def _assigned(session: Any) -> dict[str, dict[str, int]]:
    """How many nodes of each operator each provider was given, as the runtime recorded it."""
    found: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        counts = found.setdefault(part.ep_name, Counter())
        counts.update(f"{node.domain}.{node.op_type}".removeprefix(".") for node in part.get_nodes())
    return {provider: dict(counts) for provider, counts in found.items()}


def run(*, model: str, settings: dict[str, Any], **places: str) -> dict[str, Any]:
    """One pass between the files `inputs`, `outputs` and `execution`, and where it ran."""
    session = _session(model, settings)

    def told() -> dict[str, Any]:
        return {
            "assigned": _assigned(session),
            "providers": session.get_providers(),
            "options": session.get_provider_options(),
        }

    found: dict[str, Any] = _files().run_pass(session, **places, told=told)
    return found


def placement(*, model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Where the nodes of a model go, without running it."""
    return {"assigned": _assigned(_session(model, settings))}


def precompile(*, model: str, settings: dict[str, Any], context: str) -> dict[str, Any]:
    """Compile ahead of time: the provider's binary inside an ONNX file of one node, EPContext."""
    config = {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": context}
    _session(model, {**settings, "config": {**settings["config"], **config}})
    return {"bytes": Path(context).stat().st_size}


_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
"""What is quantised: what holds the weights. What is between stays in float: a mask's range would leave scores of 16
bits no digits."""


def quantise(*, model: str, inputs: list[str], quantised: str) -> dict[str, Any]:
    """Activations in 16 bits and weights in 8, as QDQ nodes, calibrated on the arrays of the files `inputs`."""
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
    importlib.import_module("serving").serve(
        {
            "describe": describe,
            "run": run,
            "placement": placement,
            "precompile": precompile,
            "quantise": quantise,
        }
    )
