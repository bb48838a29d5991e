"""What users bring: their own modules and graph files, told from other names without running or opening anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from generators.models.classifier import classify, kind_of
from hardware.errors import BrokenInput, ModelError


def test_a_factory_is_told_by_its_name_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud_module.py").write_text("raise SystemExit('it was run')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = classify("loud_module:make")
    assert (found.task, found.family, found.architecture) == ("module-forward", "other", "unknown")
    assert (found.confidence, "doesn't run" in found.source) == ("low", True)
    assert "loud_module" not in sys.modules


@pytest.mark.parametrize("name", ["net.onnx", "NET.ONNX", "net.xml"])
def test_a_graph_file_is_told_by_its_ending(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not read")
    found = classify(str(tmp_path / name))
    assert (found.task, found.model_type, found.confidence) == ("graph-forward", "unknown", "low")


def test_a_folder_with_such_an_ending_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").mkdir()
    assert kind_of(str(tmp_path / "mine.onnx")) == ""
    with pytest.raises(BrokenInput, match=r"no config\.json"):
        classify(str(tmp_path / "mine.onnx"))


def test_a_graph_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        classify(str(tmp_path / "gone.onnx"))
    (tmp_path / "empty.xml").touch()
    with pytest.raises(BrokenInput, match="is empty"):
        classify(str(tmp_path / "empty.xml"))


@pytest.mark.parametrize("name", ["a b:c", "1a:b", "a:", ":b", "a:b:c", "a-b:c", "a.:b", "../a:b", "a:b()", "a:b;c"])
def test_what_only_looks_like_a_factory_is_no_name_of_a_model(name: str) -> None:
    assert kind_of(name) == ""
    with pytest.raises(ModelError):
        classify(name)
