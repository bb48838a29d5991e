"""Weights of an export in 8 bits, by NNCF: each product's other side stays in floating point."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from ..backends.base import Unsupported
from ..evidence.record import Stage
from .exported import Exported
from .keeping import versions_of

_BYTES = ("i8", "u8")


def with_int8_weights(exported: Exported) -> Exported:
    """The same graphs with weights of matrices, embeddings and convolutions in 8 bits, asymmetric, a scale a row.

    They lie beside the export, made once for each version of NNCF. Raises `Unsupported` at the stage `convert` where
    NNCF is missing, or leaves every weight as it is.
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
        reason = "nncf isn't installed (pip install -r requirements.txt)"
        raise Unsupported(reason, error_type="missing_dependency", stage=Stage.CONVERT) from error
    import openvino

    work = Path(tempfile.mkdtemp(prefix="int8-", dir=kept.parent))
    core = openvino.Core()
    try:
        compressed = 0
        for file in sorted(folder.iterdir()):
            if file.suffix == ".xml":
                model = nncf.compress_weights(core.read_model(file), mode=nncf.CompressWeightsMode.INT8_ASYM)
                compressed += _weights_in_bytes(model)
                openvino.save_model(model, work / file.name, compress_to_fp16=False)
            elif not (file.suffix == ".bin" and file.with_suffix(".xml").exists()):
                shutil.copy2(file, work / file.name)
        if not compressed:
            reason = "NNCF leaves every weight of this model as it is"
            raise Unsupported(reason, error_type="unsupported_dtype", stage=Stage.CONVERT)
        with contextlib.suppress(OSError):  # another process was faster
            os.replace(work, kept)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _weights_in_bytes(model: object) -> int:
    nodes = model.get_ordered_ops()  # type: ignore[attr-defined] # openvino is Any to mypy
    return sum(
        node.get_type_name() == "Constant"
        and node.get_element_type().get_type_name() in _BYTES
        and len(node.get_output_shape(0)) > 1
        for node in nodes
    )
