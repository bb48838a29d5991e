"""What one model gives: its inputs and reference, and how its outputs hang together with its masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generators.models.catalog import TaskEntry
from generators.models.classifier import Classification
from generators.models.diffusion import denoised
from generators.models.inputs import LENGTHS, make_inputs, placeholders
from hardware.compare import Array, Outputs, ReferenceNotFinite, is_whole
from hardware.errors import ModelError
from hardware.output_masks import masks_of
from hardware.testing.reference import as_reference, float64_outputs
from hardware.testing.widened import copy_over

from . import measure
from .building import line_of
from .diffusion_inputs import diffusion_specs
from .gradients import trains_only
from .overrides import overrides
from .recorded import record
from .sense_masks import with_sense_masks
from .specs import input_specs, lengths_of

SEED = 0
_SHORTER = 4


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one model gave: its inputs and reference, and how the outputs hang together with the masks."""

    lengths: tuple[int, int]
    specs: dict[str, dict[str, Any]]
    inputs: dict[str, Array]
    reference: dict[str, Array]
    outputs: tuple[str, ...]
    masked_by: dict[str, str]
    mask_input: str | None
    sensitivity: dict[str, float]
    small_faults: tuple[Outputs, ...]
    padding_heard: float
    unknown_masks: tuple[str, ...]
    trains_only: bool

    @property
    def is_deaf(self) -> bool:
        """Whether dropping the mask changes too little to be seen."""
        return self.sensitivity.get("mask_dropped", 1.0) < measure.SUBTLE

    @property
    def is_leaky(self) -> bool:
        """Whether what stands in padded places is heard, as where a text is read off its last token."""
        return not self.padding_heard < measure.NOISE

    def recorded(self, origin: str) -> dict[str, Any]:
        """The 16 numbers of a main output, and what vouches for them."""
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


def _measure(model: Any, entry: TaskEntry, what: Classification, side: str, *, pad_senses: bool) -> Measured:
    if what.architecture == "diffusion":
        lengths, specs = LENGTHS, diffusion_specs(model, denoised(what.model_type, entry.task))
        unknown_masks: tuple[str, ...] = ()
    else:
        lengths = lengths_of(model)
        specs = input_specs(model, entry, what.architecture, side, lengths[0])
        told = overrides(what.model_type, entry.task).get("inputs", {})
        padded, unknown_masks = with_sense_masks(model, specs, lengths, told)
        if pad_senses:
            specs = padded
        else:
            unknown_masks = (*unknown_masks, *(name for name in padded if padded[name] != specs.get(name)))
    inputs = make_inputs(specs, SEED, lengths)
    trains = trains_only(model, inputs)  # asked of a model that has run nothing
    exact = as_reference(copy_over(model))
    reference = float64_outputs(exact, inputs)
    if all(is_whole(one) for one in reference.values()):
        raise ModelError(f"{type(model).__name__} gives no floating tensor")
    less = min(_SHORTER, lengths[1] - 1)
    shorter = (lengths[0] - less, lengths[1] - less)
    other = float64_outputs(exact, make_inputs(specs, SEED + 1, shorter))
    columns = (shorter[0] + placeholders(specs), lengths[0] + placeholders(specs))
    masked_by = measure.masked_outputs(other, reference, columns, specs)
    # A decoder's own mask comes first: what a decoder sees of itself is what every output goes through.
    masks = sorted((n for n, s in specs.items() if s["kind"] == "mask"), key=lambda n: "decoder" not in n)
    asked = "padding" not in overrides(what.model_type, entry.task).get("not_asked", ())
    mask_input = masks[0] if masks and asked else None
    padding = measure.padding_heard(model, inputs, specs, reference, masked_by, mask_input)
    if not padding < measure.NOISE:
        front = measure.in_front(masked_by, reference, columns[1])
        heard = measure.padding_heard(model, inputs, specs, reference, front, mask_input)
        masked_by, padding = (front, heard) if heard < measure.NOISE else (masked_by, padding)
    sensitivity, small_faults = measure.sensitivity_of(model, inputs, reference, masked_by, mask_input)
    return Measured(
        lengths=lengths,
        specs=specs,
        inputs=inputs,
        reference=reference,
        outputs=_main_outputs(entry, reference),
        masked_by=masked_by,
        mask_input=mask_input,
        sensitivity=sensitivity,
        small_faults=small_faults,
        padding_heard=padding,
        unknown_masks=unknown_masks,
        trains_only=trains,
    )


def _main_outputs(entry: TaskEntry, given: Mapping[str, Array]) -> tuple[str, ...]:
    """The outputs that a task is about, all tensors of those that are tuples; the first that there is, otherwise."""
    floating = [name for name, array in given.items() if not is_whole(array)]
    meant = {
        n: [g for g in floating if g == n or (g.startswith(f"{n}_") and g[len(n) + 1 :].isdigit())]
        for n in entry.outputs
    }
    return tuple(name for names in meant.values() for name in names) or (floating[0],)


def measured(model: Any, entry: TaskEntry, what: Classification, *, pad_senses: bool = True) -> Measured:
    """Measure with padding on the side where a dropped mask is heard and padding isn't; right first but for decoders.

    A mask that is heard on neither side is still one that the model takes: its suite says that it isn't honoured.
    Without `pad_senses` images and sounds are whole.
    """
    decodes = what.architecture == "decoder-only" or generates(model, entry, what.model_type) == "causal"
    sides = ("left",) if decodes else ("right", "left")
    results = []
    for side in sides:
        try:
            results.append(_measure(model, entry, what, side, pad_senses=pad_senses))
        except (ModelError, ReferenceNotFinite):
            raise
        except Exception as error:  # whatever modelling code raises, it is the reason why the type has no recipe
            raise ModelError(
                f"{type(model).__name__} cannot be run", why=f"{type(error).__name__}: {line_of(error)}"
            ) from error
        if not results[-1].is_deaf and not results[-1].is_leaky:
            return results[-1]
    return next((one for one in results if not one.is_deaf), results[0])


def generates(model: Any, entry: TaskEntry, model_type: str) -> str:
    """How the class decodes, where its task does: in two sequences where it has an encoder of its own, else in one,
    as do those that write what they hear behind the places of the sound."""
    if entry.generate == "none" or not hasattr(model, "generate"):
        return "none"
    if "decoding" in overrides(model_type, entry.task).get("not_asked", ()):
        return "none"
    return "seq2seq" if model.config.is_encoder_decoder else "causal"
