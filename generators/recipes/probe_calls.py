"""Find the calls of a model that agree with its plain one: the checks of a suite that need no recorded numbers."""

from __future__ import annotations

import contextlib
import functools
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.compare import Array, scale_of
from hwcompat.hardware.output_masks import covering, masks_of
from hwcompat.hardware.testing.call_checks import larger_images
from hwcompat.hardware.testing.checks import call_checks
from hwcompat.hardware.testing.model_relations import has_other_attention
from hwcompat.hardware.testing.model_test import ModelTest
from hwcompat.hardware.testing.reference import float64_outputs
from hwcompat.hardware.testing.widened_weights import copy_over

from .argument_calls import MASKS, Try, agrees, named, of_arguments, of_given, of_optional

if TYPE_CHECKING:
    import torch

_BY_TOKEN = frozenset(
    {"tokens", "decoder_tokens", "positions", "places", "boxes", "token_categories", "seen", "frames", "waveform"}
)
_ALWAYS = ("batch_invariance", "attention_agrees", "causality")
_DECODING = ("static_cache", "beam_search")
_LARGE = 2**27
"""Parameters above which only the relations of all models are tried: each takes several passes in float64."""
_LONG = (160, 120, 96, 64, 48)
"""Lengths of a long text. The first that a model has positions for is used."""
_SIZES = (128, 64, 32)
"""Lengths of which kernels are multiples: texts of one token more and one less are run."""
_VALUES = ("tokens", "features", "pixels", "frames", "waveform", "patches")
"""Kinds of inputs that have values, or embeddings of tokens."""
_FACTORS = (10000.0, 1000.0, 100.0, 10.0)
"""Factors for large values, of which the largest that holds is used."""
_PLACES = 4


_FILE = Path(__file__).with_name("call_exceptions.toml")


@dataclass(frozen=True, kw_only=True)
class CallException:
    """Types that a check doesn't apply to, because their mathematics doesn't have the relation."""

    types: tuple[str, ...]
    check: str
    reason: str


@functools.cache
def call_exceptions() -> tuple[CallException, ...]:
    """Return the entries of `call_exceptions.toml`."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["exception"]
    return tuple(CallException(**{**one, "types": tuple(one["types"])}) for one in entries)


def exceptions_of(model_type: str, task: str) -> tuple[CallException, ...]:
    """Return the entries of a type, or of one of its tasks (`type@task`)."""
    names = {model_type, f"{model_type}@{task}"}
    return tuple(one for one in call_exceptions() if names & set(one.types))


def unpadded_by(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return, for each input with an entry for each token or frame, the mask that marks its padding (see
    `row_alone`)."""
    masks = [name for name, spec in specs.items() if spec["kind"] in MASKS]
    found = {}
    for name, spec in specs.items():
        if spec["kind"] not in (_BY_TOKEN | MASKS) or (spec["kind"] == "decoder_tokens" and "length" in spec):
            continue
        side = [one for one in masks if one.startswith("decoder") == name.startswith("decoder")]
        own = name.replace("input_ids", "attention_mask")
        mask = name if name in masks else own if own in masks else next(iter(side), "")
        axis = 2 if "bins_first" in spec or "choices" in spec else 1
        if mask:
            found[name] = mask if axis == 1 else f"{mask} @ {axis}"
    return found


@dataclass(frozen=True, kw_only=True)
class ProbedCalls:
    """The arguments of each check that applies to a model, by name; those of them that fail; and why stricter forms
    and other checks don't hold."""

    arguments: Mapping[str, Any]
    failing: frozenset[str]
    refused: Mapping[str, str]


def probe_calls(recipe: Recipe, model: torch.nn.Module, *, checks: Collection[str] = ()) -> ProbedCalls:
    """Find the checks, all or only some, that apply to a model with its weights.

    A relation that every model should have (`_ALWAYS`), and decoding (`_DECODING`), are asked for in the strictest
    form that holds, and in the strictest that runs if none does: then the suite fails. Others are asked for if they
    hold. `call_exceptions.toml` lists types that don't have a relation.
    """
    found: dict[str, Any] = {}
    first: dict[str, Any] = {}
    refused: dict[str, str] = {}
    asked = frozenset(checks or (_ALWAYS if recipe.parameters > _LARGE else call_checks()))
    asked -= {one.check for one in exceptions_of(recipe.model_type, recipe.task)}
    with case_of(recipe, model) as case:
        for one in _tries(recipe, model, case, asked):
            if one.check in found or one.check not in asked:
                continue
            try:
                error = one.measure()
            except Exception as raised:  # whatever the model raises is why it has no such call
                refused.setdefault(one.check, f"{type(raised).__name__}: {' '.join(str(raised).split())[:150]}")
                continue
            comparison = case.measured.comparison
            case.take_measurement()
            if error <= case.tolerance:
                found[one.check] = dict(one.arguments)
                continue
            refused.setdefault(one.check, f"{error:.1e} in {comparison.worst if comparison else ''}")
            if one.check in _ALWAYS + _DECODING:
                first.setdefault(one.check, dict(one.arguments))
    failing = frozenset(first.keys() - found.keys())
    return ProbedCalls(arguments={**first, **found}, failing=failing, refused=refused)


def case_of(recipe: Recipe, model: torch.nn.Module, precision: str = "float32") -> ModelTest:
    """Return the test of a model with its weights on the CPU, with the inputs of a recipe."""
    return ModelTest(
        f"{recipe.model_type}/{recipe.task}/cpu/{precision}",
        lambda: copy_over(model),
        make_inputs(recipe.inputs, recipe.recorded["seed"], recipe.recorded["lengths"]),
        gain=None,
        outputs=recipe.outputs,
        masked_by=recipe.masked_by,
        generates=recipe.generate,
        trains_only=recipe.trains_only,
    )


def _tries(recipe: Recipe, model: torch.nn.Module, case: ModelTest, asked: frozenset[str]) -> Iterator[Try]:
    """Yield the tries of the groups that have a check that is `asked`: a group tries calls before it yields them."""
    decodes = recipe.generate != "none"
    groups: list[tuple[set[str], Callable[[], Iterator[Try]]]] = [
        ({"batch_invariance", "padding_side", "attention_agrees", "attentions"}, lambda: _of_rows(recipe, case)),
        (
            {"inputs_embeds", "token_types", "loss", "hidden_states", "logits_to_keep"},
            lambda: of_arguments(recipe, case),
        ),
        ({"given_defaults"}, lambda: of_given(recipe, case)),
        ({"optional_arguments"}, lambda: of_optional(recipe, case)),
        ({"large_values"}, lambda: _of_large_values(recipe, model, case)),
        ({"causality", "cached_steps"} if decodes else set(), lambda: _of_text(recipe, model, case)),
        ({"static_cache", "beam_search"} if decodes else set(), lambda: _of_decoding(case)),
        ({"dropout", "gradient_checkpointing"}, lambda: _of_training(case)),
        ({"image_size"}, lambda: _of_images(recipe, case)),
        ({"long_text"}, lambda: _of_long_text(recipe, case)),
    ]
    for names, tries in groups:
        if names & asked:
            yield from tries()


def _of_training(case: ModelTest) -> Iterator[Try]:
    """Yield the checks of training."""
    inputs = case.inputs
    arguments: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # a model that trains with labels only
        arguments["unused"] = case.unused_dropout(inputs)
    if agrees(case, partial(case.training_error, inputs)):
        arguments["trains_alike"] = True
    yield Try(check="dropout", arguments=arguments, measure=partial(case.dropout_error, inputs))
    yield Try(check="gradient_checkpointing", measure=partial(case.checkpointing_error, inputs))


def _of_rows(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the checks that compare rows, and implementations of attention."""
    lengths = recipe.recorded["lengths"]
    whole = make_inputs(recipe.inputs, recipe.recorded["seed"], [max(lengths)] * len(lengths))
    unpadded, masks, positions = unpadded_by(recipe.inputs), named(recipe, *MASKS), named(recipe, "positions")
    places = named(recipe, "places_of_cells")

    def alone(batch: Sequence[int], **how: Any) -> float:
        inputs = make_inputs(recipe.inputs, recipe.recorded["seed"], batch)
        return max(case.alone_error(inputs, row, batch=len(batch), **how) for row in range(len(batch)))

    bare = [*masks, *positions]
    forms: list[tuple[dict[str, str], list[str]]] = [(unpadded, bare), (unpadded, positions), ({}, [])]
    for how, without in forms:
        arguments: dict[str, Any] = {"unpadded": how, "without": without, **({"shared": places} if places else {})}
        for batch in ([*lengths, lengths[0]], lengths):
            found = {"lengths": list(batch), **arguments}
            yield Try(check="batch_invariance", arguments=found, measure=partial(alone, batch, **arguments))
    if "input_ids" in unpadded:
        padded = partial(case.padding_error, case.inputs, unpadded=unpadded, without=positions)
        sides = [side for side in ("left", "right") if agrees(case, partial(padded, side))]
        arguments = {"sides": sides, "unpadded": unpadded, "without": positions}
        if sides:
            yield Try(check="padding_side", arguments=arguments, measure=lambda: 0.0)
    for without in (bare, []):
        arguments = {"without": without}
        if has_other_attention(case.reference_model):
            measure = partial(case.attention_error, whole, **arguments)
            also = {"padded": True} if agrees(case, partial(case.attention_error, case.inputs)) else {}
            yield Try(check="attention_agrees", arguments={**arguments, **also}, measure=measure)
        for more in ({}, {"sums_alone": True}):
            found = {**arguments, **more}
            yield Try(check="attentions", arguments=found, measure=partial(case.attentions_error, whole, **found))


def _of_text(recipe: Recipe, model: torch.nn.Module, case: ModelTest) -> Iterator[Try]:
    """Yield the checks of models that decode text."""
    specs, lengths = recipe.inputs, recipe.recorded["lengths"]
    is_pair = recipe.generate == "seq2seq" and "decoder_input_ids" in specs
    tokens = "decoder_input_ids" if is_pair else "input_ids"
    if tokens in specs:
        limit = specs[tokens]["high"]

        def later_tokens(longer: Sequence[Sequence[int]]) -> float:
            batches = [lengths, [max(lengths)] * len(lengths), *longer]
            every = [make_inputs(specs, recipe.recorded["seed"], one) for one in batches]
            return max(case.causality_error(one, tokens, limit=limit) for one in every)

        def in_parts(batch: Sequence[int]) -> float:
            inputs = make_inputs(specs, recipe.recorded["seed"], batch)
            return case.cached_steps_error(inputs, tokens, without=parts["without"])

        parts: dict[str, Any] = {"tokens": tokens, "without": named(recipe, *MASKS, "positions")}
        long = _long_batch(recipe, model)
        for longer in ([long], []) if long else ([],):
            arguments = {"tokens": tokens, "limit": limit, "longer": longer}
            yield Try(check="causality", arguments=arguments, measure=partial(later_tokens, longer))
        for batch in filter(None, (long, [max(lengths)] * len(lengths))):
            arguments = {"lengths": batch, **parts}
            yield Try(check="cached_steps", arguments=arguments, measure=partial(in_parts, batch))


def _long_batch(recipe: Recipe, model: torch.nn.Module) -> list[int]:
    """Return the lengths of a batch of long texts, empty if the model has none, or computes something else after one:
    some make a new table of positions, which isn't that of the test weights."""
    specs, seed, lengths = recipe.inputs, recipe.recorded["seed"], recipe.recorded["lengths"]
    for length in _LONG if _is_text(recipe) else ():
        batch = [length] * len(lengths)
        with case_of(recipe, model) as case, contextlib.suppress(Exception):  # it has fewer positions
            exact, output = case.reference_model, recipe.recorded["output"]
            before = float64_outputs(exact, case.inputs)[output]
            float64_outputs(exact, make_inputs(specs, seed, batch))
            return batch if np.allclose(float64_outputs(exact, case.inputs)[output], before) else []
    return []


def _of_decoding(case: ModelTest) -> Iterator[Try]:
    """Yield the checks of other ways to decode, if the plain one is right: else its own check fails."""
    if agrees(case, lambda: case.replay_error(case.generate())):
        yield Try(check="static_cache", measure=partial(case.cache_error, "static"))
        yield Try(check="beam_search", measure=case.beam_search_error)


def _of_long_text(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the check of long texts and of sizes near a multiple of a kernel's, if there are only texts."""
    specs, lengths = recipe.inputs, recipe.recorded["lengths"]

    def text_error(rows: Sequence[int]) -> float:
        inputs = make_inputs(specs, recipe.recorded["seed"], rows)
        return case.error(case.run(inputs), case.reference(inputs))

    for length in _LONG if _is_text(recipe) else ():
        rows = [length, *[length * one // max(lengths) for one in lengths[1:]]]
        near = [[one + 1, *[one - 1] * (len(lengths) - 1)] for one in _SIZES if one + 1 < length]
        sizes = [one for one in near if agrees(case, partial(text_error, one))]
        found: dict[str, Any] = {"lengths": rows, "sizes": sizes}
        with contextlib.suppress(Exception):  # the check itself says why it can't run
            whole = make_inputs(specs, recipe.recorded["seed"], rows)
            output = recipe.recorded["output"]
            found |= places_of(recipe, output, float64_outputs(case.reference_model, whole)[output], whole)
        yield Try(check="long_text", arguments=found, measure=partial(text_error, rows))


def _is_text(recipe: Recipe) -> bool:
    kinds = {spec["kind"] for spec in recipe.inputs.values()}
    return kinds <= {"tokens", "decoder_tokens", "mask", "positions"}


def places_of(recipe: Recipe, output: str, array: Array, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return a few elements of an output, none in padding, as arguments of a check that compares them."""
    random = np.random.default_rng(recipe.recorded["seed"])
    counted = np.isfinite(array)
    mask = masks_of(recipe.masked_by, inputs).get(output)
    if mask is not None:
        keep = covering(mask, array)
        counted &= keep.reshape(*keep.shape, *[1] * (array.ndim - keep.ndim))
    found = random.choice(np.flatnonzero(counted), _PLACES)
    places = [tuple(int(one) for one in np.unravel_index(place, array.shape)) for place in found]
    return {
        "positions": [list(place) for place in places],
        "values": [float(f"{array[place]:.10g}") for place in places],
        "scale": float(f"{scale_of(array):.6g}"),
    }


def _of_large_values(recipe: Recipe, model: torch.nn.Module, case: ModelTest) -> Iterator[Try]:
    """Yield the check of large values, of the first input that has values or embeddings, with the largest factor that
    the CPU computes in each precision."""

    def largest(within: ModelTest, name: str) -> float:
        def enlarged_error(factor: float) -> float:
            inputs = within.enlarged(within.inputs, name, factor)
            return within.error(within.run(inputs), within.reference(inputs))

        return next((one for one in _FACTORS if agrees(within, partial(enlarged_error, one))), 0.0)

    with case_of(recipe, model, "bfloat16") as bfloat16, case_of(recipe, model, "float16") as float16:
        for name in named(recipe, *_VALUES):
            if factor := largest(case, name):
                found = {"float32": factor, "bfloat16": largest(bfloat16, name), "float16": largest(float16, name)}
                factors = {precision: one for precision, one in found.items() if one}
                yield Try(check="large_values", arguments={"name": name, "factors": factors}, measure=lambda: 0.0)
                return


def _of_images(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the check of images of another size, with numbers of float64."""
    names = [name for name in named(recipe, "pixels") if case.inputs[name].ndim == 4]
    if len(names) != 1:
        return
    larger, output = larger_images(case.inputs, names[0]), recipe.outputs[0]
    try:
        more = case.arguments_for_sizes()
        case.run(case.inputs)  # both run it first, as in a suite: Swin keeps the window of a smaller image
        float64_outputs(case.reference_model, case.inputs)
        array = float64_outputs(case.reference_model, larger, **more)[output]
    except Exception:  # a model for images of one size
        return
    numbers = places_of(recipe, output, array, larger)
    recorded = dict(zip(map(tuple, numbers["positions"]), numbers["values"], strict=True))
    yield Try(
        check="image_size",
        arguments={"images": names[0], "output": output, **numbers},
        measure=lambda: case.image_size_error(case.inputs, names[0], output, recorded, numbers["scale"]),
    )
