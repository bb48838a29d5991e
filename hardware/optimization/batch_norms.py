"""Batch normalizations in evaluation mode that a convolution can take up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .optimization_steps import ModuleChange, replaced

if TYPE_CHECKING:
    import torch

Pair = tuple[str, str]
"""Names of a convolution and of the normalization of its output."""


def foldable_pairs(model: torch.nn.Module, sample: Mapping[str, torch.Tensor], limit: float) -> list[Pair]:
    """Return pairs of a convolution and the normalization that alone reads its output, as passes over `sample` show.

    Both run once, the normalization in evaluation mode with its own statistics, on the very tensor that the
    convolution returned. Other readers of that tensor can't be seen: pairs are left out if folding them moves an
    output by more than `limit` of its scale.
    """
    found = _consecutive_pairs(model, sample) if sample else []
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
    """Return the outputs of a pass over a sample, as arrays by name."""
    import torch

    from ..model.calls import to_arrays
    from ..model.outputs import results

    with torch.no_grad():
        return to_arrays(results(model(**sample)))


def _consecutive_pairs(model: torch.nn.Module, sample: Mapping[str, torch.Tensor]) -> list[Pair]:
    import torch
    from torch.nn.modules import module as hooks

    names = {module: name for name, module in model.named_modules()}
    given: dict[int, tuple[str, torch.Tensor]] = {}
    runs: Counter[str] = Counter()
    pairs: list[Pair] = []

    def look(module: Any, args: tuple[Any, ...]) -> None:
        if module in names and isinstance(module, torch.nn.BatchNorm2d) and not module.training:
            runs[names[module]] += 1
            if module.track_running_stats and args and id(args[0]) in given:
                pairs.append((given[id(args[0])][0], names[module]))

    def keep(module: Any, _: Any, output: torch.Tensor) -> None:
        if module in names and isinstance(module, torch.nn.Conv2d):
            runs[names[module]] += 1
            given[id(output)] = names[module], output  # the tensor is kept so that its id stays unique

    with (
        hooks.register_module_forward_pre_hook(look),
        hooks.register_module_forward_hook(keep),
        torch.no_grad(),
    ):
        model(**sample)
    return [pair for pair in pairs if all(runs[name] == 1 for name in pair)]


def folded(model: torch.nn.Module, pairs: list[Pair]) -> ModuleChange:
    """Fold each pair in place: scale and shift go into the convolution, and an identity replaces the other."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    before = {name: model.get_submodule(name) for pair in pairs for name in pair}
    after: dict[str, torch.nn.Module] = {}
    for convolution, norm in pairs:
        whole = fuse_conv_bn_eval(before[convolution], before[norm])
        whole._hwcompat_folded = norm
        after |= {convolution: whole, norm: torch.nn.Identity()}
    return replaced(model, after)
