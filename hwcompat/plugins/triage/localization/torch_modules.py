"""Compare a torch module with its float64 reference, module by module, so that each is judged by itself.

The reference runs once, and the inputs and outputs of every module are kept. On the target each module then gets the
reference's inputs, and its outputs are compared and replaced by the reference's: an error doesn't reach the next
module, and what a module computes between its parts counts as its own.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.model.calls import forward, to_arrays, to_tensors
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.testing import reference

from .localization_result import MOST_OTHERS, ErrorPlace, Localization, LocalizationOutcome
from .tensor_errors import error_of, outputs_error, padding_of

if TYPE_CHECKING:
    import torch

    from hwcompat.hardware.backends._torch import TorchRunnable
    from hwcompat.hardware.compare import Array

REFERENCE = "the same modules on the CPU in float64"
_DEEPEST = 8

Key = tuple[str, int]
"""A module's name and the number of its call."""
Tensors = dict[str, "torch.Tensor"]
Change = Callable[[str, "torch.Tensor"], "torch.Tensor"]


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
    """Return the first module of `runnable` that gives other values than its reference with the same inputs.

    `control` loads the model on the CPU in the same precision, called only if a place was found: an equal error there
    means that the precision is the cause. Functions between modules belong to the module that calls them. Raises
    `ReferenceNotFinite`.
    """
    calls, want = _record(reference_model, inputs)
    how: dict[str, Any] = {"tolerance": tolerance, "padding": (), "finite": False}
    # If the device crashes, this reports where.
    _compare(runnable, {}, inputs, corrected=False, progress=progress, **how)
    found = Localization(
        cell=cell,
        finding=LocalizationOutcome.AGREES,
        granularity="module",
        reference=REFERENCE,
        tolerance=tolerance,
        outputs_error=outputs_error(runnable(**inputs), want, masks_of(masked_by or {}, inputs), tuple(want)),
    )
    for padding in (padding_of(inputs), ()):  # if padding is what is wrong, it is compared as well
        how |= {"finite": not found.is_whole, "padding": padding}
        ordinary = _compare(runnable, calls, inputs, corrected=False, **how)
        corrected = _compare(runnable, calls, inputs, corrected=True, **how)
        wrong = [step for step in corrected.steps if step.is_beyond(tolerance)]
        if wrong or found.is_whole:
            break
    beside = _compare(control(), calls, inputs, corrected=True, **how) if wrong and control else ModulePass()
    rounded = {step.id for step in beside.steps if step.is_beyond(tolerance)}
    kept = [step for step in wrong if step.id not in rounded]
    place = _places(ordinary.steps, corrected.steps)
    worst = max(ordinary.gave, key=lambda step: step.place.error or 0.0, default=None)
    compared = {step.key for step in corrected.steps if step.place.error is not None}
    found = replace(
        found,
        largest=place(worst) if worst else None,
        compared=len(compared),
        left_out=len((set(calls) | corrected.left_out) - compared),
        notes=_notes(found, ordinary.gave),
    )
    if wrong:
        rounding = found.is_whole and runnable.precision != "float32" and control is None
        first_of_each = {step.key: step for step in reversed(kept or wrong)}
        places = [place(step) for step in kept or wrong if first_of_each[step.key] is step]
        finding = LocalizationOutcome.PRECISION if rounding or not kept else LocalizationOutcome.NAMED
        return replace(found, finding=finding, place=places[0], others=tuple(places[1 : 1 + MOST_OTHERS]))
    if found.is_whole:
        return found
    first = next((step for step in ordinary.steps if step.is_beyond(tolerance)), None)
    finding = LocalizationOutcome.GROWS if first else LocalizationOutcome.UNNAMED
    return replace(found, finding=finding, place=place(first) if first else None)


@dataclass(frozen=True, kw_only=True)
class ModuleStep:
    """One comparison, in the order of the run: of the input of a module's `part`, or of the module's output."""

    place: ErrorPlace
    part: str | None

    @property
    def key(self) -> Key:
        """The call that it belongs to."""
        return self.place.name, self.place.call

    @property
    def id(self) -> tuple[str, int, str]:
        """What the same comparison has in common in all passes."""
        return (*self.key, self.place.tensor)

    def is_beyond(self, tolerance: float) -> bool:
        """Whether its error is known and larger."""
        return self.place.error is not None and not self.place.error <= tolerance


@dataclass(kw_only=True)
class ModulePass:
    """The results of a pass: its comparisons, and the calls that could not be compared."""

    steps: list[ModuleStep] = field(default_factory=list)
    left_out: set[Key] = field(default_factory=set)

    @property
    def gave(self) -> list[ModuleStep]:
        """Return the compared outputs of modules."""
        return [step for step in self.steps if step.part is None and step.place.error is not None]


def _places(ordinary: Sequence[ModuleStep], corrected: Sequence[ModuleStep]) -> Callable[[ModuleStep], ErrorPlace]:
    """Return a function from a step to its place, with its errors in both passes and that of its call's input."""
    errors, own = ({step.id: step.place.error for step in reversed(steps)} for steps in (ordinary, corrected))
    handed: dict[Key, float] = {}
    pending: dict[str, float] = {}
    for step in ordinary:
        if step.part is not None:
            pending[step.part] = max(pending.get(step.part, 0.0), step.place.error or 0.0)
        elif step.key not in handed:
            handed[step.key] = pending.pop(step.place.name, 0.0)

    def place(step: ModuleStep) -> ErrorPlace:
        return replace(
            step.place, own_error=own.get(step.id), error=errors.get(step.id), input_error=handed.get(step.key)
        )

    return place


def _notes(found: Localization, gave: Sequence[ModuleStep]) -> tuple[str, ...]:
    """Return notes on the effect of hooks, which disable torch's fused kernels."""
    outputs = [step.place.error or 0.0 for step in gave if not step.place.name]
    watched = max(outputs, default=0.0)
    if outputs and found.is_whole is not (watched <= found.tolerance) and math.isfinite(watched):
        return (
            f"the outputs are off by {watched:.2e} with hooks, and by {found.outputs_error:.2e} without: "
            "hooks disable fused kernels of torch",
        )
    return ()


# Passes


@dataclass(kw_only=True)
class ModuleCall:
    """Inputs and outputs of one call of a module in the reference: tensors by name."""

    given: Tensors
    gave: Tensors = field(default_factory=dict)
    largest: float = 0.0
    in_place: bool = False


def _record(model: torch.nn.Module, inputs: Mapping[str, Array]) -> tuple[dict[Key, ModuleCall], dict[str, Array]]:
    """Return the inputs and outputs of every module of a reference (float64, CPU), and the model's outputs."""
    calls: dict[Key, ModuleCall] = {}
    versions: dict[Key, list[tuple[Any, int]]] = {}

    def enter(key: Key, owner: Key | None, arguments: Mapping[str, Any]) -> None:
        live = _tensors_in(arguments)
        versions[key] = [(one, one._version) for one in live.values()]
        calls[key] = ModuleCall(given={name: one.detach().clone() for name, one in live.items()})

    def leave(key: Key, output: Any) -> None:
        call = calls[key]
        call.in_place = any(one._version != before for one, before in versions.pop(key))
        call.gave = {name: one.detach().clone() for name, one in _tensors_in({"output": output}).items()}
        call.largest = max((_largest(one) for one in (*call.given.values(), *call.gave.values())), default=0.0)

    with _hook(model, enter, leave):
        outputs = reference.float64_outputs(model, inputs)
    return calls, outputs


def _compare(
    runnable: TorchRunnable,
    calls: Mapping[Key, ModuleCall],
    inputs: Mapping[str, Array],
    *,
    corrected: bool,
    progress: Callable[[str], None] = lambda _: None,
    **how: Any,
) -> ModulePass:
    """Compare a pass with the recorded one, as `error_of` does with `how`; with `corrected` every module gets the
    reference's values."""
    import torch

    found = ModulePass()
    kinds = {name: type(module).__name__ for name, module in runnable.model.named_modules()}
    stack: list[Key] = []

    def hold(key: Key, got: Tensors, want: Tensors, call: ModuleCall, part: str | None) -> None:
        label = "" if part is None else f" passed to {part.removeprefix(f'{key[0]}.')}"
        for name in (name for name in got if name in want):
            pair = to_arrays({"got": got[name], "want": want[name]}).values()
            error = error_of(*pair, precision=runnable.precision, largest=call.largest, **how)
            place = _place(key, kinds[key[0]], f"{name}{label}", error, got[name], want[name])
            found.steps.append(ModuleStep(place=place, part=part))

    def enter(key: Key, owner: Key | None, arguments: Mapping[str, Any]) -> Any:
        progress(key[0])
        stack.append(key)
        given = _tensors_in(arguments)
        call = calls.get(key)
        if call is None or any(given[n].shape != one.shape for n, one in call.given.items() if n in given):
            found.left_out.add(key)  # both sides branch differently, as experts one by one and all at once
            return None
        if owner is not None:
            hold(owner, given, call.given, call, key[0])
        return None if not corrected or call.in_place else _replace(arguments, "", _pick(call.given))

    def leave(key: Key, output: Any) -> Any:
        stack.pop()
        progress(stack[-1][0] if stack else "")
        call = calls.get(key)
        if call is None or key in found.left_out:
            return None
        hold(key, _tensors_in({"output": output}), call.gave, call, None)
        return _replace(output, "output", _pick(call.gave)) if corrected else None

    tensors = to_tensors(inputs, runnable.device, runnable.dtype)
    with torch.no_grad(), _hook(runnable.model, enter, leave):
        forward(runnable.model, tensors)
    return found


def _place(
    key: Key, kind: str, tensor: str, error: float | None, got: torch.Tensor, want: torch.Tensor
) -> ErrorPlace:
    return ErrorPlace(
        name=key[0],
        kind=kind,
        call=key[1],
        tensor=tensor,
        error=error,
        shape=tuple(got.shape),
        dtype=str(got.dtype).removeprefix("torch."),
        expected_shape=tuple(want.shape),
        expected_dtype=str(want.dtype).removeprefix("torch."),
    )


@contextmanager
def _hook(
    model: torch.nn.Module,
    enter: Callable[[Key, Key | None, Mapping[str, Any]], Any],
    leave: Callable[[Key, Any], Any],
) -> Iterator[None]:
    """Call `enter` for every call of a module: its key, that of the call around it, and its arguments by name.

    `leave` gets its outputs. What they return replaces arguments and results; None leaves them.
    """
    names = {id(module): name for name, module in model.named_modules()}
    counts: Counter[str] = Counter()
    stack: list[Key] = []

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        key = (names[id(module)], counts[names[id(module)]])
        counts[key[0]] += 1
        known = list(inspect.signature(module.forward).parameters)
        labels = [known[place] if place < len(known) else f"argument {place}" for place in range(len(args))]
        arguments = {**dict(zip(labels, args, strict=True)), **kwargs}
        changed = enter(key, stack[-1] if stack else None, arguments)
        stack.append(key)
        if changed is None:
            return None
        return tuple(changed[one] for one in labels), {one: changed[one] for one in kwargs}

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        return leave(stack.pop(), output)

    handles: list[Any] = []
    try:
        for module in model.modules():
            # The first hook before and the last one after: changes by other hooks belong to the module.
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True, prepend=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


# Tensors in the inputs and outputs of modules: tuples, lists and mappings, however deep


def _tensors_in(values: Mapping[str, Any]) -> Tensors:
    """Yield the tensors by the path to each: `hidden_states`, `output.0`, `output.last_hidden_state`."""
    found: Tensors = {}
    _replace(values, "", lambda name, one: found.setdefault(name, one))
    return found


def _replace(value: Any, name: str, change: Change, depth: int = 0) -> Any:
    """Return `value` with every tensor in it replaced by `change`, from its path and itself."""
    import torch

    if isinstance(value, torch.Tensor):
        plain = not value.is_sparse and not value.is_nested and not value.is_complex()
        return change(name, value) if plain else value
    if depth > _DEEPEST or not isinstance(value, tuple | list | Mapping):
        return value
    parts = dict(value if isinstance(value, Mapping) else enumerate(value))
    new = {key: _replace(one, f"{name}.{key}".lstrip("."), change, depth + 1) for key, one in parts.items()}
    if all(new[key] is one for key, one in parts.items()):
        return value
    kind: Any = type(value)
    if isinstance(value, Mapping):
        return kind(new)
    return kind(*new.values()) if hasattr(value, "_fields") else kind(new.values())


def _pick(wanted: Mapping[str, torch.Tensor]) -> Change:
    """Return a function that replaces a tensor by the reference's of the same name and shape, on its device and in
    its dtype."""
    import torch

    def change(name: str, one: torch.Tensor) -> torch.Tensor:
        want = wanted.get(name)
        if want is None or want.shape != one.shape or want.is_floating_point() != one.is_floating_point():
            return one
        made = want.to(one.dtype)
        if want.is_floating_point():  # masks use the smallest number of a dtype
            made = made.masked_fill(want == torch.finfo(want.dtype).min, torch.finfo(one.dtype).min)
        return made.to(one.device)

    return change


def _largest(tensor: torch.Tensor) -> float:
    if not tensor.is_floating_point() or not tensor.numel():
        return 0.0
    finite = tensor[tensor.isfinite()]
    found = float(finite.abs().max()) if finite.numel() else 0.0
    return found if found < 1e30 else 0.0  # a mask's number takes no part in sums
