"""Which plug-ins, beside pytest's own and ours, were loaded by name into the process in which a suite runs."""

from __future__ import annotations

from types import ModuleType

import pytest

_KNOWN = ("_pytest", "pytest", "hardware.testing")


def plugins_by_name(manager: pytest.PytestPluginManager) -> tuple[str, ...]:
    """The modules that somebody had pytest load, as `-p NAME`, `PYTEST_PLUGINS` or `pytest_plugins` do, sorted.

    Such a module can make anything of a check. What an installed distribution registers isn't among them: it is there
    for all tests of an environment, and isolated suites load none of it. For conftest.py files see `conftests.py`.
    """
    installed = {id(plugin) for plugin, _ in manager.list_plugin_distinfo()}
    modules = (one for one in manager.get_plugins() if isinstance(one, ModuleType) and id(one) not in installed)
    return tuple(sorted(one.__name__ for one in modules if not _is_known(one)))


def _is_known(module: ModuleType) -> bool:
    name = module.__name__
    in_package = any(name == known or name.startswith(f"{known}.") for known in _KNOWN)
    return in_package or (module.__file__ or "").endswith("conftest.py")
