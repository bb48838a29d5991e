"""`Call`: one call of an operator with the shapes of its tensors, and the module that makes the call on a target."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.calls import torch_dtype
from .called_by_models import COMPARING, POSITIONS, WEIGHTS, function_of

if TYPE_CHECKING:
    import torch

    from ..compare import Array

_WHOLE_LARGEST = 2**31 - 1
_EXACT = 2**24
"""Up to this, float32 has all whole numbers."""
_TAKING_NUMBERS = ("aten.fill", "aten.fill_", "aten.linspace")
"""Operators with a tensor among their arguments that may have no axis."""
_SORTED = {"aten.bucketize": 1, "aten.searchsorted": 0}
"""Which tensor has to ascend: torch doesn't define where a number is among others that don't."""
_WRITING = ("aten.index_copy", "aten.index_copy_", "aten.index_put", "aten.index_put_", "aten.put")
"""Operators that write their last tensor to the positions in those between it and the first."""
_LARGEST = 2.0
"""Signed numbers are drawn between minus this and this."""


@dataclass(frozen=True)
class Tensor:
    """A tensor among the arguments of a call. `low` and `high` are the smallest and largest whole number, which
    ascend up to `high` if they are `ordered`; `true` is the share of true booleans."""

    dtype: str
    shape: tuple[int, ...]
    low: int = 0
    high: int = 1
    true: float = 0.5
    ordered: bool = False

    @property
    def is_real(self) -> bool:
        """Whether it holds floating-point numbers, which have the dtype of the suite; complex ones have their own."""
        return self.dtype.startswith(("float", "bfloat"))

    def __str__(self) -> str:
        return f"{self.dtype}[{'x'.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Call:
    """A call of an operator's overload with these arguments, some of them tensors.

    `draws` says which numbers floating-point tensors hold: `signed` (between -2 and 2), `unit` (between 0.05 and
    0.95, for functions that aren't defined elsewhere) or `special` (NaN, infinities, zeros, subnormal and large
    numbers in all pairs).
    """

    overload: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    draws: str = "signed"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors among the arguments, in order."""
        return tuple(_tensors((*self.arguments, *self.named.values())))

    def __str__(self) -> str:
        return ", ".join(map(str, self.tensors)) or "no tensor"


def name_of(operator: str, call: Call) -> str:
    """Return how messages and evidence name a call: `aten.mm.default(float32[2x3], float32[3x4])`."""
    return f"{operator}.{call.overload}({call})"


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


LAYOUTS = ("contiguous", "transposed", "strided")
"""How tensors lie in memory: `transposed` swaps the first and the last axis, `strided` takes every second element of
the last axis, beginning with the second."""


@dataclass(frozen=True, kw_only=True)
class MadeCall:
    """A call with numbers: `build` returns a new module that makes it, `inputs` are arrays by name, as they lie in
    memory before the module views them, and `first` is the first tensor as the operator gets it. `build(whole=True)`
    returns a module whose whole numbers stay what they are."""

    build: Callable[..., torch.nn.Module]
    inputs: Mapping[str, Array]
    identity: str
    first: Array | None = None


def made(
    operator: str,
    call: Call,
    precision: str,
    layout: str = LAYOUTS[0],
    *,
    weights: bool = True,
    subnormals: bool = True,
    whole: bool = True,
    seed: int = 0,
) -> MadeCall:
    """Return a call of `operator` (`aten.addmm`) with seeded numbers that `precision` can represent.

    Arguments that are parameters in models are constants of the module if `weights`. Subnormal numbers are zeros
    unless `subnormals`. Unless `whole`, for graphs: results that are whole numbers are returned in float32, which has
    all that are drawn; whole numbers whose positions are a result are different ones, because exports are compared
    position by position; and tensors without axes have one, since an input without one would need another operator.
    Raises torch's error for an unknown overload.
    """
    random = np.random.default_rng(seed)
    constant = WEIGHTS.get(operator, ()) if weights else ()
    arrays: dict[str, Array] = {}
    constants: dict[str, Array] = {}
    as_given: list[Array] = []
    different = _different(_positions(operator, call), random)

    def place(value: Any, is_weight: bool) -> Any:
        if isinstance(value, Tensor):
            asked = value if whole else _for_graphs(value, operator)
            where, name = (constants, f"weight{len(constants)}") if is_weight else (arrays, f"input{len(arrays)}")
            drawn = different.get(id(value))
            if drawn is None:
                drawn = _drawn(asked, call.draws, random, precision, number=len(as_given))
            drawn = np.sort(drawn) if _SORTED.get(operator) == len(as_given) else drawn
            as_given.append(drawn if subnormals else _without_subnormals(drawn, precision))
            where[name] = _stored(as_given[-1], layout)
            return _Place(name, value.dtype, is_scalar=not as_given[-1].ndim)
        if isinstance(value, list | tuple):
            return [place(one, is_weight) for one in value]
        return _scalar(value, precision, is_compared=operator in COMPARING)

    arguments = [place(value, number in constant) for number, value in enumerate(call.arguments)]
    named = {name: place(value, False) for name, value in call.named.items()}
    facts = (operator, call, precision, layout, weights, subnormals, whole, seed)
    return MadeCall(
        build=lambda whole=whole: _module(
            function_of(operator, call.overload), arguments, named, constants, layout, whole=whole
        ),
        inputs=arrays,
        identity=hashlib.sha256(repr(facts).encode()).hexdigest(),
        first=as_given[0] if as_given else None,
    )


def _for_graphs(one: Tensor, operator: str) -> Tensor:
    shape = one.shape if operator in _TAKING_NUMBERS else one.shape or (1,)
    if operator in POSITIONS and not one.is_real:
        return replace(one, shape=shape, low=0, high=math.prod(shape) - 1)
    return replace(one, shape=shape, low=max(one.low, -_EXACT), high=min(one.high, _EXACT))


def _scalar(value: Any, precision: str, *, is_compared: bool) -> Any:
    """Return a number among the arguments as models of a precision pass it: the smallest number of float32, which
    masks, is that of the precision. A number to compare with is rounded, as torch does."""
    import torch

    if type(value) is not float:
        return value
    largest, own = torch.finfo(torch.float32).max, torch.finfo(torch_dtype(precision)).max
    if abs(value) == largest:
        return math.copysign(own, value)
    return float(rounded(np.asarray(value), precision)) if is_compared else value


@dataclass(frozen=True)
class _Place:
    name: str
    dtype: str
    is_scalar: bool


def _drawn(one: Tensor, draws: str, random: np.random.Generator, precision: str, *, number: int) -> Array:
    """Return the numbers of a tensor; complex ones as pairs, since some runtimes take no complex inputs."""
    if one.dtype == "bool":
        return random.random(one.shape) < one.true
    is_complex = one.dtype.startswith("complex")
    if not one.is_real and not is_complex:
        return _whole(one, random)
    shape = (*one.shape, 2) if is_complex else one.shape
    if draws == "special":
        return _special(shape, precision, number)
    low, high = (0.05, 0.95) if draws == "unit" else (-_LARGEST, _LARGEST)
    return rounded(random.uniform(low, high, shape), precision).astype(np.float32)


def is_defined(operator: str, call: Call) -> bool:
    """Return whether a call can write to a different position each time: torch doesn't define which of two numbers
    stays at one, and ONNX forbids it."""
    positions = _positions(operator, call)
    return not positions or math.prod(positions[0].shape) <= math.prod(one.high - one.low + 1 for one in positions)


def _positions(operator: str, call: Call) -> list[Tensor]:
    """Return the tensors, one for each axis, that hold the positions to which a call writes."""
    return [one for one in call.tensors[1:-1] if one.dtype.startswith("int")] if operator in _WRITING else []


def _different(positions: Sequence[Tensor], random: np.random.Generator) -> dict[int, Array]:
    """Return the numbers of several tensors by their ids, so that they name no position twice."""
    if len(positions) < 2:
        return {}
    counts = [one.high - one.low + 1 for one in positions]
    chosen = random.permutation(math.prod(counts))[: math.prod(positions[0].shape)]
    axes = zip(positions, np.unravel_index(chosen, counts), strict=True)
    return {id(one): (axis + one.low).reshape(one.shape).astype(one.dtype) for one, axis in axes}


def _whole(one: Tensor, random: np.random.Generator) -> Array:
    """Return whole numbers, each once if there are enough of them: writing to one place twice has no defined
    result."""
    low, high = max(one.low, -_WHOLE_LARGEST), min(one.high, _WHOLE_LARGEST)
    low = min(low, high)  # uninitialized in the model
    count, size = high - low + 1, math.prod(one.shape)
    if size <= count <= 2**20:
        found = random.permutation(count)[:size].reshape(one.shape) + low
    else:
        found = random.integers(low, high + 1, one.shape)
    if one.ordered:
        found = np.append(np.sort(found.ravel())[1:], one.high).reshape(one.shape)
    return np.asarray(found).astype(np.dtype(one.dtype))


def specials(precision: str) -> Array:
    """Return NaN, infinities, zeros, subnormal and other numbers of a precision."""
    import torch

    smallest = torch.finfo(torch_dtype(precision)).smallest_normal
    subnormal = 3 * float(rounded(np.asarray(smallest / 8), precision))
    finite = (0.0, -0.0, subnormal, -subnormal, 1.0, -1.5, 300.0, -300.0)
    return np.array((np.nan, np.inf, -np.inf, *finite), dtype=np.float64).astype(np.float32)


def _without_subnormals(array: Array, precision: str) -> Array:
    import torch

    if array.dtype.kind != "f":
        return array
    smallest = torch.finfo(torch_dtype(precision)).smallest_normal
    return np.where(np.abs(array) < smallest, np.copysign(array.dtype.type(0), array), array)


def _special(shape: Sequence[int], precision: str, number: int) -> Array:
    """Return special numbers so that the first tensors of a call together have all pairs of them."""
    values = specials(precision)
    size = math.prod(shape)
    order = np.arange(size) // len(values) ** (number % 2)
    found: Array = np.roll(values[order % len(values)], number // 2).reshape(shape)
    return found


def rounded(array: Array, precision: str) -> Array:
    """Return float64 numbers rounded to a precision."""
    import torch

    found: Array = torch.as_tensor(np.asarray(array, dtype=np.float64)).to(torch_dtype(precision)).double().numpy()
    return found


def _stored(array: Array, layout: str) -> Array:
    """Return an array as it lies in memory, so that the module's view of it is `array`."""
    if layout == "transposed" and array.ndim > 1:
        return np.ascontiguousarray(np.swapaxes(array, 0, -1))
    if layout == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), dtype=array.dtype)
        wide[..., 1::2] = array
        return wide
    return array if array.ndim else array.reshape(1)  # exporters check batches of each input


def _viewed(tensor: torch.Tensor, layout: str, place: _Place) -> torch.Tensor:
    import torch

    if place.is_scalar:
        return tensor.reshape(())
    if layout == "transposed" and tensor.dim() > 1:
        tensor = tensor.transpose(0, -1)
    elif layout == "strided" and tensor.dim():
        tensor = tensor[..., 1::2]
    if not place.dtype.startswith("complex"):
        return tensor
    pairs = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor  # no complex halves
    return torch.view_as_complex(pairs if pairs.stride(-1) == 1 else pairs.contiguous())


def parsed(value: Any) -> Any:
    """Return a recorded value as an argument of torch: dtypes are recorded by name, infinities as text."""
    import torch

    if isinstance(value, str):
        if value in ("inf", "-inf"):
            return float(value)
        if value.startswith("torch."):
            return getattr(torch, value.removeprefix("torch."))
    return value


def _module(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    constants: Mapping[str, Array],
    layout: str,
    *,
    whole: bool,
) -> torch.nn.Module:
    import torch

    class CallModule(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        """Calls a function with constants and inputs. Booleans are returned as numbers and complex numbers as pairs,
        because some runtimes have no such outputs; whole numbers stay if `whole`."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("here", torch.zeros(()))
            for name, array in constants.items():
                self.register_buffer(name, torch.as_tensor(array))

        def forward(self, **tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            def filled(value: Any) -> Any:
                if isinstance(value, _Place):
                    tensor = tensors[value.name] if value.name in tensors else getattr(self, value.name)
                    return _viewed(tensor, layout, value)
                return [filled(one) for one in value] if isinstance(value, list) else parsed(value)

            options = {name: filled(value) for name, value in named.items()}
            if "device" in options:
                options["device"] = self.here.device
            returned = function(*map(filled, arguments), **options)
            found = returned if isinstance(returned, tuple | list) else [returned]
            kept = [one if isinstance(one, torch.Tensor) else torch.as_tensor(one) for one in found]
            pairs = [torch.view_as_real(one.resolve_conj()) if one.is_complex() else one for one in kept]
            return tuple(
                one if one.is_floating_point() or (whole and one.dtype != torch.bool) else one.to(torch.float32)
                for one in pairs
            )

    return CallModule().eval()
