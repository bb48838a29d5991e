"""Classify a model before anything is built: family, architecture, traits and task.

Sources in this order: the checkpoint's config.json, the auto mappings of the installed transformers, and the name
only if nothing else is known. Imports neither torch nor transformers, and uses no network.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import rich_click as click
from packaging.version import InvalidVersion, Version

from hwcompat.hardware.errors import BrokenInput, HwCompatError, ModelError, ModelMissing, did_you_mean, echo
from hwcompat.hardware.file_formats import graph_format, graph_suffixes
from hwcompat.hardware.plain_text import json_text, printable
from hwcompat.hardware.testing.sentence_modules import sentence_modules
from hwcompat.hardware.values import data_file

from .architectures import architecture_data, traits_of
from .catalog import load_catalog
from .checkpoint import Checkpoint, read_checkpoint
from .classification import SOURCES, TASKS, of_task, spelling
from .classification import Classification as Classification
from .classification import classify_type as classify_type
from .classification import graph_path as graph_path
from .classification import kind_of as kind_of
from .folder_kinds import refuse_other_kind
from .model_libraries import LIBRARY, catalog_of, diffusion_catalog, is_known, known_types, lacking
from .model_names import known_words, type_in_name

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


_FILE = Path(__file__).with_name("size_tiers.toml")
_LONGEST_HEADER = 100_000_000
"""In bytes; the limit of the format. Source: https://github.com/huggingface/safetensors, "Format"."""


def size_tier(parameters: int | None) -> str:
    """Return `tiny`, `small`, `base`, `large` or `xl`; an empty string if the number of parameters isn't known."""
    if parameters is None:
        return ""
    return str(next(one["name"] for one in data_file(_FILE)["tier"] if parameters < one.get("below", math.inf)))


def parameters_of(files: Sequence[Path]) -> int | None:
    """Return the number of elements of all tensors in safetensors files, from their headers; None without files, or
    if a header can't be read."""
    try:
        return sum(map(_elements, files)) if files else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _elements(file: Path) -> int:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError("the header is too long")
        header = json.loads(opened.read(length))
    return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")


def classify(name: str, revision: str = "") -> Classification:
    """Classify a model type, a local folder or a Hub id (by its cached config.json, else by its name).

    A model type in another case, or with _ for -, is that type unless a folder has that name. Raises `ModelError` if
    the name is unknown, `BrokenInput` if a folder can't be read.
    """
    refused = ModelError(
        f"{echo(name)} isn't a model name",
        why="a name has letters, digits, ._- and at most one slash, or is the path of a folder",
        fix="For example: bert, google-bert/bert-base-uncased, ./my-checkpoint.",
    )
    if not name or len(name) > 1000 or not name.isprintable():
        raise refused
    if is_known(name):
        return classify_type(name)
    try:
        given = kind_of(name)
        folder = Path(name).expanduser()
        is_folder, is_file = folder.is_dir(), folder.is_file()
    except (OSError, RuntimeError) as error:  # too long for the file system, or the home of an unknown user
        raise refused from error
    if given:
        return of_task(name, TASKS[given], SOURCES[given])
    if is_folder or is_file:
        graph_format(folder)
    if is_folder:
        return classify_folder(folder, name)
    if is_file:
        refuse_other_kind(folder)
        raise BrokenInput(
            f"{echo(name)} is a file of an unknown format",
            why=f"files of models end in {', '.join(graph_suffixes())}",
            fix="Name such a file, or the folder of a checkpoint with its config.json.",
        )
    if re.match(r"~|\.{0,2}/", name) or name.endswith("/") or name.count("/") > 1:
        near = [folder.name] if is_known(folder.name) else _folders_in(folder.parent)
        raise ModelMissing(
            f"the folder {echo(name)} doesn't exist",
            why="such a name is the path of a folder",
            fix=did_you_mean(folder.name, near) or "Name a folder with config.json, or a model type.",
        )
    spelled = spelling(name)
    for model_type in known_types():
        if spelling(model_type) == spelled:
            return classify_type(model_type)
    if not _HUB_ID.fullmatch(name) or ".." in name:
        raise refused
    cached = _cached_folder(name, revision)
    return classify_folder(cached, name) if cached else _classify_name(name)


def _folders_in(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir() if one.is_dir()]
    except OSError:  # it doesn't exist, or can't be read
        return []


def classify_folder(folder: Path, name: str) -> Classification:
    """Classify a checkpoint by its config.json: by the class it names, else by its type's primary task."""
    checkpoint = read_checkpoint(folder)
    catalog = load_catalog()
    if checkpoint.model_type not in catalog.configs:
        raise _unknown_type(checkpoint, name)
    found = classify_type(checkpoint.model_type)
    is_sentence = bool(sentence_modules(folder))
    for model_class in () if is_sentence else checkpoint.architectures:
        entries = catalog.tasks_of_class(model_class)
        if entries and checkpoint.model_type in catalog.types_of_class(model_class):
            found = replace(found, task=entries[0].task, model_class=model_class)
            break
    else:
        if checkpoint.weights:
            # Any class but the base would put a random head on weights that don't hold one.
            base = [t for t in catalog.tasks_of(checkpoint.model_type) if t.auto_class == "AutoModel"]
            if is_sentence:  # T5's decoder isn't used
                encoders = [t for t in catalog.tasks_of(checkpoint.model_type) if "EncoderModel" in t.model_class]
                base = [*encoders, *base]
            found = replace(found, task=base[0].task, model_class=base[0].model_class) if base else found
    return replace(
        found,
        model=name,
        traits=traits_of(checkpoint.model_type, checkpoint.config),
        source="config.json",
        path=str(folder),
        size_tier=size_tier(parameters_of(checkpoint.weights)),
    )


def _unknown_type(checkpoint: Checkpoint, name: str) -> ModelError:
    """Return the error for a type that the installed transformers doesn't have."""
    known, saved_by = load_catalog(), str(checkpoint.config.get("transformers_version", ""))
    why, fix = "", did_you_mean(checkpoint.model_type, known.configs)
    if "auto_map" in checkpoint.config:
        why = "auto_map in config.json needs its own code, which hwcompat never runs"
        fix = "Test it as your own code: --model package.module:factory, where factory loads it."
    else:
        with contextlib.suppress(InvalidVersion):
            if Version(saved_by) > Version(known.version):
                why, fix = f"transformers {saved_by} saved it", "Upgrade: pip install --upgrade transformers"
    what = f"the model type {echo(checkpoint.model_type)} of {echo(name)} isn't in transformers {known.version}"
    return ModelError(what, why=why, fix=fix or "If it is newer: pip install --upgrade transformers")


def _cached_folder(name: str, revision: str) -> Path | None:
    """Return the folder of a Hub id's snapshot in the local cache, without using the network."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision or None)
    except HFValidationError as error:
        raise ModelError(f"{echo(name)} isn't a Hub id", why=" ".join(str(error).split())) from error
    return Path(found).parent if isinstance(found, str) else None


def _classify_name(name: str) -> Classification:
    meaning = type_in_name(name, known_types(), known_words())
    if meaning is None or not is_known(meaning.model_type):
        unnamed = f"it isn't a model type of transformers {load_catalog().version}, a folder, or a cached Hub id"
        kind = ModelMissing if "/" in name else ModelError  # a model type has no slash
        raise kind(
            f"the model {echo(name)} is unknown",
            why=f"{unnamed}; by its name, {meaning.reason}" if meaning else unnamed,
            fix=("" if meaning else did_you_mean(name, known_types()))
            or lacking(LIBRARY)
            or "Name a model type or a folder, or fetch the model with: hf download NAME.",
        )
    return replace(
        classify_type(meaning.model_type), model=name, confidence="low", source="name (not in the local cache)"
    )


def classify_model(
    name: str,
    model_class: str | None = None,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> Classification:
    """Classify a model with further facts from the caller.

    `model_class` (`BertForMaskedLM`) and the first of `tasks` override what was found; `methods` of the model
    (`generate`) count only if nothing else is known. Raises `ModelError`, `BrokenInput`.
    """
    try:
        found = classify(name)
    except BrokenInput:
        raise
    except ModelError:
        types = _types_of_class(model_class) if model_class else ()
        by_method = "text-generation" if "generate" in (methods or ()) else None
        task = tasks[0] if tasks else by_method
        if types:
            found = replace(classify_type(types[0]), model=name, confidence="medium", source="model class")
        elif task in architecture_data()["task"]:
            return of_task(name, str(task), "the given task" if tasks else "the given methods")
        else:
            raise
    if model_class:
        catalog = catalog_of(found.model_type)
        entries = catalog.tasks_of_class(model_class)
        if found.model_type not in catalog.types_of_class(model_class):
            raise ModelError(
                f"{echo(model_class)} isn't a class of {found.model_type}",
                fix=did_you_mean(model_class, (t.model_class for t in catalog.tasks_of(found.model_type))),
            )
        found = replace(found, task=entries[0].task, model_class=model_class)
    if tasks:
        chosen = classify_type(found.model_type, tasks[0])
        found = replace(found, task=chosen.task, model_class=model_class or chosen.model_class)
    return found


def _types_of_class(model_class: str) -> tuple[str, ...]:
    return load_catalog().types_of_class(model_class) or diffusion_catalog().types_of_class(model_class)


@click.command("classify", short_help="Show family, architecture and task of models.")
@click.argument("models", nargs=-1, required=True)
@click.option("--class", "model_class", help="Class of the models, for example BertForMaskedLM.")
@click.option("--tasks", help="Tasks, separated by commas.")
@click.option("--methods", help="Methods that the models have, separated by commas.")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--json", "format_", flag_value="json", help="The same as --format json.")
def main(
    models: tuple[str, ...], model_class: str | None, tasks: str | None, methods: str | None, format_: str
) -> int:
    """Show family, architecture and task of MODELS: model types, Hub ids or checkpoint folders."""
    found, code = [], 0
    for name in models:
        try:
            of_class = classify_model(name, model_class, _words(tasks), _words(methods))
            found.append(of_class.to_dict())
        except HwCompatError as error:
            click.echo(f"error: {printable(str(error))}", err=True)
            code = error.exit_code
    if format_ == "json":
        click.echo(json_text({"schema_version": 1, "models": found}, ascii_alone=True))
        return code
    for one in found:
        shown = {key: ", ".join(value) if isinstance(value, list) else value for key, value in one.items()}
        click.echo(printable("  ".join(f"{key}={value}" for key, value in shown.items() if value)))
    return code


def _words(text: str | None) -> list[str] | None:
    return text.split(",") if text else None


if __name__ == "__main__":
    from hwcompat.hardware.command_line import run_command_line

    sys.exit(run_command_line(main, sys.argv[1:], program="python -m generators.models.classifier"))
