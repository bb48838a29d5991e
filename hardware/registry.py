"""A registry of named objects: the modules of a package, and the entry points of installed packages.

Targets, vendors, kinds of storage, report formats and plugins use it. Every module or package in the registry's
package is one object, with the name of the module:

    # hwcompat/plugins/__init__.py, beside fleet/ and web_page.py
    PLUGINS: Registry[Plugin] = Registry(group="hwcompat.plugins", package=__name__, kind=Plugin, noun="plugin")

`kind` is the type of the objects. If it is an abstract class, each module defines one subclass of it. Otherwise each
module creates one instance, such as `PLUGIN = Plugin(...)` in `hwcompat/plugins/fleet/__init__.py`. An external
package adds its own in its `pyproject.toml`:

    [project.entry-points."hwcompat.plugins"]
    mine = "my_package.module:PLUGIN"

`PLUGINS.names()` imports none of them, `PLUGINS.load("fleet")` imports one, and `PLUGINS.load_all()` returns all that
can be loaded, and by name why the others can't. An external package can't replace a built-in name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .errors import BrokenPlugin, echo

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

GROUPS = "hwcompat."
"""The prefix of our groups of entry points."""


@dataclass(frozen=True, kw_only=True)
class Registered(Generic[T]):
    """All objects of a registry that could be loaded, in order, and by name why the others couldn't."""

    found: Mapping[str, T]
    failures: Mapping[str, str]


class Registry(Generic[T]):
    """Objects of one kind by name, imported on first use.

    Modules of `package` are built-in objects, except private ones and those in `besides`. `check` raises `TypeError`
    for an incomplete object. `noun` names the kind in errors. Names in `first` are listed first, the others are
    sorted.
    """

    def __init__(
        self,
        *,
        group: str,
        package: str,
        kind: type[Any],
        noun: str,
        first: Sequence[str] = (),
        besides: frozenset[str] = frozenset(),
        check: Callable[[Any], None] | None = None,
    ) -> None:
        self.group = group
        self.package = package
        self._kind = kind
        self._noun = noun
        self._first = tuple(first)
        self._besides = besides
        self._check = check
        self.forget()

    def forget(self) -> None:
        """Search for modules and load objects again on next use; for tests."""
        self._shipped: tuple[str, ...] | None = None
        self._loaded: dict[str, T] = {}
        self._all: Registered[T] | None = None

    def shipped(self) -> tuple[str, ...]:
        """Return the names of built-in objects in order. Imports none of them."""
        if self._shipped is None:
            names = {module.name for module in pkgutil.iter_modules(self._package().__path__)}
            self._shipped = self._in_order(name for name in names - self._besides if not name.startswith("_"))
        return self._shipped

    def added(self) -> Mapping[str, EntryPoint]:
        """Return external entry points by name, except those with a built-in name. Imports none."""
        shipped = set(self.shipped())
        return {name: point for name, point in entry_points(self.group).items() if name not in shipped}

    def names(self) -> tuple[str, ...]:
        """Return the names of all objects in order. Imports none."""
        return self._in_order({*self.shipped(), *self.added()})

    def load(self, name: str) -> T:
        """Return the object with a name.

        Raises `KeyError` for an unknown name, and `BrokenPlugin` for an external one that can't be used. Errors of
        built-in modules are raised unchanged.
        """
        if name in self.shipped():
            if name not in self._loaded:
                self._loaded[name] = self._checked(self._in_module(name))
            return self._loaded[name]
        point = self.added()[name]
        try:
            found = point.load()
        except Exception as error:  # a plugin may raise anything
            raise BrokenPlugin(
                f"the plugin {echo(name)} ({point.value}) can't be imported",
                why=f"{type(error).__name__}: {error}",
                fix="Fix or uninstall the plugin.",
            ) from error
        try:
            return self._checked(found)
        except TypeError as error:
            raise BrokenPlugin(
                f"the plugin {echo(name)} ({point.value}) is not a {self._noun}", why=str(error)
            ) from error

    def load_all(self) -> Registered[T]:
        """Load all objects once. Those that fail are left out, with their reason."""
        if self._all is None:
            found: dict[str, T] = {}
            failures: dict[str, str] = {}
            for name in self.names():
                try:
                    found[name] = self.load(name)
                except Exception as error:  # as above
                    cause = error.__cause__ if isinstance(error, BrokenPlugin) and error.__cause__ else error
                    failures[name] = f"{type(cause).__name__}: {cause}"
            self._all = Registered(found=found, failures=failures)
        return self._all

    @functools.cached_property
    def versions(self) -> Mapping[str, str]:
        """Return for each external object the version of its package and a hash of its sources."""
        return {name: _version_of(point) for name, point in self.added().items()}

    def _in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        rank = {name: position for position, name in enumerate(self._first)}
        return tuple(sorted(names, key=lambda name: (rank.get(name, len(rank)), name)))

    def _package(self) -> ModuleType:
        return importlib.import_module(self.package)

    def _in_module(self, name: str) -> object:
        module = importlib.import_module(f".{name}", package=self.package)
        found = [value for value in vars(module).values() if self._is_of_kind(value)]
        found = [value for value in found if not isinstance(value, type) or value.__module__ == module.__name__]
        if len(found) != 1:
            raise TypeError(f"{name}.py must define one {self._kind.__name__}, not {len(found)}")
        return found[0]

    def _is_of_kind(self, value: object) -> bool:
        if inspect.isabstract(self._kind):
            return isinstance(value, type) and issubclass(value, self._kind)
        return isinstance(value, self._kind)

    def _checked(self, found: Any) -> T:
        if not self._is_of_kind(found):
            raise TypeError(f"{found!r} is not a {self._kind.__name__}")
        if self._check is not None:
            self._check(found)
        if lacking := getattr(found, "__abstractmethods__", None):
            raise TypeError(f"{found.__name__} lacks {', '.join(sorted(lacking))}")
        thing: T = found
        return thing


@functools.cache
def _is_any_declared() -> bool:
    """Return whether any package declares an entry point of ours. Most machines have none, and the library that
    reads them takes longer than a whole inventory."""
    for place in sys.path:
        with contextlib.suppress(OSError):  # it isn't a folder
            for entry in os.listdir(place or "."):
                if entry.endswith((".dist-info", ".egg-info")):
                    with contextlib.suppress(OSError):
                        if GROUPS in Path(place, entry, "entry_points.txt").read_text(errors="replace"):
                            return True
    return False


@functools.cache
def _all_entry_points() -> Any:  # Python 3.11 gives another type than later ones, with the same `select`
    import importlib.metadata

    return importlib.metadata.entry_points()


def entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, read once per process. Loads none."""
    return {point.name: point for point in _all_entry_points().select(group=group)} if _is_any_declared() else {}


def _version_of(point: EntryPoint) -> str:
    import hashlib  # slow to import, and not needed for an inventory
    import importlib.util

    released = point.dist.version if point.dist is not None else "unknown"
    spec = importlib.util.find_spec(point.module.partition(".")[0])
    places = [] if spec is None else [*(spec.submodule_search_locations or [str(spec.origin)])]
    files = [
        file for place in places for file in ([Path(place)] if place.endswith(".py") else Path(place).rglob("*.py"))
    ]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files) if file.is_file()))
    return f"{released}+{digest.hexdigest()[:12]}"
