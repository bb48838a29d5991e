"""Finds backends: the files of this folder and the entry points `hwcompat.backends`, imported on first use."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, did_you_mean, echo
from ..evidence.record import Stage
from ..file_formats import by_suffix
from ..registry import Registry
from ..target import Target
from .base import BaseBackend, Unsupported

if TYPE_CHECKING:
    from ..optimization import BaseOptimizer

TARGETS: Registry[type[BaseBackend]] = Registry(
    group="hwcompat.backends",
    package=__package__,
    kind=BaseBackend,
    noun="backend",
    besides=frozenset({"base", "factory"}),
)


GROUPS = ("auto", "all", "known")
"""Names that stand for targets that are chosen."""


def built_in_targets() -> tuple[str, ...]:
    """Names of the targets that have a file here. Imports none of them."""
    return TARGETS.shipped()


def known_targets() -> tuple[str, ...]:
    """Names of all targets: this folder's files and what plugins bring."""
    return TARGETS.names()


@functools.cache
def aliases() -> Mapping[str, str]:
    """Names of vendors and browsers that are accepted for targets, with the target of each; WebNN has to be named."""
    return {alias: name for name in built_in_targets() for alias in backend_class(name).ALIASES}


def declarations_of(target: str) -> type[BaseBackend]:
    """The class that says what a target is (`cuda`, `cuda:1`). Of a name that doesn't ship it is `BaseBackend`,
    which declares nothing; no plugin is imported."""
    name = target.partition(":")[0]
    return backend_class(name) if name in built_in_targets() else BaseBackend


def targets_that_read(file_format: str) -> tuple[str, ...]:
    """The targets that ship and run files of a format (`hardware/file_formats.toml`)."""
    classes = {name: backend_class(name) for name in built_in_targets()}
    return tuple(name for name, one in classes.items() if file_format in one.READS and not one.SIMULATED)


def refuse_unread(backend: BaseBackend, file: Path) -> None:
    """Raise `Unsupported`, with the targets that read a file's format, if a backend doesn't read it."""
    found, target = by_suffix(file.name), backend.target
    reads_any = type(backend).load_file is not BaseBackend.load_file
    if reads_any and (not backend.READS or (found and found.name in backend.READS)):
        return
    readers = targets_that_read(found.name) if found else ()
    others = f"they run on {', '.join(readers)}: --device {readers[0]}" if readers else "no target runs them"
    raise Unsupported(
        f"{target} doesn't read {found.says if found else file.suffix} files; {others}",
        error_type="unsupported_format",
        stage=Stage.LOAD,
    )


def vendor_of(target: str) -> str:
    """The vendor of a target (`cuda`, `cuda:1`); empty for the host, for those of many vendors, and for plugins."""
    return declarations_of(target).VENDOR


def resolve_target(text: str) -> Target:
    """The known target that a user's text names; names of vendors and browsers are accepted.

    A variant is accepted in any case. Raises `UsageError` with did-you-mean for an unknown name (never a silent
    cpu), for a variant that the target doesn't have, and for an index where it has one device only.
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


def known_names(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of devices as they were given. Raises `UsageError` for one that is neither a target nor one of
    `GROUPS`."""
    for text in texts:
        if text.lower() not in GROUPS:
            resolve_target(text)
    return texts


def _checked(target: Target, text: str) -> Target:
    """`target` with its variant in the runtime's own spelling, if such a target can be at all."""
    backend = backend_class(target.name)
    known = ", ".join([target.name, *(f"{target.name}:{variant}" for variant in backend.VARIANTS)])
    spellings = {variant.lower(): variant for variant in backend.VARIANTS}
    if target.variant and target.variant.lower() not in spellings:
        indexed = f", or with an index: {target.name}:0" if backend.INDEXED and not spellings else ""
        hint = did_you_mean(target.variant, spellings)
        raise UsageError(
            f"unknown device {echo(text)}",
            why=f"{target.name} has no variant {echo(target.variant)}",
            fix=f"{hint} Known: {known}{indexed}.".strip(),
        )
    if target.index is not None and not backend.INDEXED:
        raise UsageError(
            f"unknown device {echo(text)}", why=f"{target.name} doesn't take an index", fix=f"Known: {known}."
        )
    return replace(target, variant=spellings.get(target.variant.lower(), ""))


def backend_class(name: str) -> type[BaseBackend]:
    """The class behind a target's name. Imports its module, not its runtime.

    Raises `BrokenPlugin` where a backend from outside can't be imported.
    """
    return TARGETS.load(name)


def class_of(target: Target) -> type[BaseBackend]:
    """The class behind a target with its variant. Raises as `backend_class`."""
    return backend_class(target.name).of_variant(target.variant)


def plugged_versions() -> Mapping[str, str]:
    """By the name of each target from outside, the version of its package and a hash of its sources."""
    return TARGETS.versions


class BackendType(StrEnum):
    """The targets that have a file here, by vendor where there is one, and `AUTO`. `GOOGLE` is `TPU`."""

    CPU = "cpu"
    NVIDIA = "cuda"
    AMD = "rocm"
    INTEL = "xpu"
    APPLE = "mps"
    TPU = "tpu"
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
    """The optimiser of a target, on its first device. Raises `UsageError` if the device has no optimizer."""
    from ..optimization import optimizer_for

    backend = get_backend(name)
    return optimizer_for(backend.BACKEND_NAME, backend.device)


def detect_best_backend() -> str:
    """The first of CUDA, ROCm, TPU, XPU, MPS, CPU that its runtime says can be used. Imports runtimes.

    With a model, `generators/compatibility/selection.py` chooses.
    """
    tried = sorted((backend_class(name).AUTO_ORDER, name) for name in built_in_targets())
    return next(name for order, name in tried if order and get_backend(name).is_available)


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
        """For every known target: `available`, the name of its `class`, the `reason` if it isn't available, and the
        `devices` if it is. Imports all runtimes but starts no browser: such a target is available if it is installed,
        and lists no devices."""
        found: dict[str, dict[str, Any]] = {}
        for name in known_targets():
            backend = get_backend(name)
            reason = backend.not_installed()
            numbers = () if reason or backend.IN_BROWSER else range(backend.device_count)
            found[name] = {
                "available": not reason,
                "class": type(backend).__name__,
                "reason": reason,
                "devices": [backend.get_device_info(number).to_dict() for number in numbers],
            }
        return found
