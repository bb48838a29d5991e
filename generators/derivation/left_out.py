"""What no check asks of a model: what an entry of overrides says, models inside it that nothing runs, a cache that it
hasn't, and masks whose form isn't known."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import measure
from .measured import Measured

if TYPE_CHECKING:
    import torch

_STEPS = 3


def run_whole(model: torch.nn.Module, found: Measured, decoding: str) -> tuple[set[str], bool]:
    """Names of the modules that a forward pass and decoding call, and whether decoding used a cache."""
    used = True

    def decode() -> None:
        nonlocal used
        used = _decoded_with_cache(run, found)

    run = copy.deepcopy(model)
    reached = measure.modules_reached(run, lambda: measure.run(run, found.inputs))
    if decoding != "none":
        reached |= measure.modules_reached(run, decode)
    return reached, used


def left_out(model: torch.nn.Module, found: Measured, reached: Collection[str], told: Mapping[str, Any]) -> str:
    """The condition under which a model's suite passes, in words; empty where there is none."""
    said = [told["left_out"]] if "left_out" in told else []
    if unrun := ", ".join(_unrun(model, reached)):
        said.append(f"{unrun}, which no check runs")
    if found.unknown_masks:
        said.append(f"padding by {', '.join(found.unknown_masks)}")
    return "; ".join(said)


def _unrun(model: torch.nn.Module, reached: Collection[str]) -> Iterator[str]:
    """The models inside `model`, whole ones of the library, of which no module was reached."""
    named: list[str] = []
    for name, module in model.named_modules():
        if not name or not hasattr(module, "save_pretrained") or any(name.startswith(f"{one}.") for one in named):
            continue
        if not any(one == name or one.startswith(f"{name}.") for one in reached):
            named.append(name)
    yield from named


def _decoded_with_cache(model: torch.nn.Module, found: Measured) -> bool:
    import torch

    from hardware.model.decoding import greedy
    from hardware.model.tensors import to_tensors

    try:
        return greedy(model, to_tensors(found.inputs, "cpu", torch.float32), steps=_STEPS, use_cache=True).used_cache
    except Exception:  # whatever decoding raises, the suite's checks of it show
        return True
