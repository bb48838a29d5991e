"""`Recipe`: the facts about a model type in one version of its library, so that rendering builds no model."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import BrokenInput, OutputError, echo
from hwcompat.hardware.files import write_whole

SCHEMA_VERSION = 1
HERE = "this installation"
"""The origin of recorded numbers that no shipped recipe confirms."""

KEPT = "the recipe for "
"""The start of the origin of another version's numbers, which a recipe keeps: the version follows."""

SHIPPED_ORIGIN = "shipped"
SHIPPED = Path(__file__).parent / "recipes"
"""The recipes that come with the product."""

DERIVED = "recipes-5"
"""The cache folder of recipes derived on this machine. Its number changes with the way weights are filled, because
the recorded numbers of older recipes belong to other weights, and with the fields that suites read."""

_WRITTEN_IF_SET = frozenset(
    {
        *("dimensions", "left_out", "trains_only", "without_cache", "diffusers_version"),
        *("zero_centered", "remarks", "calls", "layout", "branches", "pieces"),
    }
)
"""Fields that are written only if they are set."""
_NOT_HASHED = ("zero_centered", "layout", "calls", "branches", "pieces")
_TUPLES = ("traits", "operators", "outputs", "zero_centered", "remarks")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to build and run a model, and the results of a correct run.

    A model of diffusers (of version `diffusers_version`) has no `config_class`: its class takes `config` itself.

    `config` holds the constructor arguments of `config_class`, `config_children` the classes of its nested dicts;
    `inputs` are specifications (`inputs.py`) drawn in order; `parameters` is a count, `gradients` the number of
    parameters with a gradient in a backward pass, `gradient_norm` the norm of all gradients as one vector;
    `trains_only` means that gradients exist in training mode only. `masked_by` names, for an output (batch, length,
    ...), the input that marks the positions that count. `mask_input` is the attention mask that must be honored.
    `recorded` holds `output`, `positions` (16 index tuples), `values`, `scale`, `seed`, `lengths` and `origin`:
    numbers of the float64 reference and their source. `sensitivity` is relative to the output's scale. `gain` is null
    for the weights `checkpoint`, `weights_hash` for all others. `dimensions` lists the real dimensions of the weights
    `config`, and `left_out` the skipped checks with the reason. `generate` is `none`, `causal` or `seq2seq`;
    `without_cache` means that each token is decoded from the whole text. `zero_centered` names the weights of
    normalizations to which the code adds 1, with `*` for a layer's number. `remarks` are notes about a checkpoint's
    files, such as unused weights. `calls` has the arguments of the checks that call the model in other ways, by name.
    `layout` is a hash of the names and shapes of the parameters, on which seeded test weights depend. `branches` of
    the modeling code: how many the suite's compared passes have `entered` `of` all, and those `missing` by function.
    `pieces` are the numbers of parameters of the model's pieces, if these run one at a time.
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
    calls: Mapping[str, Any] = field(default_factory=dict)
    layout: str = ""
    branches: Mapping[str, Any] = field(default_factory=dict)
    pieces: Mapping[str, int] = field(default_factory=dict)

    @property
    def library(self) -> str:
        """The library of the model's class."""
        return "diffusers" if self.diffusers_version else "transformers"

    @property
    def library_version(self) -> str:
        """The version of `library` that the recipe was made with."""
        return self.diffusers_version or self.transformers_version

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values with sorted keys; `inputs` keeps its order, because numbers are drawn in it."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        inputs = {name: _sorted(spec) for name, spec in self.inputs.items()}
        written = [name for name in sorted(plain) if name not in _WRITTEN_IF_SET or plain[name]]
        return {name: inputs if name == "inputs" else _sorted(plain[name]) for name in written}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """Return the recipe that `to_dict` wrote. Raises `BrokenInput` for another schema or other fields."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise BrokenInput(
                "a recipe can't be read",
                why=f"its schema_version is {data.get('schema_version')!r}, not {SCHEMA_VERSION}",
            )
        known = {f.name for f in fields(cls)}
        wrong = sorted(known.symmetric_difference(data) - _WRITTEN_IF_SET)
        if wrong:
            raise BrokenInput("a recipe can't be read", why=f"missing or unknown fields: {', '.join(wrong)}")
        arguments: dict[str, Any] = {k: tuple(v) if k in _TUPLES else v for k, v in data.items()}
        return cls(**arguments)

    @property
    def exercised(self) -> str:
        """How much of the modeling code the suite enters: `45 of 48 branches of the modeling code (94 %)`."""
        if not self.branches:
            return ""
        entered, of = self.branches["entered"], self.branches["of"]
        return f"{entered} of {of} branches of the modeling code ({100 * entered // of if of else 100} %)"

    def calls_in(self, precision: str) -> frozenset[str]:
        """Return the names of the `calls` that a precision has: one with `factors` needs one for it."""
        return frozenset(name for name, call in self.calls.items() if precision in call.get("factors", {precision}))

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the recipe without `zero_centered`, `layout`, `calls` and `branches`: 64 hexadecimal digits.

        Other weights change the recorded numbers too, and evidence from before these fields existed used the same
        weights. Calls belong to checks of their own, which evidence from before them doesn't have.
        """
        hashed = {name: value for name, value in self.to_dict().items() if name not in _NOT_HASHED}
        return hashlib.sha256(json.dumps(hashed).encode()).hexdigest()  # always ASCII

    def to_json(self) -> str:
        """Return the text of a recipe's file; the same recipe gives the same bytes."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a file. Raises `BrokenInput`, naming the file, if it can't be read."""
    try:
        return Recipe.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError) as error:
        raise BrokenInput(f"{echo(str(path))} isn't a recipe", why=str(error)) from error
    except BrokenInput as error:
        raise BrokenInput(f"{echo(str(path))} isn't a recipe", why=error.why, fix="Delete it.") from error


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe atomically. Raises `OutputError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, recipe.to_json())
    except OSError as error:
        raise OutputError(f"{echo(str(path))} can't be written", why=str(error)) from error
