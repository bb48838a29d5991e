"""A model on its target, and the proof of where it ran."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..model.model_types import Generation, Unsupported

if TYPE_CHECKING:
    from ..model.model_types import Array, Inputs


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Proof of where a forward pass ran: number of calls by operator, on the target and on the host.

    `dtype` is the type that operators with parameters computed in; `unseen` lists what the proof doesn't cover.
    """

    native: Mapping[str, int]
    offloaded: Mapping[str, int]
    dtype: str
    device: str
    unseen: str
    host_allowed: frozenset[str] = frozenset()

    @property
    def beyond_allowed(self) -> dict[str, int]:
        """Operators that ran on the host and aren't on the target's allow-list, with their number of calls."""
        return {name: count for name, count in self.offloaded.items() if name not in self.host_allowed}


_MANTISSA_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "int8": 7}


def coarsest(dtypes: Iterable[str]) -> str:
    """Return the dtype with the fewest bits among those of products, so that a proof isn't that of the majority.
    Empty if none is a floating-point type or the type of a quantized model."""
    known = [name for name in dtypes if name in _MANTISSA_BITS]
    return min(known, key=_MANTISSA_BITS.__getitem__, default="")


class Runnable(ABC):
    """A model on its target. Call it with arrays by name; each optional ability is named in `can`."""

    can: frozenset[str] = frozenset()
    """Abilities, of `generate`, `backward` and `save`."""

    gives_all: bool = False
    """Whether every output of the model is returned; a class of the runtime may omit some."""

    failed: Mapping[str, Unsupported] = MappingProxyType({})
    """Abilities that are missing because an export or a conversion failed, with the error."""

    on_host: bool = False
    """Whether the target is the host, so that placement needs no proof."""

    actual_dtype: str
    conditions: Mapping[str, str]

    @abstractmethod
    def __call__(self, **inputs: Array) -> dict[str, Array]:
        """Return the outputs of a forward pass by name: floating-point as float64, and integers if there are any."""

    @abstractmethod
    def execution(self) -> Execution:
        """Return the proof of another pass over the example inputs, under the target's tracer."""

    @abstractmethod
    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        """Return the outputs of a traced forward pass, and by name the number of calls that it left to the host.

        A model may leave its device for one length or batch size and not for another, so suites trace each set of
        inputs.
        """

    def prepare(self, inputs: Inputs) -> None:  # noqa: B027 - an optional hook
        """Export or compile for the shapes of these inputs, so that their first pass only computes."""

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        """Decode `steps` tokens greedily with the target's cache."""
        raise NotImplementedError

    def gradients(self, inputs: Inputs) -> dict[str, Array]:
        """Return the gradients of the loss (`loss_weights`), by parameter name."""
        raise NotImplementedError

    def save_and_reload(self, folder: Path) -> Runnable:
        """Save in the target's own format and load what was saved on the same target."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - an optional hook
        """Release the resources that were taken."""
