"""Compares a torch module with its float64 reference, module by module, so that each is judged by itself.

The reference runs once, and what every module was given and gave is kept. On the target each module is then given
what the reference's was, and what it gives is compared and replaced by what the reference's gave: an error doesn't
reach the next module, and what a module computes between its parts counts as its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.compare import ReferenceNotFinite, compare
from hardware.model.calls import forward
from hardware.model.tensors import to_tensors
from hardware.output_masks import masks_of
from hardware.testing import reference

from .comparing import padding_of
from .result import Finding, Localization, Place
from .watching import Call, Comparer, Key, Recorder, Step

if TYPE_CHECKING:
    import torch

    from hardware.backends._torch import TorchRunnable
    from hardware.compare import Array

REFERENCE = "the same modules on the CPU in float64"
_MOST_OTHERS = 20


def record(model: torch.nn.Module, inputs: Mapping[str, Array]) -> tuple[dict[Key, Call], dict[str, Array]]:
    """What every module of a reference (float64, CPU) was given and gave, and the model's outputs.

    Raises `ReferenceNotFinite`.
    """
    with Recorder(model) as recorder:
        outputs = reference.float64_outputs(model, inputs)
    return recorder.calls, outputs


def localize_modules(
    runnable: TorchRunnable,
    reference_model: torch.nn.Module,
    inputs: Mapping[str, Array],
    *,
    cell: str,
    tolerance: float,
    masked_by: Mapping[str, str] | None = None,
    control: Callable[[], TorchRunnable] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Localization:
    """The first module of `runnable` that gives other values than its reference where it is given the same.

    `reference_model` is the same model as `as_reference` makes it; `control` loads it on the CPU in the same
    precision, and is asked only where a place was found: what is as far off there is precision. Hooks see modules
    alone: functions between them belong to the module that calls them.
    """
    calls, want = record(reference_model, inputs)
    how: dict[str, Any] = {"precision": runnable.precision, "tolerance": tolerance}
    # A device may break: then this pass says where.
    _watched(runnable, {}, inputs, corrected=False, progress=progress, padding=(), finite=False, **how)
    outputs_error = _outputs_error(runnable(**inputs), want, masks_of(masked_by or {}, inputs))
    how["finite"] = not outputs_error <= tolerance
    for padding in (padding_of(inputs), ()):  # where padding is what is wrong, it is looked at as well
        passes = _Passes(
            ordinary=_watched(runnable, calls, inputs, corrected=False, padding=padding, **how),
            corrected=_watched(runnable, calls, inputs, corrected=True, padding=padding, **how),
            tolerance=tolerance,
        )
        if passes.wrong or outputs_error <= tolerance:
            break
    kept = passes.wrong
    if kept and control is not None:
        beside = _watched(control(), calls, inputs, corrected=True, padding=padding, **how)
        rounded = {(step.key, step.tensor) for step in beside.steps if _beyond(step, tolerance)}
        kept = [step for step in kept if (step.key, step.tensor) not in rounded]
    rounding = outputs_error <= tolerance and runnable.precision != "float32" and control is None
    compared = passes.compared
    found = Localization(
        cell=cell,
        finding=Finding.AGREES,
        granularity="module",
        reference=REFERENCE,
        tolerance=tolerance,
        outputs_error=outputs_error,
        largest=_largest_of(passes.ordinary.steps, passes.place),
        compared=len(compared),
        left_out=len((set(calls) | passes.corrected.left_out) - compared),
        notes=_notes(outputs_error, passes.ordinary, tolerance),
    )
    return _concluded(found, passes, kept, Finding.PRECISION if rounding or not kept else Finding.NAMED)


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """A pass as it was, and one in which every module was given the reference's values."""

    ordinary: Comparer
    corrected: Comparer
    tolerance: float

    @property
    def wrong(self) -> list[Step]:
        """What is wrong by itself, in the order of the run."""
        return [step for step in self.corrected.steps if _beyond(step, self.tolerance)]

    @property
    def compared(self) -> set[Key]:
        return {step.key for step in self.corrected.steps if step.error is not None}

    def place(self, step: Step) -> Place:
        """A step with its errors in both passes."""
        same = (step.key, step.tensor)
        before = next((one.error for one in self.ordinary.steps if (one.key, one.tensor) == same), None)
        own = next((one.error for one in self.corrected.steps if (one.key, one.tensor) == same), None)
        return _place(step, own, before, _inputs_errors(self.ordinary.steps).get(step.key))


def _outputs_error(got: Mapping[str, Array], want: Mapping[str, Array], masks: Mapping[str, Array]) -> float:
    try:
        return compare(got, want, masks=masks, required=tuple(want)).max_rel_error
    except ReferenceNotFinite:
        return math.inf


def _concluded(found: Localization, passes: _Passes, kept: Sequence[Step], finding: Finding) -> Localization:
    if passes.wrong:
        places = _distinct([passes.place(step) for step in kept or passes.wrong])
        return replace(found, finding=finding, place=places[0], others=tuple(places[1 : 1 + _MOST_OTHERS]))
    if found.outputs_error is not None and found.outputs_error <= found.tolerance:
        return found
    first = next((step for step in passes.ordinary.steps if _beyond(step, found.tolerance)), None)
    if first is None:
        return replace(found, finding=Finding.UNNAMED)
    return replace(found, finding=Finding.GROWS, place=passes.place(first))


def _watched(runnable: TorchRunnable, calls: Mapping[Key, Call], inputs: Mapping[str, Array], **how: Any) -> Comparer:
    import torch

    tensors = to_tensors(inputs, runnable.device, runnable.dtype)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        comparer: Comparer = stack.enter_context(Comparer(runnable.model, calls, **how))
        forward(runnable.model, tensors)
    return comparer


def _beyond(step: Step, tolerance: float) -> bool:
    return step.error is not None and not step.error <= tolerance


def _inputs_errors(steps: Sequence[Step]) -> dict[Key, float]:
    """By module call, the largest error of what it was handed in the run as it was."""
    found: dict[Key, float] = {}
    pending: dict[str, float] = {}
    for step in steps:
        if not step.gave:
            part = step.tensor.rpartition(" that it hands to ")[2]
            name = f"{step.key[0]}.{part}" if step.key[0] else part
            pending[name] = max(pending.get(name, 0.0), step.error or 0.0)
        elif step.key not in found:
            found[step.key] = pending.pop(step.key[0], 0.0)
    return found


def _place(step: Step, own: float | None, error: float | None, input_error: float | None) -> Place:
    return Place(
        name=step.key[0],
        kind=step.kind,
        call=step.key[1],
        tensor=step.tensor,
        own_error=own,
        error=error,
        input_error=input_error,
        shape=tuple(step.got.shape),
        dtype=_dtype(step.got),
        expected_shape=tuple(step.want.shape),
        expected_dtype=_dtype(step.want),
    )


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _largest_of(steps: Sequence[Step], place: Callable[[Step], Place]) -> Place | None:
    """The result with the largest error in the run as it was: where one would look without a correction."""
    compared = [step for step in steps if step.gave and step.error is not None]
    worst = max(compared, key=lambda step: step.error or 0.0, default=None)
    return place(worst) if worst is not None else None


def _distinct(places: Sequence[Place]) -> list[Place]:
    """One place for each call of a module: the first of its tensors that is wrong."""
    found: dict[tuple[str, int], Place] = {}
    for one in places:
        found.setdefault((one.name, one.call), one)
    return list(found.values())


def _notes(outputs_error: float, ordinary: Comparer, tolerance: float) -> tuple[str, ...]:
    """What has to be said of watching itself: hooks switch torch's fused paths off."""
    outputs = [step.error or 0.0 for step in ordinary.steps if step.gave and step.key[0] == ""]
    watched = max(outputs, default=0.0)
    if outputs and (outputs_error <= tolerance) is not (watched <= tolerance) and np.isfinite(watched):
        return (
            f"the outputs are off by {watched:.2e} with hooks, and by {outputs_error:.2e} without: "
            "hooks switch off fused paths of torch",
        )
    return ()
