"""Availability of packages and of the product's own parts on this machine."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.plugins import plugins
from hwcompat.hardware.software import is_installed, package_versions

from .finding import Severity

_PACKAGES = Path(__file__).with_name("components.toml")


@dataclass(frozen=True, kw_only=True)
class Component:
    """A part. `state` is `available`, `missing`, `failed` or `unknown`; `severity` grades its absence."""

    name: str
    state: str
    version: str | None = None
    reason: str = ""
    severity: Severity = Severity.ERROR


def packages() -> tuple[Component, ...]:
    """Return the packages of `components.toml`, found without importing them."""
    listed = tomllib.loads(as_runnable(_PACKAGES.read_text(encoding="utf-8")))["package"]
    versions = package_versions(one["distribution"] for one in listed)
    found = []
    for one in listed:
        name, there = one["distribution"], is_installed(one["module"])
        found.append(
            Component(
                name=name,
                state="available" if there else "missing",
                version=versions[name] if there else None,
                reason="" if there else f"{name} isn't installed: {one['without']}",
                severity=Severity(one["severity"]),
            )
        )
    return tuple(found)


def own_parts(inventory: Callable[[], object]) -> tuple[Component, ...]:
    """Return the product's own parts, each tried; a failing one doesn't stop the others."""
    parts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("hardware_detection", inventory),
        ("model_classifier", _classifier),
        ("compatibility_rules", _rules),
        *((name, one.load(check)) for one in plugins().loaded for name, check in one.checks.items()),
    )
    broken = [Component(name=name, state="failed", reason=why) for name, why in plugins().broken.items()]
    return (*(_tried(name, use) for name, use in parts), *broken)


def _tried(name: str, use: Callable[[], object]) -> Component:
    try:
        use()
    except HwCompatError as error:
        return Component(name=name, state="failed", reason=str(error))
    except Exception as error:  # any failure of a part is reported here
        return Component(name=name, state="failed", reason=f"{type(error).__name__}: {error}")
    return Component(name=name, state="available")


def _classifier() -> object:
    from hwcompat.generators.models import classifier
    from hwcompat.generators.models.catalog import load_catalog

    return classifier, load_catalog()


def _rules() -> object:
    from hwcompat.generators.compatibility.rules import load_rules

    return load_rules()
