"""The checks of a suite beyond the forward pass: decoding and gradients."""

from __future__ import annotations

import hashlib
import math
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..backends._onnx_probe import precision_of_products
from ..backends._torch import TorchRunnable
from ..backends.base import STEPS, BaseBackend, Generation, Runnable
from ..compare import Array, Comparison, compare, compare_gradients, is_meant, not_finite, scale_of
from ..evidence.record import Stage
from ..inventory.system.main_memory import read_memory
from ..model.greedy_decoding import told_of_each_token
from . import reference
from .half_precision import COARSE, SETTLED, HalfPrecision, HalfPrecisionResult
from .measurement import (
    Ambiguous,
    Measurement,
    NotApplicable,
    NumbersChanged,
    Outputs,
    recorded_comparison,
)
from .router_choices import RouterChoice, observe_choices

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch

    from ..cell import Cell
    from ..target import Target

_GIB = 2**30


class CapabilityChecks:
    """The part of `ModelTest` that decodes, computes gradients, and allows for rounding in half precision."""

    cell: Cell
    inputs: dict[str, Array]
    masked_by: dict[str, str]
    generates: str
    trains_only: bool
    measured: Measurement
    recorded_with: str
    _choices_of_tokens: Sequence[RouterChoice] = ()
    _gradient_count = 0
    _gradient_norm = 0.0
    _exact_norm = 0.0
    _products = ""

    if TYPE_CHECKING:

        @property
        def tolerance(self) -> float: ...

        @property
        def actual_target(self) -> Target: ...

        @property
        def backend(self) -> BaseBackend: ...

        @property
        def runnable(self) -> Runnable: ...

        @property
        def _half(self) -> HalfPrecision: ...

        @property
        def reference_model(self) -> torch.nn.Module: ...

        def reference(self, inputs: Mapping[str, Array]) -> Outputs: ...

        def _at(self, stage: Stage) -> AbstractContextManager[None]: ...

    # Rounding

    @contextmanager
    def _observed(self, runnable: Runnable, *, passes: int | None = None) -> Iterator[list[RouterChoice]]:
        """Record the choices that a model makes by its largest scores, if rounding in the precision may change them.
        `passes` limits this to the first passes."""
        if not (self._is_coarse and isinstance(runnable, TorchRunnable)):
            yield []
            return
        with observe_choices(runnable.model, passes=passes) as found:
            yield found

    @property
    def _is_coarse(self) -> bool:
        return self.cell.precision in COARSE

    def _settled(self, natural: Comparison, settle: Callable[[], HalfPrecisionResult | None]) -> Comparison:
        """Return `natural`, or the error beyond rounding if only that is within the tolerance."""
        may_be_rounding = self.cell.precision in SETTLED and natural.finite
        if not may_be_rounding or natural.max_rel_error <= self.tolerance:
            return natural
        settled, self.measured.stage = settle(), Stage.COMPARE
        if settled is None or not settled.comparison.max_rel_error <= self.tolerance:
            return natural
        self._half.adopt(settled)
        return settled.comparison

    def _ask_products(self) -> None:
        """Find out in which precision the target computes float32 products, which may explain an error."""
        if self._products or self.cell.precision != "float32":
            return
        with suppress(Exception):  # of a device that is broken: the error of the check says more
            if not self.runnable.on_host:
                self._products = precision_of_products(self.backend)

    # Gradients

    def gradient_error(self) -> float:
        """Return the error of all gradients together, relative to their scale."""
        runnable = self._able("backward")
        require_memory(reference.bytes_for_gradients(self.reference_model), "comparing the gradients")
        with self._at(Stage.RUN), self._observed(runnable) as choices:
            got = runnable.gradients(self.inputs)
        self._gradient_count = len(got)
        want = reference.float64_gradients(
            self.reference_model, self.inputs, self.masked_by, training=self.trains_only
        )
        self.measured.stage = Stage.COMPARE
        natural = compare_gradients(got, want)
        comparison = self._settled(
            natural,
            lambda: self._half.settle_gradients(got, self.inputs, choices, self.masked_by, training=self.trains_only),
        )
        # If rounding explains the gradients, it explains their norm: use the reference's.
        self._gradient_norm = _norm_of(got if comparison is natural else want)
        self._exact_norm = _norm_of(want)
        return self.measured.keep(comparison)

    def gradient_count(self) -> int:
        """Return how many parameters had a gradient on the target when `gradient_error` was measured."""
        return self._gradient_count

    def gradient_norm_error(self, recorded: float) -> float:
        """Return the error of the norm of all gradients of `gradient_error` against the recorded one. This detects a
        branch that lost its gradient both on the target and in the reference. If rounding explained the gradients,
        the norm is that of the reference."""
        numbers: dict[tuple[int, ...], float] = {(): recorded}
        name = "length of gradients"
        error = self.measured.keep(recorded_comparison(np.array(self._gradient_norm), numbers, recorded, name))
        return self._unless_changed(error, lambda: np.array(self._exact_norm), numbers, recorded, name)

    def _unless_changed(
        self,
        error: float,
        exact: Callable[[], Array],
        recorded: Mapping[tuple[int, ...], float],
        scale: float,
        output: str,
    ) -> float:
        """Return an error against recorded numbers. Raises `NumbersChanged` if they are another version's and float64
        (`exact`) doesn't give them either; its message identifies the new numbers by a hash."""
        if not self.recorded_with or error <= self.tolerance:
            return error
        array = exact()
        off = recorded_comparison(array, recorded, scale, output)
        if off.max_rel_error <= self.tolerance:
            return error
        numbers = " ".join(f"{float(array[place]) / scale:.5f}" for place in recorded)
        digest = hashlib.sha256(numbers.encode()).hexdigest()[:12]
        raise NumbersChanged(
            f"the upgrade changed the numbers of {self.recorded_with}: off by {off}; "
            f"hash of the new numbers: {digest}"
        )

    def _able(self, ability: str) -> Runnable:
        runnable = self.runnable
        if ability not in runnable.can:
            failed = runnable.failed.get(ability)
            if failed is not None and failed.error_type != "not_applicable":
                self.measured.stage = failed.stage or (Stage.RUN if failed.error_type == "unknown" else Stage.CONVERT)
                raise failed
            why = runnable.conditions.get("why_no_cache", "")
            raise NotApplicable(
                f"this model doesn't support {ability} on {self.actual_target}" + (f": {why}" if why else "")
            )
        return runnable

    # Decoding

    @cached_property
    def _generated(self) -> Generation:
        runnable = self._able("generate")
        with self._at(Stage.RUN), self._observed(runnable) as choices:
            generated = runnable.generate(self.inputs, steps=STEPS)
        self._choices_of_tokens = tuple(choices)
        return generated

    @cached_property
    def _tokens_are_explained(self) -> bool:
        """Whether rounding explains the tokens that the target chose."""
        return self._half.explains_generation(self.inputs, self._choices_of_tokens, self._generated)

    def generate(self) -> Generation:
        """Return greedy tokens and logits from the target, with its cache."""
        return self._generated

    def reference_generate(self) -> Generation:
        """Return greedy tokens and logits from float64 on the CPU, without a cache."""
        return reference.float64_generation(self.reference_model, self.inputs, steps=STEPS)

    def different_tokens(self, got: Generation, want: Generation) -> list[str]:
        """Return where the tokens differ. Raises `Ambiguous` if float64 itself doesn't decide."""
        self.measured.stage = Stage.COMPARE
        if not is_meant(got.logits):
            self.measured.keep(not_finite("logits"))
        undecided = None
        try:
            found = different_tokens(got, want, self.tolerance)
        except Ambiguous as error:
            found, undecided = [], error
        if (found or undecided) and self._is_coarse and self._tokens_are_explained:
            self._half.adopt_generation()
            return []  # the logits of these tokens are compared next
        if undecided:
            raise undecided
        return found

    def logits_error(self, got: Generation, want: Generation) -> float:
        """Return the error of the logits of all steps, for two generations with the same tokens."""
        return self._logits_error(got, want.logits)

    def _logits_error(self, got: Generation, want: Array) -> float:
        self.measured.stage = Stage.COMPARE
        natural = compare({"logits": got.logits}, {"logits": want})
        return self.measured.keep(
            self._settled(natural, lambda: self._half.settle_generation(got) if self._tokens_are_explained else None)
        )

    def replay_error(self, generated: Generation) -> float:
        """Return the error of the logits decoded step by step against one float64 pass over all."""
        steps = generated.tokens.shape[1]
        kept = slice(-steps, None) if self.generates == "seq2seq" else slice(-steps - 1, -1)
        whole = self.reference(replay_inputs(self.inputs, generated, self.generates))
        return self._logits_error(generated, whole.arrays["logits"][:, kept])


def _norm_of(gradients: Mapping[str, Array]) -> float:
    return math.sqrt(sum(float(np.square(one, dtype=np.float64).sum()) for one in gradients.values()))


# Memory that is left, checked before large work


def memory_left() -> int:
    """Return the available bytes of this machine, at most what the limit of this process leaves.

    Raises `NotApplicable` if the amount is unknown.
    """
    available = read_memory().available_bytes
    if available is None:
        raise NotApplicable("the amount of free memory is unknown on this machine")
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return available if limit == resource.RLIM_INFINITY else max(0, min(available, limit - _data_bytes()))


def require_memory(needed: int, purpose: str) -> None:
    """Raise `NotApplicable` with both figures if `purpose` needs more bytes than are available."""
    room = memory_left()
    if needed > room:
        raise NotApplicable(f"{purpose} needs {needed / _GIB:.1f} GiB, but only {room / _GIB:.1f} GiB are free")


def _data_bytes() -> int:
    """Return the bytes that count towards the limit already, or 0 if unknown."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):  # not Linux, where the runner sets no limit
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:")), 0)


# Decoded tokens


def different_tokens(got: Generation, want: Generation, tolerance: float) -> list[str]:
    """Return, as one text for each row, where `got` first has another token than float64's `want`.

    Raises `Ambiguous` if they differ only at steps at which float64's logits of the two tokens are closer together
    than the tolerance: either choice is correct there.
    """
    if got.tokens.shape != want.tokens.shape:
        return [f"the tokens have shape {got.tokens.shape}, float64's {want.tokens.shape}"]
    if not is_meant(got.logits):
        return ["the logits contain NaN"]
    different = got.tokens != want.tokens
    scale = scale_of(want.logits)
    found = []
    for row in np.flatnonzero(different.any(axis=1)):
        step = int(np.flatnonzero(different[row])[0])
        chosen, right = int(got.tokens[row, step]), int(want.tokens[row, step])
        if not (want.logits[row, step, right] - want.logits[row, step, chosen]) / scale <= 2 * tolerance:
            found.append(f"row {row}, step {step}: token {chosen}, float64's {right}")
    if different.any() and not found:
        raise Ambiguous("tokens differ only where float64's logits of both tokens differ by less than the tolerance")
    return found


def replay_inputs(given: Mapping[str, Array], generated: Generation, generates: str) -> dict[str, Array]:
    """Return the inputs of a pass over the prompt and its decoded tokens; `generates` is `seq2seq` or `causal`.

    Inputs by token, such as token types, repeat their last value for new tokens.
    """
    tokens = generated.tokens
    if generates == "seq2seq":
        decoder = np.concatenate([generated.start, tokens[:, :-1]], axis=1)
        kept = {name: value for name, value in given.items() if not name.startswith("decoder_")}
        return {**kept, "decoder_input_ids": decoder}
    inputs: dict[str, Array] = dict(given)
    inputs["input_ids"] = np.concatenate([generated.start, tokens], axis=1)
    if "attention_mask" in inputs:
        mask = inputs["attention_mask"][:, : generated.start.shape[1]]  # BLIP leaves the prompt's last token out
        inputs["attention_mask"] = np.concatenate([mask, np.ones_like(tokens)], axis=1)
    for name in _by_token(given):
        behind = [(0, 0), (0, tokens.shape[1]), *[(0, 0)] * (inputs[name].ndim - 2)]
        inputs[name] = np.pad(inputs[name], behind, mode="edge")
    if "position_ids" in inputs:
        first = int(inputs["position_ids"].min())  # some models start after the padding token
        inputs["position_ids"] = np.maximum(inputs["attention_mask"].cumsum(axis=1) - 1, 0) + first
    return inputs


def _by_token(given: Mapping[str, Array]) -> list[str]:
    """Return the names of the inputs with a value for each token of the text, (batch, length, ...)."""
    text = given["input_ids"].shape
    whole = [name for name, value in given.items() if value.dtype.kind == "i"]
    return [name for name in whole if told_of_each_token(name, given[name].shape, text)]
