"""Derive a recipe of a user's own module, named as `package.module:factory`, by running its code.

The code runs only in a child process, since it may print, exit or crash.
"""

from __future__ import annotations

import importlib
import inspect
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.models.given_recipe import GivenRecipe, factory_parts
from hwcompat.generators.models.recipe import HERE
from hwcompat.hardware.cell import MODULE_TASK
from hwcompat.hardware.compare import Array, ReferenceNotFinite, is_whole
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.testing.factory_module import FactoryModule, from_factory
from hwcompat.hardware.testing.own_module_test import use_working_directory
from hwcompat.hardware.testing.reference import as_reference, float64_outputs, gradient_summary, identity_of
from hwcompat.hardware.testing.rounded_operators import rounded_results

from . import measurements
from .example_draws import draws_like, other_size, seeds_and_lines
from .graph_scales import FACTORS, float32_costs, judged, spreads
from .probe import record
from .weight_effects import detecting_gain, undetected_weights, unread_inputs

if TYPE_CHECKING:
    import torch

_NEAR = (1.0, 0.99, 1.01, 0.5)
"""Factors of the example's floating-point inputs if no others can be drawn."""
_PRODUCT = ("generators", "hardware", "hwcompat", "reports")
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class _Own:
    """A user's module: `make` calls its factory anew."""

    name: str
    make: Callable[[], FactoryModule]

    @cached_property
    def made(self) -> FactoryModule:
        return self.make()

    @cached_property
    def exact(self) -> torch.nn.Module:
        """The module in float64."""
        return as_reference(self.make().model)

    def runs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs in float64."""
        return float64_outputs(self.exact, inputs)

    def with_shaken_weights(self, inputs: Mapping[str, Array]) -> None:
        """Return None: a pass with rounded results says more."""

    def rounded(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]] | None:
        """Return the outputs of a float64 pass whose results are rounded to float32, and without rounding."""
        import torch

        model = as_reference(self.make().model)
        try:
            with rounded_results(torch.float32):
                rounded = float64_outputs(model, inputs)
        except Exception:  # the user's own code may not take such tensors
            return None
        return rounded, self.runs(inputs)


def derive_own_module(name: str) -> GivenRecipe:
    """Return the recipe of `package.module:factory`, whose code is run. Raises `ModelError` if it can't be tested."""
    own, keeps_state = _steady(name)
    reference = _reference(own)
    draws, other = other_size(own.runs, draws_like(own.made.inputs, own.runs), reference)
    is_drawn = any(one.kind != "given" for one in draws.specs.values())
    make = draws.make if is_drawn else lambda _: own.made.inputs
    found = spreads(own, make, FACTORS if is_drawn else _NEAR)
    unmoved = tuple(one for one in reference if one not in found.scales)
    if len(unmoved) == len(reference):
        raise ModelError(
            f"the outputs of {echo(name)} are constant",
            why="no input moves them, so that a wrong result would look the same",
            fix="Set weights that aren't zero in the factory, and use the inputs in forward.",
        )
    whole, costs = judged(found, float32_costs(own, make, found))
    scales = {one: scale for one, scale in whole.scales.items() if one in reference}
    seeds, exercised = seeds_and_lines(own.runs, draws, _is_own)
    undetected, gain = _undetected(own, [draws.make(seed) for seed in (0, *seeds)], scales)
    gradients, norm = gradient_summary(own.exact, own.made.inputs, {})
    main = next((one for one in scales if not is_whole(reference[one])), next(iter(scales)))
    floats = own.made.dtypes
    model = own.made.model
    return GivenRecipe(
        kind="module",
        name=name,
        subject="config",
        task=MODULE_TASK,
        inputs=draws.specs,
        sizes=draws.sizes,
        other_sizes=other,
        parameters=sum(p.numel() for p in model.parameters()),
        gradients=gradients,
        gradient_norm=norm,
        operators=measurements.operators_of(model, own.made.inputs),
        outputs=tuple(reference),
        recorded=record(reference, [main], {}, seed=0, lengths=(), origin=HERE),
        paired=own.made.paired,
        computes_in=floats[0] if len(floats) == 1 and floats[0] in _HALF else "float32",
        unmoved=unmoved,
        scales=whole.scales,
        parts=whole.parts,
        float32_costs=costs,
        keeps_state=keeps_state,
        seeds=seeds,
        inputs_from=draws.inputs_from,
        unread=tuple(unread_inputs(own.runs, own.made.inputs, draws.make(1), reference)),
        undetected=undetected,
        gain=gain,
        differs=_differences(own.made),
        left_out="" if norm else "gradients, because no output has any",
        exercised=exercised,
    )


def _steady(name: str) -> tuple[_Own, bool]:
    """Return the module, and whether it keeps state: then each call begins in its first state.

    Raises `ModelError` if it isn't the same each time, or can't be run.
    """
    make, example = _factory(name)
    own = _Own(name=name, make=partial(_made, name, make, example))
    again = own.make()
    for key, one in again.inputs.items():
        if one.dtype.kind == "f" and not np.isfinite(one).all():
            raise ModelError(f"the example input {echo(key)} of {echo(name)} isn't finite", fix="Give other values.")
    _refuse_unsupported(name, again.model)
    first, made = identity_of(again.model), own.made
    if identity_of(made.model) != first or not all(
        np.array_equal(one, again.inputs[key]) for key, one in made.inputs.items()
    ):
        raise ModelError(
            f"{echo(name)} makes another module or other inputs on each call",
            why="its results can't be compared",
            fix="Seed its random numbers in the factory.",
        )
    before, after = (_native(name, again) for _ in range(2))
    differs = not _equal(before, after)
    if not differs and identity_of(again.model) == first:
        return own, False
    own = _Own(name=name, make=partial(_made, name, make, example, keeps_state=True))
    if not _equal(*(_native(name, own.made) for _ in range(2))) or not _equal(before, _native(name, own.made)):
        raise ModelError(
            f"{echo(name)} gives a different result in each run",
            why="it draws random numbers or keeps state outside of the module, so that its results can't be compared",
            fix="Don't draw random numbers in forward, and keep state in the module.",
        )
    return own, True


def _equal(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(array, other[key], equal_nan=array.dtype.kind == "f") for key, array in one.items()
    )


def _native(name: str, made: FactoryModule) -> dict[str, Array]:
    """Return the outputs of one call on the example in float32."""
    try:
        return measurements.results_of(made.model, made.inputs)
    except Exception as error:  # the user's own code may raise anything
        raise ModelError(f"{echo(name)} fails on its example inputs", why=_line(error)) from error


def _refuse_unsupported(name: str, model: torch.nn.Module) -> None:
    for layer, module in model.named_modules():
        if ".quantized." in type(module).__module__:
            raise ModelError(
                f"{echo(name)} has quantized layers ({type(module).__name__} {layer.removeprefix('module.')})",
                why="torch runs them on the CPU alone, and they have no float64 reference",
                fix="Return it before it is quantized; --precision int8 quantizes it where a target does that.",
            )
    for key, one in (*model.named_parameters(), *model.named_buffers()):
        key = key.removeprefix("module.")
        if one.is_meta:
            raise ModelError(f"{echo(name)} has no values in {echo(key)}", why="it is on the device meta")
        if not bool(one.isfinite().all()):
            raise ModelError(
                f"{echo(name)} has NaN or infinity in {echo(key)}",
                why="its results can't be compared",
                fix="Load other weights in the factory.",
            )


def _reference(own: _Own) -> dict[str, Array]:
    """Return the outputs in float64. Raises `ModelError` if they can't be compared."""
    name = own.name
    try:
        outputs = own.runs(own.made.inputs)
    except ReferenceNotFinite as error:
        raise ModelError(f"the module of {echo(name)} can't be compared", why=_line(error)) from error
    except Exception as error:  # the user's own code may raise anything
        raise ModelError(
            f"the module of {echo(name)} fails on its example inputs in float64 on the CPU", why=_line(error)
        ) from error
    if not outputs or all(map(is_whole, outputs.values())):
        what = "whole numbers alone" if outputs else "no tensor"
        raise ModelError(
            f"the forward of {echo(name)} returns {what}",
            why="small errors can't be detected",
            fix="Return floating-point tensors too, such as the scores behind a choice, or dicts or tuples of them.",
        )
    return outputs


def _undetected(
    own: _Own, sets: Sequence[Mapping[str, Array]], scales: Mapping[str, float]
) -> tuple[tuple[str, ...], float]:
    """Return the layers whose changed weights aren't detected on these sets of inputs, and a gain of seeded weights
    with which more are (0 without one). Raises `ModelError` if none is detected with either."""
    missed, tried = undetected_weights(own.made.model, sets, scales)
    if not missed:
        return (), 0.0
    gain, left = detecting_gain(lambda: own.make().model, sets[:1], len(missed))
    if len(missed) == tried and (not gain or len(left) == tried):
        raise ModelError(
            f"changes of the weights of {echo(own.name)} can't be detected",
            why=f"weights changed by 10 % move the outputs by less than {measurements.SUBTLE:.0e} of their spread",
            fix="Set larger weights in the factory.",
        )
    return tuple(missed), gain


def _differences(made: FactoryModule) -> str:
    """Return in which way the tested module isn't the factory's."""
    found = []
    if made.dtypes not in ((), ("float32",)) and not (len(made.dtypes) == 1 and made.dtypes[0] in _HALF):
        found.append(f"{' and '.join(made.dtypes)} became float32")
    if made.trains:
        found.append(f"training mode became evaluation mode ({', '.join(made.trains)})")
    return "; ".join(found)


def _is_own(file: str) -> bool:
    """Whether code is the user's: not of an installed package, the standard library or this product."""
    root = Path(__file__).parents[2]
    installed = [Path(sysconfig.get_path(one)) for one in ("stdlib", "purelib", "platlib")]
    folders = [*installed, *(root / one for one in _PRODUCT)]
    return file.startswith("/") and not any(Path(file).is_relative_to(one) for one in folders)


def _factory(name: str) -> tuple[Callable[[], Any], Any]:
    """Return the factory with its arguments, and the example inputs of its module or None."""
    use_working_directory()
    path, what, arguments = factory_parts(name)
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
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise ModelError(
            f"the arguments of {echo(name)} don't fit: {error}",
            fix=f"Name them, such as --model '{path}:{what}(size=64)'.",
        ) from error
    except ValueError:  # a builtin without a signature
        pass
    return partial(factory, **arguments), getattr(module, "example_inputs", None)


def _made(name: str, make: Callable[[], Any], example: Any, *, keeps_state: bool = False) -> FactoryModule:
    try:
        return from_factory(make, example, keeps_state=keeps_state)
    except ModelError as error:
        raise ModelError(f"{echo(name)}: {error.what}", why=error.why, fix=error.fix) from error
    except Exception as error:  # the user's own code may raise anything
        raise ModelError(f"{echo(name)} failed", why=_line(error)) from error


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")
