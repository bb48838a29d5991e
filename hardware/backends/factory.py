"""Finds backends: the files of this folder and the entry points `hwcompat.backends`, imported on first use."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..entry_points import entry_points
from ..errors import BrokenPlugin, UsageError, did_you_mean, echo
from ..target import Target

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ..optimization import BaseOptimizer
    from .base import BaseBackend

ENTRY_POINT_GROUP = "hwcompat.backends"

ALIASES = {
    "nvidia": "cuda",
    "gpu": "cuda",
    "amd": "rocm",
    "hip": "rocm",
    "intel": "xpu",
    "apple": "mps",
    "google": "tpu",
    **dict.fromkeys(("browser", "chrome", "chromium", "edge"), "webgpu"),
}
"""Names of vendors and browsers that are accepted for targets; WebNN has to be named."""

_NOT_TARGETS = {"base", "factory", "settings"}


@functools.cache
def _entry_points() -> dict[str, EntryPoint]:
    return entry_points(ENTRY_POINT_GROUP)


@functools.cache
def built_in_targets() -> tuple[str, ...]:
    """Names of the targets that have a file here. Imports none of them."""
    names = {path.stem for path in Path(__file__).parent.glob("*.py")}
    return tuple(sorted(name for name in names - _NOT_TARGETS if not name.startswith("_")))


def known_targets() -> tuple[str, ...]:
    """Names of all targets: this folder's files and what plug-ins bring."""
    return tuple(sorted({*built_in_targets(), *_entry_points()}))


def resolve_target(text: str) -> Target:
    """The known target that a user's text names; names of vendors and browsers are accepted.

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


@functools.cache
def _built_in_class(name: str) -> type[BaseBackend]:
    from .base import BaseBackend

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


def backend_class(name: str) -> type[BaseBackend]:
    """The class behind a target's name. Imports its module, not its runtime.

    Raises `BrokenPlugin` where a backend from outside can't be imported.
    """
    from .base import BaseBackend

    if name in built_in_targets():
        return _built_in_class(name)
    point = _entry_points()[name]
    try:
        loaded = point.load()
    except Exception as error:  # a plug-in may raise anything
        raise BrokenPlugin(
            f"the plugin {echo(name)} ({point.value}) can't be imported",
            why=f"{type(error).__name__}: {error}",
            fix="Fix or uninstall the plugin.",
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, BaseBackend)):
        raise BrokenPlugin(
            f"the plugin {echo(name)} ({point.value}) is no backend",
            why=f"it gave {loaded!r}, no class of BaseBackend",
        )
    return loaded


def class_of(target: Target) -> type[BaseBackend]:
    """The class behind a target with its variant. Raises as `backend_class`."""
    return backend_class(target.name).of_variant(target.variant)


@functools.cache
def plugged_versions() -> dict[str, str]:
    """By the name of each target from outside, the version of its package and a hash of its sources."""
    return {name: _version_of(point) for name, point in _entry_points().items()}


def _version_of(point: EntryPoint) -> str:
    import hashlib  # no inventory needs it
    import importlib.util

    released = point.dist.version if point.dist is not None else "unknown"
    spec = importlib.util.find_spec(point.module.partition(".")[0])
    places = [] if spec is None else [*(spec.submodule_search_locations or [str(spec.origin)])]
    files = [
        file for place in places for file in ([Path(place)] if place.endswith(".py") else Path(place).rglob("*.py"))
    ]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files) if file.is_file()))
    return f"{released}+{digest.hexdigest()[:12]}"


class BackendType(StrEnum):
    """The targets that have a file here, by vendor where there is one, and `AUTO`."""

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


_BEST_FIRST = ("cuda", "rocm", "tpu", "xpu", "mps", "cpu")
"""What AUTO means for a caller without a model; with one, `generators/compatibility/selection.py` chooses."""


def get_backend(
    name: Target | BackendType | str | None = None, config: Mapping[str, Any] | None = None
) -> BaseBackend:
    """The backend of a target, or of a user's text; `None` and `auto` are the best that is here.

    `config` goes before the target's own settings. It is made whether the target can be used or not: `unavailable`
    says why it can't. Raises `UsageError` for an unknown name or setting, never takes another one instead.
    """
    if name is None or str(name).strip().lower() == BackendType.AUTO:
        name = detect_best_backend()
    resolved = name if isinstance(name, Target) else resolve_target(str(name))
    backend = class_of(resolved)(resolved)
    backend.configure(config or {})
    return backend


def get_optimizer(name: str | None = None) -> BaseOptimizer:
    """The optimiser of a target, on its first device. Raises `UsageError` where nothing optimises models."""
    from ..optimization import optimizer_for

    backend = get_backend(name)
    return optimizer_for(backend.BACKEND_NAME, backend.device)


def detect_best_backend() -> str:
    """The first of CUDA, ROCm, TPU, XPU, MPS, CPU that its runtime says can be used. Imports runtimes."""
    return next(name for name in _BEST_FIRST if name in known_targets() and get_backend(name).is_available)


def list_available_backends() -> tuple[str, ...]:
    """Names of the targets that their runtimes say can be used. Imports all of them."""
    return tuple(name for name in known_targets() if get_backend(name).is_available)


class BackendFactory:
    """The same for callers who want one object to ask."""

    @staticmethod
    def create(type_or_name: BackendType | str, config: Mapping[str, Any] | None = None) -> BaseBackend:
        """`get_backend`, which says more."""
        return get_backend(type_or_name, config)

    @staticmethod
    def is_available(type_or_name: BackendType | str) -> bool:
        """Whether the target's runtime says that it can be used. Raises `UsageError` for an unknown name."""
        return get_backend(type_or_name).is_available

    @staticmethod
    def get_all_backend_info() -> dict[str, dict[str, Any]]:
        """For every known target: `available`, the `reason` if not, and the `devices` if so. Imports all runtimes."""
        found: dict[str, dict[str, Any]] = {}
        for name in known_targets():
            backend = get_backend(name)
            reason = backend.unavailable()
            numbers = () if reason else range(backend.device_count)
            devices = [backend.get_device_info(number).to_dict() for number in numbers]
            found[name] = {"available": not reason, "reason": reason, "devices": devices}
        return found
