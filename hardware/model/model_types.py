"""Types that exporters, backends and checks share: what is loaded on a target, and what decoding returns.

Inputs and outputs are NumPy arrays by name, so that comparing them needs no framework of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evidence.record import Stage

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    Array = npt.NDArray[Any]
    Inputs = Mapping[str, Array]


class Unsupported(Exception):
    """The runtime doesn't support an operator, a dtype or a conversion: a failure with a cause.

    `stage` is set if the raising code knows it better than the caller.
    """

    def __init__(self, message: str, *, error_type: str = "unsupported_operator", stage: Stage | None = None) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.stage = stage


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """The weights to load: a torch module on CPU in float32, and facts about it.

    `identity` is a cache key: it changes with configuration, weights, modeling source and library versions.
    `masked_by` names, for outputs with a row for each token, the input that masks rows. With `trains_only`, there are
    gradients in training mode only. `rebuild` makes the module again, if only its own code can.
    """

    model: torch.nn.Module
    task: str
    identity: str
    generates: str = "none"
    masked_by: Mapping[str, str] = field(default_factory=dict)
    trains_only: bool = False
    rebuild: Callable[[], torch.nn.Module] | None = None


@dataclass(frozen=True, kw_only=True)
class FileInput:
    """A graph file to load: `.onnx`, or OpenVINO's `.xml` with its weights beside it. `identity` separates it from
    other models of a worker."""

    file: Path

    @property
    def identity(self) -> str:
        return str(self.file)


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Result of greedy decoding: `tokens` (batch, steps) and the `logits` (batch, steps, vocabulary) they were chosen
    from.

    `start` (batch, n) precedes the first token: the decoder's first tokens, or the prompt. `used_cache` says that
    later passes were given only new tokens.
    """

    tokens: Array
    logits: Array
    start: Array
    used_cache: bool = False
