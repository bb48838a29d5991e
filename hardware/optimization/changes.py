"""What was done to a module, as something that can be turned off and on again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something that was done to a module: it is in force, and can be turned off and on again, also twice."""

    on: Callable[[], None]
    off: Callable[[], None]


def together(changes: Sequence[Change]) -> Change:
    """Changes, each made over those before it, as one."""

    def on() -> None:
        for one in changes:
            one.on()

    def off() -> None:
        for one in reversed(changes):
            one.off()

    return Change(on=on, off=off)


def replaced(model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> Change:
    """Put modules, by name, into their places in another."""
    before = {name: model.get_submodule(name) for name in modules}

    def put(chosen: Mapping[str, torch.nn.Module]) -> None:
        for name, module in chosen.items():
            model.set_submodule(name, module)

    put(modules)
    return Change(on=lambda: put(modules), off=lambda: put(before))
