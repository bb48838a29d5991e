"""Probe one model: its inputs and reference, the relation of outputs and masks, its gradients, the numbers that a
recipe stores, and the skipped checks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.models.catalog import TaskEntry
from hwcompat.generators.models.classification import Classification
from hwcompat.generators.models.inputs import LENGTHS, make_inputs, placeholders
from hwcompat.generators.models.model_libraries import denoised
from hwcompat.hardware.compare import Array, Outputs, ReferenceNotFinite, compare_gradients, is_whole, scale_of
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.output_masks import covering, masks_of
from hwcompat.hardware.testing.reference import as_reference, float64_gradients, float64_outputs
from hwcompat.hardware.testing.widened_weights import copy_over

from . import measurements
from .build_model import line_of
from .config_scopes import overrides
from .diffusion import diffusion_specs
from .input_layouts import with_sense_masks
from .input_specs import input_specs, lengths_of
from .measurements import NOISE, SUBTLE

if TYPE_CHECKING:
    import torch

SEED = 0
_SHORTER = 4
_COUNT = 16
_WORDS = "model.train()"
"""The message of a model with gradients in training mode only: Reformer recomputes its layers."""
_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class RecipeProbe:
    """The measurements of one model: its inputs and reference, and the relation of outputs and masks."""

    lengths: tuple[int, int]
    specs: dict[str, dict[str, Any]]
    inputs: dict[str, Array]
    reference: dict[str, Array]
    outputs: tuple[str, ...]
    masked_by: dict[str, str]
    mask_input: str | None
    sensitivity: dict[str, float]
    small_faults: tuple[Outputs, ...]
    padding_effect: float
    unknown_masks: tuple[str, ...]
    trains_only: bool

    @property
    def skips_mask(self) -> bool:
        """Whether dropping the mask changes too little to be detected."""
        return self.sensitivity.get("mask_dropped", 1.0) < measurements.SUBTLE

    @property
    def reads_padding(self) -> bool:
        """Whether padded tokens change unmasked outputs, as when a text is read from its last token."""
        return not self.padding_effect < measurements.NOISE

    def recorded(self, origin: str) -> dict[str, Any]:
        """Return the 16 numbers of a main output, and their origin."""
        masks = masks_of(self.masked_by, self.inputs)
        return record(
            self.reference,
            self.outputs,
            masks,
            faults=self.small_faults,
            seed=SEED,
            lengths=self.lengths,
            origin=origin,
        )


def _measure(model: Any, entry: TaskEntry, what: Classification, side: str, *, pad_senses: bool) -> RecipeProbe:
    if what.architecture == "diffusion":
        lengths, specs = LENGTHS, diffusion_specs(model, denoised(what.model_type, entry.task))
        unknown_masks: tuple[str, ...] = ()
    else:
        lengths = lengths_of(model)
        specs = input_specs(model, entry, what.architecture, side, lengths[0])
        entry_inputs = overrides(what.model_type, entry.task).get("inputs", {})
        padded, unknown_masks = with_sense_masks(model, specs, lengths, entry_inputs)
        if pad_senses:
            specs = padded
        else:
            unknown_masks = (*unknown_masks, *(name for name in padded if padded[name] != specs.get(name)))
    inputs = make_inputs(specs, SEED, lengths)
    trains = trains_only(model, inputs)  # by a model that hasn't run yet
    exact = as_reference(copy_over(model))
    reference = float64_outputs(exact, inputs)
    if all(is_whole(one) for one in reference.values()):
        raise ModelError(f"{type(model).__name__} returns no floating-point tensor")
    less = min(_SHORTER, lengths[1] - 1)
    shorter = (lengths[0] - less, lengths[1] - less)
    other = float64_outputs(exact, make_inputs(specs, SEED + 1, shorter))
    columns = (shorter[0] + placeholders(specs), lengths[0] + placeholders(specs))
    masked_by = measurements.masked_outputs(other, reference, columns, specs)
    # A decoder's own mask comes first, because every output depends on its self-attention.
    masks = sorted((n for n, s in specs.items() if s["kind"] == "mask"), key=lambda n: "decoder" not in n)
    asked = "padding" not in overrides(what.model_type, entry.task).get("not_asked", ())
    mask_input = masks[0] if masks and asked else None
    padding = measurements.padding_effect(model, inputs, specs, reference, masked_by, mask_input)
    if not padding < measurements.NOISE:
        front = measurements.in_front(masked_by, reference, columns[1])
        moved = measurements.padding_effect(model, inputs, specs, reference, front, mask_input)
        masked_by, padding = (front, moved) if moved < measurements.NOISE else (masked_by, padding)
    sensitivity, small_faults = measurements.sensitivity_of(model, inputs, reference, masked_by, mask_input)
    return RecipeProbe(
        lengths=lengths,
        specs=specs,
        inputs=inputs,
        reference=reference,
        outputs=_main_outputs(entry, reference),
        masked_by=masked_by,
        mask_input=mask_input,
        sensitivity=sensitivity,
        small_faults=small_faults,
        padding_effect=padding,
        unknown_masks=unknown_masks,
        trains_only=trains,
    )


def _main_outputs(entry: TaskEntry, given: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the outputs of a task, all tensors of tuples; otherwise the first output."""
    floating = [name for name, array in given.items() if not is_whole(array)]
    meant = {
        n: [g for g in floating if g == n or (g.startswith(f"{n}_") and g[len(n) + 1 :].isdigit())]
        for n in entry.outputs
    }
    return tuple(name for names in meant.values() for name in names) or (floating[0],)


def probe_recipe(model: Any, entry: TaskEntry, what: Classification, *, pad_senses: bool = True) -> RecipeProbe:
    """Measure with padding on the side where a dropped mask is detected, but not padded tokens.

    A decoder is padded on the left, others on the right, then on the left. A mask without effect on either side is
    still an input: its suite reports that it isn't honored. Without `pad_senses` images and sounds aren't padded.
    """
    decodes = what.architecture == "decoder-only" or generates(model, entry, what.model_type) == "causal"
    sides = ("left",) if decodes else ("right", "left")
    results = []
    for side in sides:
        try:
            results.append(_measure(model, entry, what, side, pad_senses=pad_senses))
        except (ModelError, ReferenceNotFinite):
            raise
        except Exception as error:  # any error of modeling code is the reason why the type has no recipe
            raise ModelError(
                f"{type(model).__name__} can't be run", why=f"{type(error).__name__}: {line_of(error)}"
            ) from error
        if not results[-1].skips_mask and not results[-1].reads_padding:
            return results[-1]
    return next((one for one in results if not one.skips_mask), results[0])


def generates(model: Any, entry: TaskEntry, model_type: str) -> str:
    """Return how the class decodes, if its task does: in two sequences if it has its own encoder, else in one, as
    models do that transcribe after the placeholders of the sound."""
    if entry.generate == "none" or not hasattr(model, "generate"):
        return "none"
    if "decoding" in overrides(model_type, entry.task).get("not_asked", ()):
        return "none"
    return "seq2seq" if model.config.is_encoder_decoder else "causal"


def record(
    reference: Outputs,
    among: Sequence[str],
    masks: Mapping[str, Array],
    *,
    faults: Sequence[Outputs] = (),
    seed: int,
    lengths: Sequence[int],
    origin: str,
) -> dict[str, Any]:
    """Return 16 numbers of one output at seeded unmasked positions that aren't ruled out, and its scale.

    The output is the first of those `among` that all `faults` (outputs under each) move by `SUBTLE`, else the one
    that they move most. A fault that moves none of the numbers by that gets one of its own, where it is largest.
    """
    moves = {name: [_moves(one, reference, name, masks.get(name)) for one in faults] for name in among}
    least = {name: min((float(one.max(initial=0.0)) for one in moves[name]), default=0.0) for name in among}
    output = next((name for name in among if least[name] >= SUBTLE), max(among, key=lambda name: least[name]))
    array, mask = reference[output], masks.get(output)
    positions = _drawn(array, mask, np.random.default_rng(seed))
    for number, move in enumerate(moves[output], 1):
        if max(move[tuple(place)] for place in positions) < SUBTLE:
            positions[-number] = [int(place) for place in np.unravel_index(move.argmax(), move.shape)]
    kept = array if mask is None else array[covering(mask, array)]
    return {
        "output": output,
        "positions": positions,
        "values": [float(f"{array[tuple(place)]:.10g}") for place in positions],
        "scale": float(f"{scale_of(kept):.6g}"),
        "seed": seed,
        "lengths": list(lengths),
        "origin": origin,
    }


def _drawn(array: Array, mask: Array | None, rng: np.random.Generator) -> list[list[int]]:
    """Return unmasked positions, drawn at random."""
    meant = np.argwhere(np.ones(array.shape[:1]) if mask is None else mask)
    positions: list[list[int]] = []
    for place in rng.integers(0, len(meant), _COUNT):
        while True:
            rest = [int(rng.integers(0, size)) for size in array.shape[meant.shape[1] :]]
            position = [*map(int, meant[place]), *rest]
            if not np.isneginf(array[tuple(position)]):
                break
        positions.append(position)
    return positions


def _moves(fault: Outputs, reference: Outputs, name: str, mask: Array | None) -> Array:
    """Return how far each entry of an output moves, relative to its scale; 0 if it is masked or not comparable."""
    got, want = fault.get(name), reference[name]
    if got is None or got.shape != want.shape:
        return np.zeros(want.shape)
    kept = want if mask is None else want[covering(mask, want)]
    with np.errstate(invalid="ignore"):
        moves = np.abs(got - want) / scale_of(kept)
    moves = np.where(np.isfinite(moves), moves, 0.0)
    if mask is not None:
        meant = covering(mask, want)
        moves = moves * meant.reshape(*meant.shape, *[1] * (want.ndim - meant.ndim))
    return np.asarray(moves)


def trains_only(model: torch.nn.Module, inputs: Mapping[str, Array]) -> bool:
    """Return whether a float32 model has gradients in training mode only: it says so, or in evaluation mode it
    caches results of parameters between passes, which then get no gradient (Mega its kernels)."""
    try:
        at_first = float64_gradients(as_reference(copy_over(model)), inputs)
        used = as_reference(copy_over(model))
        float64_outputs(used, inputs)
        return len(float64_gradients(used, inputs)) < len(at_first)
    except AssertionError as error:
        return _WORDS in str(error)
    except Exception:  # any error of modeling code shows when the gradients are compared
        return False


def lost_gradients(
    model: torch.nn.Module, inputs: Mapping[str, Array], masked_by: Mapping[str, str], *, training: bool
) -> list[str]:
    """Return why the gradients of a float32 model don't match those in float64; empty if they do.

    A number near a kink, such as a ReLU's, may fall on either side of it: then another gain is better. Kernels round
    differently by processor, so gradients are computed with oneDNN and without.
    """
    import torch

    from hwcompat.hardware.backends._torch import loss_gradients
    from hwcompat.hardware.model.calls import to_tensors

    exact = as_reference(copy_over(model))
    try:
        given = to_tensors(inputs, "cpu", torch.float32)
        want = float64_gradients(exact, inputs, masked_by, training=training)
        error = 0.0
        for with_onednn in (True, False):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="TF32 acceleration")  # of a flag that flags() sets
                with torch.backends.mkldnn.flags(enabled=with_onednn):
                    got = loss_gradients(copy.deepcopy(model), given, masked_by, training=training)
            error = max(error, compare_gradients(got, want).max_rel_error)
    except Exception as raised:  # any error of modeling code is the reason why there are no gradients
        return [f"gradients can't be computed: {type(raised).__name__}: {' '.join(str(raised).split())[:200]}"]
    return [] if error < NOISE / 2 else [f"gradients are off by {error:.1e}, must be below {NOISE / 2:.0e}"]


def run_probe(model: torch.nn.Module, found: RecipeProbe, decoding: str) -> tuple[set[str], bool]:
    """Return the names of modules that a forward pass and decoding call, and whether decoding used a cache."""
    used = True

    def decode() -> None:
        nonlocal used
        used = _decoded_with_cache(run, found)

    run = copy.deepcopy(model)
    reached = measurements.modules_reached(run, lambda: measurements.run(run, found.inputs))
    if decoding != "none":
        reached |= measurements.modules_reached(run, decode)
    return reached, used


def skipped_checks(
    model: torch.nn.Module, found: RecipeProbe, reached: Collection[str], entry: Mapping[str, Any]
) -> str:
    """Return the condition under which a model's suite passes, in words; empty if there is none."""
    words = [entry["left_out"]] if "left_out" in entry else []
    if unrun := ", ".join(_unrun(model, reached)):
        words.append(f"{unrun}, which no check runs")
    if found.unknown_masks:
        words.append(f"padding by {', '.join(found.unknown_masks)}")
    return "; ".join(words)


def _unrun(model: torch.nn.Module, reached: Collection[str]) -> Iterator[str]:
    """Yield the models inside `model`, complete ones of the library, of which no module was reached."""
    named: list[str] = []
    for name, module in model.named_modules():
        if not name or not hasattr(module, "save_pretrained") or any(name.startswith(f"{one}.") for one in named):
            continue
        if not any(one == name or one.startswith(f"{name}.") for one in reached):
            named.append(name)
    yield from named


def _decoded_with_cache(model: torch.nn.Module, found: RecipeProbe) -> bool:
    import torch

    from hwcompat.hardware.model.calls import to_tensors
    from hwcompat.hardware.model.greedy_decoding import greedy

    try:
        return greedy(model, to_tensors(found.inputs, "cpu", torch.float32), steps=_STEPS, use_cache=True).used_cache
    except Exception:  # the suite's checks report any error of decoding
        return True
