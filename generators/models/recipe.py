"""`Recipe`: what is known of a model type in one version of its library, so that rendering builds no model."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hardware.errors import BrokenInput, OutputError, echo
from hardware.files import write_whole

SCHEMA_VERSION = 1
HERE = "this installation"
"""The origin of recorded numbers that no shipped recipe vouches for."""

SHIPPED_ORIGIN = "shipped"
SHIPPED = Path(__file__).parent / "recipes"
"""The recipes that come with the product."""

DERIVED = "recipes-2"
"""The folder of the cache that holds recipes derived on this machine. The number is another one if weights are filled
otherwise than before, since recorded numbers of older recipes are of other weights."""

_WHERE_SAID = frozenset(
    {"dimensions", "left_out", "trains_only", "without_cache", "diffusers_version", "zero_centered", "remarks"}
)
"""Fields that are written only where they say something."""
_TUPLES = ("traits", "operators", "outputs", "zero_centered", "remarks")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to build and run a model, and what a right run gives.

    A model of diffusers, the library of which `diffusers_version` is the version, has no `config_class`: its class
    takes `config` itself.

    `config` holds the constructor arguments of `config_class`, `config_children` the classes of its nested
    dicts; `inputs` are specifications (`inputs.py`) drawn in their order; `parameters` is a count,
    `gradients` how many of the parameters get a gradient in a backward pass, `gradient_norm` the length of all
    gradients as one vector, and `trains_only` says that there are any in training mode alone.
    `masked_by` names, for an output (batch, length, ...), the input that says which positions count.
    `mask_input` is the attention mask that must be honoured. `recorded` holds `output`, `positions` (16 index
    tuples), `values`, `scale`, `seed`, `lengths` and `origin`: numbers of the float64 reference, and what vouches
    for them. `sensitivity` is relative to the output's scale. `gain` is null for the subject `checkpoint`,
    `weights_hash` for any but it. `dimensions` says what is real in the subject `config`, and
    `left_out` what no check can ask of this model, and why. `generate` is `none`,
    `causal` or `seq2seq`, and `without_cache` says that each token is decoded from the whole text. `zero_centered`
    names the weights of normalizations to which the code adds 1, with `*` for the number of a layer. `remarks` are
    notes about a checkpoint's files, such as weights that its class doesn't take.
    """

    schema_version: int = SCHEMA_VERSION
    subject: str = "tiny"
    model_type: str
    transformers_version: str
    family: str
    architecture: str
    traits: tuple[str, ...]
    task: str
    config_class: str
    model_class: str
    config: Mapping[str, Any]
    config_children: Mapping[str, str]
    config_hash: str
    inputs: Mapping[str, Mapping[str, Any]]
    gain: float | None
    weights_hash: str | None
    parameters: int
    gradients: int
    gradient_norm: float
    operators: tuple[str, ...]
    outputs: tuple[str, ...]
    masked_by: Mapping[str, str]
    mask_input: str | None
    generate: str
    recorded: Mapping[str, Any]
    sensitivity: Mapping[str, float]
    dimensions: str = ""
    left_out: str = ""
    trains_only: bool = False
    without_cache: bool = False
    diffusers_version: str = ""
    zero_centered: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        """The library that the model's class is of."""
        return "diffusers" if self.diffusers_version else "transformers"

    @property
    def library_version(self) -> str:
        """The version of `library` that the recipe was made with."""
        return self.diffusers_version or self.transformers_version

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, keys sorted; `inputs` alone keeps its order, because numbers are drawn in it."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        inputs = {name: _sorted(spec) for name, spec in self.inputs.items()}
        written = [name for name in sorted(plain) if name not in _WHERE_SAID or plain[name]]
        return {name: inputs if name == "inputs" else _sorted(plain[name]) for name in written}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_dict` wrote. Raises `BrokenInput` for another schema or other fields."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise BrokenInput(
                "a recipe cannot be read",
                why=f"its schema_version is {data.get('schema_version')!r}, not {SCHEMA_VERSION}",
            )
        known = {f.name for f in fields(cls)}
        wrong = sorted(known.symmetric_difference(data) - _WHERE_SAID)
        if wrong:
            raise BrokenInput("a recipe cannot be read", why=f"missing or unknown fields: {', '.join(wrong)}")
        arguments: dict[str, Any] = {k: tuple(v) if k in _TUPLES else v for k, v in data.items()}
        return cls(**arguments)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of all that it says: 64 hexadecimal digits.

        Without `zero_centered`: with other weights the recorded numbers are others too, and evidence from before it
        was written down was measured with the same weights.
        """
        said = {name: value for name, value in self.to_dict().items() if name != "zero_centered"}
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()  # in ASCII, whatever it holds

    def to_json(self) -> str:
        """The text of a recipe's file: the same bytes for the same recipe."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file. Raises `BrokenInput`, naming the file, where it can't be read."""
    try:
        return Recipe.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError) as error:
        raise BrokenInput(f"{echo(str(path))} is not a recipe", why=str(error)) from error
    except BrokenInput as error:
        raise BrokenInput(f"{echo(str(path))} is not a recipe", why=error.why, fix="Delete it.") from error


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe in one step: a reader sees the old file or the whole new one. Raises `OutputError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, recipe.to_json())
    except OSError as error:
        raise OutputError(f"{echo(str(path))} cannot be written", why=str(error)) from error
