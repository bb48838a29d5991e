"""Derivation of recipes: builds a model, finds its inputs, and measures it. Imports transformers."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generators.models.catalog import TaskClass, TaskEntry, installed_version, load_catalog
from generators.models.checkpoint import read_checkpoint
from generators.models.classifier import Classification, classify_folder, classify_type
from generators.models.diffusion import LIBRARY as DIFFUSERS
from generators.models.diffusion import RECONSTRUCTION, installed_diffusers
from generators.models.inputs import LENGTHS, OTHER_DRAWS, make_inputs, placeholders
from generators.models.libraries import catalog_of, require
from generators.models.recipe import HERE, Recipe
from generators.models.store import shipped_recipes
from hardware.errors import ModelError, echo
from hardware.testing.checkpoints import load_checkpoint
from hardware.testing.loud_weights import BETWEEN, GAINS, fill
from hardware.testing.parity import Array, ReferenceNotFinite, masks_of
from hardware.testing.reference import as_reference, float64_outputs, gradient_count
from hardware.testing.widened import copy_over

from . import measure
from .building import build as build
from .building import class_of as class_of
from .building import line_of
from .diffusion_config import tiny_arguments
from .diffusion_inputs import diffusion_specs
from .overrides import overrides
from .scopes import children
from .specs import input_specs, lengths_of
from .tiny import LABELS, tiny_configs

if TYPE_CHECKING:
    pass

_SEED = 0
_SHORTER = 4
_AGREES = 1e-6
_CANNOT_RUN = (ReferenceNotFinite, RuntimeError, ValueError, TypeError, KeyError, IndexError)
_NOT_ARGUMENTS = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What one model gave: its inputs and reference, and how the outputs hang together with the masks."""

    lengths: tuple[int, int]
    specs: dict[str, dict[str, Any]]
    inputs: dict[str, Array]
    reference: dict[str, Array]
    outputs: tuple[str, ...]
    masked_by: dict[str, str]
    mask_input: str | None
    sensitivity: dict[str, float]
    padding_heard: float

    @property
    def is_deaf(self) -> bool:
        """Whether dropping the mask changes too little to be seen."""
        return self.sensitivity.get("mask_dropped", 1.0) < measure.SUBTLE

    @property
    def is_leaky(self) -> bool:
        """Whether what stands in padded places is heard, as where a text is read off its last token."""
        return not self.padding_heard < measure.NOISE

    def recorded(self, origin: str) -> dict[str, Any]:
        """The 16 numbers of the first main output, and what vouches for them."""
        name = self.outputs[0]
        mask = masks_of(self.masked_by, self.inputs).get(name)
        return measure.record(self.reference, name, mask, seed=_SEED, lengths=self.lengths, origin=origin)


def _measure(model: Any, entry: TaskEntry, what: Classification, side: str) -> _Measured:
    if what.architecture == "diffusion":
        lengths, specs = LENGTHS, diffusion_specs(model, _denoised(what.model_type, entry))
    else:
        lengths = lengths_of(model)
        specs = input_specs(model, entry, what.architecture, side, lengths[0])
    inputs = make_inputs(specs, _SEED, lengths)
    exact = as_reference(copy_over(model))
    reference = float64_outputs(exact, inputs)
    if not reference:
        raise ModelError(f"{type(model).__name__} gives no floating tensor")
    shorter = (lengths[0] - _SHORTER, lengths[1] - _SHORTER)
    other = float64_outputs(exact, make_inputs(specs, _SEED + 1, shorter))
    columns = (shorter[0] + placeholders(specs), lengths[0] + placeholders(specs))
    masked_by = measure.masked_outputs(other, reference, columns, specs)
    # A decoder's own mask comes first: what a decoder sees of itself is what every output goes through.
    masks = sorted((n for n, s in specs.items() if s["kind"] == "mask"), key=lambda n: "decoder" not in n)
    asked = not overrides(what.model_type).get("left_out", "").startswith("padding")
    mask_input = masks[0] if masks and asked else None
    padding = measure.padding_heard(model, inputs, specs, reference, masked_by, mask_input)
    if not padding < measure.NOISE:
        front = measure.in_front(masked_by, reference, columns[1])
        heard = measure.padding_heard(model, inputs, specs, reference, front, mask_input)
        masked_by, padding = (front, heard) if heard < measure.NOISE else (masked_by, padding)
    return _Measured(
        lengths=lengths,
        specs=specs,
        inputs=inputs,
        reference=reference,
        outputs=_main_outputs(entry, reference),
        masked_by=masked_by,
        mask_input=mask_input,
        sensitivity=measure.sensitivity_of(model, inputs, reference, masked_by, mask_input),
        padding_heard=padding,
    )


def _main_outputs(entry: TaskEntry, given: Mapping[str, Array]) -> tuple[str, ...]:
    """The outputs that a task is about, all tensors of those that are tuples; the first that there is, otherwise."""
    meant = {
        n: [g for g in given if g == n or (g.startswith(f"{n}_") and g[len(n) + 1 :].isdigit())]
        for n in entry.outputs
    }
    return tuple(name for names in meant.values() for name in names) or (next(iter(given)),)


def _measured(model: Any, entry: TaskEntry, what: Classification) -> _Measured:
    """Measure with padding on the side where a dropped mask is heard and padding isn't; right first but for
    decoders."""
    decodes = what.architecture == "decoder-only" or _generates(model, entry) == "causal"
    sides = ("left",) if decodes else ("right", "left")
    results = []
    for side in sides:
        try:
            results.append(_measure(model, entry, what, side))
        except (ModelError, ReferenceNotFinite):
            raise
        except Exception as error:  # whatever modelling code raises, it is the reason why the type has no recipe
            raise ModelError(
                f"{type(model).__name__} cannot be run", why=f"{type(error).__name__}: {line_of(error)}"
            ) from error
        if not results[-1].is_deaf and not results[-1].is_leaky:
            return results[-1]
    heard = [one for one in results if not one.is_deaf]
    return heard[0] if heard else replace(results[0], mask_input=None)


def _hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _recipe(model: Any, found: _Measured, what: Classification, entry: TaskEntry, **given: Any) -> Recipe:
    return Recipe(
        model_type=what.model_type,
        transformers_version=installed_version(),
        diffusers_version=installed_diffusers() if what.architecture == "diffusion" else "",
        family=what.family,
        architecture=what.architecture,
        traits=what.traits,
        task=entry.task,
        config_class="" if what.architecture == "diffusion" else type(model.config).__name__,
        model_class=type(model).__name__,
        config_children={name: type(c).__name__ for name, c in children(model.config).items()},
        config_hash=_hash(given["config"]),
        inputs=found.specs,
        parameters=sum(p.numel() for p in model.parameters()),
        operators=measure.operators_of(model, found.inputs),
        outputs=found.outputs,
        masked_by=found.masked_by,
        mask_input=found.mask_input,
        generate=_generates(model, entry),
        gradients=_gradient_count(model, found.inputs),
        recorded=found.recorded(_origin(what.model_type)),
        sensitivity=found.sensitivity,
        left_out=overrides(_denoised(what.model_type, entry)).get("left_out", ""),
        **given,
    )


def _generates(model: Any, entry: TaskEntry) -> str:
    """How the class decodes, where its task does: in two sequences where it has an encoder of its own, else in one,
    as do those that write what they hear behind the places of the sound."""
    if entry.generate == "none" or not hasattr(model, "generate"):
        return "none"
    if overrides(model.config.model_type).get("left_out"):
        return "none"
    return "seq2seq" if model.config.is_encoder_decoder else "causal"


def _gradient_count(model: Any, inputs: Mapping[str, Array]) -> int:
    """How many parameters get a gradient, so that one that got lost on the target and in the reference shows."""
    return gradient_count(as_reference(copy_over(model)), inputs)


def _origin(model_type: str) -> str:
    """What vouches for numbers that are recorded here: a shipped recipe of the type that they agree with.

    Loud weights depend on names alone, so that the numbers of another version can be computed again; where the
    installed modelling code gives others, or none are shipped, nothing but this installation stands behind it.
    """
    for recipe in shipped_recipes(model_type):
        try:
            model = as_reference(
                fill(build(recipe.config_class, recipe.model_class, recipe.config), gain=recipe.gain or 1.0)
            )
            inputs = make_inputs(recipe.inputs, recipe.recorded["seed"], recipe.recorded["lengths"])
            output = float64_outputs(model, inputs)[recipe.recorded["output"]]
            there = [float(output[tuple(place)]) for place in recipe.recorded["positions"]]
        except (ModelError, *_CANNOT_RUN):  # another version's class or argument is gone: then it vouches for nothing
            continue
        apart = max(abs(a - b) for a, b in zip(there, recipe.recorded["values"], strict=True))
        if apart / recipe.recorded["scale"] < _AGREES:
            return f"agrees with the recipe for {recipe.transformers_version}"
    return HERE


def _unheard(model: Any, found: _Measured) -> list[str]:
    others = make_inputs(found.specs, _SEED + 1, found.lengths)
    return measure.unheard(model, found.inputs, others, found.reference, found.masked_by, found.specs)


def _unsteady(model: Any, found: _Measured) -> list[str]:
    draws = [make_inputs(found.specs, seed, lengths or found.lengths) for seed, lengths in OTHER_DRAWS]
    return measure.unsteady(model, draws, found.masked_by)


def _loudest(
    config: Mapping[str, Any], config_class: str, chosen: TaskClass, what: Classification
) -> tuple[float, _Measured] | list[str]:
    """The gain with the best ratio of signal to noise among those accepted, or why none is.

    Those with which half precision holds come first; the noise is that of bfloat16, where the model has it.
    """
    accepted: list[tuple[bool, float, float, _Measured]] = []
    refused = []
    for gain in (*GAINS, *BETWEEN):
        if any(holds for holds, *_ in accepted) and gain in BETWEEN:
            break
        model = fill(build(config_class, chosen.model_class, config), gain=gain)
        try:
            found = _measured(model, chosen.entry, what)
        except ReferenceNotFinite as error:  # too loud for it
            refused.append(f"gain {gain}: {error}")
            continue
        figures = found.sensitivity
        reasons = measure.faults(figures) or _unheard(model, found)
        reasons = reasons or measure.lost_gradients(model, found.inputs, found.masked_by)
        if reasons:
            refused.append(f"gain {gain}: {', '.join(reasons)}")
        else:
            noise = figures.get("bfloat16_error", figures["float32_error"])
            accepted.append((measure.holds_half_precision(figures), figures["attention_x1.1"] / noise, gain, found))
    for _, _, gain, found in sorted(accepted, key=lambda one: one[:3], reverse=True):
        model = fill(build(config_class, chosen.model_class, config), gain=gain)
        reasons = _unsteady(model, found)
        if not reasons:
            return gain, found
        refused.append(f"gain {gain}: {', '.join(reasons)}")
    return refused


def derive_tiny(model_type: str, task: str | None = None) -> Recipe:
    """Derive the recipe of a model type's tiny model; `task` None is its primary one.

    Where no gain is accepted, the next larger configuration is tried. Raises `ModelError` for an unknown type
    or task, and with the figures where nothing is accepted.
    """
    what, chosen = classify_type(model_type), task_class(model_type, task)
    if what.architecture == "diffusion":
        require(DIFFUSERS)
        configs = iter([tiny_arguments(class_of(chosen.model_class, DIFFUSERS), _denoised(model_type, chosen.entry))])
    else:
        configs = tiny_configs(configured_type(model_type, chosen), load_catalog())
    return loudest_recipe(what, chosen, configs, f"tiny {model_type}")


def configured_type(model_type: str, chosen: TaskClass) -> str:
    """The type whose configuration a class is built with: its own, where it is mapped for several.

    SAM 2 on an image is mapped for checkpoints of SAM 2 on videos, too, whose configuration it can only read.
    """
    catalog = load_catalog()
    own = getattr(getattr(class_of(chosen.model_class), "config_class", None), "__name__", "")
    types = [one for one in catalog.types_of_class(chosen.model_class) if catalog.config_class(one) == own]
    return model_type if model_type in types or not types else types[0]


def task_class(model_type: str, task: str | None) -> TaskClass:
    """The class that does a task, None for the primary one. Raises `ModelError` where the type has none."""
    tasks = catalog_of(model_type).tasks_of(model_type)
    chosen = next((t for t in tasks if task in (None, t.task)), None)
    if chosen is None:
        known = ", ".join(t.task for t in tasks) or "none: it is a part of other models"
        raise ModelError(f"{model_type} has no class for {echo(task or 'any task')}", fix=f"Its tasks: {known}.")
    return chosen


def _denoised(model_type: str, entry: TaskEntry) -> str:
    """The family whose denoiser does a task; empty where it is an autoencoder's, which families share."""
    return "" if entry.task == RECONSTRUCTION else model_type


def _config_class(what: Classification, chosen: TaskClass) -> str:
    """The configuration class that a model is built with; empty for one of diffusers. Raises `ModelError`."""
    if what.architecture == "diffusion":
        return ""
    _require_forward(chosen.model_class)
    return load_catalog().config_class(configured_type(what.model_type, chosen))


def _require_forward(model_class: str) -> None:
    """Raises `ModelError` where a class has no forward pass of its own, as where only parts of it compute."""
    import torch

    if inspect.getattr_static(class_of(model_class), "forward", None) is torch.nn.Module.forward:
        raise ModelError(f"{model_class} has no forward", why="only parts of it compute, and they are of other types")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The order of sums, and with it the last digits of an error, doesn't depend on how many cores are here."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def loudest_recipe(what: Classification, chosen: TaskClass, configs: Iterator[dict[str, Any]], which: str) -> Recipe:
    """The recipe of the first of `configs` with which faults can be heard, under the loudest gain.

    Raises `ModelError`: which says `which` model it was, with the figures where none is accepted, or why the last
    of them can't be built or run.
    """
    config_class = _config_class(what, chosen)
    refused = ModelError(f"no {which} is known")
    with warnings.catch_warnings(), _one_thread():
        warnings.simplefilter("ignore")  # advice of the library to users; nothing that a recipe could say
        for config in configs:
            if chosen.entry.labels:
                config["num_labels"] = LABELS
            try:
                best = _loudest(config, config_class, chosen, what)
            except ModelError as error:
                refused = error
                continue
            if isinstance(best, tuple):
                gain, found = best
                model = fill(build(config_class, chosen.model_class, config), gain=gain)
                return _recipe(model, found, what, chosen.entry, config=config, gain=gain, weights_hash=None)
            refused = ModelError(f"no {which} makes faults audible", why="; ".join(best))
    raise refused


def derive_checkpoint(folder: Path) -> Recipe:
    """Derive the recipe of a real checkpoint from its folder. See `recipe.derive_checkpoint`."""
    checkpoint = read_checkpoint(folder, needs_weights=True)
    what = classify_folder(folder, str(folder))
    entries = load_catalog().tasks_of_class(what.model_class)
    entry = next((e for e in entries if e.task == what.task), None)
    if entry is None:
        raise ModelError(f"{what.model_type} has no class for any task", why="it is a part of other models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice of the library to users; nothing that a recipe could say
        model = load_checkpoint(class_of(what.model_class), checkpoint.folder)
        found = _measured(model, entry, what)
        plain = json.loads(json.dumps(model.config.to_diff_dict(), default=str))
        config = {k: v for k, v in plain.items() if k not in _NOT_ARGUMENTS}
        recipe = _recipe(model, found, what, entry, config=config, gain=None, weights_hash=checkpoint.weights_hash)
    return replace(recipe, subject="checkpoint", config_hash=_hash(checkpoint.config))
