"""Plugins of the program: the packages in `hwcompat/plugins`, and the entry points of that group.

A plugin provides commands of `hwcompat devices`, jobs of other commands, and checks for reports.
Modules below `hwcompat` never import a plugin; they look it up by name, and it is imported on first use.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .errors import UsageError
from .registry import Registry

if TYPE_CHECKING:
    import click

GROUP = "hwcompat.plugins"
"""The package of our plugins, and the group of external entry points: NAME = "module:PLUGIN"."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """The contents of a plugin, as names such as ".module:function" relative to `package`.

    `commands` are sequences of click commands for `hwcompat devices`. `jobs` are functions by the name of the
    option or caller that uses them. `checks` raise an error if a part listed in reports doesn't work. `problems`
    return the problems of this process, with the arguments of `HardwareCompatibilityReporter.add_error` as
    attributes.
    """

    name: str
    package: str
    commands: tuple[str, ...] = ()
    jobs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    checks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def load(self, name: str) -> Any:
        """Return the object named ".module:name". Raises `ImportError` or `AttributeError` if it doesn't exist."""
        return found(name, self.package)


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The available plugins, ours first, and by name why external ones can't be used."""

    loaded: tuple[Plugin, ...]
    broken: Mapping[str, str]

    def job(self, name: str) -> Any:
        """Return the function of a job. Raises `UsageError` if no plugin provides it."""
        for plugin in self.loaded:
            if name in plugin.jobs:
                return plugin.load(plugin.jobs[name])
        raise UsageError(
            f"no plugin provides {name}",
            why=f"installed plugins: {', '.join(one.name for one in self.loaded) or 'none'}",
        )

    def commands(self) -> Iterable[click.Command]:
        """Return all commands for `hwcompat devices`."""
        for plugin in self.loaded:
            for name in plugin.commands:
                yield from plugin.load(name)


def found(name: str, package: str | None = None) -> Any:
    """Return the object "module:name" or, relative to a package, ".module:name". Raise its import error."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module, package), attribute)


_REGISTRY: Registry[Plugin] = Registry(group=GROUP, package=GROUP, kind=Plugin, noun="plugin")


@functools.cache
def plugins() -> Plugins:
    """Return the available plugins; none of ours in a bundle, which has no `hwcompat.plugins`.

    An external plugin that can't be loaded or has the name of another is listed in `broken`.
    """
    try:
        importlib.import_module(GROUP)
    except ImportError:
        return Plugins(loaded=(), broken={})
    registered = _REGISTRY.load_all()
    loaded: dict[str, Plugin] = {}
    broken = dict(registered.failures)
    for name, plugin in sorted(registered.found.items(), key=lambda pair: pair[0] not in _REGISTRY.shipped()):
        if plugin.name in loaded:
            broken[name] = f"a plugin {plugin.name} already exists"
        else:
            loaded[plugin.name] = plugin
    return Plugins(loaded=tuple(loaded.values()), broken=broken)
