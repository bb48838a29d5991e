"""The files that hold a graph file's weights, and the hash of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import BrokenInput, echo
from ..file_formats import format_name
from ..safe_read import check_not_sparse, is_inside, is_plain_file, opened


def graph_hash(file: Path) -> str:
    """Return the SHA-256 over the bytes of a graph file and of its files of weights, in the order of their names."""
    digest = hashlib.sha256()
    for path in (file, *weight_files(file)):
        with opened(path) as read:
            check_not_sparse(read)
            while block := read.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def weight_files(file: Path) -> tuple[Path, ...]:
    """Return the files of weights beside a graph file: the `.bin` of an `.xml`, external data of an `.onnx`.

    Raises `BrokenInput` if one is missing or outside the graph file's folder.
    """
    name = format_name(file)
    if name == "ir":
        weights = file.with_suffix(".bin")
        return (weights,) if is_plain_file(weights) else ()
    if name not in ("onnx", ""):  # its weights are inside
        return ()
    import onnx
    from onnx.external_data_helper import uses_external_data

    model = onnx.load(str(file), load_external_data=False)
    names = {_location(one) for one in parts_of(model, onnx.TensorProto) if uses_external_data(one)}
    if not all(isinstance(name, str) for name in names):  # protobuf returns bytes for invalid UTF-8
        raise BrokenInput(
            f"{echo(file.name)} has an invalid name of a weight file",
            fix="Save it again with its data in the same folder.",
        )
    found = []
    for name in sorted(names):
        path = file.parent / name
        if Path(name).is_absolute() or not is_inside(path, file.parent):
            raise BrokenInput(
                f"{echo(file.name)} has weights outside its folder",
                why=f"it names {echo(name)}",
                fix="Save it again with its data in the same folder.",
            )
        if not is_plain_file(path):
            raise BrokenInput(
                f"the weights of {echo(file.name)} are missing",
                why=f"{echo(name)} is not in the same folder",
                fix="Copy it there; it was written together with the .onnx file.",
            )
        found.append(path)
    return tuple(found)


def _location(tensor: Any) -> str:
    """Return the file that a tensor names. The last key counts, as in ONNX, which warns of other keys."""
    return next((entry.value for entry in reversed(tensor.external_data) if entry.key == "location"), "")


def parts_of(message: Any, kind: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages in it that are of a kind."""
    if isinstance(message, kind):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in (value,) if hasattr(value, "ListFields") else value:
                yield from parts_of(part, kind)
