"""The names `hardware`, `generators` and `reports`, which exist only in a checkout.

There `import hardware` finds the folder of that name. Importing it gives the package `hwcompat.hardware`, and its
modules are the same objects under both names: a second copy would have its own classes, caches and registries.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "hwcompat"


class _Alias(Loader):
    """Loads a module by returning the one with its full name, which stays as it is."""

    def __init__(self, found: ModuleSpec) -> None:
        self._found = found

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._found.name)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # the import system has set that of the alias

    def get_code(self, fullname: str) -> CodeType:
        """Return the code, for `python -m`."""
        loader: Any = self._found.loader
        code: CodeType = loader.get_code(self._found.name)
        return code


class _Aliases(MetaPathFinder):
    """Finds the modules of packages that have a second name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, dot, _ = fullname.partition(".")
        package = sys.modules.get(top)
        if not dot or package is None or package is not sys.modules.get(f"{PACKAGE}.{top}"):
            return None
        found = find_spec(f"{PACKAGE}.{fullname}")
        if found is None:
            return None
        spec = spec_from_loader(fullname, _Alias(found), origin=found.origin)
        if spec is not None:
            spec.submodule_search_locations = found.submodule_search_locations
        return spec


_ALIASES = _Aliases()


def give_full_name(name: str) -> None:
    """Make the package that is being imported as `name` the one in `hwcompat`, with all modules of it."""
    if _ALIASES not in sys.meta_path:
        sys.meta_path.insert(0, _ALIASES)
    sys.modules[name] = importlib.import_module(f"{PACKAGE}.{name}")
