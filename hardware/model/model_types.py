"""What is loaded on a target, and what decoding gives: types that exporters, backends and checks share.

Inputs and outputs are NumPy arrays by name, so that what compares them needs no framework of the target.
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
    """The runtime can't do what was asked of it (an operator, a dtype, a conversion); a failure with a cause.

    `stage` is how far it had come, where the raiser knows it better than the caller.
    """

    def __init__(self, message: str, *, error_type: str = "unsupported_operator", stage: Stage | None = None) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.stage = stage


@dataclass(frozen=True, kw_only=True)
class ModelSubject:
    """What is loaded: a torch module with its final weights on CPU in float32, and facts about it.

    `identity` changes with configuration, weights, modelling source and library versions: a cache key. `masked_by`
    names, for outputs with a row for each token, the input that says which rows mean something. `trains_only` says
    that there are gradients in training mode alone. `rebuild` makes the module again, for those that only their own
    code can make.
    """

    model: torch.nn.Module
    task: str
    identity: str
    generates: str = "none"
    masked_by: Mapping[str, str] = field(default_factory=dict)
    trains_only: bool = False
    rebuild: Callable[[], torch.nn.Module] | None = None


@dataclass(frozen=True, kw_only=True)
class FileSubject:
    """What is loaded where the model is a graph file: `.onnx`, or OpenVINO's `.xml` with its weights beside it."""

    file: Path


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Greedy decoding: `tokens` (batch, steps) and the `logits` (batch, steps, vocabulary) they were chosen from.

    `start` (batch, n) is what the first token follows: the decoder's own first tokens, or the prompt as it was taken.
    `used_cache` says that later passes were given new tokens alone.
    """

    tokens: Array
    logits: Array
    start: Array
    used_cache: bool = False
