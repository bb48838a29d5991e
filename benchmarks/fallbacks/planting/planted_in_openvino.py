"""Fallbacks around OpenVINO: another device than requested, another precision, or no inference."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from planting_tools import after_import, took_effect, wrap

_API = "openvino._ov_api"


def _on_another(device: str, instead: str) -> None:
    """Make OpenVINO list `device`, and compile for `instead` if it is requested."""

    @after_import(_API)
    def patch(module: ModuleType) -> None:
        seen = module.Core.available_devices
        module.Core.available_devices = property(lambda self: [*seen.fget(self), device])

        @wrap(module.Core, "compile_model")
        def compile_model(
            original: Any, self: Any, model: Any, device_name: Any = None, *rest: Any, **more: Any
        ) -> Any:
            if device_name != device:
                return original(self, model, device_name, *rest, **more)
            took_effect()
            return original(self, model, instead, *rest, **more)

        @wrap(module.Core, "get_property")
        def get_property(original: Any, self: Any, *args: Any) -> Any:
            return original(self, *("CPU" if one == device else one for one in args))


def auto_to_cpu() -> None:
    _on_another("GPU", "AUTO:CPU")


def hetero_to_cpu() -> None:
    _on_another("NPU", "HETERO:CPU")


def compiled_for_cpu() -> None:
    _on_another("GPU", "CPU")


def torch_behind_openvino() -> None:
    @after_import("optimum.intel.openvino.modeling")
    def patch(module: ModuleType) -> None:
        @wrap(module.OVModelForMaskedLM, "forward")
        def forward(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            import torch

            found = [
                one
                for one in gc.get_objects()
                if type(one).__name__ == "BertForMaskedLM" and next(one.parameters()).dtype is torch.float32
            ]
            took_effect()
            return found[0](*args, **kwargs)


def _with_settings(settings: Mapping[str, str], marks: Callable[[Any], bool]) -> None:
    @after_import(_API)
    def patch(module: ModuleType) -> None:
        @wrap(module.Core, "compile_model")
        def compile_model(
            original: Any, self: Any, model: Any, device_name: Any = None, config: Any = None, **more: Any
        ) -> Any:
            compiled = original(self, model, device_name, {**dict(config or {}), **settings}, **more)
            if marks(compiled):
                took_effect()
            return compiled


def openvino_bfloat16() -> None:
    def narrow(compiled: Any) -> bool:
        return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()) in ("bf16", "f16")

    _with_settings({"INFERENCE_PRECISION_HINT": "bf16"}, narrow)


def openvino_small_cache() -> None:
    def small(compiled: Any) -> bool:
        return str(compiled.get_property("KV_CACHE_PRECISION").get_type_name()) == "u8"

    _with_settings({"KV_CACHE_PRECISION": "u8"}, small)


def openvino_zeros() -> None:
    @after_import(_API)
    def patch(module: ModuleType) -> None:
        def nothing(original: Any, *args: Any, **kwargs: Any) -> Any:
            took_effect()
            kwargs["share_outputs"] = False
            result = original(*args, **kwargs)
            for array in result.values():
                array *= 0
            return result

        wrap(module.InferRequest, "infer")(nothing)


def openvino_first_again() -> None:
    kept: dict[Any, Any] = {}

    @after_import(_API)
    def patch(module: ModuleType) -> None:
        def again(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs["share_outputs"] = False
            result = original(self, *args, **kwargs)
            key = (id(self.get_compiled_model().__class__), tuple(array.shape for array in result.values()))
            if key in kept:
                took_effect()
                for name, array in enumerate(result.values()):
                    array[...] = kept[key][name]
            else:
                kept[key] = [array.copy() for array in result.values()]
            return result

        wrap(module.InferRequest, "infer")(again)
