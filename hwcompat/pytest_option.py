"""The pytest plugin of the entry point `hwcompat`. Without `--hwcompat` it imports and does nothing."""

from __future__ import annotations

import sys

import pytest


class _NotAsked:
    """The fixture of a session without `--hwcompat`."""

    @pytest.fixture
    def device_cell(self) -> None:
        """Skip the test."""
        pytest.skip("device_cell needs --hwcompat")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    group = parser.getgroup("hwcompat", "tests of your own modules on devices")
    group.addoption("--hwcompat", action="store_true", help="Run tests with device_cell, and record evidence.")
    group.addoption(
        "--hwcompat-expected",
        metavar="FILE.csv",
        help="Expected results (name,accuracy): a cell that fails as expected is xfailed, one that passes fails.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixture in place of this module: results of generated suites don't count beside other plugins."""
    fixtures: object = _NotAsked()
    if config.getoption("--hwcompat-expected") and not config.getoption("--hwcompat"):
        raise pytest.UsageError("--hwcompat-expected needs --hwcompat: without it no test of a device runs")
    if config.getoption("--hwcompat"):
        from .device_cell import DeviceCells

        fixtures = DeviceCells(config)
    config.pluginmanager.register(fixtures, "hwcompat-device-cells")
    config.pluginmanager.unregister(sys.modules[__name__])
