"""`OperatorTest`, the base of suites of one operator: each call is a small module, which its target loads and runs as
it does a model, with the same proof of where it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np

from ..backends._torch import TorchBackend
from ..backends.base import Execution, ModelInput, Runnable, Unsupported
from ..cell import GRAPH_TASK
from ..compare import Array, Comparison, ReferenceNotFinite
from ..evidence.record import COARSE, Stage
from ..testing.measurement import Measurement, NotApplicable
from ..testing.model_test import ModelTest
from ..testing.reference import default_float64
from . import numbers
from .call import LAYOUTS, Call, MadeCall, made, name_of
from .called_by_models import POSITIONS
from .numbers import NOT_COMPARED, Apart, apart, by_position, is_unordered, keeps_subnormals, special_apart
from .tried_call import FAILED_CALLS, REMOVED, UNJUDGED_CALLS, Rank, TriedCall

_ONLY_COPIES = "it leaves Identity (1) to the host"
"""What the backend of QNN says of a graph whose exporter left a copy, which no kernel has to make in a model."""
_NO_RECORD = "the runtime's log "
"""How browsers' backends begin to say that a log shows nothing, or not all nodes."""
_REPEATS = 120
"""Passes of the first call on torch devices: a fault may come once in fifty passes, or after a hundred."""


class OperatorTest(ModelTest):
    """One operator in one precision on one target, used as a context manager by a suite's `case` fixture.

    The errors of calls are relative to the largest number of the reference, which is the same call on the CPU in
    float64 with the same inputs.
    """

    def __init__(self, cell: str) -> None:
        super().__init__(cell, _no_model, {}, gain=None, outputs=())
        self.operator = self.cell.model
        self._calls: dict[tuple[str, str], MadeCall] = {}
        self._runnables: dict[tuple[str, str], Runnable] = {}
        self._references: dict[tuple[str, str], dict[str, Array]] = {}
        self._ulp = 0.0
        self._comparisons = 0
        self._repeated = False
        self._named_calls: dict[str, list[str]] = {}

    def __exit__(self, *_: object) -> None:
        for one in self._runnables.values():
            one.close()
        self.backend.close()

    @cached_property
    def _computed(self) -> str:
        """The precision that the target computes in, which numbers and limits follow."""
        return self.backend.COMPUTES_IN.get(self.cell.precision, self.cell.precision)

    @property
    def _limit(self) -> numbers.OperatorLimit:
        """The limit with its reason, final once a call is loaded."""
        coarse = self._conditions_of_graph.get(COARSE, "")
        return numbers.limit_of(self.operator, self._computed, self.cell.target.name, coarse)

    @property
    def tolerance(self) -> float:
        """The largest error that passes; `limits.toml` has the reason."""
        self.measured.tolerance = self._limit.limit
        return self.measured.tolerance

    def call_error(self, call: Call, layout: str = LAYOUTS[0]) -> float:
        """Return the error of a call whose tensors lie in memory in this layout.

        Two passes are compared, one of them profiled, if the target isn't the host. If torch on the CPU refuses
        another layout itself, the error is 0 and nothing counts as compared.
        """
        try:
            want = self._expected(call, layout)
        except Exception:  # any error of torch: a view of such a tensor, for example
            if layout == LAYOUTS[0]:
                raise
            return 0.0
        name, first = self._name(call, layout), self._made(call, layout).first
        passes = self._passes_of(call, layout)
        compare = special_apart if call.draws == "special" and not self._limit.is_coarse else apart
        errors = []
        for arrays in passes:
            got = by_position(self.operator, call, first, arrays)
            if self.operator in NOT_COMPARED:
                got, want = _zeros(got), _zeros(want)
            errors.append(self._keep(compare(got, want, self._computed, name)))
        return max(errors)

    def worst(
        self, check: Callable[[Call], float], calls: Sequence[Call], *, limit: float | None = None, **named: Any
    ) -> float:
        """Return what a check (`call_error` or another method) gives for the call whose error is the largest share of
        its limit: `limit`, or `tolerance`, which is that call's afterwards.

        All calls are checked, and evidence names those that fail and those that can't be judged. If no error is
        beyond its limit, an exception of a call is raised; what doesn't apply to one call hides no other.
        """
        tried = [self._tried(partial(check, **named), call, limit) for call in calls]
        shown = max(tried, key=lambda one: (one.rank, one.share))
        compared = max((one for one in tried if one.raised is None), key=lambda one: one.share, default=shown)
        self._named_calls[FAILED_CALLS] = [one.name for one in tried if one.is_failed]
        self._named_calls[UNJUDGED_CALLS] = [one.name for one in tried if one.rank is Rank.NOT_APPLICABLE]
        self.measured = replace(
            shown.measured,
            comparison=compared.measured.comparison,
            tolerance=compared.measured.tolerance,
            left_to_host=dict(pair for one in tried for pair in one.measured.left_to_host.items()),
        )
        if shown.runnable is not None:
            self.__dict__["runnable"] = shown.runnable
        if shown.raised is not None:
            raise shown.raised
        return shown.error

    def _tried(self, check: Callable[[Call], float], call: Call, limit: float | None) -> TriedCall:
        self.measured = Measurement(stage=self.measured.stage)
        error, raised, allowed = 0.0, None, 0.0 if limit is None else limit
        try:
            error = check(call)
            allowed = self.tolerance if limit is None else limit
        except Exception as exception:  # any error of a runtime
            raised = exception
        return TriedCall(
            name=self._name(call),
            error=error,
            limit=allowed,
            raised=raised,
            on_host=bool(self.measured.left_to_host.keys() - self.backend.HOST_ALLOWED),
            measured=self.measured,
            runnable=self.__dict__.get("runnable"),
        )

    def layout_error(self, call: Call) -> float:
        """Return the larger error of a call with transposed and with strided tensors."""
        return max(self.call_error(call, layout) for layout in LAYOUTS[1:])

    def repeat_error(self, call: Call) -> float:
        """Return the difference of two passes of a call relative to its scale; 0 for the same bits."""
        if self.operator in NOT_COMPARED:
            self._nothing("its results are random or uninitialized")
        (*_, first), (*_, second) = self._passes_of(call), self._passes_of(call)
        left = _REPEATS if isinstance(self.backend, TorchBackend) and not self._repeated else 0
        while left and _same_bits(first, second):
            second, left = self._loaded(call)(**self._made(call).inputs), left - 1
        self._repeated = True
        if _same_bits(first, second):
            return self._keep(_equal(self._name(call)))
        found = apart(second, first, self._computed, f"{self._name(call)}, second pass")
        if is_unordered(self.operator) and found.comparison.max_rel_error <= self.tolerance:
            return 0.0
        self.measured.tolerance = 0.0
        smallest = float(np.finfo(np.float64).tiny)  # NaN in another place, or a difference below what is compared
        return max(self._keep(found), smallest)

    def later_error(self, call: Call, others: Sequence[Call]) -> float:
        """Return the error of a call after other calls with other shapes, if these run, and after itself."""
        self._passes_of(call)
        for one in others:
            with suppress(Exception):  # another call's error is no fault of this one
                self._passes_of(one)
        return self.call_error(call)

    def executions(self, calls: Sequence[Call]) -> Execution:
        """Return the target's own record of where the calls ran, all of them together. Evidence names those that
        didn't, or not only there.

        Raises an exception of a call as `worst` does, and `NotApplicable` if a runtime of graphs removed the operator
        when it compiled: a copy, or a constant.
        """
        proofs: list[Execution] = []

        def ran_elsewhere(call: Call) -> float:
            runnable = self._loaded(call)
            with self._at(Stage.RUN):
                proofs.append(runnable.execution())
            return float(bool(proofs[-1].beyond_allowed))

        self.worst(ran_elsewhere, calls, limit=0)
        native, offloaded = Counter[str](), Counter[str]()
        for proof in proofs:
            native.update(proof.native)
            offloaded.update(proof.offloaded)
        self.measured.execution = replace(proofs[-1], native=dict(native), offloaded=dict(offloaded))
        if not (native or offloaded) and self.backend.LISTS_ALL:
            self._nothing(REMOVED)
        return self.measured.execution

    def require_compared(self) -> None:
        """Raise `NotApplicable` if nothing was compared in this check, because torch itself refuses the calls."""
        if not self._comparisons:
            self._nothing("torch refuses these calls on the CPU too")

    # The parts of a call

    def _made(self, call: Call, layout: str = LAYOUTS[0]) -> MadeCall:
        key = (repr(call), layout)
        if key not in self._calls:
            self._calls[key] = made(
                self.operator,
                call,
                self._computed,
                layout,
                subnormals=keeps_subnormals(self.cell.target.name),
                whole=isinstance(self.backend, TorchBackend),  # graphs return floating-point numbers only
            )
        return self._calls[key]

    def _expected(self, call: Call, layout: str) -> dict[str, Array]:
        """Return the results of a call on the CPU in float64."""
        import torch

        from ..model.calls import forward, in_dtype, to_arrays, to_tensors

        key = (repr(call), layout)
        if key not in self._references:
            self.measured.stage = Stage.BUILD
            one = self._made(call, layout)
            module = in_dtype(one.build(whole=True), torch.float64)
            with torch.no_grad(), default_float64():
                found = to_arrays(forward(module, to_tensors(one.inputs, "cpu", torch.float64)))
            self._references[key] = by_position(self.operator, call, one.first, found)
        return self._references[key]

    def _loaded(self, call: Call, layout: str = LAYOUTS[0]) -> Runnable:
        key = (repr(call), layout)
        if key not in self._runnables:
            one = self._made(call, layout)
            self._expected(call, layout)
            model = ModelInput(model=one.build(), task=GRAPH_TASK, identity=one.identity)
            self.backend.separates_models = False  # a browser for each call would take hours
            with self._at(Stage.LOAD):
                try:
                    self._runnables[key] = self.backend.load(model, one.inputs, self.cell.precision)
                except ReferenceNotFinite:  # of the proof that a converted graph is right
                    self._nothing("its conversion can't be proven: torch's results are empty or not finite")
                except Unsupported as error:
                    if _ONLY_COPIES in str(error):
                        self._nothing(REMOVED)
                    if error.error_type == "conversion_wrong" and self.operator in {*NOT_COMPARED, *POSITIONS}:
                        self._nothing("its conversion can't be proven: its results are random, or in any order")
                    raise
        self.__dict__["runnable"] = self._runnables[key]  # whose dtype and conditions evidence states
        return self._runnables[key]

    def _passes_of(self, call: Call, layout: str = LAYOUTS[0]) -> list[Mapping[str, Array]]:
        return self._results(self._loaded(call, layout), self._made(call, layout).inputs)

    def _results(self, runnable: Runnable, inputs: Mapping[str, Array]) -> list[Mapping[str, Array]]:
        """Return the results of one pass, and before it those of a profiled one if the runnable is new."""
        try:
            with self._at(Stage.RUN):
                done = self._passes.run(runnable, inputs)
        except Unsupported as error:
            if _NO_RECORD in str(error):
                self._nothing(str(error))
            raise
        self.measured.latency_ms = done.latency_ms
        self.measured.left_to_host |= done.left
        self.measured.stage = Stage.COMPARE
        return [*([done.watched] if done.watched is not None else []), done.outputs]

    def _keep(self, found: Apart) -> float:
        self._comparisons += 1
        self._ulp = max(self._ulp, found.ulp)
        return self.measured.keep(found.comparison)

    def _name(self, call: Call, layout: str = LAYOUTS[0]) -> str:
        return f"{name_of(self.operator, call)}{'' if layout == LAYOUTS[0] else f' {layout}'}"

    def _nothing(self, why: str) -> NoReturn:
        raise NotApplicable(why)

    # For the plugin

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return super().facts()

    def facts(self) -> dict[str, Any]:
        """Return what is the same for all checks. The device is asked once, which takes longer than most calls."""
        loaded = self.__dict__.get("runnable")
        now = {"conditions": self._conditions(loaded), "actual_dtype": loaded and loaded.actual_dtype}
        return {**self._facts, **now}

    def take_measurement(self) -> Any:
        """Return the measurements of the check that just ended, and clear them."""
        self._conditions_of_check = {"ulp": f"{self._ulp:.3g}"} if self._comparisons else {}
        named = {name: "; ".join(dict.fromkeys(calls)) for name, calls in self._named_calls.items() if calls}
        self._conditions_of_check |= named
        self._ulp, self._comparisons, self._named_calls = 0.0, 0, {}
        taken, self.measured = self.measured, type(self.measured)(stage=self.measured.stage)
        return taken


def _no_model() -> NoReturn:
    raise NotApplicable("an operator has no model")


def _same_bits(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    return all(np.array_equal(one, second[name], equal_nan=one.dtype.kind == "f") for name, one in first.items())


def _equal(what: str) -> Apart:
    return Apart(comparison=Comparison(max_rel_error=0.0, max_abs_error=0.0, worst=what), ulp=0.0)


def _zeros(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.zeros(array.shape) for name, array in arrays.items()}
