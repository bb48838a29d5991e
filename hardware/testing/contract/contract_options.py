"""The options of both contracts, as a plug-in of pytest: to be named with `-p` outside the repository.

`--accelerator` is asked in this folder, `--backend` in `generators/contract`: a backend is asked for models.
"""

from __future__ import annotations

import pytest

from ...backends.factory import resolve_target
from ...errors import HwCompatError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Names of what is asked; each may be repeated."""
    group = parser.getgroup("hwcompat", "contracts of plugins")
    group.addoption("--accelerator", action="append", default=[], help="Test this vendor. Repeatable.")
    group.addoption(
        "--machines",
        action="append",
        default=[],
        help="Test with this recorded machine, or a folder of them: --machines=DIR.",
    )
    group.addoption("--backend", action="append", default=[], help="Test this target's backend. Repeatable.")


def pytest_configure(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` at once for unknown names of backends."""
    for name in config.getoption("--backend"):
        try:
            resolve_target(name)
        except HwCompatError as error:
            raise pytest.UsageError(f"{error} Is its package installed in this environment?") from error


def asked_for(config: pytest.Config, option: str) -> list[str]:
    """The names after `--option`. Raises `pytest.UsageError` where there is none: then nothing would be proved."""
    names: list[str] = config.getoption(option)
    if not names:
        raise pytest.UsageError(f"nothing to test. Give --{option} NAME")
    return names
