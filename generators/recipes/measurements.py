"""Measure one model: its outputs against the float64 reference, its operators, and the effect of faults.

A recipe is accepted only if faults move the outputs much more than the tolerance of the check for them.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.models.inputs import DRAWN, LENGTHS, covered_by
from hwcompat.hardware.compare import Array, Outputs, ReferenceNotFinite, compare
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.reference import as_reference, float64_outputs
from hwcompat.hardware.testing.seeded_weights import ROUTING_BIASES
from hwcompat.hardware.testing.tolerances import loosest_limit, tolerance_for
from hwcompat.hardware.testing.widened_weights import copy_over

from .attention_layers import AttentionLayer, attention_layers, half_of_heads, scale_attention, swap_two

if TYPE_CHECKING:
    import torch

FLOAT32_ERROR = 5e-6
"""A tiny model's own float32 error must be below this."""
_CPU = Target(name="cpu")
NOISE = tolerance_for(_CPU, "float32").limit
"""The float32 tolerance: a smaller change of the output may come from another order of summation."""
STEADY = NOISE / 2
"""With other inputs than those that were measured, a tiny model's float32 error stays below this."""
SUBTLE = 100 * NOISE
"""A small fault must move the output by at least this: 100 times the float32 tolerance."""
BFLOAT16_ERROR = 0.75 * tolerance_for(_CPU, "bfloat16").limit
"""A gain with a bfloat16 error below this, three quarters of that precision's tolerance, is preferred. If there is
none, as with a router that chooses other experts for a last digit, the recipe is for float32."""
_FARTHEST = 1e9
"""The figure for an unmeasurable value, since JSON has no infinity."""
LOUD = 2 * loosest_limit()
"""A doubled attention must move the output by at least this: twice the loosest tolerance."""


def run(model: torch.nn.Module, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the floating-point outputs of one forward on CPU in the model's own dtype, as float64 arrays."""
    from hwcompat.hardware.model.calls import to_arrays

    return to_arrays({name: one for name, one in forward_pass(model, inputs).items() if one.is_floating_point()})


def results_of(model: torch.nn.Module, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the same outputs, including those of whole numbers."""
    from hwcompat.hardware.model.calls import to_arrays

    return to_arrays(forward_pass(model, inputs))


def forward_pass(model: torch.nn.Module, inputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """Return one forward pass's results on the CPU by name, in the parameters' dtype, without gradients."""
    import torch

    from hwcompat.hardware.model.calls import forward, to_tensors

    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    with torch.no_grad():
        return forward(model, to_tensors(inputs, "cpu", dtype))


def operators_of(model: torch.nn.Module, inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names (`aten.addmm`) of the operators of one forward, in alphabetical order."""
    from hwcompat.hardware.backends._trace import operator_trace

    with operator_trace("cpu") as trace:
        forward_pass(model, inputs)
    return tuple(sorted({*trace.native, *trace.offloaded}))


def masked_outputs(
    short: Outputs, long: Outputs, lengths: tuple[int, int], specs: Mapping[str, Any]
) -> dict[str, str]:
    """Return the outputs with a position for each token, and the mask that covers them.

    `short` and `long` are outputs for two values of the longest length. An output whose second axis follows it is
    (rows of the mask, length, ...), (batch, length + others, ...) if those of an image come after the text, or
    (batch, length * n, ...) if a step has several positions. An encoder's output gets the encoder's mask, any other
    the decoder's.
    """
    masks = [name for name, spec in specs.items() if spec["kind"] == "mask"]
    own = [name for name in masks if not name.startswith("decoder")]
    decoder = [name for name in masks if name.startswith("decoder")]
    found = {}
    for name in sorted(set(short) & set(long)):
        if min(short[name].ndim, long[name].ndim) < 2:
            continue
        sizes = (short[name].shape[1], long[name].shape[1])
        others = {size - length for size, length in zip(sizes, lengths, strict=True)}
        times = {size / length for size, length in zip(sizes, lengths, strict=True)}
        chosen = (own if name.startswith("encoder") else decoder or own)[:1]
        if not chosen or len(long[name]) != len(LENGTHS) * specs[chosen[0]].get("rows", 1):
            continue
        if len(others) == 1 and min(others) >= 0:
            found[name] = chosen[0]
        elif len(times) == 1 and min(times).is_integer():
            found[name] = f"{chosen[0]} * {int(min(times))}"
    return found


def in_front(masked_by: Mapping[str, str], outputs: Outputs, length: int) -> dict[str, str]:
    """Return the same for outputs whose other positions come before those of the text."""
    more = {name: outputs[name].shape[1] - length for name, mask in masked_by.items() if " * " not in mask}
    return {n: f"{more[n]} + {mask}" if more.get(n, 0) > 0 else mask for n, mask in masked_by.items()}


def sensitivity_of(
    model: torch.nn.Module,
    inputs: Mapping[str, Array],
    reference: Outputs,
    masked_by: Mapping[str, str],
    mask_input: str | None,
) -> tuple[dict[str, float], tuple[Outputs, ...]]:
    """Return how far numerics and faults move the outputs, relative to their scale, and the outputs under the two
    small faults and without router biases, if there are any. A figure is `_FARTHEST` if an output isn't finite or
    changes its shape, as speech that becomes longer.

    `model` is float32 and stays unchanged. Raises `ReferenceNotFinite`.
    """
    from hwcompat.hardware.model.calls import forget_passes

    masks = masks_of(masked_by, inputs)

    def changed_outputs(change: Callable[[torch.nn.Module], object], given: Mapping[str, Array] = inputs) -> Outputs:
        changed = copy.deepcopy(model)
        change(changed)
        forget_passes(changed)
        return run(changed, given)

    def distance(outputs: Outputs) -> float:
        return compare(outputs, reference, masks=masks).max_rel_error

    def moved(change: Callable[[torch.nn.Module], object], given: Mapping[str, Array] = inputs) -> float:
        return distance(changed_outputs(change, given))

    def scaled(factor: float) -> Callable[[torch.nn.Module], None]:
        def scale(changed: torch.nn.Module) -> None:
            for layer in layers:
                scale_attention(changed, layer, factor)

        return scale

    layers = layers_reached(model, inputs)
    if not layers:
        raise ReferenceNotFinite("the model has no matrix, so no fault can be put into it")
    doubled = moved(scaled(2.0))
    if doubled < NOISE:
        layers = [half_of_heads(layer) for layer in layers]
        doubled = moved(scaled(2.0))
    larger = changed_outputs(scaled(1.1))
    swapped = changed_outputs(lambda changed: swap_two(changed, layers[0]))
    measured = {
        "float32_error": moved(lambda _: None),
        **_in_bfloat16(moved),
        "attention_x1.1": distance(larger),
        "attention_x2": doubled,
        "swapped": distance(swapped),
    }
    if mask_input is not None:
        without = {**inputs, mask_input: np.ones_like(inputs[mask_input])}
        measured["mask_dropped"] = moved(lambda _: None, without)
    figures = {name: float(f"{min(value, _FARTHEST):.3g}") for name, value in measured.items()}
    unbiased = (changed_outputs(_drop_routing_biases),) if _routing_biases(model) else ()
    return figures, (larger, swapped, *unbiased)


def _routing_biases(model: torch.nn.Module) -> list[torch.Tensor]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return [tensor for name, tensor in named if name.rpartition(".")[2] in ROUTING_BIASES]


def _drop_routing_biases(model: torch.nn.Module) -> None:
    for bias in _routing_biases(model):
        bias.data.zero_()


def _in_bfloat16(moved: Callable[..., float]) -> dict[str, float]:
    """Return the error of half precision; empty if an operator doesn't support it, or an output isn't finite."""
    import torch

    from hwcompat.hardware.model.calls import in_dtype

    try:
        error = moved(lambda changed: in_dtype(changed, torch.bfloat16))
        return {"bfloat16_error": error} if math.isfinite(error) else {}
    except (RuntimeError, NotImplementedError, TypeError):  # a missing operator shows in the suite
        return {}


def padding_effect(
    model: torch.nn.Module,
    inputs: Mapping[str, Array],
    specs: Mapping[str, Any],
    reference: Outputs,
    masked_by: Mapping[str, str],
    mask_input: str | None,
) -> float:
    """Return how far other tokens in padded places move unmasked outputs; 0 without padding."""
    name = covered_by(mask_input, specs) if mask_input else ""
    if mask_input is None or not name:
        return 0.0
    given, spec, mask = inputs[name], specs[name], inputs[mask_input] == 1
    kept = mask.copy()
    if spec.get("neighbours"):
        kept[..., 1:] |= mask[..., :-1]
        kept[..., :-1] |= mask[..., 1:]
    if given.ndim > mask.ndim:
        kept = kept[..., None]
    if "high" in spec:
        changed = np.where(kept | (given == spec.get("last", -1)), given, (given + 1) % spec["high"])
    else:
        changed = np.where(kept, given, given + 1).astype(given.dtype)
    other = {**inputs, name: changed}
    return compare(run(model, other), reference, masks=masks_of(masked_by, inputs)).max_rel_error


def layers_reached(model: torch.nn.Module, inputs: Mapping[str, Array]) -> list[AttentionLayer]:
    """Return the attention layers that a forward pass uses: those of called modules, else of modules whose weights
    are passed to functions, such as the convolution of a state space that a kernel computes."""
    found = attention_layers(model)
    called = modules_reached(model, lambda: run(model, inputs))
    reached = [layer for layer in found if layer.kind == "weight" or layer.module in called]
    if reached or not found:
        return reached
    used = _weights_used(model, lambda: run(model, inputs))
    return [layer for layer in found if layer.query.weight in used]


def _weights_used(model: torch.nn.Module, run_it: Callable[[], object]) -> set[str]:
    """Return the names of parameters from which functions make tensors while `run_it` runs."""
    import torch
    from torch.overrides import TorchFunctionMode

    names = {id(parameter): name for name, parameter in model.named_parameters()}
    used: set[str] = set()

    class Watching(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor):
                used.update(names[id(one)] for one in (*args, *(kwargs or {}).values()) if id(one) in names)
            return made

    with Watching():
        run_it()
    return used


def modules_reached(model: torch.nn.Module, run_it: Callable[[], object]) -> set[str]:
    """Return the names of modules that are called while `run_it` runs; a fault in another can't be detected."""
    called: set[str] = set()

    def hook_of(name: str) -> Callable[..., None]:
        return lambda *_: called.add(name)

    hooks = [module.register_forward_pre_hook(hook_of(name)) for name, module in model.named_modules()]
    try:
        run_it()
    finally:
        for hook in hooks:
            hook.remove()
    return called


def faults(sensitivity: Mapping[str, float]) -> list[str]:
    """Return why a tiny model with these figures isn't accepted; empty if it is."""
    reasons = []
    if not sensitivity["float32_error"] < FLOAT32_ERROR:
        reasons.append(f"float32_error is {sensitivity['float32_error']:.1e}, must be below {FLOAT32_ERROR:.0e}")
    for name, least in (("attention_x1.1", SUBTLE), ("swapped", SUBTLE), ("attention_x2", LOUD)):
        if not sensitivity[name] >= least:
            reasons.append(f"{name} changes the output by {sensitivity[name]:.1e}, must be at least {least:.1e}")
    return reasons


def holds_half_precision(sensitivity: Mapping[str, float]) -> bool:
    """Return whether the model's own bfloat16 error leaves room below that precision's tolerance."""
    return sensitivity.get("bfloat16_error", math.inf) < BFLOAT16_ERROR


def ineffective_inputs(
    model: torch.nn.Module,
    inputs: Mapping[str, Array],
    others: Mapping[str, Array],
    reference: Outputs,
    masked_by: Mapping[str, str],
    specs: Mapping[str, Any],
) -> list[str]:
    """Return the inputs that change the outputs too little when each alone is drawn anew (`others`).

    Each modality must change the outputs, and so must each example of a batch: a model that scatters more features
    than there are placeholders would leave the last ones out.
    """
    masks = masks_of(masked_by, inputs)
    faint = []
    for name in (name for name, spec in specs.items() if spec["kind"] in DRAWN):
        changes = (
            compare(run(model, {**inputs, name: one}), reference, masks=masks).max_rel_error
            for one in _by_example(inputs[name], others[name], -1 if "side_by_side" in specs[name] else 0)
        )
        change = min(changes, default=0.0)
        if not change >= SUBTLE:
            faint.append(f"other {name} change the output by {change:.1e}, must be at least {SUBTLE:.1e}")
    return faint


def _by_example(array: Array, other: Array, axis: int = 0) -> list[Array]:
    """Return `array` with one example at a time replaced from `other` if it differs. `axis` has the examples one
    after another."""
    count = len(LENGTHS)
    if array.shape[axis] % count:
        return [other]
    examples = np.arange(array.shape[axis]) // (array.shape[axis] // count)
    along = [1] * array.ndim
    along[axis] = -1
    taken = [np.where((examples == n).reshape(along), other, array) for n in range(count)]
    return [one for one in taken if not np.array_equal(one, array)]


def unsteady(
    model: torch.nn.Module,
    draws: Iterable[Mapping[str, Array]],
    masked_by: Mapping[str, str],
    mask_input: str | None = None,
) -> list[str]:
    """Return the inputs with which float32 and float64 differ, as when a choice depends on the last digit: which
    of two places is attended to, or whether a logit is above 0. The first of `draws` is also tried without its
    mask, as in a suite, and within the suite's tolerance."""
    exact, reasons = as_reference(copy_over(model)), []

    def error(inputs: Mapping[str, Array]) -> float:
        reference = float64_outputs(exact, inputs)
        return compare(results_of(model, inputs), reference, masks=masks_of(masked_by, inputs)).max_rel_error

    for place, inputs in enumerate(draws):
        if not (found := error(inputs)) < STEADY:
            reasons.append(f"with other inputs float32_error is {found:.1e}, must be below {STEADY:.0e}")
        if place == 0 and mask_input is not None:
            with contextlib.suppress(ReferenceNotFinite):  # not compared
                if not (found := error({**inputs, mask_input: np.ones_like(inputs[mask_input])})) <= NOISE:
                    reasons.append(f"without a mask float32_error is {found:.1e}, must be at most {NOISE:.0e}")
    return reasons
