"""A small `.tflite` file, written field by field: tanh(x @ weights.T + bias)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np

FULLY_CONNECTED, TANH, FULLY_CONNECTED_OPTIONS = 9, 28, 8


def write_tflite(file: Path, weights: np.ndarray, bias: np.ndarray, *, batch: int = 2) -> Path:
    """Write the file, with the input `x` and the output `y`."""
    builder = flatbuffers.Builder(1024)

    def table(**fields: Any) -> int:
        """A table of fields `_<slot>=(kind, value)`."""
        builder.StartObject(6)
        for name, (kind, value) in fields.items():
            getattr(builder, f"Prepend{kind}Slot")(int(name[1:]), value, 0)
        return builder.EndObject()

    def offsets(items: list[int]) -> int:
        builder.StartVector(4, len(items), 4)
        for one in reversed(items):
            builder.PrependUOffsetTRelative(one)
        return builder.EndVector()

    def numbers(*values: int) -> int:
        return builder.CreateNumpyVector(np.array(values, np.int32))

    def tensor(name: str, shape: tuple[int, ...], buffer: int) -> int:
        text, sizes = builder.CreateString(name), numbers(*shape)
        offset = "UOffsetTRelative"
        return table(_0=(offset, sizes), _2=("Uint32", buffer), _3=(offset, text))

    def operator(code: int, inputs: int, outputs: int, options: int = 0) -> int:
        more = {"_3": ("Uint8", FULLY_CONNECTED_OPTIONS), "_4": ("UOffsetTRelative", options)} if options else {}
        offset = "UOffsetTRelative"
        return table(_0=("Uint32", code), _1=(offset, inputs), _2=(offset, outputs), **more)

    offset = "UOffsetTRelative"
    kept = [np.ascontiguousarray(one, np.float32).view(np.uint8).ravel() for one in (weights, bias)]
    buffers = [table(), *(table(_0=(offset, builder.CreateNumpyVector(one))) for one in kept)]
    rows, columns = weights.shape
    tensors = [
        tensor("x", (batch, columns), 0),
        tensor("weights", weights.shape, 1),
        tensor("bias", bias.shape, 2),
        tensor("sum", (batch, rows), 0),
        tensor("y", (batch, rows), 0),
    ]
    operators = [operator(0, numbers(0, 1, 2), numbers(3), table()), operator(1, numbers(3), numbers(4))]
    parts = [offsets(tensors), numbers(0), numbers(4), offsets(operators)]
    graph = table(**{f"_{slot}": (offset, one) for slot, one in enumerate(parts)})
    codes = [table(_0=("Int8", code), _2=("Int32", 1), _3=("Int32", code)) for code in (FULLY_CONNECTED, TANH)]
    lists = [offsets(codes), offsets([graph]), offsets(buffers)]
    model = table(_0=("Uint32", 3), _1=(offset, lists[0]), _2=(offset, lists[1]), _4=(offset, lists[2]))
    builder.Finish(model, file_identifier=b"TFL3")
    file.write_bytes(bytes(builder.Output()))
    return file
