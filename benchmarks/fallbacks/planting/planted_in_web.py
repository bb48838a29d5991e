"""Fallbacks of ONNX Runtime in a browser: WebAssembly instead of WebGPU, and logs that don't show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from planting_tools import after_import, change_export, took_effect, wrap

_HOST = "CPUExecutionProvider"
_STEP = "step"


def web_in_wasm() -> None:
    @after_import("hwcompat.hardware.backends.webgpu")
    def patch(module: ModuleType) -> None:
        @wrap(module.WebGPUBackend, "provider")
        def provider(original: Any, self: Any) -> Any:
            took_effect()
            return {"name": "wasm"}


def web_adapter_by_another_name() -> None:
    @after_import("hwcompat.hardware.backends._web")
    def patch(module: ModuleType) -> None:
        @wrap(module.WebBackend, "describe")
        def describe(original: Any, self: Any) -> Any:
            took_effect()
            adapter = {"vendor": "nvidia", "architecture": "ampere", "device": "", "description": ""}
            adapter["fallback"] = False
            found = original(self)
            return {**found, "adapter": {**found["adapter"], **adapter}}


def web_node_on_host() -> None:
    change_export(_through_the_host)


def web_log_without_host() -> None:
    web_node_on_host()

    def cut(run: Callable[[], tuple[Any, Any]], file: Path) -> tuple[Any, Any]:
        outputs, proof = run()
        proof.get("placed", {}).get("providers", {}).pop(_HOST, None)
        return outputs, proof

    _around_each_pass(cut)


def web_zeros() -> None:
    def zeros(run: Callable[[], tuple[Any, Any]], file: Path) -> tuple[Any, Any]:
        outputs, proof = run()
        took_effect()
        return {name: array * 0 for name, array in outputs.items()}, proof

    _around_each_pass(zeros)


def web_first_again() -> None:
    first: dict[Path, Any] = {}

    def again(run: Callable[[], tuple[Any, Any]], file: Path) -> tuple[Any, Any]:
        outputs, proof = run()
        if file in first:
            took_effect()
        return first.setdefault(file, outputs), proof

    _around_each_pass(again)


def web_tokens_on_host() -> None:
    proofs: list[Any] = []

    def hosted(run: Callable[[], tuple[Any, Any]], file: Path) -> tuple[Any, Any]:
        outputs, proof = run()
        if not file.stem.startswith(_STEP):
            proofs.append(proof)
            return outputs, proof
        took_effect()
        return outputs, proofs[-1]  # a log of another session, where the token's graph was in none of the page's

    _around_each_pass(hosted)


def _around_each_pass(change: Callable[[Callable[[], tuple[Any, Any]], Path], tuple[Any, Any]]) -> None:
    @after_import("hwcompat.hardware.backends._worker_backend")
    def patch(module: ModuleType) -> None:
        @wrap(module.OnnxWorkerBackend, "run_file")
        def run_file(original: Any, self: Any, file: Path, arrays: Any, **words: str) -> Any:
            subject = words.get("subject") not in (None, "question", "float16")
            return (
                change(lambda: original(self, file, arrays, **words), file)
                if subject
                else original(self, file, arrays, **words)
            )


def _through_the_host(file: Path) -> None:
    """Pass one product of a file through an operator that the WebGPU provider lacks: a reversed sequence of one."""
    import numpy as np
    import onnx

    model = onnx.load(str(file))
    known = onnx.shape_inference.infer_shapes(model).graph.value_info
    shapes = {one.name: one.type.tensor_type.shape.dim for one in known}
    for place, node in enumerate(model.graph.node):
        result = node.output[0]
        if node.op_type == "MatMul" and len(shapes.get(result, ())) == 3:
            node.output[0] = f"{result}.product"
            lengths = np.ones(shapes[result][0].dim_value, np.int64)
            model.graph.initializer.append(onnx.numpy_helper.from_array(lengths, f"{result}.lengths"))
            through = onnx.helper.make_node(
                "ReverseSequence",
                [node.output[0], f"{result}.lengths"],
                [result],
                name=f"through.{result}",
                batch_axis=0,
                time_axis=1,
            )
            model.graph.node.insert(place + 1, through)
            onnx.save(model, str(file))
            took_effect()
            return
