"""Whether anybody could build a model type here: found out by trying its own class on its own defaults."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from typing import Any

from generators.models.diffusion import LIBRARY
from generators.models.libraries import catalog_of, lacking
from generators.models.refusal import Obstacle, Refusal

from .building import configured_type

_LONGEST = 300
_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_LACKING = re.compile(r"(?:requires the|needs|No module named) '?(\w+)")
"""How the library, Python and we name the package that is missing."""
_OF_META = ("meta tensor", "meta device", "Meta", "FakeTensor", "aten::_local_scalar_dense", "data_ptr")
"""Words of errors that say nothing of a class, only that it was built without memory."""


def obstacle_of(model_type: str, failure: str) -> Refusal:
    """Why a type has no recipe, after its derivation ended with `failure`. Imports transformers; allocates nothing.

    Only what its own class does on its own untouched defaults takes a type out of those that can be built.
    """
    obstacle, reason = _found(model_type) or _undefined(failure) or (Obstacle.NOT_DERIVED, failure)
    lacking_package = _LACKING.search(reason) if obstacle is Obstacle.MISSING_DEPENDENCY else None
    return Refusal(
        model_type=model_type,
        obstacle=obstacle,
        reason=" ".join(reason.split())[:_LONGEST],
        package=lacking_package[1] if lacking_package else "",
    )


def _found(model_type: str) -> tuple[Obstacle, str] | None:
    catalog = catalog_of(model_type)
    tasks = catalog.tasks_of(model_type)
    if not tasks:
        return Obstacle.NO_CLASS, f"no auto mapping of {catalog.library} names a class for it"
    if reason := lacking(catalog.library):
        return Obstacle.MISSING_DEPENDENCY, reason
    if not catalog.config_class(model_type):
        return _of_diffusers(tasks[0].model_class)
    import transformers

    model_name = tasks[0].model_class
    try:
        model_class = getattr(transformers, model_name)
        config_class = getattr(transformers, catalog.config_class(configured_type(model_type, model_name)))
    except ImportError as error:
        return Obstacle.MISSING_DEPENDENCY, str(error)
    except Exception as error:  # transformers wraps whatever a module raises when it is imported
        return Obstacle.DEFAULTS_FAIL, f"importing {model_name} fails: {error}"
    if not _has_forward(model_class):
        return Obstacle.NO_CLASS, f"{model_name} has no forward"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return _built(config_class, model_class)


def _undefined(failure: str) -> tuple[Obstacle, str] | None:
    """A package that modelling code takes for granted: it imports it where it is installed, and calls it anyway."""
    from transformers.utils import import_utils

    name = next(iter(_NAME.findall(failure)), "")
    if not hasattr(import_utils, f"is_{name}_available") or importlib.util.find_spec(name) is not None:
        return None
    return Obstacle.MISSING_DEPENDENCY, f"its forward pass needs {name}, which isn't installed: {failure}"


def _of_diffusers(model_name: str) -> tuple[Obstacle, str] | None:
    """What keeps anybody from taking a part of a pipeline by its name. Its defaults aren't tried: those of several
    parts are no model, because every checkpoint says what they leave open."""
    try:
        found = hasattr(importlib.import_module(LIBRARY), model_name)
        return None if found else (Obstacle.NO_CLASS, f"diffusers has no {model_name}")
    except ImportError as error:
        return Obstacle.MISSING_DEPENDENCY, str(error)


def _has_forward(model_class: Any) -> bool:
    import torch

    return getattr(model_class, "forward", None) is not torch.nn.Module.forward


def _built(config_class: Any, model_class: Any) -> tuple[Obstacle, str] | None:
    import torch

    called = f"{config_class.__name__}()"
    try:
        config = config_class()
        called = f"{model_class.__name__}({called})"
        with torch.device("meta"):
            model_class(config)
    except ImportError as error:
        return Obstacle.MISSING_DEPENDENCY, str(error)
    except Exception as error:  # whatever a constructor raises on its own defaults, nobody can build it as it comes
        text = f"{type(error).__name__}: {error}"
        if any(word in text for word in _OF_META):
            return None
        return Obstacle.DEFAULTS_FAIL, f"{called} fails with {text}"
    return None
