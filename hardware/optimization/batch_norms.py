"""Folds a batch normalisation into the convolution before it, where nothing else takes that convolution's output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def foldable_pairs(model: torch.nn.Module, sample: Mapping[str, torch.Tensor]) -> list[tuple[str, str]]:
    """Names of convolutions and of the normalisations that are handed their outputs, as a pass over `sample` shows.

    Both run once, the normalisation in evaluation mode with statistics of its own, and it is handed the very tensor
    that the convolution gave. That nothing else reads that tensor can't be seen from hooks alone: outputs are
    compared after folding.
    """
    import torch

    if not sample:
        return []
    given: dict[int, tuple[str, torch.Tensor]] = {}
    runs: Counter[str] = Counter()
    pairs: list[tuple[str, str]] = []

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


def folded(model: torch.nn.Module, pairs: list[tuple[str, str]]) -> Callable[[], None]:
    """Fold each pair in place: the convolution gets the normalisation's scale and shift, which becomes an identity.

    Returns what takes it back.
    """
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    before = [(name, model.get_submodule(name)) for pair in pairs for name in pair]
    for convolution, norm in pairs:
        whole = fuse_conv_bn_eval(model.get_submodule(convolution), model.get_submodule(norm))
        whole._hwcompat_folded = norm
        model.set_submodule(convolution, whole)
        model.set_submodule(norm, torch.nn.Identity())

    def undo() -> None:
        for name, module in before:
            model.set_submodule(name, module)

    return undo
