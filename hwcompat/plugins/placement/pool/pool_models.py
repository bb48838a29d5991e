"""Models for the pool: choose a device, move the model there, and load models by name.

Loading uses the requested device or raises an error. transformers loads a local folder or a cached name: nothing is
downloaded, no code of a checkpoint runs, weights are safetensors.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwcompat.hardware.backends.base import BaseBackend, Unsupported
from hwcompat.hardware.backends.factory import class_of, detect_best_backend, get_backend, resolve_target
from hwcompat.hardware.checkpoint_config import read_config, refuse_foreign
from hwcompat.hardware.errors import (
    BackendUnavailable,
    BrokenInput,
    HwCompatError,
    ModelError,
    UsageError,
    did_you_mean,
    echo,
    is_out_of_memory,
)
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.safe_read import is_folder
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.checkpoints import weight_files

PREFERENCES = ("device", "priority_list", "preferred_index", "precision")
_PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "half": "float16"}
_LONGEST_REASON = 300


@dataclass(frozen=True, kw_only=True)
class Names:
    """The pool's names of devices: `device` is the chosen one (`cuda:0`, `openvino:NPU`), `torch_type` its type of
    torch devices, empty if there is none."""

    device: str
    torch_type: str

    def name_of(self, device: Any) -> str:
        """Return the pool's name of a torch device: `rocm:1` for torch's `cuda:1` if the chosen one is ROCm's."""
        if device.type != self.torch_type:
            return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        name, numbered, _ = self.device.partition(":")
        return f"{name}:{device.index or 0}" if numbered else name


@dataclass(frozen=True, kw_only=True)
class ModelPlace(Names):
    """The device that a model is loaded onto."""

    backend: BaseBackend
    precision: str = ""

    @property
    def argument(self) -> str:
        """The runtime's name of the device, as constructors get it."""
        return str(self.backend.device if self.torch_type else self.backend.target)


@functools.cache
def names_on(device: str | Target) -> Names:
    """Return the names for a device that the user names. Raises `UsageError` if it is unknown."""
    target = resolve_target(device) if isinstance(device, str) else device
    backend = class_of(target)
    torch_type = str(getattr(backend, "DEVICE_TYPE", ""))
    name = f"{target.name}:{target.index or 0}" if torch_type and backend.INDEXED else str(target)
    return Names(device=name, torch_type=torch_type)


def place_for(
    device: str | Target | None, preferences: Mapping[str, Any] | None = None, *, kinds: Sequence[str] = ()
) -> ModelPlace:
    """Return the place of a model: on `device`, otherwise by the preferences, otherwise on the first available target
    of its family's list. `kinds` are names that may tell the family: a model type, a family, an architecture.

    Preferences are `device`, `priority_list` (the first that can be used), `preferred_index` and `precision`. Raises
    `UsageError` for unknown ones, `BackendUnavailable` if the named device can't be used.
    """
    wishes = dict(preferences or {})
    for name in wishes:
        if name not in PREFERENCES:
            raise UsageError(
                f"the resource pool has no preference {echo(str(name))}",
                fix=f"{did_you_mean(str(name), PREFERENCES)} Known: {', '.join(PREFERENCES)}.".strip(),
            )
    named = device if device is not None else wishes.get("device")
    index = wishes.get("preferred_index")
    candidates = wishes.get("priority_list") or _targets_of(kinds) if named is None else None
    backend = _first_of(list(map(str, candidates or ["auto" if named is None else named])), index)
    precision = _precision(wishes.get("precision"))
    return ModelPlace(**vars(names_on(backend.target)), backend=backend, precision=precision)


def _targets_of(kinds: Sequence[str]) -> list[str]:
    """Return the torch devices in the list that `priorities.toml` has for the first kind; empty without a list. Other
    targets need a constructor that makes the model for them, and are used only if they are named."""
    from hwcompat.generators.compatibility.selection import priority_list
    from hwcompat.generators.models.classification import classify_type
    from hwcompat.generators.models.model_libraries import is_known

    for kind in kinds:
        name, targets = priority_list(kind, kind, (kind,))
        if name == "default" and is_known(kind):
            found = classify_type(kind)
            name, targets = priority_list(found.family, found.architecture, found.traits)
        if name != "default":
            return [one for one in targets if names_on(one).torch_type]
    return []


def _first_of(names: list[str], index: Any) -> BaseBackend:
    reasons = []
    for name in names:
        try:
            return _usable(name, None if index is None else int(index))
        except BackendUnavailable as error:
            if len(names) == 1:
                raise
            reasons.append(str(error))
    raise BackendUnavailable("none of the devices in priority_list can be used", why="; ".join(reasons))


@functools.lru_cache(maxsize=64)
def _usable(named: str, index: int | None) -> BaseBackend:
    """Return the backend of a usable device. A device is checked until it is usable, then no more."""
    target = resolve_target(detect_best_backend() if named.strip().lower() == "auto" else named)
    if index is not None and target.index is None and class_of(target).INDEXED:
        target = replace(target, index=index)
    backend = get_backend(target)
    if reason := backend.unavailable():
        raise BackendUnavailable(f"{backend.target} can't be used", why=reason)
    return backend


def _precision(wish: Any) -> str:
    if not wish:
        return ""
    from hwcompat.hardware.model.calls import torch_dtype

    name = _PRECISIONS.get(str(wish), str(wish))
    try:
        torch_dtype(name)
    except Unsupported as error:
        raise UsageError(f"the pool can't load models in {echo(str(wish))}", why=str(error)) from error
    return name


def takes_device(constructor: Callable[..., Any]) -> bool:
    """Whether a constructor has a parameter `device` that can be given by name."""
    try:
        parameter = inspect.signature(constructor).parameters.get("device")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def built_on(place: ModelPlace, constructor: Callable[..., Any]) -> Any:
    """Build a model on its place: pass the device if the constructor takes one, and move a module there.

    Raises `UsageError` for a model that can't be moved to another device than the host.
    """
    given = takes_device(constructor)
    model = constructor(device=place.argument) if given else constructor()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _move_to(place, model)
    if given or place.device == "cpu":
        return model
    move = getattr(model, "to", None)
    if not callable(move):
        raise UsageError(
            f"the constructor's result can't be moved to {place.device}",
            why=f"the constructor has no parameter `device`, and a {type(model).__name__} has no `to`",
            fix=f"Give the constructor a parameter `device`: it is called with {place.argument!r}.",
        )
    moved = move(place.argument)
    return model if moved is None else moved


def _move_to(place: ModelPlace, model: Any) -> Any:
    if place.precision:
        from hwcompat.hardware.model.calls import in_dtype, torch_dtype

        model = in_dtype(model, torch_dtype(place.precision))
    if getattr(model, "hf_device_map", None):  # its constructor spread it over devices
        return model
    return place.backend.to_device(model)


# By name


def weights_bytes(model_name: str) -> int | None:
    """Return the size of the weights of a local folder in bytes; `None` if it isn't one."""
    if not is_folder(Path(model_name)):
        return None
    return sum(os.stat(path).st_size for path in weight_files(Path(model_name)) if path.suffix == ".safetensors")


def load_model(model_type: str, model_name: str) -> Any:
    """Load the model of a folder or of a cached name, in the dtype of its files and in evaluation mode.

    Its class is the one that its configuration names, else that of `AutoModel`. `model_type` is compared with the
    configuration if it is a type of transformers.
    """
    transformers = _transformers()
    config = _read(transformers.AutoConfig, model_name, "configuration")
    types = transformers.CONFIG_MAPPING
    if model_type in types and config.model_type != model_type:
        raise ModelError(
            f"{echo(model_name)} is a {echo(str(config.model_type))}, not a {echo(model_type)}",
            fix="Request it by its own type.",
        )
    named = [getattr(transformers, str(name), None) for name in (getattr(config, "architectures", None) or ())]
    known = [one for one in named if isinstance(one, type) and issubclass(one, transformers.PreTrainedModel)]
    model, info = _read(
        known[0] if known else transformers.AutoModel,
        model_name,
        "model",
        use_safetensors=True,
        dtype="auto",
        output_loading_info=True,
    )
    if missing := sorted(map(str, info["missing_keys"])):
        raise BrokenInput(
            f"the checkpoint {echo(model_name)} is incomplete",
            why=f"{len(missing)} weights of {type(model).__name__} are missing, the first is {echo(missing[0])}",
            fix="Download the whole checkpoint.",
        )
    return model.eval()


def load_tokenizer(model_name: str) -> Any:
    """Load the tokenizer of a folder or of a cached name."""
    return _read(_transformers().AutoTokenizer, model_name, "tokenizer")


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            "the resource pool can't load models by name",
            why="transformers isn't installed",
            fix="pip install -r requirements.txt, or give a constructor.",
        ) from error
    return transformers


def _read(loader: Any, model_name: str, what: str, **options: Any) -> Any:
    folder = Path(model_name)
    local = is_folder(folder)
    if local:
        weight_files(folder)  # raises for links out of the folder
        refuse_foreign(folder, read_config(folder) or {})  # a tokenizer needs no config; a model's loader raises
    try:
        return loader.from_pretrained(
            str(folder.absolute()) if local else model_name,
            local_files_only=True,
            trust_remote_code=False,
            **options,
        )
    except Exception as error:  # loaders raise many classes; each means that the files can't be used
        if isinstance(error, HwCompatError) or is_out_of_memory(error):
            raise
        reason = one_line(f"{type(error).__name__}: {error}", longest=_LONGEST_REASON)
        fix = "Download it again." if local else f"Download it: `hf download {model_name}`, or pass a local folder."
        raise ModelError(f"the {what} {echo(model_name)} can't be loaded", why=reason, fix=fix) from error
