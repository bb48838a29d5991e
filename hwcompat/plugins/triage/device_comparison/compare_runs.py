"""Compare two runs of a model with each other, and both with float64."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwcompat.hardware.backends.factory import backend_class, resolve_target
from hwcompat.hardware.compare import scale_of
from hwcompat.hardware.errors import BrokenInput, UsageError
from hwcompat.hardware.files import writing
from hwcompat.hardware.process import NoAnswer, ask
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.tolerances import tolerance_for

from ..localization.tensor_errors import error_of
from . import device_run
from .device_run import DeviceRun, read_run
from .layer_outputs import LAYER


@dataclass(frozen=True, kw_only=True)
class TensorDifference:
    """A layer or an output: the difference of the two sides and each side's error against float64, all relative to
    the scale of the float64 tensor. None if it can't be compared, infinite for NaN or another shape."""

    name: str
    is_layer: bool
    apart: float | None
    errors: tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class StepDifference:
    """A decoded step: the difference of the two sides' logits relative to their scale, as long as the tokens before
    it are the same in all rows; `rows` are the rows whose tokens part here."""

    step: int
    apart: float | None
    rows: tuple[int, ...]
    is_tie: bool
    """Whether float64's logits of the parting tokens are closer together than the tolerance: both are right."""


@dataclass(frozen=True, kw_only=True)
class DeviceComparison:
    """The comparison of two sides, `first` and `second`. `why` says why nothing was compared."""

    model: str
    task: str
    sides: tuple[str, str]
    devices: tuple[str, str]
    versions: tuple[str, str]
    precisions: tuple[str, str]
    tolerance: float
    tensors: tuple[TensorDifference, ...] = ()
    steps: tuple[StepDifference, ...] = ()
    why: str = ""
    why_not_decoded: str = ""
    decode_error: str = ""
    is_thinned: bool = False

    @property
    def first_beyond(self) -> TensorDifference | None:
        """The first layer or output whose difference is beyond the tolerance."""
        return next((one for one in self.tensors if not _within(one.apart, self.tolerance)), None)

    @property
    def largest(self) -> TensorDifference | None:
        """The layer or output with the largest difference."""
        known = [one for one in self.tensors if one.apart is not None]
        return max(known, key=lambda one: one.apart or 0.0, default=None)

    @property
    def parting(self) -> StepDifference | None:
        """The first step at which tokens part and float64 decides."""
        return next((one for one in self.steps if one.rows and not one.is_tie), None)

    @property
    def nearer(self) -> str:
        """The side whose outputs are nearer to float64; empty if they are equally near or nothing was compared."""
        outputs = [one for one in self.tensors if not one.is_layer]
        worst = [max((one.errors[side] or 0.0 for one in outputs), default=0.0) for side in (0, 1)]
        return "" if worst[0] == worst[1] else self.sides[int(worst[1] < worst[0])]

    @property
    def agrees(self) -> bool:
        """Whether outputs and logits agree within the tolerance, and tokens part only where float64 doesn't decide.
        Layers alone don't fail it: their differences may cancel."""
        outputs = [one.apart for one in self.tensors if not one.is_layer]
        apart = [*outputs, *(one.apart for one in self.steps)]
        is_compared = any(one is not None for one in outputs) and not self.decode_error
        return is_compared and self.parting is None and all(_within(one, self.tolerance) for one in apart)


def _within(apart: float | None, tolerance: float) -> bool:
    return apart is None or apart <= tolerance


def compare_devices(
    sides: tuple[str, str], model: str, task: str, precision: str, steps: int, keep: Path | None = None
) -> DeviceComparison:
    """Run a model type on two sides, each a target or a file that `keep` wrote elsewhere, and compare them.

    Runs of targets are written into the folder `keep`. Raises `UsageError` for an unknown target, `BrokenInput` for a
    file of another model, and `BackendUnavailable` for an absent target.
    """
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        work = Path(name)
        asked = {"model": model, "task": task, "precision": precision, "steps": steps}
        exact = _ran("", work / "exact.npz", asked)
        runs = [_side(side, work / f"{number}.npz", asked, exact) for number, side in enumerate(sides)]
    for side, run in zip(sides, runs, strict=True):
        if keep is not None and not is_kept(side):
            with writing(f"the run of {run.target} can't be written"):
                keep.mkdir(parents=True, exist_ok=True)
                name = f"{model}-{precision}-{run.target.replace(':', '-')}.npz"
                device_run.write_run(run, keep / name, thinned=True)
    return compared_runs(runs[0], runs[1], exact)


def is_kept(side: str) -> bool:
    """Return whether a side is a file that `keep` wrote, and not a target."""
    return side.endswith(".npz")


def _side(side: str, file: Path, asked: dict[str, object], exact: DeviceRun) -> DeviceRun:
    if not is_kept(side):
        target = resolve_target(side)
        return _ran(str(target), file, asked, limit_s=backend_class(target.name).DEADLINE_S)
    run = read_run(Path(side))
    if (run.model, run.task) != (exact.model, exact.task):
        raise BrokenInput(f"{side} has a run of {run.model}, not of {exact.model} ({exact.task})")
    if run.weights != exact.weights:
        raise BrokenInput(f"{side} has other weights or inputs", why="its version of hwcompat has another tiny model")
    if run.logits is not None and exact.logits is not None and run.logits.shape != exact.logits.shape:
        raise BrokenInput(f"{side} has {run.logits.shape[1]} decoded steps", why=f"asked for {exact.logits.shape[1]}")
    return run


def _ran(target: str, file: Path, asked: dict[str, object], limit_s: float = 600.0) -> DeviceRun:
    try:
        ask(device_run.__name__, {**asked, "target": target, "file": str(file)}, limit_s=limit_s)
    except NoAnswer as error:
        if not target:
            raise UsageError("float64 on the CPU gave no reference", why=str(error)) from error
        named: dict[str, Any] = {name: str(asked[name]) for name in ("model", "task", "precision")}
        return DeviceRun(target=target, device="", **named, error=str(error))
    return read_run(file)


def compared_runs(first: DeviceRun, second: DeviceRun, exact: DeviceRun) -> DeviceComparison:
    """Return the comparison of two runs of the same model and inputs; `exact` is their float64 reference."""
    runs = (first, second)
    limits = [tolerance_for(Target.parse(one.target).kind, one.precision).limit for one in runs]
    tolerance, failed = max(limits), [one for one in runs if one.error]
    return DeviceComparison(
        model=exact.model,
        task=exact.task,
        sides=(first.target, second.target),
        devices=(first.device, second.device),
        versions=(first.versions, second.versions),
        precisions=(first.precision, second.precision),
        tolerance=tolerance,
        tensors=() if failed else tuple(_tensors(first, second, exact, tolerance)),
        steps=() if failed else tuple(_steps(first, second, exact, tolerance)),
        why="; ".join(f"{one.target}: {one.error}" for one in failed),
        decode_error="; ".join(f"{one.target}: {one.decode_error}" for one in runs if one.decode_error),
        why_not_decoded=next((one.why_not_decoded for one in runs if one.why_not_decoded), ""),
        is_thinned=first.is_thinned or second.is_thinned,
    )


def _tensors(first: DeviceRun, second: DeviceRun, exact: DeviceRun, tolerance: float) -> Iterator[TensorDifference]:
    thinned = first.is_thinned or second.is_thinned
    names = sorted(exact.tensors, key=lambda name: not name.startswith(LAYER))
    for name in names:
        given = [one for one in (first, second) if name in one.tensors]
        if not given and name.startswith(LAYER):
            continue
        is_layer = name.startswith(LAYER)
        shown = name.removeprefix(LAYER).replace("/", ".") if is_layer else name
        whole = [list(one.shapes[name]) == list(exact.shapes[name]) for one in given]
        if len(given) < 2 or not all(whole):
            yield TensorDifference(name=shown, is_layer=is_layer, apart=math.inf, errors=(None, None))
            continue
        want, *got = (one.of(name, thinned=thinned) for one in (exact, first, second))
        how: dict[str, Any] = {
            "precision": first.precision,
            "tolerance": tolerance,
            "padding": () if thinned else exact.padding,
        }
        errors = error_of(got[0], want, **how), error_of(got[1], want, **how)
        apart = None if None in errors else error_of(got[1], got[0], **how)
        yield TensorDifference(
            name=shown, is_layer=is_layer, apart=math.inf if math.inf in errors else apart, errors=errors
        )


def _steps(first: DeviceRun, second: DeviceRun, exact: DeviceRun, tolerance: float) -> Iterator[StepDifference]:
    tokens = [one.tokens for one in (first, second) if one.tokens is not None]
    logits = [one.logits for one in (exact, first, second) if one.logits is not None]
    if len(tokens) < 2 or len({one.shape for one in logits}) != 1 or len(logits) < 3:
        return
    want = logits[0]
    same = np.ones(len(tokens[0]), dtype=bool)
    scale = scale_of(want)
    for step in range(tokens[0].shape[1]):
        if not same.any():
            return
        got = logits[1][same, step], logits[2][same, step]
        with np.errstate(invalid="ignore"):  # both may be minus infinity
            gap = np.nan_to_num(np.where(got[0] == got[1], 0.0, np.abs(got[0] - got[1])), nan=np.inf)
        parts = np.flatnonzero(same & (tokens[0][:, step] != tokens[1][:, step]))
        chosen = [want[parts, step, one[parts, step]] for one in tokens]
        ties = np.abs(chosen[0] - chosen[1]) <= 2 * tolerance * scale
        yield StepDifference(
            step=step,
            apart=float(gap.max()) / scale,
            rows=tuple(int(row) for row in parts),
            is_tie=bool(len(parts)) and bool(ties.all()),
        )
        same[parts] = False
