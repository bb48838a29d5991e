"""Optional parts of the program: the packages in the folder `hwcompat/plugins`, and entry points of that name.

A part brings commands of `python -m hardware`, jobs that options of the two front doors ask for, and checks that a
report lists. Nothing below `hwcompat` imports a part: it is asked for by name. What a part brings is
imported on first use.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .entry_points import entry_points
from .errors import UsageError

if TYPE_CHECKING:
    import click

GROUP = "hwcompat.plugins"
"""The package whose subpackages are ours, and the group of entry points of others: NAME = "module:PLUGIN"."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What one optional part brings: names such as ".module:function", relative to `package`.

    `commands` are sequences of click commands for `python -m hardware`. `jobs` are functions by the name of what asks
    for them, such as an option. `checks` raise an error if something that a report lists doesn't work. `problems`
    return what this process met, each with the arguments of `HardwareCompatibilityReporter.add_error` as attributes.
    """

    name: str
    package: str
    commands: tuple[str, ...] = ()
    jobs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    checks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def load(self, name: str) -> Any:
        """What ".module:name" says. Raises `ImportError` and `AttributeError`."""
        return found(name, self.package)


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The parts that are here, ours first, and why those of others can't be used, by name."""

    loaded: tuple[Plugin, ...]
    broken: Mapping[str, str]

    def job(self, name: str) -> Any:
        """The function that does a job. Raises `UsageError` if no part that is here does it."""
        for plugin in self.loaded:
            if name in plugin.jobs:
                return plugin.load(plugin.jobs[name])
        raise UsageError(
            f"the part that does {name} isn't installed",
            why=f"none of {', '.join(one.name for one in self.loaded) or 'no plugins'} brings it",
        )

    def commands(self) -> Iterable[click.Command]:
        """All commands for `python -m hardware`."""
        for plugin in self.loaded:
            for name in plugin.commands:
                yield from plugin.load(name)


def found(name: str, package: str | None = None) -> Any:
    """What "module:name" says; ".module:name" is relative to a package. Raises `ImportError` and `AttributeError`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module, package), attribute)


@functools.cache
def plugins() -> Plugins:
    """The parts that are here. One of somebody else's that can't be loaded is left out and told of in `broken`."""
    own = [found(f"{GROUP}.{name}:PLUGIN") for name in _names_of_ours()]
    taken = {plugin.name for plugin in own}
    broken: dict[str, str] = {}
    for name, point in sorted(entry_points(GROUP).items()):
        try:
            plugin = point.load()
            if not isinstance(plugin, Plugin):
                raise TypeError(f"{point.value} is no Plugin")
            if plugin.name in taken:
                raise ValueError(f"there is a plugin {plugin.name} already")
        except Exception as error:  # whatever somebody else's module raises, the others go on
            broken[name] = f"{type(error).__name__}: {error}"
        else:
            own.append(plugin)
            taken.add(plugin.name)
    return Plugins(loaded=tuple(own), broken=broken)


def _names_of_ours() -> list[str]:
    """The subpackages of `hwcompat.plugins`; none where `hardware` travels alone, as in a bundle."""
    try:
        spec = importlib.util.find_spec(GROUP)
    except ImportError:
        return []
    places = spec.submodule_search_locations if spec else None
    return sorted(path.parent.name for place in places or () for path in Path(place).glob("*/__init__.py"))
