"""The environment of a process that runs suites: what a caller's shell says to its own pytest is none of ours."""

from __future__ import annotations

from collections.abc import MutableMapping

REWRITERS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
"""Variables by which a shell that once ran other tests would deselect or rewrite ours."""


def shield_pytest(environment: MutableMapping[str, str]) -> None:
    """Take out of an environment what would change how pytest runs a suite."""
    for name in REWRITERS:
        environment.pop(name, None)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
