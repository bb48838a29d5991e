"""`GivenRecipe`: the facts about a user's own model (module or graph file), with its inputs as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]

KINDS = ("integers", "uniform", "normal", "booleans")


@dataclass(frozen=True, kw_only=True)
class GivenInput:
    """How one input is drawn: an array of `dtype` and `shape`; a string in the shape is the name of a size.

    `integers` and `uniform` numbers lie in [low, high); `normal` ones have the mean `low` and the deviation `high`.
    """

    kind: str
    dtype: str
    shape: tuple[int | str, ...]
    low: float = 0
    high: float = 1

    def draw(self, rng: np.random.Generator, sizes: Mapping[str, int]) -> Array:
        """Return an array with the sizes filled in. Raises `ValueError` for an unknown kind."""
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        if self.kind == "integers":
            return rng.integers(int(self.low), int(self.high), shape).astype(self.dtype)
        if self.kind == "uniform":
            return rng.uniform(self.low, self.high, shape).astype(self.dtype)
        if self.kind == "normal":
            return rng.normal(self.low, self.high, shape).astype(self.dtype)
        if self.kind == "booleans":
            return rng.random(shape) < 0.5
        raise ValueError(f"{self.kind!r} isn't a kind of input; known: {', '.join(KINDS)}")


@dataclass(frozen=True, kw_only=True)
class GivenRecipe:
    """One way to run a user's own model, and the results of a correct run.

    `name` is what the user wrote: `package.module:factory` or a file name. `sizes` are the variable dimensions by
    name, and `other_sizes` a second choice of them. `paired` means that the factory returns example inputs with the
    module. `recorded` holds `output`, `positions`, `values` and `scale` of the reference. `weights_hash` is a file's
    SHA-256. `computes_in` is the precision of the weights; `reference` describes the reference if it isn't float64.
    """

    kind: str
    name: str
    subject: str
    task: str
    inputs: Mapping[str, GivenInput]
    sizes: Mapping[str, int]
    other_sizes: Mapping[str, int]
    parameters: int
    gradients: int
    gradient_norm: float
    operators: tuple[str, ...]
    outputs: tuple[str, ...]
    recorded: Mapping[str, Any] = field(default_factory=dict)
    paired: bool = False
    weights_hash: str | None = None
    computes_in: str = "float32"
    reference: str = ""
    model_type: str = "unknown"
    family: str = "other"
    architecture: str = "unknown"
    traits: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GivenRecipe:
        """Return the recipe that `to_dict` wrote and JSON restored."""
        inputs = {name: GivenInput(**{**one, "shape": tuple(one["shape"])}) for name, one in data["inputs"].items()}
        tuples = {key: tuple(data[key]) for key in ("operators", "outputs", "traits")}
        return cls(**{**data, "inputs": inputs, **tuples})


def draw_inputs(inputs: Mapping[str, GivenInput], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return the arrays that the specifications describe, drawn from `default_rng(0)` in the order of the mapping."""
    import numpy as np

    rng = np.random.default_rng(0)
    return {name: one.draw(rng, sizes) for name, one in inputs.items()}
