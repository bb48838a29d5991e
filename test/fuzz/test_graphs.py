"""Graph files from anywhere, ONNX's and OpenVINO's: weights that lie elsewhere, sizes that can't be, broken bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from watched import Broke, Opened, Sentinel, Surroundings, limited, refused_or

from generators.recipes.graph_file import derive_graph
from hardware.errors import BrokenInput, ModelError
from hardware.testing.graph_weights import graph_hash, weight_files

FLOAT = TensorProto.FLOAT


def model(*nodes: onnx.NodeProto, **constants: Any) -> onnx.ModelProto:
    """A graph from `x` to `y`, by default their product with a matrix."""
    known = constants or {"weights": np.arange(12, dtype=np.float32).reshape(3, 4)}
    graph = helper.make_graph(
        list(nodes) or [helper.make_node("MatMul", ["x", "weights"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", FLOAT, [None, None])],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def elsewhere(made: onnx.ModelProto, location: str, where: str) -> onnx.ModelProto:
    """The model with a constant that lies in another file: an initializer, or one inside of a node or function."""
    tensor = onnx.TensorProto()
    tensor.CopyFrom(made.graph.initializer[0])
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "48")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    if where == "initializer":
        made.graph.initializer[0].CopyFrom(tensor)
    elif where == "constant":
        made.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))
    elif where == "list":
        made.graph.node.append(helper.make_node("Constant", [], ["c"], values=[tensor]))
    elif where == "sparse":
        made.graph.sparse_initializer.add().values.CopyFrom(tensor)
    elif where == "function":
        made.functions.add(name="f", domain="d").node.append(helper.make_node("Constant", [], ["c"], value=tensor))
    else:
        inner = helper.make_graph([], "inner", [], [], [tensor])
        made.graph.node.append(helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner))
    return made


PLACES = ("initializer", "constant", "list", "sparse", "function", "inner")


def looked_at(path: Path) -> tuple[Path, ...] | None:
    """The files of a graph's weights; None where it is refused, or is no .onnx file, which who reads on says."""
    try:
        found: tuple[Path, ...] | None = refused_or(weight_files, path)
    except Exception as error:
        if type(error).__name__ != "DecodeError":
            raise
        return None
    return found


@pytest.mark.fuzz(150)
def test_weights_lie_beside_the_graph_or_it_is_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    (place.parent / "secret.bin").write_bytes(b"\1" * 48)

    for hostile in fuzz:
        shutil.rmtree(place)
        place.mkdir()
        (place / "linked.bin").symlink_to("../secret.bin")
        (place / "beside.bin").write_bytes(b"\1" * 48)
        names = ("../secret.bin", str(place.parent / "secret.bin"), "linked.bin", "beside.bin", "./beside.bin",
                 "x/../../secret.bin", "/etc/hostname", "/dev/zero", "nothing.bin", hostile.name())  # fmt: skip
        location = hostile.choice(names).encode(errors="replace").decode()
        data = elsewhere(model(), location, hostile.choice(PLACES)).SerializeToString()
        (place / "a.onnx").write_bytes(data if hostile.random() < 0.8 else hostile.bytes(data))
        with Opened(place.parent) as opened:
            found = looked_at(place / "a.onnx")
            if found is not None:
                assert {path.resolve().parent for path in found} <= {place}
                refused_or(graph_hash, place / "a.onnx")
        assert opened.names <= {"open inner/a.onnx", "open inner/beside.bin", "open inner/./beside.bin"}


def test_a_constant_that_lies_outside_is_found_wherever_it_hides(place: Path) -> None:
    (place.parent / "secret.bin").write_bytes(b"\1" * 48)
    for where in PLACES:
        for location in ("../secret.bin", str(place.parent / "secret.bin")):
            (place / "a.onnx").write_bytes(elsewhere(model(), location, where).SerializeToString())
            with pytest.raises(BrokenInput, match="outside its folder"):
                weight_files(place / "a.onnx")


LITTLE = 2 << 30
"""Bytes of memory: torch, OpenVINO and ONNX Runtime alone take 1.1 GiB of addresses where none is loaded yet."""


@pytest.mark.fuzz(25)
def test_a_graph_is_derived_or_refused_with_little_memory(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    made = model().SerializeToString()
    around = Surroundings(place.parent, place)

    for hostile in fuzz:
        path = place / hostile.choice(("a.onnx", "b.onnx"))
        path.write_bytes(hostile.bytes(made) if hostile.random() < 0.9 else hostile.text().encode(errors="replace"))
        limited(derive_graph, str(path), memory=LITTLE)
    around.check()


NODE = helper.make_node
BOMBS = {
    "a constant of a trillion": model(
        NODE("ConstantOfShape", ["n"], ["c"]), NODE("Add", ["x", "c"], ["y"]), n=np.array([10**12])
    ),
    "a tile": model(NODE("Tile", ["x", "n"], ["y"]), n=np.array([10**6, 10**6])),
    "an expand": model(NODE("Expand", ["x", "n"], ["y"]), n=np.array([10**9, 1, 3])),
    "a range": model(
        NODE("Range", ["a", "b", "c"], ["r"]),
        NODE("Identity", ["x"], ["y"]),
        **{name: np.array(value, np.float32) for name, value in (("a", 0), ("b", 1e12), ("c", 1))},
    ),
    "doublings": model(
        *(NODE("Concat", [f"d{n}", f"d{n}"], [f"d{n + 1}"], axis=0) for n in range(60)),
        NODE("Identity", ["d60"], ["y"]),
        d0=np.zeros((9, 3), np.float32),
    ),
}


def said_of(path: Path, memory: int = LITTLE) -> tuple[str, str]:
    """The class and the text of the error that deriving a graph ends with, in a process with little memory."""

    def derive() -> tuple[str, str]:
        try:
            derive_graph(str(path))
        except (ModelError, BrokenInput, MemoryError) as error:
            return type(error).__name__, str(error)
        return "", ""

    try:
        found: tuple[str, str] = limited(derive, memory=memory)
    except Broke:  # that process was ended, and no other
        return "MemoryError", ""
    return found


def test_a_graph_that_asks_for_terabytes_ends_in_its_own_process(place: Path) -> None:
    for name, bomb in BOMBS.items():
        (place / "a.onnx").write_bytes(bomb.SerializeToString())
        assert said_of(place / "a.onnx")[0] in ("ModelError", "MemoryError"), name
    (place / "a.onnx").write_bytes(model().SerializeToString())
    assert said_of(place / "a.onnx") == ("", "")


def test_openvino_files_are_read_without_what_they_name(place: Path) -> None:
    pytest.importorskip("openvino")
    (place.parent / "secret").write_text("very-secret-text")
    entity = f'<!DOCTYPE net [<!ENTITY x SYSTEM "{place.parent / "secret"}">]>'
    more = "".join(f"<!ENTITY {b} '{f'&{a};' * 100}'>" for a, b in zip("abcdef", "bcdefg", strict=True))
    laughs = f"<!DOCTYPE net [<!ENTITY a '{'x' * 1000}'>{more}]>"
    for head, body in ((entity, "&x;"), (laughs, "&g;"), ("", "<layers>" * 10_000), ("", "<layers/>")):
        (place / "a.xml").write_text(f'<?xml version="1.0"?>{head}<net name="{body[:3]}" version="11">{body}</net>')
        (place / "a.bin").write_bytes(b"")
        kind, text = said_of(place / "a.xml")
        assert kind in ("BrokenInput", "ModelError")
        assert "very-secret-text" not in text
