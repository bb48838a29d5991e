"""Runners of bundles on nodes of a cluster: how they end."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from hwcompat.plugins.fleet import ray_node


def packed(text: str, name: str = "suite/run.py") -> tuple[str, bytes]:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return hashlib.sha256(data.getvalue()).hexdigest(), data.getvalue()


def test_a_runner_ends_with_its_input_and_one_that_dies_leaves_its_last_words(tmp_path: Path) -> None:
    text = f"import os, sys; print({{}}, flush=True); sys.stdin.read(); os.rmdir({str(tmp_path / 'x')!r})"
    (tmp_path / "x").mkdir()
    runner = ray_node.NodeRunner(packed(text)[1])
    assert runner.ask({}) == {}
    runner.close()
    assert not runner.is_alive
    assert not (tmp_path / "x").exists()
    assert not runner.root.exists()
    runner = ray_node.NodeRunner(packed("import sys; sys.exit('out of luck')")[1])
    with pytest.raises(ray_node.RunnerLost, match="ended with 1: out of luck"):
        runner.ask({"do": "report"})
    runner.close()


def test_another_bundle_or_one_that_leaves_its_folder_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="arrived damaged"):
        ray_node.answer((packed("1")[0], lambda: packed("2")[1]), {})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("../out.py", "/tmp/hwcompat-out.py", "suite/../../out.py"):
        with pytest.raises(ValueError, match="outside its folder"):
            ray_node.NodeRunner(packed("1", name)[1])
    assert list(tmp_path.rglob("*out.py")) == []
