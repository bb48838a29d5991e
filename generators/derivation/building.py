"""Builds a model of a library from its class and plain arguments. Imports that library."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from generators.models.catalog import load_catalog
from generators.models.diffusion import LIBRARY as DIFFUSERS
from hardware.errors import ModelError, echo

from .scopes import declared_parts, readable

if TYPE_CHECKING:
    import torch


def class_of(name: str, library: str = "transformers") -> Any:
    """A class of a library by its name. Raises `ModelError`."""
    module = importlib.import_module(library)
    found = getattr(module, name, None)
    if found is None:
        raise ModelError(f"{echo(name)} is not a class of {library} {module.__version__}")
    return found


def build(config_class: str, model_class: str, config: Mapping[str, Any]) -> torch.nn.Module:
    """The float32 model with these constructor arguments, on CPU, in evaluation mode, weights as the library
    sets them; one of diffusers where there is no configuration class. Raises `ModelError` with the constructor's own
    reason."""
    try:
        if not config_class:
            return cast("torch.nn.Module", class_of(model_class, DIFFUSERS)(**copy.deepcopy(dict(config))).eval())
        # A copy, because a configuration that is composed of others takes theirs apart.
        model = class_of(model_class)(class_of(config_class)(**copy.deepcopy(dict(config))))
    except ModelError:
        raise
    except Exception as error:  # whatever a constructor raises, it is the reason why the type has no model
        raise ModelError(f"{model_class} cannot be built", why=f"{type(error).__name__}: {line_of(error)}") from error
    readable(model.config)
    return cast("torch.nn.Module", model.eval())


def line_of(error: BaseException) -> str:
    """The text of an error in one line, shortened."""
    return " ".join(str(error).split())[:300]


def part_of(config_class: str, model_class: str) -> tuple[str, str]:
    """The part of a configuration that a class is built with alone, by its attribute and class, where it takes no
    whole one: Emu3's text model. Two empty strings otherwise."""
    made = class_of(model_class)
    annotated = inspect.signature(made.__init__).parameters.get("config")
    taken = (getattr(made, "config_class", None), getattr(annotated, "annotation", None))
    names = [one if isinstance(one, str) else getattr(one, "__name__", "") for one in taken]
    if config_class in names[1:] or (names[0] == config_class and not names[1]):
        return "", ""
    parts = declared_parts(class_of(config_class))
    return next(((attribute, part.__name__) for attribute, part in parts.items() if part.__name__ in names), ("", ""))


def configured_type(model_type: str, model_class: str) -> str:
    """The type whose configuration a class is built with: its own, where it is mapped for several.

    SAM 2 on an image is mapped for checkpoints of SAM 2 on videos, too, whose configuration it can only read.
    """
    catalog = load_catalog()
    own = getattr(getattr(class_of(model_class), "config_class", None), "__name__", "")
    types = [one for one in catalog.types_of_class(model_class) if catalog.config_class(one) == own]
    return model_type if model_type in types or not types else types[0]
