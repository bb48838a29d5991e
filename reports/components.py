"""Which parts are there: the packages that the product uses, and whether its own parts work on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hardware.errors import HwCompatError
from hardware.own_commands import as_runnable
from hardware.plugins import plugins
from hardware.software import is_installed, package_versions

from .finding import Severity


@dataclass(frozen=True, kw_only=True)
class Component:
    """One part. `state` is `available`, `missing`, `failed` or `unknown`; `severity` grades its absence."""

    name: str
    state: str
    version: str | None = None
    reason: str = ""
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, kw_only=True)
class _Package:
    distribution: str
    module: str
    severity: Severity
    without: str


_PACKAGES = (
    _Package(
        distribution="torch", module="torch", severity=Severity.ERROR, without="no model runs and no target computes"
    ),
    _Package(
        distribution="transformers",
        module="transformers",
        severity=Severity.ERROR,
        without="no model can be looked up or built",
    ),
    _Package(
        distribution="openvino", module="openvino", severity=Severity.WARNING, without="the target openvino is absent"
    ),
    _Package(
        distribution="optimum-intel",
        module="optimum",
        severity=Severity.INFO,
        without="exports to openvino have no cache for decoding",
    ),
    _Package(
        distribution="diffusers",
        module="diffusers",
        severity=Severity.INFO,
        without=as_runnable("diffusion models are left out (pip install -r requirements-diffusion.txt)"),
    ),
    _Package(distribution="duckdb", module="duckdb", severity=Severity.ERROR, without="no evidence can be read"),
)


def packages() -> tuple[Component, ...]:
    """The packages, found without importing any of them."""
    versions = package_versions(one.distribution for one in _PACKAGES)
    found = []
    for one in _PACKAGES:
        there = is_installed(one.module)
        found.append(
            Component(
                name=one.distribution,
                state="available" if there else "missing",
                version=versions[one.distribution] if there else None,
                reason="" if there else f"{one.distribution} isn't installed: {one.without}",
                severity=one.severity,
            )
        )
    return tuple(found)


def own_parts(inventory: Callable[[], object]) -> tuple[Component, ...]:
    """The product's own parts, each tried once; one that fails doesn't stop the others. `inventory` detects."""
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
    except Exception as error:  # a part that fails in any way is what this is here to report
        return Component(name=name, state="failed", reason=f"{type(error).__name__}: {error}")
    return Component(name=name, state="available")


def _classifier() -> object:
    from generators.models.catalog import load_catalog

    return load_catalog()


def _rules() -> object:
    from generators.compatibility.rules import load_rules

    return load_rules()
