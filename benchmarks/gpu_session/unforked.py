"""Run the product with a new process for each suite, for devices whose drivers don't support fork."""

from __future__ import annotations

import runpy
import sys

from hardware.backends.base import BaseBackend

from .stages import ROOT

if __name__ == "__main__":
    BaseBackend.FORK_SAFE = False
    sys.argv[0] = str(ROOT / "run_test_generation.py")
    runpy.run_path(sys.argv[0], run_name="__main__")
