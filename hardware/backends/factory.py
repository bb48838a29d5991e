"""Find backends: modules of this package and entry points `hwcompat.backends`, imported on first use."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, did_you_mean, echo
from ..registry import Registry
from ..target import Target
from .base import BaseBackend

if TYPE_CHECKING:
    from ..optimization import BaseOptimizer

TARGETS: Registry[type[BaseBackend]] = Registry(
    group="hwcompat.backends",
    package=__package__,
    kind=BaseBackend,
    noun="backend",
    besides=frozenset({"base", "device_info", "factory"}),
)


def built_in_targets() -> tuple[str, ...]:
    """Return the names of the targets that have a module here, without importing them."""
    return TARGETS.shipped()


def known_targets() -> tuple[str, ...]:
    """Return the names of all targets: those of this package and of plugins."""
    return TARGETS.names()


@functools.cache
def aliases() -> Mapping[str, str]:
    """Return the names of vendors and browsers that are accepted for targets, with the target of each."""
    return {alias: name for name in built_in_targets() for alias in backend_class(name).ALIASES}


def declarations_of(target: str) -> type[BaseBackend]:
    """Return the class that describes a target (`cuda`, `cuda:1`), or `BaseBackend` for one that doesn't ship.
    Imports no plugin."""
    name = target.partition(":")[0]
    return backend_class(name) if name in built_in_targets() else BaseBackend


def vendor_of(target: str) -> str:
    """Return the vendor of a target (`cuda`, `cuda:1`); empty for the host, for several vendors, and for plugins."""
    return declarations_of(target).VENDOR


def resolve_target(text: str) -> Target:
    """Return the target that a user's text names; names of vendors and browsers are accepted.

    A variant is accepted in any case. Raise `UsageError` with a suggestion for an unknown name (never a silent cpu),
    for a variant that the target doesn't have, and for an index of a target with one device.
    """
    name, separator, rest = text.strip().partition(":")
    name = name.lower()
    known = known_targets()
    if name not in known:
        name = aliases().get(name, name)
    if name not in known:
        raise UsageError(
            f"unknown device {echo(text)}",
            fix=" ".join(
                filter(
                    None,
                    [did_you_mean(name, [*known, *aliases(), "auto"]), f"Known: {', '.join(known)}, auto."],
                )
            ),
        )
    return _checked(Target.parse(f"{name}{separator}{rest}"), text)


def _checked(target: Target, text: str) -> Target:
    """Return `target` with its variant in the runtime's spelling. Raise `UsageError` if there is no such target."""
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
    """Return the class of a target's name. Imports its module, not its runtime.

    Raise `BrokenPlugin` if a plugin can't be imported.
    """
    return TARGETS.load(name)


def class_of(target: Target) -> type[BaseBackend]:
    """Return the class of a target with its variant. Raises as `backend_class` does."""
    return backend_class(target.name).of_variant(target.variant)


def plugged_versions() -> Mapping[str, str]:
    """Return, by the name of each plugin's target, the version of its package and a hash of its sources."""
    return TARGETS.versions


class BackendType(StrEnum):
    """The targets of this package, named by their vendor if they have one, and `AUTO`."""

    CPU = "cpu"
    NVIDIA = "cuda"
    AMD = "rocm"
    INTEL = "xpu"
    APPLE = "mps"
    GOOGLE = "tpu"
    OPENVINO = "openvino"
    QNN = "qnn"
    WEBGPU = "webgpu"
    WEBNN = "webnn"
    SIMULATED = "simulated"
    AUTO = "auto"


def get_backend(
    name: Target | BackendType | str | None = None, config: Mapping[str, Any] | None = None
) -> BaseBackend:
    """Return the backend of a target or of a user's text; `None` and `auto` select the best available one.

    `config` takes precedence over the recommended settings. A backend is returned even if the target can't be used:
    `unavailable` gives the reason. Raise `UsageError` for an unknown name or setting.
    """
    if name is None or str(name).strip().lower() == BackendType.AUTO:
        name = detect_best_backend()
    resolved = name if isinstance(name, Target) else resolve_target(str(name))
    backend = class_of(resolved)(resolved)
    backend.configure(config or {})
    return backend


def get_optimizer(name: str | None = None) -> BaseOptimizer:
    """Return the optimizer of a target, for its first device. Raise `UsageError` if it has none."""
    from ..optimization import optimizer_for

    backend = get_backend(name)
    return optimizer_for(backend.BACKEND_NAME, backend.device)


def detect_best_backend() -> str:
    """Return the first of CUDA, ROCm, TPU, XPU, MPS and CPU that is available. Imports runtimes.

    With a model, `generators/compatibility/selection.py` chooses.
    """
    tried = sorted((backend_class(name).AUTO_ORDER, name) for name in built_in_targets())
    return next(name for order, name in tried if order and get_backend(name).is_available)


def list_available_backends() -> tuple[str, ...]:
    """Return the names of all available targets. Imports all runtimes."""
    return tuple(name for name in known_targets() if get_backend(name).is_available)


class BackendFactory:
    """The functions of this module as one object."""

    @staticmethod
    def create(type_or_name: BackendType | str, config: Mapping[str, Any] | None = None) -> BaseBackend:
        """Return the backend of a target (see `get_backend`)."""
        return get_backend(type_or_name, config)

    @staticmethod
    def is_available(type_or_name: BackendType | str) -> bool:
        """Return whether a target is available. Raise `UsageError` for an unknown name."""
        return get_backend(type_or_name).is_available

    @staticmethod
    def get_all_backend_info() -> dict[str, dict[str, Any]]:
        """Return `available`, `reason` and `devices` of each known target. Imports all runtimes."""
        found: dict[str, dict[str, Any]] = {}
        for name in known_targets():
            backend = get_backend(name)
            reason = backend.unavailable()
            numbers = () if reason else range(backend.device_count)
            devices = [backend.get_device_info(number).to_dict() for number in numbers]
            found[name] = {"available": not reason, "reason": reason, "devices": devices}
        return found
