"""`ModelTest`, the base of every generated suite: it finds the target, loads the model, computes the reference, and
keeps what each check measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..applied_fix import current_changes
from ..backends.base import BaseBackend, Execution, ModelInput, Runnable, Unsupported
from ..backends.factory import get_backend
from ..cell import Cell
from ..compare import Array, Comparison, compare
from ..errors import BackendUnavailable
from ..evidence.record import PRODUCTS, Stage, WeightsKind
from ..files import cache_folder
from ..output_masks import masks_of
from ..step_times import take_steps
from ..target import Target
from . import measurement, reference
from .changed_model import load, with_attention
from .half_precision import HalfPrecision
from .measurement import (
    Ambiguous,
    Measurement,
    Outputs,
    are_undecided,
    recorded_comparison,
    with_whole_numbers_of,
)
from .router_choices import RouterChoice
from .seeded_weights import fill
from .tolerances import NO_CONDITIONS, tolerance_for
from .variants import VariantChecks
from .watched_passes import WatchedPasses

if TYPE_CHECKING:
    import torch


class ModelTest(VariantChecks):
    """One cell under test, used as a context manager by a suite's `case` fixture.

    `make_model` builds the model in float32 on the CPU; `gain` fills it with seeded test weights (None keeps its
    weights); `inputs` are the example arrays; `masked_by` names, for outputs with a row for each token, the input
    that marks the rows that count; `outputs` must be among the target's outputs. `dimensions` says what is real in a
    model with other weights; `left_out` what no check can cover, and why; `exercised` how much of
    the modeling code the suite enters; `trains_only` that gradients exist in
    training mode alone; `zero_centered` names the normalization weights to which the model adds 1. `recorded_by` is
    set if the recorded numbers rest on a single installation; `recorded_with` names another version of the library
    if they are its numbers. `tolerance` is a repository's own limit, which replaces
    the product's on the cell's target; `tolerance_reason` is its source and reason.
    """

    def __init__(
        self,
        cell: str,
        make_model: Callable[[], torch.nn.Module],
        inputs: Mapping[str, Array],
        *,
        gain: float | None,
        outputs: tuple[str, ...],
        masked_by: Mapping[str, str] | None = None,
        generates: str = "none",
        weights: str = "tiny",
        dimensions: str = "",
        left_out: str = "",
        exercised: str = "",
        trains_only: bool = False,
        zero_centered: tuple[str, ...] = (),
        recorded_by: str = "",
        recorded_with: str = "",
        tolerance: float | None = None,
        tolerance_reason: str = "",
    ) -> None:
        self.cell = Cell.parse(cell)
        self.make_model = make_model
        self.inputs = dict(inputs)
        self.gain = gain
        self.required = outputs
        self.masked_by = dict(masked_by or {})
        self.generates = generates
        self.weights = WeightsKind(weights)
        self.dimensions = dimensions
        self.left_out = left_out
        self.exercised = exercised
        self.trains_only = trains_only
        self.zero_centered = zero_centered
        self.measured = Measurement()
        self.recorded_by = recorded_by
        self.recorded_with = recorded_with
        self._own_tolerance = tolerance
        self._tolerance_reason = tolerance_reason
        self._load_failure: tuple[Exception, Stage] | None = None
        self._passes = WatchedPasses()
        self._conditions_of_check: dict[str, str] = {}
        self._choices_of_tokens: Sequence[RouterChoice] = ()
        self._gradient_count = 0
        self._gradient_norm = 0.0
        self.step_ms: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "runnable" in self.__dict__:
            self.runnable.close()
        self.backend.close()

    # Target and device

    @cached_property
    def _placement(self) -> tuple[BaseBackend, str]:
        backend = get_backend(self.requested_target)
        reason = backend.unavailable()
        if not reason:
            return backend, ""
        if not measurement.active:
            raise BackendUnavailable(
                f"{self.requested_target} not found, and the substitution would not be recorded",
                why=reason,
                fix="Load hwcompat.hardware.testing.pytest_plugin in this folder's conftest.py: "
                "it records the substitution.",
            )
        return get_backend("cpu"), reason

    @cached_property
    def requested_target(self) -> Target:
        """The target of the cell, with the device's index if the user named one."""
        from .pytest_environment import requested_device

        return requested_device(self.cell.target)

    @property
    def backend(self) -> BaseBackend:
        """The backend of the target, or of cpu if the target isn't available."""
        return self._placement[0]

    @property
    def substitution_reason(self) -> str:
        """Why another target is used than the requested one, or an empty text."""
        return self._placement[1]

    @property
    def actual_target(self) -> Target:
        """The target on which it runs."""
        return self.backend.target

    # The model and its reference

    def _build(self) -> torch.nn.Module:
        self.measured.stage = Stage.BUILD
        model = self.make_model()
        return model.eval() if self.gain is None else fill(model, gain=self.gain, zero_centered=self.zero_centered)

    def _changed(self) -> torch.nn.Module:
        return with_attention(self._build(), current_changes().attention)

    def parameter_count(self) -> int:
        """Return the number of parameters of a newly built model, tied ones counted once."""
        return sum(parameter.numel() for parameter in self._build().parameters())

    @cached_property
    def _identity(self) -> str:
        return reference.identity_of(self._build())

    @cached_property
    def reference_model(self) -> torch.nn.Module:
        """The model in float64 on the CPU."""
        return reference.as_reference(self._build())

    @cached_property
    def runnable(self) -> Runnable:
        """The model on its target, loaded on first use; a failure is raised again on later uses, at its stage."""
        if self._load_failure is not None:
            error, self.measured.stage = self._load_failure
            raise error
        try:
            return self._load()
        except Exception as error:
            self._load_failure = error, self.measured.stage
            raise

    def _load(self) -> Runnable:
        model_input = ModelInput(
            model=self._changed(),
            task=self.cell.task,
            identity=self._identity,
            generates=self.generates,
            masked_by=self.masked_by,
            trains_only=self.trains_only,
            rebuild=self._changed,
        )
        take_steps()
        started = time.perf_counter()
        with self._at(Stage.LOAD):
            loaded = load(self.backend, model_input, self.inputs, self.cell.precision)
        self.step_ms = {"load": 1e3 * (time.perf_counter() - started), **take_steps()}
        return loaded

    def eager(self) -> Runnable:
        """Return the model in float32 on the CPU, called as it is: what its speed is compared with."""
        plain = ModelInput(model=self._build(), task=self.cell.task, identity=self._identity)
        return get_backend("cpu").load(plain, self.inputs, "float32")

    @contextmanager
    def _at(self, stage: Stage) -> Iterator[None]:
        """Set the stage of errors inside, unless the runtime knows a more exact one."""
        self.measured.stage = stage
        try:
            yield
        except Unsupported as error:
            self.measured.stage = error.stage or stage
            raise

    # Calls of a suite

    @property
    def tolerance(self) -> float:
        """The largest error relative to the output's scale that passes; `tolerances.toml` has the reason.

        A repository's own limit is in the suite with its reason.
        """
        own = self._own_tolerance
        limit = self._product_tolerance if own is None or self.substitution_reason else own
        self.measured.tolerance = limit
        return limit

    @property
    def exact_tolerance(self) -> float:
        """The largest error that passes between two results in float64 on the CPU, whatever the target is."""
        self.measured.tolerance = tolerance_for(Target(name="cpu"), "float32").limit
        return self.measured.tolerance

    @property
    def _product_tolerance(self) -> float:
        return tolerance_for(self.actual_target, self.cell.precision, self._conditions_of_graph).limit

    @property
    def _conditions_of_graph(self) -> Mapping[str, str]:
        """Return the target's conditions of what it runs; empty before it is loaded."""
        return getattr(self.__dict__.get("runnable"), "conditions", NO_CONDITIONS)

    def run(self, inputs: Mapping[str, Array]) -> Outputs:
        """Run one forward pass on the target."""
        return self._run(self.runnable, inputs)

    def _run(self, runnable: Runnable, inputs: Mapping[str, Array]) -> Outputs:
        with self._at(Stage.RUN):
            with self._observed(runnable, passes=1) as choices:
                done = self._passes.run(runnable, inputs)
            self.measured.latency_ms = done.latency_ms
            self.measured.left_to_host |= done.left
        first = next(iter(inputs.values()))
        self.measured.batch = int(first.shape[0]) if first.ndim else None
        tokens = inputs.get("input_ids")
        self.measured.sequence_length = None if tokens is None or tokens.ndim < 2 else int(tokens.shape[1])
        return Outputs(
            arrays=done.outputs,
            watched=done.watched,
            masks=masks_of(self.masked_by, inputs),
            inputs=inputs,
            choices=tuple(choices),
        )

    @cached_property
    def _half(self) -> HalfPrecision:
        return HalfPrecision(
            precision=self.cell.precision,
            limit=self._product_tolerance,
            exact=lambda: self.reference_model,
            build=self._build,
            natural=lambda inputs: self.reference(inputs).arrays,
        )

    def reference(self, inputs: Mapping[str, Array]) -> Outputs:
        """Return the outputs on the CPU in float64, from the store of references if they are kept."""
        store = reference.ReferenceStore(cache_folder("references"))
        arrays = store.get(self._identity, inputs)
        if arrays is None:
            arrays = reference.float64_outputs(self.reference_model, inputs)
            if measurement.keeps_references:
                store.put(self._identity, inputs, arrays)
        return Outputs(arrays=arrays, masks=masks_of(self.masked_by, inputs), inputs=inputs)

    def difference(self, got: Outputs, want: Outputs) -> float:
        """Return the difference of two outputs relative to the scale of `want`, at the positions that count."""
        return got.furthest(lambda arrays: self._compare(arrays, want))[0].max_rel_error

    def error(self, got: Outputs, want: Outputs) -> float:
        """Return the `difference` and keep it as this check's error (the largest of several).

        Raises `Ambiguous` if only integers differ and float64 itself doesn't decide them.
        """
        natural, arrays = got.furthest(lambda arrays: self._compare(arrays, want))
        comparison = self._settled(
            natural, lambda: self._half.settle_outputs(replace(got, arrays=arrays), want, self._required(want))
        )
        if math.isinf(comparison.max_rel_error) and self._is_undecided(arrays, want):
            raise Ambiguous(f"{comparison.worst}: float64 also changes for inputs that differ this little")
        if not comparison.max_rel_error <= self.tolerance:
            self._ask_products()
        return self.measured.keep(comparison)

    def _compare(self, got: Mapping[str, Array], want: Outputs) -> Comparison:
        self.measured.stage = Stage.COMPARE
        return compare(got, want.arrays, masks=want.masks, required=self._required(want), scales=want.scales)

    def _required(self, want: Outputs) -> tuple[str, ...]:
        return tuple(want.arrays) if self.runnable.gives_all else self.required

    def _is_undecided(self, got: Mapping[str, Array], want: Outputs) -> bool:
        """Whether the only errors in `got` are integers that float64 doesn't decide."""
        settled = with_whole_numbers_of(want, got)
        if settled is None or not self._compare(settled, want).max_rel_error <= self.tolerance:
            return False
        return are_undecided(got, want, self.reference, self.tolerance)

    def recorded_error(
        self,
        output: str,
        recorded: Mapping[tuple[int, ...], float],
        scale: float,
        inputs: Mapping[str, Array] | None = None,
    ) -> float:
        """Return the error of single elements of one output against recorded ones, relative to the recorded
        `scale`. Raises `NumbersChanged` if float64 on the CPU doesn't give the numbers of another version either."""
        inputs = self.inputs if inputs is None else inputs
        got = self.run(inputs)
        self.measured.stage = Stage.COMPARE

        def compared(arrays: Mapping[str, Array]) -> Comparison:
            return recorded_comparison(arrays[output], recorded, scale, output)

        natural, arrays = got.furthest(compared)
        one = replace(got, arrays=arrays)
        error = self.measured.keep(
            self._settled(natural, lambda: self._half.settle_recorded(one, output, recorded, scale))
        )
        return self._unless_changed(error, lambda: self.reference(inputs).arrays[output], recorded, scale, output)

    def execution(self) -> Execution:
        """Return the target's own record of where one forward pass ran."""
        runnable = self.runnable
        with self._at(Stage.RUN):
            proof = runnable.execution()
        self.measured.execution = proof
        return proof

    def save_and_reload(self, folder: Path, inputs: Mapping[str, Array]) -> Outputs:
        """Return the outputs of the model after it was saved on the target and loaded again."""
        runnable = self._able("save")
        with self._at(Stage.LOAD):
            again = runnable.save_and_reload(folder)
        try:
            return self._run(again, inputs)
        finally:
            again.close()

    # For the plugin

    def take_measurement(self) -> Measurement:
        """Return the measurements of the check that just ended, and clear them."""
        taken, self.measured = self.measured, Measurement(stage=self.measured.stage)
        self._conditions_of_check = self._half.take_conditions() if "_half" in self.__dict__ else {}
        return taken

    def _conditions(self, loaded: Runnable | None) -> dict[str, str]:
        found = dict(loaded.conditions) if loaded is not None else {}
        texts = {"dimensions": self.dimensions, "left_out": self.left_out, "recorded": self.recorded_by}
        texts |= {"exercised": self.exercised, PRODUCTS: self._products}
        found |= {name: text for name, text in texts.items() if text} | self._conditions_of_check
        own = self._own_tolerance
        if own is not None and not self.substitution_reason and not own <= self._product_tolerance:
            found["tolerance"] = f"{own:g} of {self._tolerance_reason or 'the suite, no reason given'}"
        return found

    def facts(self) -> dict[str, Any]:
        """Return what is the same for all checks: targets, device, the precision that was computed in."""
        loaded = self.__dict__.get("runnable")
        return {
            "requested_target": str(self.requested_target),
            "actual_target": str(self.actual_target),
            "substitution_reason": self.substitution_reason,
            "accelerator": self.backend.get_device_info().device_name,
            "actual_dtype": loaded.actual_dtype if loaded is not None else None,
            "subject": str(self.weights),
            "conditions": self._conditions(loaded),
        }
