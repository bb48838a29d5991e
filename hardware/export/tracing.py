"""OpenVINO's own converter over a traced forward pass: for whatever the exporter doesn't know."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends.base import ModelSubject
from .caches import replaced, traceable_caches
from .exported import FORWARD, Exported
from .positions import host_positions
from .verification import follows_length

if TYPE_CHECKING:
    import torch

    from ..backends.base import Inputs

_TRACEABLE_EXPERTS = "batched_mm"
"""transformers' way of computing experts that has no loop over those that were chosen (`integrations/moe.py`)."""


def with_convert_model(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    """Trace the bare forward pass, without a cache, all axes that follow batch or length left dynamic."""
    import torch

    from ..backends._outputs import floating_outputs
    from ..backends._tensors import to_tensors
    from ..backends._torch import without_cache

    model = subject.model
    wishes = without_cache(model)
    tensors = to_tensors(example, "cpu", torch.float32)
    positions = host_positions(model, tensors)

    def compute(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return floating_outputs(model(**values, **wishes))

    with traceable(model):
        dynamic = {name: 2 if follows_length(array) else 1 for name, array in example.items()}
        dynamic |= {name: tensor.dim() for name, tensor in positions.items()}
        convert(model, compute, {**tensors, **positions}, dynamic, folder / FORWARD)
    if hasattr(model, "config"):  # a user's own module needs none
        model.config.save_pretrained(folder)
    return Exported(folder=folder, method="convert_model")


def convert(
    model: torch.nn.Module,
    compute: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]],
    tensors: Mapping[str, torch.Tensor],
    dynamic: Mapping[str, int],
    file: Path,
) -> None:
    """Trace `compute`, a function of `model` from tensors by name to tensors by name, and save it with those names.

    `dynamic` says how many leading axes of each input may have another size. Raises what the converter raises.
    """
    import openvino
    import torch

    names = list(tensors)
    with torch.no_grad():
        outputs = list(compute(tensors))
        traced = by_position(model, compute, names)
        converted = openvino.convert_model(traced, example_input=tuple(tensors.values()))
    for port, name in zip(converted.outputs, outputs, strict=True):
        port.get_tensor().set_names({name})
    for port, name in zip(converted.inputs, names, strict=True):
        port.get_tensor().set_names({name})
        free = dynamic[name]
        shape = openvino.PartialShape([-1] * free + list(tensors[name].shape[free:]))
        port.get_node().set_partial_shape(shape)
    converted.validate_nodes_and_infer_types()
    openvino.save_model(converted, file, compress_to_fp16=False)


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
    with _traceable_masks(), traceable_parts(model), _convertible_operators():
        yield


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
def _convertible_operators() -> Iterator[None]:
    """What OpenVINO's converter has no rule for, or a wrong one.

    It counts the axis of `unfold` from the front only. The CPU plug-in adds a constant to a sum over the last axis
    wrongly (https://github.com/openvinotoolkit/openvino/issues/23616, still so in 2026.4.1), not to a product.
    """
    import torch

    summed = torch.sum

    def sum_as_product(tensor: torch.Tensor, *axes: Any, **how: Any) -> torch.Tensor:
        if not axes and how == {"dim": -1} and tensor.is_floating_point():
            return tensor @ tensor.new_ones(tensor.shape[-1])
        return summed(tensor, *axes, **how)

    with replaced(torch, "sum", sum_as_product), unfolding_from_the_front():
        yield


@contextlib.contextmanager
def unfolding_from_the_front() -> Iterator[None]:
    """For a while `unfold` counts its axis from the front, as converters do whatever they are told."""
    import torch

    unfold = torch.Tensor.unfold

    def unfold_from_the_front(tensor: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
        return unfold(tensor, dimension % tensor.dim(), size, step)

    with replaced(torch.Tensor, "unfold", unfold_from_the_front):
        yield
