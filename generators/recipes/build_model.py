"""Build a model from its class and plain arguments, find norms that add 1, and classify why a type can't be built.
Imports the model's library."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import inspect
import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from hwcompat.generators.models.catalog import load_catalog
from hwcompat.generators.models.model_libraries import LIBRARY, catalog_of, lacking
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import Obstacle, Refusal
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.testing.seeded_weights import fill, without_numbers

from .config_scopes import declared_parts, readable

if TYPE_CHECKING:
    import torch

_LONGEST = 300
_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_MISSING = re.compile(r"(?:requires the|needs|No module named) '?(\w+)")
"""How the library, Python and our messages name a missing package."""
_OF_META = ("meta tensor", "meta device", "Meta", "FakeTensor", "aten::_local_scalar_dense", "data_ptr")
"""Words of errors that concern only building without memory, not the class."""


def class_of(name: str, library: str = "transformers") -> Any:
    """Return a class of a library by its name. Raises `ModelError`."""
    module = importlib.import_module(library)
    found = getattr(module, name, None)
    if found is None:
        raise ModelError(f"{echo(name)} isn't a class of {library} {module.__version__}")
    return found


def build(config_class: str, model_class: str, config: Mapping[str, Any]) -> torch.nn.Module:
    """Return the float32 model with these constructor arguments, on CPU, in evaluation mode, with the library's
    weights; a model of diffusers if there is no configuration class. Raises `ModelError` with the constructor's
    reason."""
    try:
        if not config_class:
            return cast("torch.nn.Module", class_of(model_class, LIBRARY)(**copy.deepcopy(dict(config))).eval())
        # A copy, because a composed configuration modifies those of its parts.
        model = class_of(model_class)(class_of(config_class)(**copy.deepcopy(dict(config))))
    except ModelError:
        raise
    except Exception as error:  # any error of a constructor is the reason why the type has no model
        raise ModelError(f"{model_class} can't be built", why=f"{type(error).__name__}: {line_of(error)}") from error
    readable(model.config)
    return cast("torch.nn.Module", model.eval())


def filled_model(recipe: Recipe) -> torch.nn.Module:
    """Return the tiny model of a recipe with its seeded test weights. Raises `ModelError`."""
    made = build(recipe.config_class, recipe.model_class, recipe.config).float()  # OneFormer builds itself in float64
    return cast("torch.nn.Module", fill(made, gain=recipe.gain or 1.0, zero_centered=recipe.zero_centered))


def line_of(error: BaseException) -> str:
    """Return the text of an error in one line, shortened."""
    return " ".join(str(error).split())[:300]


def part_of(config_class: str, model_class: str) -> tuple[str, str]:
    """Return the attribute and class of the part of a configuration that a class is built with, if it doesn't take
    the whole one (Emu3's text model); else two empty strings."""
    made = class_of(model_class)
    annotated = inspect.signature(made.__init__).parameters.get("config")
    taken = (getattr(made, "config_class", None), getattr(annotated, "annotation", None))
    names = [one if isinstance(one, str) else getattr(one, "__name__", "") for one in taken]
    if config_class in names[1:] or (names[0] == config_class and not names[1]):
        return "", ""
    parts = declared_parts(class_of(config_class))
    return next(((attribute, part.__name__) for attribute, part in parts.items() if part.__name__ in names), ("", ""))


def configured_type(model_type: str, model_class: str) -> str:
    """Return the type whose configuration a class is built with: its own, if it is mapped for several.

    SAM 2 for images is also mapped for checkpoints of SAM 2 for videos, whose configuration it can only read.
    """
    catalog = load_catalog()
    own = getattr(getattr(class_of(model_class), "config_class", None), "__name__", "")
    types = [one for one in catalog.types_of_class(model_class) if catalog.config_class(one) == own]
    return model_type if model_type in types or not types else types[0]


def zero_centered_weights(model: torch.nn.Module) -> tuple[str, ...]:
    """Return the names of weights of root mean square normalizations to which the code adds 1 (Gemma, Qwen3-Next).

    A layer's number is written as `*` if all layers are alike. `model` stays unchanged.
    """
    import torch

    with torch.no_grad():
        adding = {
            f"{name}.weight"
            for name, module in model.named_modules()
            if "RMSNorm" in type(module).__name__ and getattr(module, "weight", None) is not None
            if _passes_at_zero(module)
        }
    others = {
        without_numbers(name) for name, _ in model.named_parameters(remove_duplicate=False) if name not in adding
    }
    return tuple(sorted({name if (short := without_numbers(name)) in others else short for name in adding}))


def _passes_at_zero(norm: Any) -> bool:
    """Return whether the output of a normalization is nonzero if its weight is 0."""
    import torch

    kept = norm.weight.detach().clone()
    try:
        norm.weight.zero_()
        return bool(norm(torch.ones(1, *kept.shape, dtype=kept.dtype)).any())
    except Exception:  # it has a further input, such as a gate, so its output without it is unknown
        return False
    finally:
        norm.weight.copy_(kept)


def obstacle_of(model_type: str, failure: str) -> Refusal:
    """Return why a type has no recipe after its derivation failed with `failure`. Imports transformers.

    Nothing is allocated. Only a failure of its class with its own defaults makes a type unbuildable.
    """
    obstacle, reason = _found(model_type) or _undefined(failure) or (Obstacle.NOT_DERIVED, failure)
    missing = _MISSING.search(reason) if obstacle is Obstacle.MISSING_DEPENDENCY else None
    return Refusal(
        model_type=model_type,
        obstacle=obstacle,
        reason=" ".join(reason.split())[:_LONGEST],
        package=missing[1] if missing else "",
    )


def _found(model_type: str) -> tuple[Obstacle, str] | None:
    catalog = catalog_of(model_type)
    tasks = catalog.tasks_of(model_type)
    if not tasks:
        return Obstacle.NO_CLASS, f"no auto mapping of {catalog.library} has a class for it"
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
    except Exception as error:  # transformers wraps the errors of a module's import
        return Obstacle.DEFAULTS_FAIL, f"importing {model_name} fails: {error}"
    if not _has_forward(model_class):
        return Obstacle.NO_CLASS, f"{model_name} has no forward"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return _built(config_class, model_class)


def _undefined(failure: str) -> tuple[Obstacle, str] | None:
    """Return a package that modeling code imports only if it is installed, and uses in any case."""
    from transformers.utils import import_utils

    name = next(iter(_NAME.findall(failure)), "")
    if not hasattr(import_utils, f"is_{name}_available") or importlib.util.find_spec(name) is not None:
        return None
    return Obstacle.MISSING_DEPENDENCY, f"its forward pass needs {name}, which isn't installed: {failure}"


def _of_diffusers(model_name: str) -> tuple[Obstacle, str] | None:
    """Return why a part of a pipeline can't be built by its name. Its defaults aren't tried, because those of
    several parts are incomplete: each checkpoint sets the rest."""
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
    except Exception as error:  # any error with its own defaults means that it can't be built
        text = f"{type(error).__name__}: {error}"
        if any(word in text for word in _OF_META):
            return None
        return Obstacle.DEFAULTS_FAIL, f"{called} fails with {text}"
    return None
