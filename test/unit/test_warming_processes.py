"""Warming up a parent of suites prints nothing, asks no driver, and forks nothing if one was asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hardware.target import Target
from hardware.testing import warm

pytestmark = pytest.mark.forks

ROOT = Path(__file__).parents[2]
CODE = """
import os
from hardware.testing import warm

seen, imports = [], warm._import_all
warm._import_all = lambda suites: (imports(suites), seen.append(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")))
print("before")
warm.warm_up([])
print(seen, os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
"""


def test_warming_up_prints_nothing_and_asks_no_driver_and_children_do() -> None:
    quiet = ("PYTORCH_NVML_BASED_CUDA_CHECK", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in quiet}
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, env=kept, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("before\n['1'] None\n", "")


def test_no_child_is_forked_if_an_import_asked_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_warmed_here", True)
    assert warm.may_fork(Target.parse("cuda"))
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert not warm.may_fork(Target.parse("cuda"))
    assert warm.may_fork(Target.parse("cpu"))
