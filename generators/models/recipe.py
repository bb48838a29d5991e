"""`Recipe`: what is known of a model type in one transformers version, so that rendering builds no model.

Recipes are JSON files, first those that ship with the product, then those that this machine derived itself.
Nothing here imports torch or transformers except the derivation of a recipe that isn't stored yet.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from hardware.errors import BrokenInput, HwCompatError, ModelError, OutputError, echo
from hardware.paths import cache_folder
from hardware.whole_file import write_whole

SCHEMA_VERSION = 1
HERE = "this installation"
"""The origin of recorded numbers that no shipped recipe vouches for."""

SHIPPED_ORIGIN = "shipped"
SHIPPED = Path(__file__).parent / "recipes"

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TUPLES = ("traits", "operators", "outputs")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to build and run a model, and what a right run gives.

    `config` holds the constructor arguments of `config_class`, `config_children` the classes of its nested
    dicts; `inputs` are specifications (`inputs.py`) drawn in their order; `parameters` is a count,
    and `gradients` how many of the parameters get a gradient in a backward pass.
    `masked_by` names, for an output (batch, length, ...), the input that says which positions count.
    `mask_input` is the attention mask that must be honoured. `recorded` holds `output`, `positions` (16 index
    tuples), `values`, `scale`, `seed`, `lengths` and `origin`: numbers of the float64 reference, and what vouches
    for them. `sensitivity` is relative to the output's scale. `gain` is null for the subject `checkpoint`,
    `weights_hash` for any but it. `dimensions` says what is real in the subject `config`. `generate` is `none`,
    `causal` or `seq2seq`.
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
    operators: tuple[str, ...]
    outputs: tuple[str, ...]
    masked_by: Mapping[str, str]
    mask_input: str | None
    generate: str
    recorded: Mapping[str, Any]
    sensitivity: Mapping[str, float]
    dimensions: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, keys sorted; `inputs` alone keeps its order, because numbers are drawn in it."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        inputs = {name: _sorted(spec) for name, spec in self.inputs.items()}
        written = [name for name in sorted(plain) if name != "dimensions" or self.dimensions]
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
        wrong = sorted(known.symmetric_difference(data) - {"dimensions"})
        if wrong:
            raise BrokenInput("a recipe cannot be read", why=f"missing or unknown fields: {', '.join(wrong)}")
        arguments: dict[str, Any] = {k: tuple(v) if k in _TUPLES else v for k, v in data.items()}
        return cls(**arguments)

    def to_json(self) -> str:
        """The text of a recipe's file: the same bytes for the same recipe."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


@functools.cache
def installed_version() -> str:
    """The version of transformers here, from its metadata. Raises `ModelError` where there is none."""
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelError(
            "no model can be looked up",
            why="transformers is not installed",
            fix="Install it with: pip install -r requirements.txt",
        ) from error


def _file_name(model_type: str, task: str | None) -> str:
    for part in (model_type, task or "x"):
        if not _FILE_NAME.fullmatch(part):
            raise ModelError(f"{echo(part)} cannot be a model type or a task")
    return f"{model_type}@{task}.json" if task else f"{model_type}.json"


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


def load_recipe(model_type: str, task: str | None = None) -> Recipe | None:
    """The stored recipe of a model type for the installed transformers, or None; no `task` is the primary.

    Milliseconds: nothing is imported or built. Raises `BrokenInput` for a file that can't be read.
    """
    version = installed_version()
    names = [_file_name(model_type, None)] + ([_file_name(model_type, task)] if task else [])
    return _find(SHIPPED / version, names, task) or _find(cache_folder("recipes") / version, names, task)


def _find(folder: Path, names: list[str], task: str | None) -> Recipe | None:
    for name in names:
        if (folder / name).is_file():
            recipe = read_recipe(folder / name)
            if task in (None, recipe.task):
                return recipe
    return None


def shipped_recipes(model_type: str) -> tuple[Recipe, ...]:
    """The recipes of a model type's primary task that ship for any version, that of the installed one first."""
    name = _file_name(model_type, None)
    found = []
    for path in sorted(SHIPPED.glob(f"*/{name}")):
        with contextlib.suppress(BrokenInput):  # one of an older form vouches for nothing
            found.append(read_recipe(path))
    return tuple(sorted(found, key=lambda recipe: recipe.transformers_version != installed_version()))


def stored_recipes() -> tuple[Recipe, ...]:
    """The primary-task recipes stored for the installed transformers, by model type; none without transformers."""
    try:
        version = installed_version()
    except ModelError:
        return ()
    found: dict[str, Recipe] = {}
    for folder in (cache_folder("recipes") / version, SHIPPED / version):
        for path in sorted(folder.glob("*.json")):
            if "@" not in path.stem:
                found[path.stem] = read_recipe(path)
    return tuple(found[name] for name in sorted(found))


def recipe_for(model_type: str, task: str | None = None) -> Recipe:
    """The recipe of a model type: the stored one, else one derived now (seconds, imports torch) and kept.

    Raises `ModelError` for an unknown type or task, or where no acceptable tiny model could be made.
    """
    stored = load_recipe(model_type, task)
    if stored is not None:
        return stored
    from .derive_child import derive_in_child

    recipe = derive_in_child("type", model_type, task)
    write_recipe(recipe, cache_folder("recipes") / recipe.transformers_version / _file_name(model_type, task))
    return recipe


def derive_checkpoint(folder: Path | str) -> Recipe:
    """The recipe of a real checkpoint in a local folder (config.json and safetensors); it is not kept.

    Raises `BrokenInput` or `ModelError` where the folder can't be read or run. Takes seconds, in a child process.
    """
    from .derive_child import derive_in_child

    return derive_in_child("checkpoint", str(folder))


@click.command()
@click.argument("model_types", nargs=-1)
@click.option("--write", is_flag=True, help="Derive anew and write into the package's data.")
def main(model_types: tuple[str, ...], write: bool) -> None:
    """Print the recipes of MODEL_TYPES (those of priority high), or derive and write them (maintainers)."""
    from .priority import types_of_priority

    failed = False
    for model_type in model_types or types_of_priority("high"):
        try:
            if write:
                from .derive import derive_tiny

                recipe = derive_tiny(model_type)
                recipe = replace(recipe, recorded={**recipe.recorded, "origin": SHIPPED_ORIGIN})
                write_recipe(recipe, SHIPPED / recipe.transformers_version / _file_name(model_type, None))
                click.echo(f"{model_type}: {recipe.parameters} parameters, gain {recipe.gain}", err=True)
            else:
                click.echo(recipe_for(model_type).to_json(), nl=False)
        except HwCompatError as error:
            click.echo(f"{echo(model_type)}: {error}", err=True)
            failed = True
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
