"""Compare an export with torch, so that a later error belongs to the device and not to the conversion."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..evidence.record import Stage
from ..model.model_types import ModelInput, Unsupported

if TYPE_CHECKING:
    from ..compare import Comparison
    from ..model.model_types import Array, Generation, Inputs
    from .exported import Exported, Opened

log = logging.getLogger(__name__)

LIMIT = 1e-4
"""Allowed error, five times the float32 tolerance: both sides of this comparison are float32."""

STEPS = 4
"""Number of decoded tokens: three of them use the cache."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """torch's results in float32 on CPU, computed before an exporter changes anything about the model.

    `other` holds inputs of other shapes and their outputs, None if the model takes no others; `values` the same for
    other values of the same shapes; `decoded` is None if no export of this kind decodes, or if torch doesn't, for the
    reason `why_not_decoded`. `runtime` names where the export is run. Every method raises `Unsupported` at the stage
    `convert`: `export_failed` if the export doesn't run, `conversion_wrong` if it gives other numbers.
    """

    model_input: ModelInput
    example: Inputs
    outputs: Mapping[str, Array]
    other: tuple[Inputs, Mapping[str, Array]] | None
    values: tuple[Inputs, Mapping[str, Array]] | None
    decoded: Generation | None
    runtime: str
    why_not_decoded: str = ""

    @classmethod
    def of(cls, model_input: ModelInput, example: Inputs, runtime: str, *, decodes: bool) -> Self:
        """Run the model in every way in which its export has to run; with `decodes`, token by token too."""
        decoded, why_not = decoded_by_torch(model_input, example) if decodes else (None, "")
        return cls(
            model_input=model_input,
            example=example,
            outputs=torch_outputs(model_input, example),
            other=_other_shapes(model_input, example),
            values=_other_values(model_input, example),
            decoded=decoded,
            runtime=runtime,
            why_not_decoded=why_not,
        )

    def of_all(self, opened: Opened, made: Exported) -> float:
        """Return the error of the forward pass, after verifying other shapes and decoding."""
        error = self.of_forward(opened, made)
        if self.other is not None:
            self.of_other_shapes(opened, made)
        if made.decodes:
            self.of_decoding(opened, made)
        return error

    def of_forward(self, opened: Opened, made: Exported) -> float:
        """Return the error for the example, relative to the output's scale."""
        return self._compare(opened, made, self.example, self.outputs, "")

    def of_other_shapes(self, opened: Opened, made: Exported) -> None:
        """Verify another batch size and length."""
        if self.other is None:
            raise self._wrong(f"the {made.method} export can't be checked with other shapes")
        self._compare(opened, made, *self.other, " for other shapes")

    def of_other_values(self, opened: Opened, made: Exported) -> None:
        """Verify other values of the same shapes, if the model takes any that can be made here."""
        held = frozenset(made.held.split(", "))
        values = _other_values(self.model_input, self.example, held) if made.held else self.values
        if values is not None:
            self._compare(opened, made, *values, " for other values")

    def of_decoding(self, opened: Opened, made: Exported) -> float:
        """Return the error of the logits with the export's own cache, after verifying the tokens."""
        from ..compare import compare

        if self.decoded is None:
            why = f": {self.why_not_decoded}" if self.why_not_decoded else ""
            what = f"torch has no decoding result to compare the {made.method} export with{why} ({self.runtime})"
            raise Unsupported(what, error_type="unknown", stage=Stage.RUN)  # the model's own failure
        try:
            got = opened.generate(self.example, steps=self.decoded.tokens.shape[1])
        except Exception as error:
            raise self._broken(f"decoding with the {made.method} export failed", error) from error
        comparison = compare({"logits": got.logits}, {"logits": self.decoded.logits})
        if not (comparison.max_rel_error <= LIMIT and np.array_equal(got.tokens, self.decoded.tokens)):
            raise self._wrong(f"decoding with the {made.method} export gives different numbers: {comparison}")
        return comparison.max_rel_error

    def _compare(
        self, opened: Opened, made: Exported, inputs: Inputs, want: Mapping[str, Array], where: str
    ) -> float:
        from ..output_masks import masks_of

        try:
            got = opened(dict(inputs))
        except Exception as error:  # errors of the runtime, and of the library around it
            raise self._broken(f"the {made.method} export failed to run{where}", error) from error
        comparison = compared(got, want, masks_of(self.model_input.masked_by, inputs))
        if not comparison.max_rel_error <= LIMIT:
            raise self._wrong(f"the {made.method} export gives different numbers than torch{where}: {comparison}")
        return comparison.max_rel_error

    def _broken(self, what: str, error: Exception) -> Unsupported:
        reason = f"{type(error).__name__}: {str(error)[:600]}"
        return Unsupported(f"{what} on {self.runtime}: {reason}", error_type="export_failed", stage=Stage.CONVERT)

    def _wrong(self, what: str) -> Unsupported:
        return Unsupported(f"{what} ({self.runtime})", error_type="conversion_wrong", stage=Stage.CONVERT)


def compared(got: Mapping[str, Array], want: Mapping[str, Array], masks: Mapping[str, Array]) -> Comparison:
    """Compare outputs as `compare` does; one that torch masks everywhere has to be masked everywhere."""
    from ..compare import Comparison, compare, not_finite

    masked = {name for name, array in want.items() if array.size and np.isneginf(array).all()} & got.keys()
    for name in masked:
        if got[name].shape != want[name].shape or not np.isneginf(got[name]).all():
            return not_finite(name)
    left = {name: array for name, array in want.items() if name not in masked}
    if masked and not left:
        return Comparison(max_rel_error=0.0, max_abs_error=0.0, worst=min(masked))
    return compare(got, left, masks=masks)


def keep_passes(folder: Path, proof: Proof) -> None:
    """Write the inputs and outputs that an export was compared with beside it."""
    for number, (inputs, outputs) in enumerate(filter(None, ((proof.example, proof.outputs), proof.other))):
        arrays: dict[str, Any] = {f"{_GIVEN}{name}": one for name, one in inputs.items()}
        arrays |= {f"{_GOT}{name}": one for name, one in outputs.items()}
        np.savez(folder / _PASS.format(number), **arrays)
    if proof.decoded is not None:
        np.savez(folder / _DECODED, tokens=proof.decoded.tokens, logits=proof.decoded.logits)


def was_of(folder: Path, model_input: ModelInput) -> bool:
    """Return whether the module gives the outputs that the export in `folder` was compared with: code changed in
    memory, or in a file that defines no class of the module, has the same identity."""
    from ..output_masks import masks_of

    for number in range(2):
        if not (file := folder / _PASS.format(number)).is_file():
            continue
        with np.load(file) as kept:
            inputs, want = ({n[len(p) :]: kept[n] for n in kept.files if n.startswith(p)} for p in (_GIVEN, _GOT))
        outputs = _outputs_if_taken(model_input, inputs)
        masks = masks_of(model_input.masked_by, inputs)
        if outputs is None or not compared(outputs, want, masks).max_rel_error <= LIMIT:
            return False
        if number == 0 and not _decodes_as_kept(folder / _DECODED, model_input, inputs):
            return False
    return True


def _decodes_as_kept(file: Path, model_input: ModelInput, inputs: Inputs) -> bool:
    """Return whether the module decodes the tokens that an export was compared with; True if there are none."""
    from ..compare import compare

    if not file.is_file():
        return True
    decoded, _ = decoded_by_torch(model_input, inputs)
    with np.load(file) as kept:
        tokens, logits = kept["tokens"], kept["logits"]
    if decoded is None or not np.array_equal(decoded.tokens, tokens):
        return False
    return compare({"logits": decoded.logits}, {"logits": logits}).max_rel_error <= LIMIT


_DECODED = "decoded.npz"
_PASS, _GIVEN, _GOT = "pass-{}.npz", "given.", "got."


def torch_outputs(model_input: ModelInput, inputs: Inputs) -> dict[str, Array]:
    """Return the outputs of the torch module in float32 on CPU, without a cache."""
    import torch

    from ..model.calls import forward, to_arrays, to_tensors

    with torch.no_grad():
        return to_arrays(forward(model_input.model, to_tensors(inputs, "cpu", torch.float32)))


def decoded_by_torch(model_input: ModelInput, example: Inputs) -> tuple[Generation | None, str]:
    """Return `STEPS` tokens that torch decodes with a cache, or None and the reason why it doesn't."""
    import torch

    from ..model.calls import to_tensors
    from ..model.greedy_decoding import greedy

    if model_input.generates == "none":
        return None, ""
    model: Any = model_input.model
    try:
        return greedy(model, to_tensors(example, "cpu", torch.float32), steps=STEPS, use_cache=True), ""
    except MemoryError:
        raise
    except Exception as error:  # an error of the modeling code: the forward pass may still be right
        return None, f"{type(error).__name__}: {str(error)[:300]}"


def _other_shapes(model_input: ModelInput, example: Inputs) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """Return inputs of another batch size and length, with torch's outputs; None if the model takes none.

    All rows twice, then without padding, and two positions less; or two more, if the first ones belong to an image;
    or the same for integers only, if other inputs have one size.
    """
    twice = {name: np.concatenate([array, _unpadded(name, array)]) for name, array in example.items()}
    for changes in (follows_length, _whole_numbers):
        for change in (_shortened, _lengthened):
            inputs = {name: change(array) if changes(array) else array for name, array in twice.items()}
            if (outputs := _outputs_if_taken(model_input, inputs)) is not None:
                return inputs, outputs
    return None


def _other_values(
    model_input: ModelInput, example: Inputs, held: frozenset[str] = frozenset()
) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """Return other values of the same shapes, but for `held` inputs, with torch's outputs; None if the model takes
    none of ours.

    The rows of a batch in reverse, so that tokens, masks and related inputs stay together, and floating-point values
    scaled; or one of the two, if other inputs have one place.
    """
    for changes in ((_reversed, _moved), (_reversed,), (_moved,)):
        inputs = dict(example)
        for change in changes:
            inputs = {name: array if name in held else change(array) for name, array in inputs.items()}
        if all(np.array_equal(inputs[name], example[name]) for name in example):
            continue
        if (outputs := _outputs_if_taken(model_input, inputs)) is not None:
            return inputs, outputs
    return None


def _outputs_if_taken(model_input: ModelInput, inputs: Inputs) -> dict[str, Array] | None:
    """Return torch's outputs, or None if the model fails on these inputs or if an output can't be compared: empty,
    NaN or plus infinity."""
    from ..compare import is_meant, is_whole

    try:
        outputs = torch_outputs(model_input, inputs)
    except Exception as error:  # whatever a model raises, it doesn't take these
        shapes = {name: tuple(array.shape) for name, array in inputs.items()}
        log.debug("%s doesn't take %s: %s", type(model_input.model).__name__, shapes, error)
        return None
    return outputs if all((array.size or is_whole(array)) and is_meant(array) for array in outputs.values()) else None


def _reversed(array: Array) -> Array:
    return np.ascontiguousarray(array[::-1])


def _moved(array: Array) -> Array:
    if array.dtype.kind != "f" or array.ndim < 2:
        return array
    moved: Array = (array * 0.9).astype(array.dtype)
    return moved


def _unpadded(name: str, array: Array) -> Array:
    return np.ones_like(array) if name.endswith("attention_mask") and array.ndim == 2 else array


def _shortened(array: Array) -> Array:
    return array[:, 2:]


def _lengthened(array: Array) -> Array:
    return np.concatenate([array, np.repeat(array[:, -1:], 2, axis=1)], axis=1)


def _whole_numbers(array: Array) -> bool:
    return array.ndim >= 2 and bool(np.issubdtype(array.dtype, np.integer))


def follows_length(array: Array) -> bool:
    """Return whether an input's second axis is a length: of tokens, masks, positions and boxes, and of raw audio."""
    return array.ndim == 2 or _whole_numbers(array)


def held_inputs(example: Inputs) -> frozenset[str]:
    """Return the names of integer inputs that aren't rows of a text."""
    texts = {array.shape[:2] for name, array in example.items() if name.endswith(("input_ids", "attention_mask"))}
    return frozenset(
        name
        for name, array in example.items()
        if np.issubdtype(array.dtype, np.integer) and texts and array.shape[:2] not in texts
    )


def made_for(inputs: Inputs) -> tuple[object, ...]:
    """Return the key of a static export: shapes, and the values of inputs that may be constants in it."""
    numbers = held_inputs(inputs)
    return tuple(
        (name, array.shape, array.tobytes() if name in numbers else b"") for name, array in sorted(inputs.items())
    )
