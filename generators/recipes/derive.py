"""Derive recipes: build a model, find its inputs, and measure it. Imports transformers."""

from __future__ import annotations

import contextlib
import inspect
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwcompat.generators.models.architectures import UNKNOWN
from hwcompat.generators.models.catalog import TaskClass, TaskEntry, installed_version, load_catalog
from hwcompat.generators.models.checkpoint import Checkpoint, largest_token, read_checkpoint
from hwcompat.generators.models.classification import Classification, classify_type
from hwcompat.generators.models.inputs import make_inputs, other_draws
from hwcompat.generators.models.model_libraries import LIBRARY as DIFFUSERS
from hwcompat.generators.models.model_libraries import catalog_of, denoised, installed_diffusers, require
from hwcompat.generators.models.recipe import HERE, Recipe
from hwcompat.generators.models.recipe_store import load_recipe, shipped_recipes
from hwcompat.hardware.checkpoint_config import hash_of_config
from hwcompat.hardware.compare import ReferenceNotFinite
from hwcompat.hardware.errors import ModelError, ModelRefused, echo
from hwcompat.hardware.testing.checkpoints import open_model
from hwcompat.hardware.testing.model_relations import eager_attention
from hwcompat.hardware.testing.reference import as_reference, float64_outputs, gradient_summary
from hwcompat.hardware.testing.seeded_weights import BETWEEN, GAINS, fill
from hwcompat.hardware.testing.sentence_modules import EMBEDDING
from hwcompat.hardware.testing.widened_weights import copy_over

from . import measurements
from .build_model import build, class_of, configured_type, filled_model, part_of, zero_centered_weights
from .config_scopes import children, overrides
from .diffusion import tiny_arguments
from .probe import SEED, RecipeProbe, generates, lost_gradients, probe_recipe, run_probe, skipped_checks
from .probe_calls import case_of, probe_calls
from .tiny import head_arguments, tiny_configs
from .upgrade import AGREES, carried_over, distance_of, layout_of

_NOT_ARGUMENTS = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


def _recipe(model: Any, found: RecipeProbe, what: Classification, entry: TaskEntry, **given: Any) -> Recipe:
    decoding = generates(model, entry, what.model_type)
    reached, used_cache = run_probe(model, found, decoding)
    gradients, norm = gradient_summary(
        as_reference(copy_over(model)), found.inputs, found.masked_by, training=found.trains_only
    )
    measured = Recipe(
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
        config_hash=hash_of_config(given["config"]),
        inputs=found.specs,
        parameters=sum(p.numel() for p in model.parameters()),
        operators=measurements.operators_of(model, found.inputs),
        outputs=found.outputs,
        masked_by=found.masked_by,
        mask_input=found.mask_input,
        generate=decoding,
        gradients=gradients,
        gradient_norm=float(f"{norm:.10g}"),
        trains_only=found.trains_only,
        recorded=found.recorded(_origin(what.model_type)),
        sensitivity=found.sensitivity,
        without_cache=not used_cache,
        left_out=skipped_checks(model, found, reached, overrides(denoised(what.model_type, entry.task), entry.task)),
        layout=layout_of(model),
        **given,
    )
    probed = probe_calls(measured, model)
    if "attention_agrees" in probed.failing:
        measured = replace(measured, recorded=_plain_numbers(measured, model))
    return replace(measured, calls=probed.arguments)


def _plain_numbers(recipe: Recipe, model: Any) -> dict[str, Any]:
    """Return the recorded numbers of a recipe as the plain attention gives them, for a model whose default attention
    gives others: a suite must not confirm numbers that are wrong."""
    recorded = recipe.recorded
    with case_of(recipe, model) as case, eager_attention(case.reference_model):
        array = float64_outputs(case.reference_model, case.inputs)[recorded["output"]]
    values = [float(f"{array[tuple(place)]:.10g}") for place in recorded["positions"]]
    return {**recorded, "values": values}


def _filled(
    config_class: str, model_class: str, config: Mapping[str, Any], gain: float
) -> tuple[Any, tuple[str, ...]]:
    """Return a new model with its seeded test weights, and the norms that add 1."""
    model = build(config_class, model_class, config)
    centered = zero_centered_weights(model)
    return fill(model, gain=gain, zero_centered=centered), centered


def _origin(model_type: str) -> str:
    """Return the source that confirms numbers recorded here: a shipped recipe of the type with the same numbers.

    Seeded weights depend on names alone, so the numbers of another version can be computed again. If the installed
    modeling code gives others, or none are shipped, the origin is this installation; it says if a recipe of another
    version has other parameters, since then nothing is compared.
    """
    origin = HERE
    for recipe in shipped_recipes(model_type):
        with contextlib.suppress(Exception):  # another version's class or argument is gone, or its code raises
            model = filled_model(recipe)
            if distance_of(recipe, model) < AGREES:
                return f"agrees with the recipe for {recipe.library_version}"
            if layout_of(model) != recipe.layout:
                origin = f"{HERE} alone (the model of {recipe.library_version} has other parameters)"
    return origin


def _without_effect(model: Any, found: RecipeProbe) -> list[str]:
    others = make_inputs(found.specs, SEED + 1, found.lengths)
    return measurements.ineffective_inputs(model, found.inputs, others, found.reference, found.masked_by, found.specs)


def _unsteady(model: Any, found: RecipeProbe) -> list[str]:
    draws = [make_inputs(found.specs, seed, lengths or found.lengths) for seed, lengths in other_draws(found.lengths)]
    return measurements.unsteady(model, [found.inputs, *draws], found.masked_by, found.mask_input)


def _best(
    config: Mapping[str, Any], config_class: str, chosen: TaskClass, what: Classification, likely: float | None
) -> tuple[float, RecipeProbe] | list[str]:
    """Return the `likely` gain if it meets all limits, else the best of all gains, or why none is accepted."""
    if likely is not None:
        one = _best_of(config, config_class, chosen, what, gains=(likely,))
        if isinstance(one, tuple) and not one[1].skips_mask and measurements.holds_half_precision(one[1].sensitivity):
            return one
    return _best_of(config, config_class, chosen, what)


def _best_of(
    config: Mapping[str, Any],
    config_class: str,
    chosen: TaskClass,
    what: Classification,
    *,
    gains: Sequence[float] = (*GAINS, *BETWEEN),
    pad_senses: bool = True,
) -> tuple[float, RecipeProbe] | list[str]:
    """Return the gain of `gains` with the best ratio of signal to noise among those accepted, or why none is.

    If none is accepted while images and sounds are padded, they aren't padded: outputs in their padding may be
    arbitrary (Deformable DETR divides by the unmasked share of a column), and which outputs those are is unknown.
    Gains that detect a dropped mask come first, then those that hold in half precision; the noise is that of
    bfloat16, if the model has it.
    """
    accepted: list[tuple[bool, bool, float, float, RecipeProbe]] = []
    refused = []
    senses_padded = False
    for gain in gains:
        if gain in BETWEEN and any(detected and holds for detected, holds, *_ in accepted):
            break
        model, _ = _filled(config_class, chosen.model_class, config, gain)
        try:
            found = probe_recipe(model, chosen.entry, what, pad_senses=pad_senses)
        except ReferenceNotFinite as error:  # too large for it
            refused.append(f"gain {gain}: {error}")
            continue
        senses_padded |= any(spec["kind"] in ("heard", "shown") for spec in found.specs.values())
        figures = found.sensitivity
        reasons = measurements.faults(figures) or _without_effect(model, found)
        reasons = reasons or lost_gradients(model, found.inputs, found.masked_by, training=found.trains_only)
        if reasons:
            refused.append(f"gain {gain}: {', '.join(reasons)}")
        else:
            noise = figures.get("bfloat16_error", figures["float32_error"])
            signal = figures["attention_x1.1"] / noise
            accepted.append((not found.skips_mask, measurements.holds_half_precision(figures), signal, gain, found))
    for *_, gain, found in sorted(accepted, key=lambda one: one[:4], reverse=True):
        model, _ = _filled(config_class, chosen.model_class, config, gain)
        reasons = _unsteady(model, found)
        if not reasons:
            return gain, found
        refused.append(f"gain {gain}: {', '.join(reasons)}")
    if pad_senses and senses_padded and len(gains) > 1:
        return _best_of(config, config_class, chosen, what, gains=gains, pad_senses=False)
    return refused


def derive_tiny(model_type: str, task: str | None = None, *, anew: bool = False) -> Recipe:
    """Derive the recipe of a model type's tiny model; `task` None is its primary one.

    A recipe that ships for another version of the library is used with its numbers if its model can be made in the
    same way, unless it is asked for `anew`. If no gain is accepted, the next larger configuration is tried. Raises
    `ModelError` for an unknown type or task, and with the figures if nothing is accepted.
    """
    what, chosen = classify_type(model_type), task_class(model_type, task)
    for shipped in () if anew else shipped_recipes(model_type, task):
        if (carried := carried_over(shipped, what, chosen)) is not None:
            return carried
    if what.architecture == UNKNOWN:
        why = "its tasks, processors, attributes and name don't determine it"
        raise ModelError(f"no tiny {model_type} can be made: its architecture is unknown", why=why)
    if what.architecture == "diffusion":
        require(DIFFUSERS)
        configs = iter(
            [tiny_arguments(class_of(chosen.model_class, DIFFUSERS), denoised(model_type, chosen.entry.task))]
        )
    else:
        configured = configured_type(model_type, chosen.model_class)
        configs = tiny_configs(configured, load_catalog(), chosen.task)
        part, _ = part_of(load_catalog().config_class(configured), chosen.model_class)
        if part:
            configs = (config.get(part, {}) for config in configs)
    # The body is that of the primary task, whose gain suits most heads; trying all takes five times as long.
    primary = load_recipe(model_type) if task and what.architecture != "diffusion" else None
    return best_recipe(what, chosen, configs, f"tiny {model_type}", likely=primary.gain if primary else None)


def task_class(model_type: str, task: str | None) -> TaskClass:
    """Return the class that does a task, None for the primary one. Raises `ModelError` if the type has none."""
    tasks = catalog_of(model_type).tasks_of(model_type)
    chosen = next((t for t in tasks if task in (None, t.task)), None)
    if chosen is None:
        known = ", ".join(t.task for t in tasks) or "none, because it is part of other models"
        raise ModelError(f"{model_type} has no class for {echo(task or 'any task')}", fix=f"Its tasks: {known}.")
    return chosen


def _config_class(what: Classification, chosen: TaskClass) -> str:
    """Return the configuration class that a model is built with; empty for diffusers. Raises `ModelError`."""
    if what.architecture == "diffusion":
        return ""
    _require_forward(chosen.model_class)
    whole = load_catalog().config_class(configured_type(what.model_type, chosen.model_class))
    return part_of(whole, chosen.model_class)[1] or whole


def _require_forward(model_class: str) -> None:
    """Raise `ModelError` if a class has no forward pass of its own, as when only its parts compute."""
    import torch

    if inspect.getattr_static(class_of(model_class), "forward", None) is torch.nn.Module.forward:
        raise ModelError(
            f"{model_class} has no forward", why="only its parts have one, and they are other model types"
        )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread, so that the order of sums, and the last digits of an error, don't depend on the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def best_recipe(
    what: Classification,
    chosen: TaskClass,
    configs: Iterator[dict[str, Any]],
    which: str,
    *,
    likely: float | None = None,
) -> Recipe:
    """Return the recipe of the first of `configs` in which faults are detected, by the `likely` or the best gain.

    Raises `ModelError` naming the model (`which`), with the figures if none is accepted, or with the reason why the
    last of them can't be built or run.
    """
    config_class = _config_class(what, chosen)
    refused = ModelError(f"no {which} is known")
    with warnings.catch_warnings(), _one_thread():
        warnings.simplefilter("ignore")  # the library's advice to users, irrelevant for a recipe
        for config in configs:
            try:
                config |= head_arguments(config, class_of(config_class) if config_class else None, chosen, what)
                best = _best(config, config_class, chosen, what, likely)
            except ModelError as error:
                refused = error
                continue
            if isinstance(best, tuple):
                gain, found = best
                model, centered = _filled(config_class, chosen.model_class, config, gain)
                own = {"config": config, "gain": gain, "zero_centered": centered, "weights_hash": None}
                return _recipe(model, found, what, chosen.entry, **own)
            refused = ModelError(f"no {which} reveals faults", why=_shortest(best))
    raise refused


def _shortest(reasons: list[str]) -> str:
    """Return one of the reasons why no gain is accepted, and the number of gains with another reason."""
    nearest = min(reasons, key=len)
    return nearest if len(reasons) == 1 else f"{nearest}; {len(reasons) - 1} other gains fail too"


@dataclass(frozen=True, kw_only=True)
class OpenedCheckpoint:
    """A checkpoint whose files and configuration make the model of a task; `remarks` list what isn't tested."""

    checkpoint: Checkpoint
    what: Classification
    entry: TaskEntry
    model: Any
    remarks: tuple[str, ...]


def open_checkpoint(folder: Path, *, empty: bool = False) -> OpenedCheckpoint:
    """Open a checkpoint as its suite will; `empty` reads only the names and shapes of its weights.

    Raises `BrokenInput` or `ModelError` if it can't be run.
    """
    checkpoint = read_checkpoint(folder, needs_weights=True)
    from hwcompat.generators.models.classifier import classify_folder

    what = classify_folder(folder, str(folder))
    entries = load_catalog().tasks_of_class(what.model_class)
    entry = next((e for e in entries if e.task == what.task), None)
    if entry is None:
        raise ModelError(f"{what.model_type} has no class for any task", why="it is part of other models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's advice to users, irrelevant for a recipe
        model, remarks = open_model(class_of(what.model_class), checkpoint.folder, empty=empty)
    if modules := getattr(model, "sentence_modules", None):
        entry = replace(entry, outputs=(EMBEDDING, *entry.outputs))
    _require_numbers(modules if empty else model, folder)
    remarks = (*remarks, *_tokens_without_rows(model, folder))
    return OpenedCheckpoint(checkpoint=checkpoint, what=what, entry=entry, model=model, remarks=remarks)


def _require_numbers(model: Any, folder: Path) -> None:
    """Raise `ModelRefused` if a weight is NaN, even one that the drawn inputs don't reach."""
    for name, weight in model.named_parameters() if model else ():
        if lost := int(weight.isnan().sum()):
            raise ModelRefused(
                f"the weights of {echo(str(folder))} aren't numbers",
                why=f"{name} has {lost} NaN among {weight.numel()} values",
                fix="Download it again, or save it from a training step before the loss became NaN.",
            )


def remarks_of(folder: str) -> tuple[str, ...]:
    """Return the remarks on a checkpoint before it runs; reads no weights. Raise as `open_checkpoint` does."""
    return open_checkpoint(Path(folder), empty=True).remarks


def _tokens_without_rows(model: Any, folder: Path) -> Iterator[str]:
    """Report if the tokenizer beside the weights gives ids beyond the rows of the model's embedding."""
    try:
        rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    except (NotImplementedError, AttributeError):  # it takes no tokens
        return
    last = largest_token(folder)
    if rows is not None and last >= rows:
        yield (
            f"the tokenizer has ids up to {last}, but the embedding has only {rows} rows: other tokens cause an "
            "index error, and no check uses them; call resize_token_embeddings and save the model"
        )


def derive_checkpoint(folder: str) -> Recipe:
    """Derive the recipe of a real checkpoint from its folder. See `on_demand.derive_checkpoint`."""
    opened = open_checkpoint(Path(folder))
    checkpoint, what, entry, model = opened.checkpoint, opened.what, opened.entry, opened.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = probe_recipe(model, entry, what)
        plain = json.loads(json.dumps(model.config.to_diff_dict(), default=str))
        config = {k: v for k, v in plain.items() if k not in _NOT_ARGUMENTS}
        recipe = _recipe(model, found, what, entry, config=config, gain=None, weights_hash=checkpoint.weights_hash)
    return replace(recipe, subject="checkpoint", config_hash=checkpoint.config_hash, remarks=opened.remarks)
