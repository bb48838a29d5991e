"""OpenVINO's own converter on a traced forward pass, for models that the exporter doesn't know."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.model_types import ModelInput
from ..model.positions import host_positions
from .exported import FORWARD, RESULT, Exported
from .openvino_operators import convertible_operators
from .traceable import changeable_logits, traceable_masks, traceable_parts, traced_numbers
from .verify_export import follows_length, held_inputs

if TYPE_CHECKING:
    import torch

    from ..model.model_types import Inputs

Tensors = Mapping[str, "torch.Tensor"]
Compute = Callable[[Tensors], dict[str, "torch.Tensor"]]


def with_convert_model(
    model_input: ModelInput, example: Inputs, folder: Path, *, held: frozenset[str] | None = None
) -> Exported:
    """Trace the bare forward pass, without a cache, with all axes that follow batch or length dynamic.

    With `held`, even if it is empty, the inputs of these names and all sizes are constants of the trace.
    """
    model = model_input.model
    tensors, positions, compute = bare_forward(model, example)
    with traceable(model):
        dynamic = {name: 2 if follows_length(array) else 1 for name, array in example.items()}
        dynamic |= {name: tensor.dim() for name, tensor in positions.items()}
        convert(model, compute, {**tensors, **positions}, dynamic, folder / FORWARD, held=held)
    if hasattr(getattr(model, "config", None), "save_pretrained"):  # a user's own module and diffusers need none
        model.config.save_pretrained(folder)
    if held is None:
        return Exported(folder=folder, method="convert_model")
    return Exported(folder=folder, method="convert_model", held=", ".join(sorted(held)), static=True)


def bare_forward(
    model: torch.nn.Module, example: Inputs
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], Compute]:
    """Return the tensors of an example, the positions that a model would compute on the host, and a function of both:
    a forward pass without a cache."""
    import torch

    from ..model.calls import to_tensors, without_cache
    from ..model.outputs import floating_outputs, nested

    options = without_cache(model)
    tensors = to_tensors(example, "cpu", torch.float32)

    def compute(values: Tensors) -> dict[str, torch.Tensor]:
        return floating_outputs(model(**nested(values), **options))

    return tensors, host_positions(model, tensors), compute


def holding_numbers(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Trace for the shapes of the example only, with integers that belong to no token as constants: sizes and places
    of images, from which a model makes loops and lists in Python that no trace can follow."""
    return with_convert_model(model_input, example, folder, held=held_inputs(example))


def convert(
    model: torch.nn.Module,
    compute: Compute,
    tensors: Tensors,
    dynamic: Mapping[str, int],
    file: Path,
    *,
    held: frozenset[str] | None = None,
) -> None:
    """Trace `compute`, a function of `model` from tensors by name to tensors by name, and save it with those names.

    `dynamic` is the number of leading axes of each input with any size; `held` inputs are constants, and if it isn't
    None, so are all sizes. Raises the converter's errors.
    """
    import openvino
    import torch

    given, compute = holding(compute, tensors, held)
    names = list(given)
    with torch.no_grad():
        outputs = list(compute(given))
        module = by_position(model, compute, names)
        converted = openvino.convert_model(module, example_input=tuple(given.values()))
    for port, name in zip(converted.inputs, names, strict=True):
        free = dynamic[name] if held is None else 0
        shape = openvino.PartialShape([-1] * free + list(given[name].shape[free:]))
        port.get_node().set_partial_shape(shape)
    save_named(converted, names, outputs, file)


def save_named(converted: Any, inputs: Sequence[str], outputs: Sequence[str], file: Path) -> None:
    """Save OpenVINO's model with these names, in the order of its source."""
    import openvino

    for port, name in zip(converted.outputs, outputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(RESULT + name)
    for port, name in zip(converted.inputs, inputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
    converted.validate_nodes_and_infer_types()
    openvino.save_model(converted, file, compress_to_fp16=False)


def holding(
    compute: Compute, tensors: Tensors, held: frozenset[str] | None
) -> tuple[dict[str, torch.Tensor], Compute]:
    """Return the tensors that aren't `held`, and `compute` as a function of them with the others as constants; if
    `held` isn't None, all sizes are constants too."""
    constants = {name: tensor for name, tensor in tensors.items() if name in (held or ())}

    def completed(values: Tensors) -> dict[str, torch.Tensor]:
        with contextlib.nullcontext() if held is None else computed_beforehand(list(constants.values())):
            return compute({**values, **constants})

    return {name: tensor for name, tensor in tensors.items() if name not in constants}, completed


def by_position(model: torch.nn.Module, compute: Compute, names: Sequence[str]) -> torch.nn.Module:
    """Return `compute` as a module from tensors in the order of `names` to a tuple, with `model` inside."""
    import torch

    class Traced(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.model = model  # so that its weights are parameters of the trace

        def forward(self, *values: Any) -> Any:
            return tuple(compute(dict(zip(names, values, strict=True))).values())

    return Traced().eval()


@contextlib.contextmanager
def traceable(model: torch.nn.Module) -> Iterator[None]:
    """Temporarily replace what can't be traced or converted by an equivalent."""
    with (
        traceable_masks(),
        traceable_parts(model),
        traced_numbers(),
        convertible_operators(),
        changeable_logits(model),
    ):
        yield


@contextlib.contextmanager
def computed_beforehand(constants: Sequence[torch.Tensor]) -> Iterator[None]:
    """Compute calls with only constant arguments, including tensors made from numbers, outside of the trace.

    Otherwise a trace holds each call, and a converter may have no rule for one whose result has no known size: which
    values occur, or where a condition holds. Sizes are plain numbers, which Python may look up, round or pass to
    other libraries; a trace would make them tensors.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    sizes = {torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.__len__}

    class Beforehand(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, torch.Tensor] = {id(one): one for one in constants}  # so that ids stay unique

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            given = list(_tensors((args, kwargs)))
            if function in sizes:
                with _no_trace():
                    return function(*args, **kwargs)
            if not torch.jit.is_tracing() or any(id(one) not in self.known for one in given):
                if given:
                    self.known.pop(id(given[0]), None)  # a call in place may have changed it
                return function(*args, **kwargs)
            with _no_trace():
                result = function(*args, **kwargs)
            self.known.update((id(one), one) for one in _tensors(result))
            return result

    with Beforehand():
        yield


@contextlib.contextmanager
def _no_trace() -> Iterator[None]:
    import torch

    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
