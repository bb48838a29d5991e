"""Record a check of a suite from inside its process: the last step that was tried, its inputs, and the comparison.

Every step is written before it is tried, so that a crash leaves as much as an exception.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.model.calls import without_cache
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.testing.graph_outputs import masked_alike
from hwcompat.hardware.testing.graph_weights import weight_files

from .captured_failure import EXPECTED, INPUTS, MASK, WEIGHTS, CapturedFailure, Does, FailedStep, Shape, Way

if TYPE_CHECKING:
    from hwcompat.hardware.compare import Array
    from hwcompat.hardware.testing.model_test import ModelTest

_LEFT = re.compile(r"it leaves (.{1,400}?) to the host")
LARGEST_FILE = 512 * 2**20
"""The most bytes of weights or of a graph that are copied into a folder; more is too large to attach to an issue."""


@dataclass(kw_only=True)
class TriedStep:
    """A step with its input arrays."""

    step: FailedStep
    inputs: Mapping[str, Any]


Compared = tuple[TriedStep | None, dict[str, Any], dict[str, Any]]
"""A comparison that failed: the step, the expected arrays, and fields of `CapturedFailure`."""


@dataclass(kw_only=True, eq=False)
class FailureRecorder:
    """Facts of the running check, as a plugin of the pytest that runs it.

    `export` is the pass for which a model was exported last, `undecided` why the last check that failed shows
    nothing.
    """

    folder: Path
    with_weights: bool = True
    check: str = ""
    case: ModelTest | None = None
    tried: TriedStep | None = None
    export: TriedStep | None = None
    compared: Compared | None = None
    of_export: Compared | None = None
    """The last comparison of an export with torch that failed."""

    refused: str = ""
    undecided: str = ""
    by_output: dict[int, tuple[Any, TriedStep | None]] = field(default_factory=dict)
    _weights: bool = False
    _graph: Path | None = None

    def pytest_runtest_setup(self, item: Any) -> None:
        """Start a check: forget the facts of the check before, but keep the loaded model."""
        self.began(item.name.removeprefix("test_"))

    def pytest_runtest_makereport(self, call: Any) -> None:
        """Record the end of a part of a check."""
        from hwcompat.hardware.errors import BackendUnavailable
        from hwcompat.hardware.testing.measurement import Ambiguous, NotApplicable

        if call.excinfo is None:
            return
        error = call.excinfo.value
        if isinstance(error, BackendUnavailable | Ambiguous | NotApplicable):
            self.undecided = f"{type(error).__name__}: {error}"
        else:
            self.undecided = ""
            self.ended(error)

    def began(self, check: str) -> None:
        """Start a check."""
        self.check, self.compared, self.refused = check, None, ""

    def try_(self, step: FailedStep, inputs: Mapping[str, Array], graph: Path | None = None) -> TriedStep:
        """Record a step that is about to be tried. `graph` is copied with its files."""
        if graph is not None:
            step = replace(step, graph=graph.name, weights=self._copy(graph))
        self.tried = TriedStep(step=step, inputs={name: np.asarray(one) for name, one in inputs.items()})
        self._write_given(self.tried)
        CapturedFailure(check=self.check, shape=Shape.CRASHED, step=step, stage=self._stage()).write(self.folder)
        return self.tried

    def failed(self, tried: TriedStep | None, expected: dict[str, Any], **found: Any) -> None:
        """Record a comparison that failed, with fields of `CapturedFailure`; the first of a check counts."""
        self.compared = self.compared or (tried, expected, found)

    def ended(self, error: BaseException) -> None:
        """Write the facts of a check that failed."""
        root, stage = root_of(error), self._stage()
        tried, compared = self.tried, self.compared
        if compared is None and getattr(error, "error_type", "") == "conversion_wrong":
            compared = self.of_export
        if compared is not None:
            tried, expected, how = compared
            np.savez(self.folder / EXPECTED, **expected)
        elif stage in ("export", "convert") and self.export is not None:
            tried = self.export
        elif isinstance(error, AssertionError):
            self.refused = self.refused or "it asserts something else than a comparison of outputs"
        elif tried is None and stage == "build":
            tried = TriedStep(step=FailedStep(way=Way.TORCH, does=Does.BUILD, device="cpu"), inputs={})
        if tried is None:
            self.refused = self.refused or "it failed before the model ran"
        else:
            self._write_given(tried)
        dtype = str(getattr(self.case.__dict__.get("runnable"), "actual_dtype", "")) if self.case else ""
        found = CapturedFailure(
            check=self.check,
            shape=Shape.RAISED,
            stage=stage,
            step=tried.step if tried else None,
            exception=type(root).__name__,
            message=str(root),
            refused=self.refused,
            computed_in=dtype,
            left=left[1] if (left := _LEFT.search(str(error))) else "",
        )
        if compared is not None:
            found = replace(found, shape=Shape.NUMBERS, exception="", **{"message": "", **how})
        found.write(self.folder)

    def _stage(self) -> str:
        return str(self.case.measured.stage) if self.case is not None else ""

    def _write_given(self, tried: TriedStep) -> None:
        """Write the inputs of a step, and once the weights of a new model if it has no graph."""
        np.savez(self.folder / INPUTS, **tried.inputs)
        if tried.step.way.has_graph or self._weights or not self.with_weights or self.case is None:
            return
        from safetensors.torch import save_model

        self._weights = True  # a model that can't be built is tried once
        stage = self.case.measured.stage
        try:
            model = self.case._build()
        except Exception:
            return
        finally:
            self.case.measured.stage = stage
        size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
        if size > LARGEST_FILE:
            self.refused = f"its weights are too large to copy ({size // 2**20} MiB)"
            return
        save_model(model, str(self.folder / WEIGHTS))

    def _copy(self, graph: Path) -> tuple[str, ...]:
        """Copy a graph with its files of weights, whose names it contains, and return those names."""
        weights = weight_files(graph)
        names = tuple(str(one.relative_to(graph.parent)) for one in weights)
        if graph == self._graph:
            return names
        self._graph = graph
        if sum(one.stat().st_size for one in (graph, *weights)) > LARGEST_FILE:
            self.refused = "its graph is too large to copy"
            return names
        for one, name in zip((graph, *weights), (graph.name, *names), strict=True):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one, self.folder / name)
        return names


def root_of(error: BaseException) -> BaseException:
    """Return the innermost cause: the runtime's exception instead of ours."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def expected_of(want: Any, got: Mapping[str, Array], required: tuple[str, ...]) -> dict[str, Array]:
    """Return the compared outputs, and their masks."""
    names = [name for name in want.arrays if name in got or name in required]
    arrays = masked_alike(want.arrays, {name: want.arrays[name] for name in names})[1]  # as suites compare
    return arrays | {f"{MASK}{name}": mask for name, mask in want.masks.items() if name in arrays}


def masks_for(masked_by: Mapping[str, str], inputs: Mapping[str, Array], names: Any) -> dict[str, Array]:
    """Return the masks of outputs, by the names under which they are written."""
    return {f"{MASK}{name}": one for name, one in masks_of(masked_by, inputs).items() if name in names}


def wishes_of(model: Any) -> dict[str, Any]:
    """Return whether a model's forward pass takes `use_cache`; empty if it doesn't."""
    return {"use_cache": bool(without_cache(model))} if hasattr(model, "forward") else {}
