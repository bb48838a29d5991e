"""`profile_of`: all facts about the model that a user named, ready for prediction and rendering."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.models.classification import Classification, graph_path, kind_of
from hwcompat.generators.models.given_recipe import FACTORY, GivenRecipe
from hwcompat.generators.models.model_libraries import lacking
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.recipes.on_demand import (
    derive_checkpoint,
    derive_given,
    derive_real_widths,
    derive_settings,
    recipe_for,
    settings_apart,
)
from hwcompat.hardware.cell import model_of_weights
from hwcompat.hardware.errors import ModelError, ModelMissing, UsageError, echo
from hwcompat.hardware.file_formats import by_suffix
from hwcompat.hardware.safe_read import is_folder

_BYTES = {"float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int8": 1, "int4": 1}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A model as the user named it, and its name in cells.

    `cell_model` is the model type, or a checkpoint's slug with the hash of its weights; `folder` is a checkpoint's
    folder. `missing` says why the requested weights aren't here: then nothing runs. `stands_in_for` is the checkpoint
    that a tiny model of its type, or one of its dimensions, replaces on request; `note` says so. `apart` are
    the settings of a config.json without weights with which no suite of its type runs. `inputs` is the folder of
    the arrays that were given for a graph file.
    """

    asked: str
    cell_model: str
    classification: Classification
    recipe: Recipe | GivenRecipe
    folder: Path | None = None
    stands_in_for: str = ""
    note: str = ""
    missing: str = ""
    apart: tuple[str, ...] = ()
    inputs: Path | None = None

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that a suite reads: of the weights or the graph, and of given inputs."""
        return tuple(one.resolve() for one in (self.folder, self.inputs) if one is not None)

    @property
    def is_plain_type(self) -> bool:
        """Whether a model type was named, so that only its library decides what its suite is."""
        return not (self.folder or self.stands_in_for or self.missing) and self.recipe.subject == "tiny"

    def precision(self, asked: str) -> str:
        """Return the precision of a cell: that of a graph file if the file is in half precision."""
        own = self.recipe.computes_in if isinstance(self.recipe, GivenRecipe) else "float32"
        return asked if own == "float32" else own

    def task_in(self, asked: str) -> str:
        """Return the task if a precision is that of a graph file itself, else an empty string: nothing changes the
        precision of a file."""
        return self.recipe.task if self.precision(asked) == getattr(self.recipe, "computes_in", "") else ""

    def memory_needed(self, precision: str) -> int:
        """Return the bytes of the parameters alone in a precision, a lower bound of the memory of a run."""
        return self.recipe.parameters * _BYTES[precision]


def profile_of(
    name: str,
    task: str | None = None,
    revision: str = "",
    *,
    dims: str = "tiny",
    length: int | None = None,
    allow_tiny: bool = False,
    inputs: Path | None = None,
) -> Profile:
    """Return the profile of a model type, a local checkpoint folder, a Hub id (of a branch, tag or commit), a user's
    own `package.module:factory`, or a graph file.

    With `dims` `real`, a type or a configuration without weights is built at its real widths with few layers, and
    with `pieces` one layer at a time, for texts of `length` tokens. If the
    weights of a checkpoint aren't here, the profile is `missing`; with `allow_tiny` a tiny model of its type is used,
    for a folder with the settings of its config.json. `inputs` are arrays for a graph file: a `.npz` file, or a
    folder of them.

    Torch is imported only for a checkpoint, or for a type without a stored recipe. Raises `ModelError` or
    `BrokenInput`.
    """
    lengths = _lengths(dims, length)
    classification = classify(name, revision)
    given_kind = kind_of(name)
    if inputs is not None and given_kind != "graph":
        raise UsageError(f"{echo(name)} takes no --inputs", why="they are for graph files such as .onnx")
    if given_kind:
        return _given_profile(name, given_kind, task, classification, inputs)
    known_type = classification.model == classification.model_type and classification.path is None
    if dims in ("real", "pieces"):
        return _at_real_widths(name, task, classification, known_type, lengths)
    made = functools.partial(Profile, asked=name, classification=classification)
    if classification.path is not None:
        folder = Path(classification.path)
        if any(folder.glob("*.safetensors")):
            recipe = derive_checkpoint(folder)
            _check_task(task, recipe.task, name)
            model = model_of_weights(checkpoint_slug(name), str(recipe.weights_hash))
            return made(cell_model=model, recipe=recipe, folder=folder, note="; ".join(recipe.remarks))
        if allow_tiny and Path(name).expanduser().is_dir():
            recipe = derive_settings(str(folder), task)
            return made(
                cell_model=model_of_weights(checkpoint_slug(name), recipe.config_hash),
                recipe=recipe,
                stands_in_for=name,
                note=f"--allow-tiny: a {recipe.dimensions} runs instead, with random weights",
            )
    recipe = recipe_for(classification.model_type, task)
    missing = "" if known_type else why_missing(name, revision, classification)
    if missing and not allow_tiny:
        apart = settings_apart(classification.path, task) if classification.path is not None else ()
        return made(cell_model=checkpoint_slug(name), recipe=recipe, missing=missing, apart=apart)
    replaced = f"--allow-tiny: a tiny {classification.model_type} runs instead of {echo(name)}; {missing}"
    return made(
        cell_model=classification.model_type,
        recipe=recipe,
        stands_in_for="" if known_type else name,
        note=lacking(recipe.library) if known_type else replaced,
    )


def _lengths(dims: str, length: int | None) -> tuple[int, ...] | None:
    """Return the lengths of texts of a model in pieces, None for another model, which `length` is refused for."""
    if length is not None and dims != "pieces":
        raise UsageError("--length needs --dims pieces", why="other suites have the lengths of their recipes")
    return None if dims != "pieces" else () if length is None else (length,)


def _at_real_widths(
    name: str,
    task: str | None,
    classification: Classification,
    known_type: bool,
    lengths: tuple[int, ...] | None,
) -> Profile:
    """Return the profile of a model with random weights; in pieces if `lengths` isn't None, for texts of these
    lengths, or of those of the tiny model."""
    if classification.path is None and not known_type:
        raise ModelMissing(
            f"the real widths of {echo(name)} are unknown",
            why="its config.json isn't available",
            fix=f"Fetch it with: hf download {name} config.json",
        )
    recipe = derive_real_widths(classification.path or classification.model_type, task, lengths)
    widths_note = f"a model with {recipe.dimensions} and random weights runs; the weights of {name} are not tested"
    return Profile(
        asked=name,
        cell_model=classification.model_type,
        classification=classification,
        recipe=recipe,
        stands_in_for="" if known_type else name,
        note="" if known_type else widths_note,
    )


def _given_profile(
    name: str, kind: str, task: str | None, classification: Classification, inputs: Path | None
) -> Profile:
    file = graph_path(name) if kind == "graph" else Path()
    recipe = derive_given(kind, str(file) if kind == "graph" else name, "" if inputs is None else str(inputs))
    _check_task(task, recipe.task, name)
    runs_code = kind == "module" or ((found := by_suffix(str(file))) is not None and found.runs_code)
    what = "your own code" if kind == "module" else "a program"
    runs = f"{name} is {what}: generating this suite ran it, and every run of the suite runs it"
    notes = [f"{file} is tested, the graph of this folder"] if kind == "graph" and is_folder(Path(name)) else []
    notes += [runs] if runs_code else []
    if recipe.computes_in != "float32":
        notes.append(f"{name} computes in {recipe.computes_in} and is tested in this precision")
    return Profile(
        asked=name,
        cell_model=(
            model_of_weights(checkpoint_slug(file.name), str(recipe.weights_hash))
            if kind == "graph"
            else checkpoint_slug(name)
        ),
        classification=classification,
        recipe=recipe,
        folder=file.resolve().parent if kind == "graph" else None,
        inputs=None if inputs is None else inputs if inputs.is_dir() else inputs.resolve().parent,
        note="; ".join(notes),
    )


def why_missing(name: str, revision: str, classification: Classification) -> str:
    """Return why a checkpoint can't run, the source of its type, and how to get the weights."""
    source = "config.json" if classification.path else "its name"
    known = f"type {classification.model_type}, from {source}"
    if Path(name).expanduser().is_dir():
        return (
            f"{echo(name)} has no .safetensors file ({known}). Add the weights, or use random weights: "
            "--allow-tiny for a tiny model with its settings, --dims real for its dimensions."
        )
    fetch = f"hf download {name}" + (f" --revision {revision}" if revision else "")
    is_misspelled = name.lower() == re.sub("[-_]", "", classification.model_type)
    or_type = f", or name the type: --model {classification.model_type}" if is_misspelled else ""
    return f"{echo(name)} isn't a folder or in the local Hub cache ({known}). Fetch it with: {fetch}{or_type}"


def _check_task(asked: str | None, found: str, name: str) -> None:
    if asked is not None and asked != found:
        raise ModelError(f"the task of {echo(name)} is {found}, not {echo(asked)}")


def checkpoint_slug(name: str) -> str:
    """Return the name of a checkpoint in a cell: a Hub id with its slash replaced, or a folder's name."""
    try:
        folder = Path(name).expanduser()
        text = folder.resolve().name if folder.is_dir() else name.replace("/", "--")
    except (OSError, RuntimeError, ValueError):  # too long for the file system, an unknown user's home, a NUL
        text = name.replace("/", "--")
    if FACTORY.fullmatch(name):  # with arguments: one dash for several other characters
        text = re.sub(r"[^A-Za-z0-9._@+-]+", "-", name).rstrip("-")
    slug = re.sub(r"[^A-Za-z0-9._@+-]", "-", text).lstrip("._@+-")[:120]
    if not slug:
        raise ModelError(f"{echo(name)} can't be used as the model of a cell", fix="Rename it.")
    return slug
