"""Files of models: each format is recognized, and refused with its own reason and what to do, or run."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from evidence_lines import check_line

from generators.compatibility.fault import fault_of
from generators.compatibility.grade import grade
from generators.compatibility.verdict import Fault, Level
from generators.models.classifier import classify, kind_of
from hardware.backends.base import Unsupported
from hardware.backends.factory import get_backend, refuse_unread, targets_that_read
from hardware.cell import Cell
from hardware.errors import BrokenInput, ModelRefused
from hardware.evidence.record import Outcome
from hardware.file_formats import formats, graph_format
from hardware.testing.graph_files import open_reference


def zipped(file: Path, *names: str) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file


REFUSED = {
    "net.pth": (b"\x80\x02}q\x00.", "a pickle"),
    "net.safetensors": (b"\2\0\0\0\0\0\0\0{}", "without the code"),
    "net.gguf": (b"GGUF\3\0\0\0", "llama.cpp"),
    "net.engine": (b"ftrt\0\0\1", "TensorRT engine"),
    "net.plan": (b"ptrt\0\0\1", "TensorRT engine"),
    "net.mlmodel": (b"\x08\x05", "Core ML"),
    "net.pb": (b"\n\x0b\n\x01x", "TensorFlow graph"),
    "net.h5": (b"\x89HDF\r\n\x1a\n", "HDF5"),
    "other.onnx": (b"\x89HDF\r\n\x1a\n", "HDF5"),
    "pointer.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "pointer of Git LFS"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_format_that_no_target_runs_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    content, reason = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelRefused, match=reason) as caught:
        classify(str(tmp_path / name))
    assert caught.value.fix
    expected = "corrupt_checkpoint" if name == "pointer.onnx" else "unsupported_format"
    assert caught.value.error_type == expected


def test_archives_are_recognized_by_the_names_in_them_and_folders_by_their_files(tmp_path: Path) -> None:
    for file, known in (
        (zipped(tmp_path / "code.pt", "code/constants.pkl", "code/data.pkl"), "torchscript"),
        (zipped(tmp_path / "net.pt2", "net/models/model.json", "net/archive_format"), "exported"),
    ):
        assert getattr(graph_format(file), "name", None) == known
        assert kind_of(str(file)) == "graph"
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"\x08\1")
    for path, reason in (
        (zipped(tmp_path / "weights.pt", "weights/data.pkl", "weights/data/0"), "a pickle"),
        (zipped(tmp_path / "net.keras", "config.json", "model.weights.h5"), "Keras"),
        (zipped(tmp_path / "net.zip", "readme.txt"), "an archive"),
        (tmp_path / "saved", "TensorFlow graph"),
    ):
        with pytest.raises(ModelRefused, match=reason):
            classify(str(path))
    (tmp_path / "saved" / "config.json").write_text("{}", encoding="utf-8")  # a checkpoint's folder
    assert graph_format(tmp_path / "saved") is None


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    whole = zipped(tmp_path / "whole.pt", "code/constants.pkl").read_bytes()
    for name, content, reason in (
        ("page.onnx", b"<!DOCTYPE html>", "is text that begins with '<!DOCTYPE html>'"),
        ("lite.onnx", b"\x1c\0\0\0TFL3\0\0", r"is a TensorFlow Lite file. Name it \*.tflite"),
        ("cut.pt", whole[: len(whole) // 2], "truncated"),
        ("notes.dat", b"\0\1", r"unknown format.*\.onnx"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BrokenInput, match=reason):
            classify(str(tmp_path / name))


def test_a_target_names_those_that_read_a_format(tmp_path: Path) -> None:
    for target, name, pointer in (
        ("cpu", "net.xml", "they run on openvino: --device openvino"),
        ("simulated", "net.onnx", "they run on cpu, openvino"),
        ("openvino", "net.pt2", "they run on cpu, cuda"),
        ("cpu", "net.tflite", "they run on openvino"),
    ):
        with pytest.raises(Unsupported, match=pointer) as caught:
            refuse_unread(get_backend(target), tmp_path / name)
        assert caught.value.error_type == "unsupported_format"
    assert all(targets_that_read(one.name) for one in formats() if one.says)


def test_a_format_that_a_target_does_not_read_says_nothing_about_the_device() -> None:
    cell = "net.xml/graph-forward/cpu/float32"
    line = check_line("matches_reference", Outcome.FAILED, cell_id=cell, error_type="unsupported_format")
    assert grade(Cell.parse(cell), ["matches_reference"], [line]).level is Level.UNKNOWN
    assert fault_of(Cell.parse(cell), Level.UNKNOWN, [line], []) is Fault.ROUTE


def test_a_cut_file_and_a_newer_version_of_onnx_are_told_from_a_broken_one(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", ports[:1], ports[1:])
    whole = helper.make_model(graph, ir_version=onnx.IR_VERSION + 1).SerializeToString()
    for content, reason in (
        (whole, f"has IR version {onnx.IR_VERSION + 1} of ONNX"),
        (whole[: len(whole) // 2], "it is truncated"),
        (b"\x08\x09\x13\x00", "it is corrupt, or not an ONNX file"),
    ):
        (tmp_path / "net.onnx").write_bytes(content)
        with pytest.raises(BrokenInput, match=reason):
            open_reference(tmp_path / "net.onnx")
