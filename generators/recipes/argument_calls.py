"""Find the arguments besides the plain ones with which a model agrees with its plain call, or with float64."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.compare import scale_of
from hwcompat.hardware.testing.argument_checks import arrays_of, drawn_inputs, plain_attention
from hwcompat.hardware.testing.model_test import ModelTest
from hwcompat.hardware.testing.reference import float64_call

_DEFAULTS: Mapping[str, tuple[int, ...]] = {
    **{"position_ids": (0, 1, 2), "decoder_position_ids": (0, 1, 2), "token_type_ids": (0, 1)},
    **{"attention_mask": (1,), "decoder_attention_mask": (1,), "encoder_outputs": (1, 0)},
    **{"decoder_inputs_embeds": (0,), "decoder_input_ids": (0,)},
    **{"return_dict": (False,), "use_cache": (True,), "interpolate_pos_encoding": (True,)},
}
"""Arguments with what models choose for them, or what changes nothing (see `given_error`): the first position (some
count from the padding token), or the number for each token."""
_FLAGS = ("output_hidden_states", "output_attentions", "output_router_logits", "return_loss")
"""Arguments that ask for more outputs."""
_EFFECT = 1e-3
"""How far an input must move an output, in terms of its scale, to be worth a call."""


MASKS = frozenset({"mask", "heard"})
"""Kinds of inputs that mark padding."""


@dataclass(frozen=True, kw_only=True)
class Try:
    """One check with the arguments that its suite would have, and the call that returns its error."""

    check: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    measure: Callable[[], float]


def named(recipe: Recipe, *kinds: str) -> list[str]:
    """Return the names of a recipe's inputs of some kinds."""
    return [name for name, spec in recipe.inputs.items() if spec["kind"] in kinds]


def agrees(case: ModelTest, error: Callable[[], float]) -> bool:
    """Return whether a call is possible and gives the same."""
    found = error_of(case, error)
    return found is not None and found <= case.tolerance


def error_of(case: ModelTest, error: Callable[[], float]) -> float | None:
    """Return the error of a call, None if the model raises."""
    try:
        return error()
    except Exception:  # whatever the model raises
        return None
    finally:
        case.take_measurement()


def of_arguments(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the checks of arguments and results besides the plain ones."""
    inputs = case.inputs
    yield Try(check="inputs_embeds", measure=partial(case.embeddings_error, inputs))
    has_default = "token_type_ids" not in inputs and "input_ids" in inputs
    effect = error_of(case, partial(case.token_types_effect, inputs)) if has_default else None
    if effect is not None and effect > 2 * case.tolerance:
        is_default = agrees(case, partial(case.default_type_error, inputs))
        measure = partial(case.token_types_error, inputs)
        yield Try(check="token_types", arguments={"default": is_default}, measure=measure)

    def loss(kind: str, gradients: bool, **more: bool) -> float:
        found: float = max(case.loss_error(inputs, kind), case.loss_error(inputs, kind, **more))
        return max(found, case.loss_gradient_error(inputs, kind)) if gradients else found

    kinds: list[dict[str, Any]] = [{"kind": "next", "counted": True}, {"kind": "next"}]
    kinds += [{"kind": "same", "labels_alone": True}] if "decoder_input_ids" in inputs else []
    # A loss of other labels may have nearly the same value, but not its gradients. Noise in training isn't the same.
    for gradients in (True, False) if agrees(case, partial(case.training_error, inputs)) else (False,):
        for arguments in (*kinds, {"kind": "same"}, {"kind": "row"}):
            found = {**arguments, "gradients": gradients}
            yield Try(check="loss", arguments=found, measure=partial(loss, **found))
    yield Try(check="hidden_states", measure=partial(case.hidden_states_error, inputs))
    yield Try(check="logits_to_keep", measure=partial(case.kept_logits_error, inputs))


def of_given(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the check of arguments that the plain call leaves to the model, or that its inputs without padding do."""
    lengths, without = recipe.recorded["lengths"], named(recipe, *MASKS, "positions")
    whole = make_inputs(recipe.inputs, recipe.recorded["seed"], [max(lengths)] * len(lengths))
    taken = inspect.signature(case.reference_model.forward).parameters
    padding = getattr(case.reference_model.config, "pad_token_id", None) or 0
    found: dict[str, int] = {}
    for name, values in _DEFAULTS.items():
        if name in taken and (name in (*without, "decoder_input_ids") or name not in recipe.inputs):
            error = partial(case.given_error, whole, name, without=without)
            more = (padding + 1,) if "position" in name else ()
            held = (one for one in (*values, *more) if agrees(case, partial(error, one)))
            found.update((name, one) for one in itertools.islice(held, 1))
    if found:
        yield Try(check="given_defaults", arguments={"given": found, "without": without}, measure=lambda: 0.0)


def of_optional(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the check of outputs and inputs that a call may ask for, or leave out, with padding and without."""
    lengths, masks = recipe.recorded["lengths"], named(recipe, *MASKS, "positions")
    whole = make_inputs(recipe.inputs, recipe.recorded["seed"], [max(lengths)] * len(lengths))
    plain = float64_call(case.reference_model, whole, arrays_of)

    def has_effect(flags: tuple[str, ...], shapes: Mapping[str, list[int]]) -> bool:
        given = {**whole, **drawn_inputs(shapes, len(lengths))}
        with plain_attention(case.reference_model), contextlib.suppress(Exception):  # it has no such argument
            found = float64_call(case.reference_model, given, arrays_of, **dict.fromkeys(flags, True))
            if found.keys() != plain.keys():
                return True
            return any(np.abs(found[name] - one).max() > _EFFECT * scale_of(one) for name, one in plain.items())
        return False

    flags = [one for one in _FLAGS if has_effect((one,), {})]
    asked: list[dict[str, Any]] = [{"flags": flags}] if flags else []
    asked += [{"shapes": shapes} for shapes in _optional_inputs(recipe, case) if has_effect((), shapes)]
    calls = []
    for one, is_whole in itertools.product(asked, (False, True) if masks else (True,)):
        arguments = {**one, "batch": len(lengths), **({"without": masks} if is_whole and masks else {})}
        if agrees(case, partial(case.optional_error, whole if is_whole else case.inputs, **arguments)):
            calls.append({"whole": is_whole, "arguments": arguments})
    if calls:
        yield Try(check="optional_arguments", arguments={"calls": calls}, measure=lambda: 0.0)


def _optional_inputs(recipe: Recipe, case: ModelTest) -> Iterator[dict[str, list[int]]]:
    """Yield the shapes that optional inputs of images might have: a mask of pixels, or of the patches that a module
    counts."""
    model: Any = case.reference_model
    taken = inspect.signature(model.forward).parameters.keys() - recipe.inputs.keys()
    images = case.inputs.get("pixel_values")
    if "pixel_mask" in taken and images is not None:
        yield {"pixel_mask": list(images.shape[-2:])}
    if "bool_masked_pos" in taken:
        counts = {getattr(module, "num_patches", None) for module in model.modules()}
        yield from ({"bool_masked_pos": [one]} for one in sorted(one for one in counts if isinstance(one, int)))
