"""Derivation of recipes: builds a model, finds its inputs, and measures it. Imports transformers."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hardware.errors import BrokenInput, ModelError, echo
from hardware.testing.loud_weights import GAINS, fill
from hardware.testing.parity import Array, ReferenceNotFinite
from hardware.testing.reference import as_reference, float64_gradients, float64_outputs

from . import measure
from .catalog import TaskClass, TaskEntry, load_catalog
from .checkpoint import Checkpoint, read_checkpoint
from .classifier import Classification, classify_folder, classify_type
from .inputs import make_inputs
from .recipe import HERE, Recipe, shipped_recipes
from .specs import input_specs, lengths_of
from .tiny import LABELS, children, tiny_configs

if TYPE_CHECKING:
    import torch

_SEED = 0
_SHORTER = 4
_AGREES = 1e-6
_CANNOT_RUN = (ReferenceNotFinite, RuntimeError, ValueError, TypeError, KeyError, IndexError)
_NOT_ARGUMENTS = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


def _transformers_class(name: str) -> Any:
    import transformers

    found = getattr(transformers, name, None)
    if found is None:
        raise ModelError(f"{echo(name)} is not a class of transformers {transformers.__version__}")
    return found


def build(config_class: str, model_class: str, config: Mapping[str, Any]) -> torch.nn.Module:
    """The float32 model with these constructor arguments, on CPU, in evaluation mode, weights as the library
    sets them. Raises `ModelError` with the constructor's own reason."""
    try:
        model = _transformers_class(model_class)(_transformers_class(config_class)(**config))
    except ModelError:
        raise
    except Exception as error:  # whatever a constructor raises, it is the reason why the type has no model
        raise ModelError(f"{model_class} cannot be built", why=f"{type(error).__name__}: {_line(error)}") from error
    return cast("torch.nn.Module", model.eval())


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


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

    @property
    def is_deaf(self) -> bool:
        """Whether dropping the mask changes too little to be seen."""
        return self.sensitivity.get("mask_dropped", 1.0) < measure.SUBTLE

    def recorded(self, origin: str) -> dict[str, Any]:
        """The 16 numbers of the first main output, and what vouches for them."""
        name = self.outputs[0]
        mask = self.inputs[self.masked_by[name]] if name in self.masked_by else None
        return measure.record(self.reference, name, mask, seed=_SEED, lengths=self.lengths, origin=origin)


def _measure(model: Any, entry: TaskEntry, architecture: str, side: str) -> _Measured:
    lengths = lengths_of(model)
    specs = input_specs(model, entry, architecture, side, lengths[0])
    inputs = make_inputs(specs, _SEED, lengths)
    exact = as_reference(copy.deepcopy(model))
    reference = float64_outputs(exact, inputs)
    if not reference:
        raise ModelError(f"{type(model).__name__} gives no floating tensor at the top level of its output")
    shorter = (lengths[0] - _SHORTER, lengths[1] - _SHORTER)
    other = float64_outputs(exact, make_inputs(specs, _SEED, shorter))
    masked_by = measure.masked_outputs(other, reference, (shorter[0], lengths[0]), specs)
    # A decoder's own mask comes first: what a decoder sees of itself is what every output goes through.
    masks = sorted((n for n, s in specs.items() if s["kind"] == "mask"), key=lambda n: "decoder" not in n)
    mask_input = masks[0] if masks else None
    return _Measured(
        lengths=lengths,
        specs=specs,
        inputs=inputs,
        reference=reference,
        outputs=tuple(n for n in entry.outputs if n in reference) or (next(iter(reference)),),
        masked_by=masked_by,
        mask_input=mask_input,
        sensitivity=measure.sensitivity_of(model, inputs, reference, masked_by, mask_input),
    )


def _measured(model: Any, entry: TaskEntry, architecture: str) -> _Measured:
    """Measure with padding on the side where a dropped mask is heard; right first but for decoders."""
    sides = ("left",) if architecture == "decoder-only" else ("right", "left")
    results = []
    for side in sides:
        try:
            results.append(_measure(model, entry, architecture, side))
        except _CANNOT_RUN as error:
            raise ModelError(
                f"{type(model).__name__} cannot be run", why=f"{type(error).__name__}: {_line(error)}"
            ) from error
        if not results[-1].is_deaf:
            return results[-1]
    return replace(results[0], mask_input=None)


def _hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _recipe(model: Any, found: _Measured, what: Classification, entry: TaskEntry, **given: Any) -> Recipe:
    return Recipe(
        model_type=what.model_type,
        transformers_version=load_catalog().version,
        family=what.family,
        architecture=what.architecture,
        traits=what.traits,
        task=entry.task,
        config_class=type(model.config).__name__,
        model_class=type(model).__name__,
        config_children={name: type(c).__name__ for name, c in children(model.config).items()},
        config_hash=_hash(given["config"]),
        inputs=found.specs,
        parameters=sum(p.numel() for p in model.parameters()),
        operators=measure.operators_of(model, found.inputs),
        outputs=found.outputs,
        masked_by=found.masked_by,
        mask_input=found.mask_input,
        generate=entry.generate if hasattr(model, "generate") else "none",
        gradients=_gradient_count(model, found.inputs),
        recorded=found.recorded(_origin(what.model_type)),
        sensitivity=found.sensitivity,
        **given,
    )


def _gradient_count(model: Any, inputs: Mapping[str, Array]) -> int:
    """How many parameters get a gradient, so that one that got lost on the target and in the reference shows."""
    return len(float64_gradients(as_reference(copy.deepcopy(model)), inputs))


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


def _loudest(
    config: Mapping[str, Any], config_class: str, chosen: TaskClass, architecture: str
) -> tuple[float, _Measured] | list[str]:
    """The gain with the best ratio of signal to bfloat16 noise among those accepted, or why none is."""
    accepted: list[tuple[float, float, _Measured]] = []
    refused = []
    for gain in GAINS:
        model = fill(build(config_class, chosen.model_class, config), gain=gain)
        found = _measured(model, chosen.entry, architecture)
        figures = found.sensitivity
        reasons = measure.faults(figures)
        if reasons:
            refused.append(f"gain {gain}: {', '.join(reasons)}")
        else:
            accepted.append((figures["attention_x1.1"] / figures["bfloat16_error"], gain, found))
    return max(accepted, key=lambda one: one[:2])[1:] if accepted else refused


def derive_tiny(model_type: str, task: str | None = None) -> Recipe:
    """Derive the recipe of a model type's tiny model; `task` None is its primary one.

    Where no gain is accepted, the next larger configuration is tried. Raises `ModelError` for an unknown type
    or task, and with the figures where nothing is accepted.
    """
    what = classify_type(model_type)
    tasks = load_catalog().tasks_of(model_type)
    chosen = next((t for t in tasks if task in (None, t.task)), None)
    if chosen is None:
        known = ", ".join(t.task for t in tasks) or "none: it is a part of other models"
        raise ModelError(f"{model_type} has no class for {echo(task or 'any task')}", fix=f"Its tasks: {known}.")
    config_class = load_catalog().config_class(model_type)
    refused: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice of the library to users; nothing that a recipe could say
        for config in tiny_configs(model_type, load_catalog()):
            if chosen.entry.labels:
                config["num_labels"] = LABELS
            best = _loudest(config, config_class, chosen, what.architecture)
            if isinstance(best, tuple):
                gain, found = best
                model = fill(build(config_class, chosen.model_class, config), gain=gain)
                return _recipe(model, found, what, chosen.entry, config=config, gain=gain, weights_hash=None)
            refused = best
    raise ModelError(f"no tiny {model_type} makes faults audible", why="; ".join(refused))


def _load(checkpoint: Checkpoint, model_class: str) -> Any:
    """The checkpoint's model in float32 with all its weights; nothing is fetched and no own code is run."""
    where = echo(str(checkpoint.folder))
    try:
        model, info = _transformers_class(model_class).from_pretrained(
            str(checkpoint.folder),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype="float32",
            output_loading_info=True,
        )
    except ModelError:
        raise
    except Exception as error:  # loaders raise their own classes; each means that the files can't be used
        raise BrokenInput(
            f"the checkpoint {where} cannot be loaded as {model_class}",
            why=f"{type(error).__name__}: {_line(error)}",
            fix="Fetch it again.",
        ) from error
    missing = sorted(map(str, info["missing_keys"]))
    if missing:
        raise BrokenInput(
            f"the checkpoint {where} is not complete",
            why=f"{len(missing)} weights of {model_class} are missing, the first is {echo(missing[0])}",
        )
    return model.eval()


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
        model = _load(checkpoint, what.model_class)
        found = _measured(model, entry, what.architecture)
        plain = json.loads(json.dumps(model.config.to_diff_dict(), default=str))
        config = {k: v for k, v in plain.items() if k not in _NOT_ARGUMENTS}
        recipe = _recipe(model, found, what, entry, config=config, gain=None, weights_hash=checkpoint.weights_hash)
    return replace(recipe, subject="checkpoint", config_hash=_hash(checkpoint.config))
