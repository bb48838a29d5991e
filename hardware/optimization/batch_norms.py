"""Folds a batch normalisation into the convolution before it, where nothing else takes that convolution's output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .changes import Change, replaced

if TYPE_CHECKING:
    import torch


Pair = tuple[str, str]


def foldable_pairs(model: torch.nn.Module, sample: Mapping[str, torch.Tensor], limit: float) -> list[Pair]:
    """Names of convolutions and of the normalisations that alone take their outputs, as passes over `sample` show.

    Both run once, the normalisation in evaluation mode with statistics of its own, and it is handed the very tensor
    that the convolution gave. Whether something else reads that tensor too can't be seen from that: pairs that move
    an output by more than `limit` of its scale when they are folded aren't among them.
    """
    found = _handed_over(model, sample) if sample else []
    if not found:
        return []
    want = outputs_of(model, sample)
    if _moved(model, found, sample, want) <= limit:
        return found
    return [pair for pair in found if _moved(model, [pair], sample, want) <= limit]


def _moved(model: torch.nn.Module, pairs: list[Pair], sample: Mapping[str, torch.Tensor], want: Any) -> float:
    from ..compare import compare

    change = folded(model, pairs)
    try:
        return compare(outputs_of(model, sample), want).max_rel_error
    finally:
        change.off()


def outputs_of(model: torch.nn.Module, sample: Mapping[str, torch.Tensor]) -> Any:
    """The outputs of a pass over a sample, as arrays by name."""
    import torch

    from ..model.outputs import results
    from ..model.tensors import to_arrays

    with torch.no_grad():
        return to_arrays(results(model(**sample)))


def _handed_over(model: torch.nn.Module, sample: Mapping[str, torch.Tensor]) -> list[Pair]:
    import torch

    given: dict[int, tuple[str, torch.Tensor]] = {}
    runs: Counter[str] = Counter()
    pairs: list[Pair] = []

    def after_convolution(name: str) -> Callable[..., None]:
        def keep(module: Any, args: Any, output: torch.Tensor) -> None:
            runs[name] += 1
            given[id(output)] = name, output  # the tensor is kept so that its id stays its own

        return keep

    def before_norm(name: str) -> Callable[..., None]:
        def look(module: Any, args: tuple[Any, ...]) -> None:
            runs[name] += 1
            if args and id(args[0]) in given:
                pairs.append((given[id(args[0])][0], name))

        return look

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            hooks.append(module.register_forward_hook(after_convolution(name)))
        elif isinstance(module, torch.nn.BatchNorm2d) and module.track_running_stats and not module.training:
            hooks.append(module.register_forward_pre_hook(before_norm(name)))
    try:
        with torch.no_grad():
            model(**sample)
    finally:
        for hook in hooks:
            hook.remove()
    return [pair for pair in pairs if all(runs[name] == 1 for name in pair)]


def folded(model: torch.nn.Module, pairs: list[Pair]) -> Change:
    """Fold each pair in place: the convolution gets the scale and shift of the normalisation, which does nothing."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    before = {name: model.get_submodule(name) for pair in pairs for name in pair}
    after: dict[str, torch.nn.Module] = {}
    for convolution, norm in pairs:
        whole = fuse_conv_bn_eval(before[convolution], before[norm])
        whole._hwcompat_folded = norm
        after |= {convolution: whole, norm: torch.nn.Identity()}
    return replaced(model, after)
