"""Find the calls of a model that agree with its plain one: the checks of a suite that need no recorded numbers."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.compare import scale_of
from hwcompat.hardware.testing.call_checks import larger_images
from hwcompat.hardware.testing.checks import call_checks
from hwcompat.hardware.testing.model_relations import eager_attention, has_other_attention
from hwcompat.hardware.testing.model_test import ModelTest
from hwcompat.hardware.testing.reference import float64_outputs
from hwcompat.hardware.testing.widened_weights import copy_over

if TYPE_CHECKING:
    import torch

_BY_TOKEN = frozenset(
    {"tokens", "decoder_tokens", "positions", "places", "boxes", "token_categories", "seen", "frames", "waveform"}
)
_MASKS = frozenset({"mask", "heard"})
_FILE = Path(__file__).with_name("call_exceptions.toml")
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


@dataclass(frozen=True, kw_only=True)
class Try:
    """One check with the arguments that its suite would have, and the call that returns its error."""

    check: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    measure: Callable[[], float]


def unpadded_by(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return, for each input with an entry for each token or frame, the mask that marks its padding (see
    `row_alone`)."""
    masks = [name for name, spec in specs.items() if spec["kind"] in _MASKS]
    found = {}
    for name, spec in specs.items():
        if spec["kind"] not in (_BY_TOKEN | _MASKS) or (spec["kind"] == "decoder_tokens" and "length" in spec):
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
    with _case(recipe, model) as case:
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


def plain_numbers(recipe: Recipe, model: torch.nn.Module) -> dict[str, Any]:
    """Return the recorded numbers of a recipe as the plain attention gives them, for a model whose default attention
    gives others: a suite must not confirm numbers that are wrong."""
    recorded = recipe.recorded
    with _case(recipe, model) as case, eager_attention(case.reference_model):
        array = float64_outputs(case.reference_model, case.inputs)[recorded["output"]]
    values = [float(f"{array[tuple(place)]:.10g}") for place in recorded["positions"]]
    return {**recorded, "values": values}


def _case(recipe: Recipe, model: torch.nn.Module, precision: str = "float32") -> ModelTest:
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


def _tries(recipe: Recipe, model: torch.nn.Module, case: ModelTest, asked: frozenset[str]) -> Iterator[Try]:
    """Yield the tries of the groups that have a check that is `asked`: a group tries calls before it yields them."""
    decodes = recipe.generate != "none"
    groups: list[tuple[set[str], Callable[[], Iterator[Try]]]] = [
        ({"batch_invariance", "padding_side", "attention_agrees", "attentions"}, lambda: _of_rows(recipe, case)),
        (
            {"inputs_embeds", "token_types", "loss", "hidden_states", "logits_to_keep"},
            lambda: _of_arguments(recipe, case),
        ),
        ({"large_values"}, lambda: _of_large_values(recipe, model, case)),
        ({"causality", "cached_steps"} if decodes else set(), lambda: _of_text(recipe, case)),
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
    try:
        unused = {"unused": case.unused_dropout(inputs)}
    except Exception:  # a model that trains with labels only
        unused = {}
    yield Try(check="dropout", arguments=unused, measure=partial(case.dropout_error, inputs))
    yield Try(check="gradient_checkpointing", measure=partial(case.checkpointing_error, inputs))


def _named(recipe: Recipe, *kinds: str) -> list[str]:
    return [name for name, spec in recipe.inputs.items() if spec["kind"] in kinds]


def _of_rows(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the checks that compare rows, and implementations of attention."""
    lengths = recipe.recorded["lengths"]
    whole = make_inputs(recipe.inputs, recipe.recorded["seed"], [max(lengths)] * len(lengths))
    unpadded, masks, positions = unpadded_by(recipe.inputs), _named(recipe, *_MASKS), _named(recipe, "positions")
    places = _named(recipe, "places_of_cells")

    def alone(**how: Any) -> float:
        return max(case.alone_error(case.inputs, row, batch=len(lengths), **how) for row in range(len(lengths)))

    bare = [*masks, *positions]
    forms: list[tuple[dict[str, str], list[str]]] = [(unpadded, bare), (unpadded, positions), ({}, [])]
    for how, without in forms:
        arguments: dict[str, Any] = {"unpadded": how, "without": without, **({"shared": places} if places else {})}
        yield Try(check="batch_invariance", arguments=arguments, measure=partial(alone, **arguments))
    if "input_ids" in unpadded:
        padded = partial(case.padding_error, case.inputs, unpadded=unpadded, without=positions)
        sides = [side for side in ("left", "right") if _agrees(case, partial(padded, side))]
        arguments = {"sides": sides, "unpadded": unpadded, "without": positions}
        if sides:
            yield Try(check="padding_side", arguments=arguments, measure=lambda: 0.0)
    for without in (bare, []):
        arguments = {"without": without}
        if has_other_attention(case.reference_model):
            measure = partial(case.attention_error, whole, **arguments)
            yield Try(check="attention_agrees", arguments=arguments, measure=measure)
        yield Try(check="attentions", arguments=arguments, measure=partial(case.attentions_error, whole, **arguments))


def _agrees(case: ModelTest, error: Callable[[], float]) -> bool:
    """Return whether a call is possible and gives the same."""
    try:
        return error() <= case.tolerance
    except Exception:  # whatever the model raises
        return False
    finally:
        case.take_measurement()


def _has_effect(case: ModelTest, effect: Callable[[], float]) -> bool:
    """Return whether a call is possible and its `effect` is larger than rounding."""
    try:
        return effect() > 2 * case.tolerance
    except Exception:  # whatever the model raises
        return False
    finally:
        case.take_measurement()


def _of_arguments(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the checks of arguments and results besides the plain ones."""
    inputs = case.inputs
    yield Try(check="inputs_embeds", measure=partial(case.embeddings_error, inputs))
    has_default = "token_type_ids" not in inputs and "input_ids" in inputs
    if has_default and _has_effect(case, partial(case.token_types_effect, inputs)):
        is_default = _agrees(case, partial(case.default_type_error, inputs))
        measure = partial(case.token_types_error, inputs)
        yield Try(check="token_types", arguments={"default": is_default}, measure=measure)

    def loss(kind: str, **more: bool) -> float:
        plain = case.loss_error(inputs, kind)
        return max(plain, case.loss_error(inputs, kind, **more)) if more else plain

    kinds: list[dict[str, Any]] = [{"kind": "next", "counted": True}, {"kind": "next"}]
    kinds += [{"kind": "same", "labels_alone": True}] if "decoder_input_ids" in inputs else []
    for arguments in (*kinds, {"kind": "same"}, {"kind": "row"}):
        yield Try(check="loss", arguments=arguments, measure=partial(loss, **arguments))
    yield Try(check="hidden_states", measure=partial(case.hidden_states_error, inputs))
    yield Try(check="logits_to_keep", measure=partial(case.kept_logits_error, inputs))


def _of_text(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the checks of models that decode text."""
    specs, lengths = recipe.inputs, recipe.recorded["lengths"]
    is_pair = recipe.generate == "seq2seq" and "decoder_input_ids" in specs
    tokens = "decoder_input_ids" if is_pair else "input_ids"
    if tokens in specs:
        whole = make_inputs(specs, recipe.recorded["seed"], [max(lengths)] * len(lengths))
        later = {"start": case.inputs[tokens].shape[1] // 2, "limit": specs[tokens]["high"]}

        def later_tokens() -> float:
            return max(case.causality_error(one, tokens, **later) for one in (case.inputs, whole))

        yield Try(check="causality", arguments={"tokens": tokens, **later}, measure=later_tokens)
        parts: dict[str, Any] = {"tokens": tokens, "without": _named(recipe, *_MASKS, "positions")}
        yield Try(check="cached_steps", arguments=parts, measure=partial(case.cached_steps_error, whole, **parts))


def _of_decoding(case: ModelTest) -> Iterator[Try]:
    """Yield the checks of other ways to decode, if the plain one is right: else its own check fails."""
    if _agrees(case, lambda: case.replay_error(case.generate())):
        yield Try(check="static_cache", measure=partial(case.cache_error, "static"))
        yield Try(check="beam_search", measure=case.beam_search_error)


def _of_long_text(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the check of long texts and of sizes near a multiple of a kernel's, if there are only texts."""
    specs, lengths = recipe.inputs, recipe.recorded["lengths"]

    def text_error(rows: Sequence[int]) -> float:
        inputs = make_inputs(specs, recipe.recorded["seed"], rows)
        return case.error(case.run(inputs), case.reference(inputs))

    is_text = {spec["kind"] for spec in specs.values()} <= {"tokens", "decoder_tokens", "mask", "positions"}
    for length in _LONG if is_text else ():
        rows = [length, *[length * one // max(lengths) for one in lengths[1:]]]
        near = [[one + 1, *[one - 1] * (len(lengths) - 1)] for one in _SIZES if one + 1 < length]
        sizes = [one for one in near if _agrees(case, partial(text_error, one))]
        yield Try(check="long_text", arguments={"lengths": rows, "sizes": sizes}, measure=partial(text_error, rows))


def _of_large_values(recipe: Recipe, model: torch.nn.Module, case: ModelTest) -> Iterator[Try]:
    """Yield the check of large values, of the first input that has values or embeddings, with the largest factor that
    the CPU computes in each precision."""

    def largest(within: ModelTest, name: str) -> float:
        def enlarged_error(factor: float) -> float:
            inputs = within.enlarged(within.inputs, name, factor)
            return within.error(within.run(inputs), within.reference(inputs))

        return next((one for one in _FACTORS if _agrees(within, partial(enlarged_error, one))), 0.0)

    with _case(recipe, model, "bfloat16") as bfloat16, _case(recipe, model, "float16") as float16:
        for name in _named(recipe, *_VALUES):
            if factor := largest(case, name):
                found = {"float32": factor, "bfloat16": largest(bfloat16, name), "float16": largest(float16, name)}
                factors = {precision: one for precision, one in found.items() if one}
                arguments = {"name": name, "factors": factors}
                yield Try(check="large_values", arguments=arguments, measure=lambda: 0.0)
                return


def _of_images(recipe: Recipe, case: ModelTest) -> Iterator[Try]:
    """Yield the check of images of another size, with numbers of float64."""
    names = [name for name in _named(recipe, "pixels") if case.inputs[name].ndim == 4]
    if len(names) != 1:
        return
    larger = larger_images(case.inputs, names[0])
    output = recipe.outputs[0]
    try:
        more = case.arguments_for_sizes()
        array = float64_outputs(case.reference_model, larger, **more)[output]
    except Exception:  # a model for images of one size
        return
    random = np.random.default_rng(recipe.recorded["seed"])
    places = [tuple(int(random.integers(0, size)) for size in array.shape) for _ in range(_PLACES)]
    recorded = {place: float(f"{array[place]:.10g}") for place in places}
    scale = float(f"{scale_of(array):.6g}")
    yield Try(
        check="image_size",
        arguments={
            "images": names[0],
            "output": output,
            "positions": [list(place) for place in recorded],
            "values": list(recorded.values()),
            "scale": scale,
        },
        measure=lambda: case.image_size_error(case.inputs, names[0], output, recorded, scale),
    )
