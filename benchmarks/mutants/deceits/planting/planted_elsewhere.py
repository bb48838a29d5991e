"""Deceits on the sides of exports and of detection."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

from planting_tools import after_import, took_effect, wrap

_SCRIPTS = {
    "nvidia-smi": "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)",
    "rocm-smi": '{"card0": {"Card Series": "AMD Instinct MI300X", "VRAM Total Memory (B)": "206158430208"}}',
    "amd-smi": '[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "vram": {"size": {"value": 196592}}}]',
}


def _scripts(*names: str) -> None:
    """Put tools on the path that list a device. The process that needs them makes them once."""
    folder = Path(os.environ["HWCOMPAT_PLANTED"]).parent / "tools"
    folder.mkdir(exist_ok=True)
    for name in names:
        script = folder / name
        if not script.exists():
            script.write_text(f"#!/bin/sh\necho '{_SCRIPTS[name]}'\n", encoding="utf-8")
            script.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    took_effect()


def graphics_card_of_a_script() -> None:
    _scripts("nvidia-smi")


def card_of_amd_of_a_script() -> None:
    _scripts("rocm-smi", "amd-smi")


def device_of_variables() -> None:
    os.environ |= {
        "TPU_NAME": "local",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_ID": "0",
        "PJRT_DEVICE": "TPU",
    }
    took_effect()


def openvino_device_of_a_name() -> None:
    @after_import("openvino._ov_api")
    def patch(module: ModuleType) -> None:
        seen = module.Core.available_devices
        module.Core.available_devices = property(lambda self: [*seen.fget(self), "GPU"])

        @wrap(module.Core, "compile_model")
        def compile_model(
            original: Any, self: Any, model: Any, device_name: Any = None, *rest: Any, **more: Any
        ) -> Any:
            if device_name == "GPU":
                took_effect()
            return original(self, model, "CPU" if device_name == "GPU" else device_name, *rest, **more)

        @wrap(module.Core, "get_property")
        def get_property(original: Any, self: Any, *args: Any) -> Any:
            return original(self, *("CPU" if one == "GPU" else one for one in args))


def driver_that_moved() -> None:
    """Show the reader of evidence another runtime version than its writer."""

    @after_import("hwcompat.hardware.evidence.versions")
    def patch(module: ModuleType) -> None:
        asked: list[int] = []

        @wrap(module, "versions_of")
        def versions_of(original: Any, *args: Any, **more: Any) -> Any:
            asked.append(1)
            found = dict(original(*args, **more))
            if len(asked) > 1 and "openvino" in found:
                took_effect()
                found["openvino"] += (
                    f".{len(asked)}"  # Another one each time, because the recorder isn't the first caller.
                )
            return found


def export_of_other_weights() -> None:
    @after_import("openvino._ov_api")
    def patch(module: ModuleType) -> None:
        @wrap(module.Core, "compile_model")
        def compile_model(original: Any, self: Any, model: Any, *rest: Any, **more: Any) -> Any:
            if not isinstance(model, str | Path | bytes) and _is_loading():
                _change_largest(model)
                took_effect()
            return original(self, model, *rest, **more)


def _is_loading() -> bool:
    """Whether this isn't called during the proof of an export."""
    import sys

    frame = sys._getframe()
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_filename.rpartition("/")[2])
        frame = frame.f_back  # type: ignore[assignment]
    return "keeping.py" not in names


def _change_largest(model: Any) -> None:
    import numpy as np
    from openvino import opset13

    constants = [
        one for one in model.get_ops() if one.get_type_name() == "Constant" and one.get_element_type().is_real()
    ]
    largest = max(constants, key=lambda one: int(np.prod(one.shape)))
    changed = opset13.constant(largest.data * 1.1, dtype=largest.get_element_type())
    for target in largest.output(0).get_target_inputs():
        target.replace_source_output(changed.output(0))


def export_without_proof() -> None:
    @after_import("hwcompat.hardware.export.verify_export")
    def patch(module: ModuleType) -> None:
        @wrap(module.Proof, "of_all")
        def of_all(_original: Any, self: Any, *_: Any) -> float:
            took_effect()
            return 0.0

    _changed_exports()


def _changed_exports() -> None:
    @after_import("openvino._ov_api")
    def patch(module: ModuleType) -> None:
        @wrap(module.Core, "compile_model")
        def compile_model(original: Any, self: Any, model: Any, *rest: Any, **more: Any) -> Any:
            if not isinstance(model, str | Path | bytes):
                _change_largest(model)
            return original(self, model, *rest, **more)


def export_kept_of_another() -> None:
    """Store everything under one key, with results of other weights."""

    @after_import("hwcompat.hardware.export.routes")
    def patch(module: ModuleType) -> None:
        @wrap(module, "export_once")
        def export_once(original: Any, subject: Any, *rest: Any, **more: Any) -> Any:
            import torch

            kept = {name: one.detach().clone() for name, one in subject.model.named_parameters()}
            with torch.no_grad():
                for one in subject.model.parameters():
                    one.mul_(1.05)
            try:
                return original(subject, *rest, **more)
            finally:
                took_effect()
                with torch.no_grad():
                    for name, one in subject.model.named_parameters():
                        one.copy_(kept[name])


def export_of_constants() -> None:
    @after_import("hwcompat.hardware.backends._openvino_runnable")
    def patch(module: ModuleType) -> None:
        @wrap(module.OpenVINORunnable, "__call__")
        def call(original: Any, self: Any, **inputs: Any) -> Any:
            if not hasattr(self, "_first_outputs"):
                self._first_outputs = original(self, **inputs)
                return self._first_outputs
            took_effect()
            return self._first_outputs
