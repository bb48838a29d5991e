"""A plugin of pytest that has children of the tests measured by coverage, and not the workers that run the tests."""

from __future__ import annotations

import os
from typing import Any

SETTINGS = "HWCOMPAT_MUTANTS_COVERAGE"
_STARTS = "COVERAGE_PROCESS_START"
"""What coverage reads when an interpreter starts, from coverage.readthedocs.io, "Managing processes"."""


def pytest_configure(config: Any) -> None:
    """Tell what a worker starts from now on."""
    if hasattr(config, "workerinput"):
        os.environ[_STARTS] = os.environ[SETTINGS]
