"""OpenVINO's own converter over a traced forward pass: for whatever the exporter doesn't know."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..model.types import ModelSubject
from .caches import replaced, traceable_caches
from .constants import computed_beforehand
from .exported import FORWARD, RESULT, Exported
from .operators import convertible_operators
from .positions import host_positions
from .verification import follows_length, held_inputs

if TYPE_CHECKING:
    import torch

    from ..model.types import Inputs

_TRACEABLE_EXPERTS = "batched_mm"
"""transformers' way of computing experts that has no loop over those that were chosen (`integrations/moe.py`)."""


def with_convert_model(
    subject: ModelSubject, example: Inputs, folder: Path, *, held: frozenset[str] | None = None
) -> Exported:
    """Trace the bare forward pass, without a cache, all axes that follow batch or length left dynamic.

    With `held`, maybe of none, the inputs of these names and all sizes are constants of the trace.
    """
    model = subject.model
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
) -> tuple[
    dict[str, torch.Tensor],
    dict[str, torch.Tensor],
    Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]],
]:
    """The tensors of an example, the positions that a model would make on the host of them, and a function of both: a
    forward pass without a cache."""
    import torch

    from ..model.calls import without_cache
    from ..model.outputs import floating_outputs, nested
    from ..model.tensors import to_tensors

    wishes = without_cache(model)
    tensors = to_tensors(example, "cpu", torch.float32)

    def compute(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return floating_outputs(model(**nested(values), **wishes))

    return tensors, host_positions(model, tensors), compute


def holding_numbers(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    """The same for the shapes of the example alone, with whole numbers that tell nothing of a text's tokens as
    constants: sizes and places of pictures, from which a model makes loops and lists in Python, which no trace can
    follow.
    """
    return with_convert_model(subject, example, folder, held=held_inputs(example))


def convert(
    model: torch.nn.Module,
    compute: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]],
    tensors: Mapping[str, torch.Tensor],
    dynamic: Mapping[str, int],
    file: Path,
    *,
    held: frozenset[str] | None = None,
) -> None:
    """Trace `compute`, a function of `model` from tensors by name to tensors by name, and save it with those names.

    `dynamic` says how many leading axes of each input may have another size; those `held` are constants, and with
    them, or with none, all sizes. Raises what the converter raises.
    """
    import openvino
    import torch

    taken = Traceable.of(model, compute, tensors, held)
    names = list(taken.tensors)
    with torch.no_grad():
        outputs = list(taken.compute(taken.tensors))
        converted = openvino.convert_model(taken.module(), example_input=tuple(taken.tensors.values()))
    for port, name in zip(converted.outputs, outputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(RESULT + name)
    for port, name in zip(converted.inputs, names, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
        free = dynamic[name] if held is None else 0
        shape = openvino.PartialShape([-1] * free + list(taken.tensors[name].shape[free:]))
        port.get_node().set_partial_shape(shape)
    converted.validate_nodes_and_infer_types()
    openvino.save_model(converted, file, compress_to_fp16=False)


@dataclass(frozen=True, kw_only=True)
class Traceable:
    """What a tracer is given: a function of tensors by name, and the tensors that aren't constants of it."""

    model: torch.nn.Module
    tensors: dict[str, torch.Tensor]
    compute: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]

    @classmethod
    def of(
        cls,
        model: torch.nn.Module,
        compute: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]],
        tensors: Mapping[str, torch.Tensor],
        held: frozenset[str] | None,
    ) -> Self:
        """`compute` with the tensors that are `held` as constants; where some may be, or none, so are all sizes."""
        constants = {name: tensor for name, tensor in tensors.items() if name in (held or ())}

        def completed(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            with contextlib.nullcontext() if held is None else computed_beforehand(list(constants.values())):
                return compute({**values, **constants})

        free = {name: tensor for name, tensor in tensors.items() if name not in constants}
        return cls(model=model, tensors=free, compute=completed)

    def module(self) -> torch.nn.Module:
        """A module from the tensors, in their order, to a tuple."""
        return by_position(self.model, self.compute, list(self.tensors))


def by_position(
    model: torch.nn.Module,
    compute: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]],
    names: Sequence[str],
) -> torch.nn.Module:
    """`compute` as tracers want it: a module from tensors in the order of `names` to a tuple, with `model` inside."""
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
    """For a while, what can't be traced or converted is computed in a way that can: the same numbers otherwise."""
    with (
        _traceable_masks(),
        traceable_parts(model),
        _traced_numbers(),
        convertible_operators(),
        _changeable_logits(model),
    ):
        yield


@contextlib.contextmanager
def _changeable_logits(model: torch.nn.Module) -> Iterator[None]:
    """Logits that are changed in place are a copy: OpenVINO's converter writes such changes back into what they were
    computed with, which it can't where that is a product."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        yield
        return
    hook = head.register_forward_hook(lambda _module, _given, logits: logits.clone())
    try:
        yield
    finally:
        hook.remove()


@contextlib.contextmanager
def traceable_parts(model: torch.nn.Module) -> Iterator[None]:
    """What no tracer can follow, whatever the runtime: experts in a loop, caches, and sequences packed in one row.

    transformers looks for such sequences with `diff`, which converters don't know: there are none.
    """
    from transformers import masking_utils

    with (
        _traceable_experts(model),
        traceable_caches(),
        replaced(masking_utils, "find_packed_sequence_indices", lambda *_: None),
    ):
        yield


@contextlib.contextmanager
def _traceable_masks() -> Iterator[None]:
    """transformers builds some masks with vmap, which cannot be traced; optimum-intel's replacement can.

    Its mask is added to the scores. The library's own is boolean, and OpenVINO computes NaN where a padded row has
    nothing to attend to, which spreads from there.
    """
    try:
        from optimum.exporters.openvino.patching_utils import eager_mask_without_vmap
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    except ImportError:  # without optimum-intel the library's own masks are tried
        yield
        return
    before = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}
    for name in before:
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, eager_mask_without_vmap)
    try:
        yield
    finally:
        for name, function in before.items():
            ALL_MASK_ATTENTION_FUNCTIONS.register(name, function)


@contextlib.contextmanager
def _traceable_experts(model: torch.nn.Module) -> Iterator[None]:
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    changed = [(one, one._experts_implementation) for one in configs if hasattr(one, "_experts_implementation")]
    for config, _ in changed:
        config._experts_implementation = _TRACEABLE_EXPERTS
    try:
        yield
    finally:
        for config, before in changed:
            config._experts_implementation = before


@contextlib.contextmanager
def _traced_numbers() -> Iterator[None]:
    """Numbers that Python takes out of a tensor stay part of the trace, so far as it can hold them.

    How many rows each of some experts gets, or each of some pictures, comes as a list of whole numbers, which `split`
    takes as tensors too. Sizes are tensors while a trace is made, and `round` knows no tensors.
    """
    import torch

    listed = torch.Tensor.tolist

    def in_the_trace(tensor: torch.Tensor) -> Any:
        if torch.jit.is_tracing() and tensor.dim() == 1 and not tensor.is_floating_point():
            return [tensor[place] for place in range(tensor.shape[0])]
        return listed(tensor)

    def rounded(tensor: torch.Tensor, digits: int = 0) -> torch.Tensor:
        return torch.round(tensor, decimals=digits)

    with replaced(torch.Tensor, "tolist", in_the_trace), replaced(torch.Tensor, "__round__", rounded):
        yield
