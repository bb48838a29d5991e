"""Finds backends: the files of this folder and the entry points `hwcompat.backends`, imported on first use."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError, did_you_mean, echo
from ..target import Target
from .base import BaseBackend

ENTRY_POINT_GROUP = "hwcompat.backends"

ALIASES = {"nvidia": "cuda", "gpu": "cuda", "amd": "rocm", "hip": "rocm", "intel": "xpu", "apple": "mps"}
"""Vendor names that are accepted for targets."""

_NOT_TARGETS = {"base", "factory"}


@functools.cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


@functools.cache
def built_in_targets() -> tuple[str, ...]:
    """Names of the targets that have a file here. Imports none of them."""
    names = {path.stem for path in Path(__file__).parent.glob("*.py")}
    return tuple(sorted(name for name in names - _NOT_TARGETS if not name.startswith("_")))


def known_targets() -> tuple[str, ...]:
    """Names of all targets: this folder's files and what plug-ins bring."""
    return tuple(sorted({*built_in_targets(), *_entry_points()}))


def resolve_target(text: str) -> Target:
    """The known target that a user's text names; vendor names are accepted.

    A variant is accepted in any case. Raises `UsageError` with did-you-mean for an unknown name (never a silent
    cpu), for a variant that the target doesn't have, and for an index where it has one device only.
    """
    name, separator, rest = text.strip().partition(":")
    name = ALIASES.get(name.lower(), name.lower())
    known = known_targets()
    if name not in known:
        raise UsageError(
            f"unknown device {echo(text)}",
            fix=" ".join(
                filter(
                    None,
                    [did_you_mean(name, [*known, *ALIASES, "auto"]), f"Known: {', '.join(known)}, auto."],
                )
            ),
        )
    return _checked(Target.parse(f"{name}{separator}{rest}"), text)


def _checked(target: Target, text: str) -> Target:
    """`target` with its variant in the runtime's own spelling, if such a target can be at all."""
    backend = backend_class(target.name)
    known = ", ".join([target.name, *(f"{target.name}:{variant}" for variant in backend.VARIANTS)])
    spellings = {variant.lower(): variant for variant in backend.VARIANTS}
    if target.variant and target.variant.lower() not in spellings:
        indexed = f", and with an index: {target.name}:0" if backend.INDEXED and not spellings else ""
        hint = did_you_mean(target.variant, spellings)
        raise UsageError(
            f"unknown device {echo(text)}",
            why=f"{target.name} has no variant {echo(target.variant)}",
            fix=f"{hint} Known: {known}{indexed}.".strip(),
        )
    if target.index is not None and not backend.INDEXED:
        raise UsageError(f"unknown device {echo(text)}", why=f"{target.name} takes no index", fix=f"Known: {known}.")
    return replace(target, variant=spellings.get(target.variant.lower(), ""))


def backend_class(name: str) -> type[BaseBackend]:
    """The class behind a target's name. Imports its module, not its runtime."""
    if name in built_in_targets():
        module = importlib.import_module(f".{name}", package=__package__)
        found = [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, BaseBackend)
            and getattr(value, "BACKEND_NAME", None) == name
            and value.__module__ == module.__name__
        ]
        if len(found) != 1:
            raise TypeError(f"hardware/backends/{name}.py must define one backend called {name!r}, not {len(found)}")
        return found[0]
    loaded = _entry_points()[name].load()
    if not (isinstance(loaded, type) and issubclass(loaded, BaseBackend)):
        raise TypeError(f"the plug-in {name!r} gave {loaded!r}, which is no BaseBackend")
    return loaded


def get_backend(target: Target | str) -> BaseBackend:
    """The backend of a target or of a user's text. Raises `UsageError` for an unknown name."""
    resolved = resolve_target(target) if isinstance(target, str) else target
    return backend_class(resolved.name)(resolved)
