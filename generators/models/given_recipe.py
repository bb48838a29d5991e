"""`GivenRecipe`: the facts about a user's own model (module or graph file), with its inputs as data."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.errors import ModelError, echo

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]

KINDS = ("integers", "uniform", "normal", "booleans", "lengths", "page", "tones", "given")
_SHOWN = 5
FACTORY = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)(\(.*\))?", re.ASCII)
"""`package.module:factory`, or with arguments: `package.module:factory(hidden=64)`."""


@dataclass(frozen=True, kw_only=True)
class GivenInput:
    """How one input is drawn: an array of `dtype` and `shape`; a string in the shape is the name of a size.

    `integers` and `uniform` numbers lie in [low, high); `normal` ones have the mean `low` and the deviation `high`.
    `lengths` are all `of`, a size or the name of one; a `page` is an image from `low` to `high` with rows of dark
    letters on a bright ground, and `tones` are sounds at 16 kHz with a pitch, for models that find nothing in noise;
    `given` are the arrays of the user or of a factory's example.
    """

    kind: str
    dtype: str
    shape: tuple[int | str, ...]
    low: float = 0
    high: float = 1
    of: int | str = 0

    def draw(self, rng: np.random.Generator, sizes: Mapping[str, int]) -> Array:
        """Return an array with the sizes filled in. Raises `ValueError` for an unknown kind."""
        import numpy as np

        from hwcompat.hardware.testing.drawn_inputs import page, tones

        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        if self.kind == "integers":
            return np.asarray(rng.integers(int(self.low), int(self.high), shape)).astype(self.dtype)
        if self.kind == "uniform":
            return np.asarray(rng.uniform(self.low, self.high, shape)).astype(self.dtype)
        if self.kind == "normal":
            return np.asarray(rng.normal(self.low, self.high, shape)).astype(self.dtype)
        if self.kind == "booleans":
            return np.asarray(rng.random(shape) < 0.5)
        if self.kind == "lengths":
            return np.full(shape, sizes[self.of] if isinstance(self.of, str) else self.of, self.dtype)
        if self.kind == "page":
            return page(rng, self.low, self.high, shape).astype(self.dtype)
        if self.kind == "tones":
            return tones(rng, shape).astype(self.dtype)
        raise ValueError(f"{self.kind!r} isn't a kind of input; known: {', '.join(KINDS)}")


@dataclass(frozen=True, kw_only=True)
class GivenRecipe:
    """One way to run a user's own model, and the results of a correct run.

    `name` is what the user wrote: `package.module:factory` or a file name. `sizes` are the variable dimensions by
    name, and `other_sizes` a second choice of them. `paired` means that the factory returns example inputs with the
    module. `recorded` holds `output`, `positions`, `values` and `scale` of the reference. `weights_hash` is a file's
    SHA-256. `computes_in` is the precision of the weights.
    `given` is the hash of `given_count` sets of inputs that the user gave (`hardware/testing/user_inputs.py`).
    `states` names the output that becomes an input of the next step. `unmoved` are outputs that no input moves, and
    `not_compared` those that aren't numbers of NumPy. `scales` are the spreads of outputs over inputs and of
    the `parts` of them that have a much smaller one (`hardware/testing/graph_outputs.py`), and `float32_costs` are
    the errors that float32 alone has, of outputs for which they are more than the usual limit allows.

    Of a module: it `keeps_state` between calls; `seeds` draw the inputs of its suite, which come from `inputs_from`;
    no output depends on the inputs `unread`; changes of the weights `undetected` don't show, and with seeded weights
    of this `gain` they do (0 if they don't); `differs` says what was changed in it, `left_out` what isn't compared,
    and `exercised` which of its lines don't run.
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
    given: str = ""
    given_count: int = 0
    states: Mapping[str, str] = field(default_factory=dict)
    unmoved: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    scales: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, int, int, int]] = field(default_factory=dict)
    float32_costs: Mapping[str, float] = field(default_factory=dict)
    keeps_state: bool = False
    seeds: tuple[int, ...] = (1,)
    inputs_from: str = ""
    unread: tuple[str, ...] = ()
    undetected: tuple[str, ...] = ()
    gain: float = 0.0
    differs: str = ""
    left_out: str = ""
    exercised: str = ""
    model_type: str = "unknown"
    family: str = "other"
    architecture: str = "unknown"
    traits: tuple[str, ...] = ()

    @property
    def weights_line(self) -> str:
        """What the weights are, as a suite states it."""
        if self.kind == "module":
            return f"{self.subject}: {self.parameters:,} parameters from {self.name}; the suite runs this code"
        return f"{self.subject}: {self.name}, {self.parameters:,} parameters, identified by its hash"

    @property
    def stated(self) -> dict[str, str]:
        """The facts about a module that its verdict states."""
        layers = ", ".join(self.undetected[:_SHOWN])
        more = f" and {len(self.undetected) - _SHOWN} more" if len(self.undetected) > _SHOWN else ""
        seeded = "; with seeded weights more of it is tested" if self.gain else ""
        facts = {
            "differs": self.differs,
            "state": "each was tested from the first state" if self.keeps_state else "",
            "unread": ", ".join(self.unread),
            "undetected": layers and layers + more + seeded,
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def drawings(self) -> tuple[str, ...]:
        """The kinds of inputs that functions of `hwcompat.testing` draw."""
        kinds = {one.kind for one in self.inputs.values()}
        return tuple(kind for kind in ("page", "tones") if kind in kinds)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GivenRecipe:
        """Return the recipe that `to_dict` wrote and JSON restored."""
        inputs = {name: GivenInput(**{**one, "shape": tuple(one["shape"])}) for name, one in data["inputs"].items()}
        names = ("operators", "outputs", "traits", "unmoved", "not_compared", "seeds", "unread", "undetected")
        tuples = {key: tuple(data[key]) for key in names}
        parts = {name: tuple(one) for name, one in data["parts"].items()}
        return cls(**{**data, "inputs": inputs, "parts": parts, **tuples})


def draw_inputs(
    inputs: Mapping[str, GivenInput],
    sizes: Mapping[str, int],
    seed: int = 0,
    given: Mapping[str, Array] = MappingProxyType({}),
) -> dict[str, Array]:
    """Return the arrays that the specifications describe, drawn from `default_rng(seed)` in the order of the mapping,
    or `given`."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return {name: given[name] if one.kind == "given" else one.draw(rng, sizes) for name, one in inputs.items()}


def factory_parts(name: str) -> tuple[str, str, dict[str, Any]]:
    """Return module, factory and arguments of `package.module:factory(hidden=64)`, without running anything.

    Raises `ModelError` if the arguments aren't literals by name.
    """
    found = FACTORY.fullmatch(name)
    assert found is not None, name
    module, factory, arguments = found.groups()
    try:
        call = ast.parse(f"f{arguments or '()'}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(one.arg is None for one in call.keywords):
            raise ValueError("they need names")
        named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        json.dumps(named)
        return module, factory, named
    except (TypeError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ModelError(
            f"the arguments of {echo(name)} can't be read",
            why=" ".join(str(error).split())[:200],
            fix="Give numbers, texts, lists and so on by name: package.module:factory(hidden=64, act='gelu').",
        ) from error
