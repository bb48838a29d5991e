"""The environment of a process that runs suites, without settings of the caller's own pytest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, MutableMapping

from ..target import Target

REWRITERS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
"""Variables that would deselect or rewrite our tests."""

AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


def shield_pytest(environment: MutableMapping[str, str]) -> None:
    """Remove variables that would change how pytest runs a suite."""
    for name in REWRITERS:
        environment.pop(name, None)
    environment[AUTOLOAD] = "1"


@contextlib.contextmanager
def environment_with(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of this process, remove those whose value is None, and restore all afterwards."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def shielded() -> contextlib.AbstractContextManager[None]:
    """Run pytest in such an environment in this process, which does other work afterwards."""
    return environment_with({**dict.fromkeys(REWRITERS), AUTOLOAD: "1"})


DEVICES_VARIABLE = "HWCOMPAT_DEVICES"


def requested_device(target: Target) -> Target:
    """Return `target` with the index that `HWCOMPAT_DEVICES` (`cuda:1,openvino:GPU.1`) contains for its kind."""
    for text in filter(None, os.environ.get(DEVICES_VARIABLE, "").split(",")):
        named = Target.parse(text.strip())
        if named.kind == target.kind:
            return named
    return target
