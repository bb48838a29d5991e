"""`NodeTest`, the base of suites of ONNX's own tests of its operators: a small graph with inputs and results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..backends.base import Execution, FileInput, Runnable
from ..backends.factory import refuse_unread
from ..compare import Array, Comparison, is_whole
from ..evidence.record import Stage
from .numbers import limit_inside
from .operator_test import OperatorTest
from .tried_call import REMOVED

PREFIX = "onnx."
"""Begins the names of ONNX's own tests, where operators of torch have `aten.`."""

GRAPH, ARRAYS = ".onnx", ".npz"
"""The files of a test beside its suite: the graph, and its inputs (`input:NAME`), results (`output:NAME`) and what
results may be off (`relative` and `absolute`)."""
_UNIT = "times what the test allows"


class NodeTest(OperatorTest):
    """ONNX's tests of an operator on one target, with their files in `folder`. Errors are multiples of what a test
    allows, so that 1 is the largest that passes; a target that computes in less than float32 may round to that."""

    def __init__(self, cell: str, folder: Path) -> None:
        super().__init__(cell)
        self._folder = folder
        self._arrays: dict[str, Array] = {}
        self._test = ""
        self._node: Runnable | None = None

    def __exit__(self, *_: object) -> None:
        if self._node is not None:
            self._node.close()
        super().__exit__(*_)

    @property
    def tolerance(self) -> float:
        """The largest error that passes."""
        self.measured.tolerance = 1.0
        return 1.0

    def node_error(self, name: str) -> float:
        """Return the largest error of a result of a test, of two passes if the target isn't the host."""
        passes = self._results(self._loaded_node(name), self.inputs)
        want = self._named("output:")
        found = max((self._apart(got, want) for got in passes), key=lambda one: one.max_rel_error)
        return self.measured.keep(found)

    def node_execution(self, name: str) -> Execution:
        """Return the target's own record of where the graph of a test ran."""
        runnable = self._loaded_node(name)
        with self._at(Stage.RUN):
            proof = self.measured.execution = runnable.execution()
        if not (proof.native or proof.offloaded):
            self._nothing(REMOVED if self.backend.LISTS_ALL else "the target lists no node, and may have removed all")
        return proof

    def _loaded_node(self, name: str) -> Runnable:
        if self._node is None or name != self._test:
            if self._node is not None:
                self._node.close()
            self._test, self._node = name, None
            file = self._folder / f"{PREFIX}{name}{GRAPH}"
            with np.load(file.with_suffix(ARRAYS), allow_pickle=False) as arrays:
                self._arrays = dict(arrays)
            self.inputs = self._named("input:")
            with self._at(Stage.LOAD):
                refuse_unread(self.backend, file)
                self.backend.separates_models = False
                self._node = self.backend.load_file(FileInput(file=file), self.inputs, self.cell.precision)
            self.__dict__["runnable"] = self._node  # whose dtype and conditions evidence states
        return self._node

    def _named(self, kind: str) -> dict[str, Array]:
        return {name.removeprefix(kind): one for name, one in self._arrays.items() if name.startswith(kind)}

    def _apart(self, got: Mapping[str, Array], want: Mapping[str, Array]) -> Comparison:
        relative, absolute = float(self._arrays["relative"]), float(self._arrays["absolute"])
        is_narrower = self._computed != self.cell.precision  # ONNX's limits are for float32
        of_scale = limit_inside(self._computed) if is_narrower else 0.0
        worst = Comparison(max_rel_error=0.0, max_abs_error=0.0, worst=next(iter(want)))
        for name, right in want.items():
            actual = got.get(name)
            # Backends return all floating-point numbers in float64.
            if actual is None or (actual.dtype.kind, actual.shape) != (right.dtype.kind, right.shape):
                got_one = "nothing" if actual is None else f"{actual.dtype} {actual.shape}"
                return _infinite(f"{name}: {got_one} instead of {right.dtype} {right.shape}")
            if is_whole(right):
                if not np.array_equal(actual, right):
                    return _infinite(f"{name}: {np.count_nonzero(actual != right)} whole numbers differ")
                continue
            one, other = actual.astype(np.float64), right.astype(np.float64)
            if not np.array_equal(one[~np.isfinite(other)], other[~np.isfinite(other)], equal_nan=True):
                return _infinite(f"{name}: NaN or infinity in other places")
            apart = np.abs(one - other)[np.isfinite(other)]
            sizes = np.abs(other)[np.isfinite(other)]
            allowed = np.maximum(absolute + relative * sizes, of_scale * sizes.max(initial=0.0))
            with np.errstate(divide="ignore", invalid="ignore"):
                share = float(np.where(apart == 0, 0.0, apart / allowed).max(initial=0.0))
            if share > worst.max_rel_error or not np.isfinite(share):
                share = share if np.isfinite(share) else float("inf")
                worst = Comparison(max_rel_error=share, max_abs_error=float(apart.max()), worst=name, unit=_UNIT)
        return worst


def _infinite(what: str) -> Comparison:
    return Comparison(max_rel_error=np.inf, max_abs_error=np.inf, worst=what, unit=_UNIT)
