"""The devices that ONNX Runtime offers to its providers, asked of the library itself."""

from __future__ import annotations

import threading
from typing import Any

from ..machine import Library, Reading

_PLUGINS = ("onnxruntime_qnn",)
"""Packages that bring a provider as a plug-in, which is registered before devices are asked for."""


class OnnxRuntime(Library):
    """ONNX Runtime's device list. Importing it takes about a second, so it is asked only where there is a sign."""

    NAME = "onnxruntime"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: Reading[Any] | None = None

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`devices`: a list of tables with `provider`, `kind` (CPU, GPU, NPU), `vendor`, `name` and `version`.

        A provider that lists a CPU only has none of its own: QNN does so where there is no Hexagon.
        """
        if function != "devices":
            return Reading(value=None, reason=f"{function} isn't asked of onnxruntime")
        with self._lock:
            if self._told is None:
                self._told = _devices()
            return self._told

    def close(self) -> str:
        with self._lock:
            self._told = None
        return ""


def _devices() -> Reading[Any]:
    try:
        import onnxruntime

        if not hasattr(onnxruntime, "get_ep_devices"):
            return Reading(value=None, reason=f"onnxruntime {onnxruntime.__version__} lists no devices; 1.23 does")
        _register(onnxruntime)
        return Reading(value=[_plain(one) for one in onnxruntime.get_ep_devices()])
    except ImportError as error:
        return Reading(value=None, reason=f"onnxruntime can't be imported ({error}): pip install onnxruntime-qnn")
    except Exception as error:  # a native library may raise anything; the reason is the answer here
        return Reading(value=None, reason=f"onnxruntime: {type(error).__name__}: {error}")


def _register(runtime: Any) -> None:
    import importlib
    import importlib.util

    for name in _PLUGINS:
        if importlib.util.find_spec(name) is None:
            continue
        plugin = importlib.import_module(name)
        provider = plugin.get_ep_name()
        if not any(one.ep_name == provider for one in runtime.get_ep_devices()):
            runtime.register_execution_provider_library(provider, plugin.get_library_path())


def _plain(device: Any) -> dict[str, str]:
    hardware = device.device
    metadata = dict(hardware.metadata)
    return {
        "provider": str(device.ep_name),
        "kind": str(hardware.type).rpartition(".")[2],
        "vendor": str(hardware.vendor),
        "name": str(metadata.get("Description", "")),
        "version": str(dict(device.ep_metadata).get("version", "")),
    }
