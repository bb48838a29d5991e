"""Optional parts of the program: the packages in the folder `hwcompat/plugins`, and entry points of that name.

A part brings commands of `python -m hardware`, jobs that options of the two front doors ask for, and checks that a
report lists. Nothing below `hwcompat` imports a part: it is asked for by name. What a part brings is
imported on first use.
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


_REGISTRY: Registry[Plugin] = Registry(group=GROUP, package=GROUP, kind=Plugin, noun="plugin")


@functools.cache
def plugins() -> Plugins:
    """The parts that are here; none of ours where `hardware` travels alone, as in a bundle.

    One of somebody else's that can't be loaded, or is called like another, is left out and listed in `broken`.
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
            broken[name] = f"there is a plugin {plugin.name} already"
        else:
            loaded[plugin.name] = plugin
    return Plugins(loaded=tuple(loaded.values()), broken=broken)
