"""Warm up a runner's parent: import what suites need and run pytest once, without computing a tensor.

After one large matrix product in the parent, a forked child would hang in OpenMP.
"""

from __future__ import annotations

import functools
import gc
import importlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from ..backends.factory import backend_class, class_of
from ..errors import BrokenInput, HwCompatError
from ..gc_control import uncollected
from ..process import Forked
from ..target import Target
from .checkpoints import named_folders, weights_hash
from .pytest_environment import shielded
from .suite_file import SuiteFile

_warmed_here = False
_NO_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Make `torch.cuda.is_available`, which some modeling files call on import, use NVML: no child can use a device if
its parent initialized CUDA's driver. NVML may list a device that CUDA can't start. Source:
https://docs.pytorch.org/docs/stable/notes/multiprocessing.html"""


def may_fork(target: Target) -> bool:
    """Whether a child may be forked: the target survives it, and torch was imported by `warm_up` alone.

    A parent that has computed with torch would pass its children an OpenMP pool whose threads don't exist.
    """
    backend = backend_class(target.name)
    return _warmed_here and backend.FORK_SAFE and not _driver_was_asked(getattr(backend, "DEVICE_TYPE", ""))


def _driver_was_asked(device_type: str) -> bool:
    """Whether an import initialized a driver: no forked child could use its devices then."""
    import torch

    is_in_bad_fork = getattr(getattr(torch, device_type or "cpu", None), "_is_in_bad_fork", None)
    return is_in_bad_fork is not None and Forked(lambda: int(is_in_bad_fork())).wait() != 0


def warm_up(suites: Sequence[SuiteFile]) -> None:
    """Import what the suites need, run pytest once on an empty test, and freeze objects for the garbage collector."""
    global _warmed_here
    _warmed_here = _warmed_here or "torch" not in sys.modules
    # Threads that spin while they wait would starve their siblings as soon as two processes share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with uncollected(), _no_driver_asked():
        _import_all(suites)
    if any(suite.model_revision for suite in suites):
        _hash_weights()
    _warm_pytest()
    gc.collect()
    gc.freeze()


@contextmanager
def _no_driver_asked() -> Iterator[None]:
    """Make `torch.cuda.is_available` use NVML in this block. Children use CUDA again, which is more exact."""
    before = os.environ.get(_NO_DRIVER)
    os.environ.setdefault(_NO_DRIVER, "1")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_DRIVER]


def _import_all(suites: Sequence[SuiteFile]) -> None:
    """Import the runner, the targets' runtimes and the models' modules."""
    names = {"torch", "transformers", "hwcompat.hardware.testing.pytest_plugin", "safetensors.numpy"}
    for target in {suite.cell.target for suite in suites}:
        with suppress(HwCompatError):  # the suite itself reports what the target lacks
            class_of(target)(target)  # sets what its runtime reads when it is imported
        names.update(backend_class(target.name).WARM_IMPORTS)
    for name in sorted(names):
        with suppress(Exception):  # the suite itself reports what is missing or broken
            importlib.import_module(name)
    _import_classes(suites)


@functools.cache
def _warm_pytest() -> None:
    """Run pytest once in this process: the first run takes seconds, and children inherit what it loaded."""
    import pytest

    unheard = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(unheard), redirect_stderr(unheard), shielded():
        empty = Path(folder) / "test_nothing.py"
        empty.write_text("def test_nothing():\n    assert True\n", encoding="utf-8")
        pytest.main([str(empty), "-c", str(Path(__file__).with_name("suite.ini")), f"--rootdir={folder}"])


def _import_classes(suites: Sequence[SuiteFile]) -> None:
    """Name the models' classes once, since libraries import a model's module only then."""
    for library, name in sorted({(suite.library, name) for suite in suites for name in suite.library_names}):
        with suppress(Exception):  # the suite's own import reports the error
            getattr(importlib.import_module(library), name)


def _hash_weights() -> None:
    """Hash weights once, so that forked children inherit the hashes and don't read the files again."""
    for folder in named_folders():
        with suppress(BrokenInput, OSError):  # the suite itself reports what is wrong
            weights_hash(folder)
