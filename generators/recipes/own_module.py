"""Derive a recipe of a user's own module, named as `package.module:factory`, by running its code.

The code runs only in a child process, since it may print, exit or crash.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.models.given_recipe import GivenInput, GivenRecipe, draw_inputs
from hwcompat.generators.models.recipe import HERE
from hwcompat.hardware.cell import MODULE_TASK
from hwcompat.hardware.compare import Array, ReferenceNotFinite, compare
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.testing.own_module_test import use_working_directory
from hwcompat.hardware.testing.reference import as_reference, float64_outputs, gradient_summary

from . import measurements
from .probe import record

if TYPE_CHECKING:
    import torch

_HOW = (
    "Return (module, inputs) from the factory, or define example_inputs in its Python module: "
    'a dict from the arguments of forward to tensors, such as {"x": torch.zeros(2, 3)}.'
)


def derive_own_module(name: str) -> GivenRecipe:
    """Return the recipe of `package.module:factory`, whose code is run. Raises `ModelError` if it can't be tested."""
    factory, module = _factory(name)
    model, inputs, paired = _made(name, factory, module)
    specs = {key: _spec(name, key, value) for key, value in inputs.items()}
    specs, sizes = _batched(specs)
    exact = as_reference(copy.deepcopy(model))
    drawn = draw_inputs(specs, sizes)
    reference = _run(name, exact, drawn)
    if compare(_run(name, exact, drawn), reference).max_rel_error > 0:
        raise ModelError(
            f"{echo(name)} gives a different result in each run",
            why="its results can't be compared",
            fix="Don't draw random numbers in forward.",
        )
    other = _other_sizes(exact, specs, sizes, reference)
    if not other:
        specs, sizes = {key: _fixed(one, sizes) for key, one in specs.items()}, {}
    _require_effect(name, model, draw_inputs(specs, sizes), reference)
    output = next(iter(reference))
    recorded = record(reference, [output], {}, seed=0, lengths=(), origin=HERE)
    gradients, norm = gradient_summary(exact, draw_inputs(specs, sizes), {})
    return GivenRecipe(
        kind="module",
        name=name,
        subject="config",
        task=MODULE_TASK,
        inputs=specs,
        sizes=sizes,
        other_sizes=other,
        parameters=sum(p.numel() for p in model.parameters()),
        gradients=gradients,
        gradient_norm=norm,
        operators=measurements.operators_of(model, draw_inputs(specs, sizes)),
        outputs=tuple(reference),
        recorded=recorded,
        paired=paired,
    )


def _factory(name: str) -> tuple[Any, Any]:
    use_working_directory()
    path, _, what = name.partition(":")
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        parts = path.split(".")
        ours = error.name in [".".join(parts[: n + 1]) for n in range(len(parts))]
        raise ModelError(
            f"the module {echo(path)} was not found" if ours else f"{echo(path)} can't be imported",
            why="it isn't in the working directory or installed" if ours else _line(error),
            fix="Run the command in the folder that contains it." if ours else "",
        ) from error
    except Exception as error:  # the user's own code may raise anything
        raise ModelError(f"{echo(path)} can't be imported", why=_line(error)) from error
    factory = getattr(module, what, None)
    if not callable(factory):
        raise ModelError(
            f"{echo(path)} has no factory {echo(what)}",
            why=f"Python imported {module.__file__}" if factory is None else "it isn't callable",
            fix="Name a function without arguments that returns a torch.nn.Module.",
        )
    return factory, module


def _made(name: str, factory: Any, module: Any) -> tuple[torch.nn.Module, dict[str, Array], bool]:
    """Return the factory's module on CPU, its example inputs as arrays, and whether it returned both."""
    import torch

    torch.manual_seed(0)
    try:
        made = factory()
    except Exception as error:  # the user's own code may raise anything
        raise ModelError(f"{echo(name)} failed", why=_line(error)) from error
    paired = isinstance(made, tuple) and len(made) == 2
    model, inputs = made if paired else (made, getattr(module, "example_inputs", None))
    if callable(inputs):
        inputs = inputs()
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            f"{echo(name)} returned a {echo(type(model).__name__)}, not a module",
            fix="Name a function without arguments that returns a torch.nn.Module.",
        )
    if not isinstance(inputs, Mapping) or not inputs:
        raise ModelError(
            f"the inputs of the module of {echo(name)} are unknown",
            why="there are no example inputs" if inputs is None else "the example inputs aren't a dict",
            fix=_HOW,
        )
    known = inspect.signature(model.forward).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in known.values())
    strange = [str(key) for key in inputs if key not in known]
    if strange and not takes_any:
        raise ModelError(
            f"the forward of {echo(name)} has no argument {echo(strange[0])}",
            why=f"its arguments are {', '.join(known)}" if known else "it has no arguments",
            fix=_HOW,
        )
    arrays = {str(key): _array(name, str(key), value) for key, value in inputs.items()}
    return model.eval().to(torch.float32), arrays, paired


def _array(name: str, key: str, value: Any) -> Array:
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
        raise ModelError(
            f"the example input {echo(key)} of {echo(name)} isn't an array of numbers",
            why=f"its type is {type(value).__name__}",
            fix=_HOW,
        )
    return value


def _spec(name: str, key: str, example: Array) -> GivenInput:
    """Return how to draw arrays like the example: of its shape and kind, inside its range."""
    if not key.isidentifier() or not example.size:
        raise ModelError(
            f"the example input {echo(key)} of {echo(name)} can't be used",
            why="it is empty or its name isn't an identifier",
            fix=_HOW,
        )
    if example.dtype.kind == "b":
        return GivenInput(kind="booleans", dtype="bool", shape=example.shape)
    low, high = example.min(), example.max()
    if example.dtype.kind in "iu":
        return GivenInput(
            kind="integers", dtype=str(example.dtype), shape=example.shape, low=int(low), high=int(high) + 1
        )
    if not np.isfinite(example).all():
        raise ModelError(f"the example input {echo(key)} of {echo(name)} isn't finite", fix=_HOW)
    if low >= 0 and high > low:  # the module may compute its logarithm or root
        return GivenInput(
            kind="uniform", dtype="float32", shape=example.shape, low=_rounded(low), high=_rounded(high)
        )
    spread = float(example.std()) or 1.0
    return GivenInput(
        kind="normal", dtype="float32", shape=example.shape, low=_rounded(example.mean()), high=_rounded(spread)
    )


def _rounded(value: Any) -> float:
    return float(f"{float(value):.4g}")


def _batched(specs: Mapping[str, GivenInput]) -> tuple[dict[str, GivenInput], dict[str, int]]:
    """Return the specifications with the first dimension named `batch`, if all inputs share it, and the sizes."""
    first = {one.shape[:1] for one in specs.values()}
    if len(first) != 1 or first == {()}:
        return dict(specs), {}
    size = next(iter(first))[0]
    return {key: replace(one, shape=("batch", *one.shape[1:])) for key, one in specs.items()}, {"batch": int(size)}


def _fixed(one: GivenInput, sizes: Mapping[str, int]) -> GivenInput:
    return replace(one, shape=tuple(sizes[size] if isinstance(size, str) else size for size in one.shape))


def _other_sizes(
    model: torch.nn.Module,
    specs: Mapping[str, GivenInput],
    sizes: Mapping[str, int],
    reference: Mapping[str, Array],
) -> dict[str, int]:
    """Return a second batch size that the module accepts; empty if it accepts only that of its example."""
    if not sizes:
        return {}
    other = {"batch": sizes["batch"] + 1}
    try:
        outputs = float64_outputs(model, draw_inputs(specs, other))
    except Exception:  # any error means that it needs the size of its example
        return {}
    batched = [name for name, array in reference.items() if array.shape[:1] == (sizes["batch"],)]
    return other if all(outputs[name].shape[:1] == (other["batch"],) for name in batched) else {}


def _run(name: str, model: torch.nn.Module, inputs: Mapping[str, Array]) -> dict[str, Array]:
    try:
        outputs = float64_outputs(model, inputs)
    except ReferenceNotFinite as error:
        raise ModelError(f"the module of {echo(name)} can't be compared", why=_line(error)) from error
    except Exception as error:  # the user's own code may raise anything
        raise ModelError(
            f"the module of {echo(name)} fails on random inputs in float64 on the CPU",
            why=_line(error),
        ) from error
    if not outputs:
        raise ModelError(
            f"the forward of {echo(name)} returns no floating-point tensor",
            fix="Return a tensor, a tuple of tensors or a dict of tensors.",
        )
    return outputs


def _require_effect(
    name: str, model: torch.nn.Module, inputs: Mapping[str, Array], reference: Mapping[str, Array]
) -> None:
    """Reject a module whose weights don't affect the outputs: its suite could pass whatever the target computes."""
    import torch

    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.mul_(1.1)
    constant = all(float(array.std()) == 0.0 for array in reference.values() if array.size > 1)
    quiet = any(True for _ in model.parameters()) and not _moved(changed, inputs, reference) >= measurements.SUBTLE
    if constant and any(array.size > 1 for array in reference.values()):
        raise ModelError(
            f"the outputs of {echo(name)} are constant",
            why="a wrong result would look the same",
            fix="Set weights that aren't zero in the factory.",
        )
    if quiet:
        raise ModelError(
            f"changes of the weights of {echo(name)} can't be detected",
            why=f"weights larger by 10 % change the output by less than {measurements.SUBTLE:.0e}",
            fix="Set larger weights in the factory.",
        )


def _moved(model: torch.nn.Module, inputs: Mapping[str, Array], reference: Mapping[str, Array]) -> float:
    return compare(measurements.run(model, inputs), reference).max_rel_error


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")
