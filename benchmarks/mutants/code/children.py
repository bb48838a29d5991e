"""A pytest plugin that measures coverage of child processes of tests, but not of pytest's workers."""

from __future__ import annotations

import os
from typing import Any

SETTINGS = "HWCOMPAT_MUTANTS_COVERAGE"
_STARTS = "COVERAGE_PROCESS_START"
"""The variable that coverage reads when an interpreter starts. Source: coverage.readthedocs.io, "Managing
processes"."""


def pytest_configure(config: Any) -> None:
    """Enable coverage for processes that a worker starts."""
    if hasattr(config, "workerinput"):
        os.environ[_STARTS] = os.environ[SETTINGS]
