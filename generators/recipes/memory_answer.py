"""`memory_answer`: memory estimates for a user's model, from a child process or from its stored answer."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.memory_fit import MemoryAnatomy, MemoryEstimate
from hwcompat.generators.models.classification import Classification, kind_of
from hwcompat.generators.recipes.on_demand import file_memory_in_child, memory_in_child
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.files import PRODUCT, cache_folder, write_whole

log = logging.getLogger(__name__)

_SOURCES = (
    *("generators/recipes/memory", "generators/recipes", "generators/models/inputs.py"),
    *("generators/compatibility/memory_fit.py", "hardware/backends", "hardware/model"),
)
"""The sources of the estimates, relative to our root."""


@dataclass(frozen=True, kw_only=True)
class MemoryAnswer:
    """Estimates: that of the request first, then others of the same model that differ in one setting. A model that
    doesn't read text has no context."""

    estimates: tuple[MemoryEstimate, ...]
    anatomy: MemoryAnatomy
    notes: tuple[str, ...]
    reads_text: bool = True

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryAnswer:
        """Return the answer of a child."""
        estimates = tuple(MemoryEstimate.from_dict(one) for one in data["estimates"])
        return cls(
            estimates=estimates,
            anatomy=MemoryAnatomy(**data["anatomy"]),
            notes=tuple(data["notes"]),
            reads_text=bool(data.get("reads_text", True)),
        )


def memory_answer(found: Classification, asked: Mapping[str, Any]) -> MemoryAnswer:
    """Return the estimates for a model; `asked` has the form of `generators.recipes.memory.memory_request.memory_of`.

    This process computes nothing and doesn't import torch. Raises `ModelError` with the reason if nothing can be
    estimated.
    """
    known_type = found.model == found.model_type
    kind = kind_of(found.model)
    if kind == "graph":
        return MemoryAnswer.from_dict(file_memory_in_child(found.model, asked))
    if kind:
        raise ModelError(
            f"the memory of {echo(found.model)} can't be estimated",
            why="it is your own code; estimates need a model type, a config.json or an .onnx file",
        )
    if found.path is None and not known_type:
        raise ModelError(
            f"the memory of {echo(found.model)} can't be estimated",
            why="its config.json isn't available",
            fix=f"Fetch it with: hf download {found.model} config.json",
        )
    name = found.path or found.model_type
    file = cache_folder("memory") / f"{_key(name, found, asked)}.json"
    try:
        return MemoryAnswer.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):  # missing or truncated: estimate again
        answer = memory_in_child(name, found.task if found.path is None else None, asked)
    try:
        write_whole(file, json.dumps(answer))
    except OSError as error:  # the answer is known; only the next request takes as long again
        log.warning("%s isn't cached: %s", file, error)
    return MemoryAnswer.from_dict(answer)


def _key(name: str, found: Classification, asked: Mapping[str, Any]) -> str:
    config = hashlib.sha256((Path(name) / "config.json").read_bytes()).hexdigest() if found.path else ""
    known = [found.model_type, found.task, config, dict(asked), _versions(), _sources()]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            raise ModelError(
                "memory can't be estimated", why=f"{name} isn't installed", fix=f"pip install {name}"
            ) from error
    return found


@functools.cache
def _sources() -> str:
    known = hashlib.sha256()
    for place in _SOURCES:
        path = PRODUCT / place
        for file in [path] if path.is_file() else sorted([*path.glob("*.py"), *path.glob("*.toml")]):
            known.update(file.read_bytes())
    return known.hexdigest()
