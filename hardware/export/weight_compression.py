"""Exports in fewer bits: weights in 8 bits by NNCF, with activations in floating point, and models in float16."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..command_names import as_runnable
from ..evidence.record import Stage
from ..files import work_folder
from ..model.model_types import Unsupported
from .exported import Exported
from .routes import versions_of

_BYTES = ("i8", "u8")


def with_int8_weights(exported: Exported) -> Exported:
    """Return the graphs with weights of matrices, embeddings and convolutions in 8 bits, asymmetric, a scale a row.

    They are kept beside the export, for each version of NNCF. Raises `Unsupported` at the stage `convert` if NNCF is
    missing, or compresses no weight.
    """
    version = versions_of(("nncf",)).rpartition("=")[2]
    kept = exported.folder.with_name(f"{exported.folder.name}-int8-{version or 'missing'}")
    if not kept.is_dir():
        _compress_into(kept, exported.folder)
    return replace(exported, folder=kept)


def _compress_into(kept: Path, folder: Path) -> None:
    try:
        import nncf
    except ImportError as error:
        reason = as_runnable("nncf isn't installed (pip install -r requirements.txt)")
        raise Unsupported(reason, error_type="missing_dependency", stage=Stage.CONVERT) from error
    import openvino

    core = openvino.Core()
    with work_folder(kept.parent, "int8-") as parent:
        work = parent / "0"
        work.mkdir()
        compressed = 0
        for file in sorted(folder.iterdir()):
            if file.suffix == ".xml":
                model = nncf.compress_weights(core.read_model(file), mode=nncf.CompressWeightsMode.INT8_ASYM)
                compressed += _weights_in_bytes(model)
                openvino.save_model(model, work / file.name, compress_to_fp16=False)
            elif not (file.suffix == ".bin" and file.with_suffix(".xml").exists()):
                shutil.copy2(file, work / file.name)
        if not compressed:
            reason = "NNCF compresses no weight of this model"
            raise Unsupported(reason, error_type="unsupported_dtype", stage=Stage.CONVERT)
        with contextlib.suppress(OSError):  # another process was faster
            os.replace(work, kept)


def _weights_in_bytes(model: object) -> int:
    nodes = model.get_ordered_ops()  # type: ignore[attr-defined] # openvino is Any to mypy
    return sum(
        node.get_type_name() == "Constant"
        and node.get_element_type().get_type_name() in _BYTES
        and len(node.get_output_shape(0)) > 1
        for node in nodes
    )


def with_int8_weights_in(file: Path, folder: Path) -> Path:
    """Return an ONNX file with weights of matrices in 8 bits, symmetric, one scale a row, as constants of
    DequantizeLinear. Raises `Unsupported` as above."""
    try:
        import nncf
    except ImportError as error:
        reason = as_runnable("nncf isn't installed (pip install -r requirements.txt)")
        raise Unsupported(reason, error_type="missing_dependency", stage=Stage.CONVERT) from error
    import onnx

    model = onnx.load(str(file))
    # A constant with more than two axes would get as many scales, which runtimes take for blocks.
    axes = {one.name: len(one.dims) for one in model.graph.initializer}
    left = [node.name for node in model.graph.node if any(axes.get(name, 2) > 2 for name in node.input)]
    scope = nncf.IgnoredScope(names=left, types=["Conv", "ConvTranspose"], validate=False)
    model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM, ignored_scope=scope)
    if not any(node.op_type == "DequantizeLinear" for node in model.graph.node):
        reason = "NNCF compresses no weight of this model"
        raise Unsupported(reason, error_type="unsupported_dtype", stage=Stage.CONVERT)
    return _saved(model, file, folder)


def in_float16(file: Path, folder: Path) -> Path:
    """Return an ONNX file that computes in float16, with inputs and outputs in float32. Raises `Unsupported` at the
    stage `convert`, with the reason of ONNX Runtime's converter."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    try:
        model = convert_float_to_float16(onnx.load(str(file)), keep_io_types=True)
    except Exception as error:  # the converter raises any error
        reason = f"ONNX Runtime's converter to float16: {type(error).__name__}: {error}"
        raise Unsupported(reason, error_type="unsupported_dtype", stage=Stage.CONVERT) from error
    return _saved(model, file, folder)


def _saved(model: Any, file: Path, folder: Path) -> Path:
    import onnx

    digest = hashlib.sha256(str(file).encode()).hexdigest()[:12]  # files of several shapes have one name
    made = folder / f"{file.stem}-{digest}.onnx"
    onnx.save(model, str(made))
    return made
