"""Where recipes are kept: first those that ship with the product, then those that this machine derived itself.

One JSON file for each model type (and task beside its primary one) and version of its library, and one that says why
other types have none. Nothing is built here.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path

from hardware.cell import label_of
from hardware.errors import BrokenInput, ModelError, OutputError, echo
from hardware.paths import cache_folder
from hardware.whole_file import one_at_a_time, write_whole

from .catalog import installed_version
from .diffusion import LIBRARY, installed_diffusers
from .libraries import catalog_of, diffusers_version
from .recipe import DERIVED, Recipe, read_recipe, write_recipe
from .recipe import SHIPPED as SHIPPED
from .refusal import Refusal

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _file_name(model_type: str, task: str | None) -> str:
    for part in (model_type, task or "x"):
        if not _FILE_NAME.fullmatch(part):
            raise ModelError(f"{echo(part)} cannot be a model type or a task")
    return f"{model_type}@{task}.json" if task else f"{model_type}.json"


def folder_name(library: str, version: str) -> str:
    """`5.5.4`, or `diffusers-0.37.1`: what the folder of a library's recipes is called."""
    return version if library == "transformers" else f"{library}-{version}"


def folders() -> tuple[str, ...]:
    """The folders whose recipes count here, one for each library."""
    return (folder_name("transformers", installed_version()), folder_name(LIBRARY, diffusers_version()))


def load_recipe(model_type: str, task: str | None = None) -> Recipe | None:
    """The stored recipe of a model type for the version of its library that is installed, or None; no `task` is the
    primary. Where diffusers isn't installed, that is the newest version that recipes ship for.

    Milliseconds: nothing is imported or built. Raises `BrokenInput` for a file that can't be read.
    """
    if label_of(model_type) != model_type:  # a checkpoint, of which no recipe is kept
        return None
    names = [_file_name(model_type, None)] + ([_file_name(model_type, task)] if task else [])
    places = [root / folder for root in (SHIPPED, cache_folder(DERIVED)) for folder in folders()]
    return next(filter(None, (_find(place, names, task) for place in places)), None)


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
    here = folders()
    return tuple(sorted(found, key=lambda one: folder_name(one.library, one.library_version) not in here))


def stored_recipes() -> tuple[Recipe, ...]:
    """The primary-task recipes stored for the installed libraries, by model type; none without transformers."""
    try:
        transformers, diffusers = folders()
    except ModelError:
        return ()
    found: dict[str, Recipe] = {}
    installed = [transformers, diffusers] if installed_diffusers() else [transformers]
    for folder in (root / name for root in (cache_folder(DERIVED), SHIPPED) for name in installed):
        for path in sorted(folder.glob("*.json")):
            if "@" not in path.stem:
                found[path.stem] = read_recipe(path)
    return tuple(found[name] for name in sorted(found))


def keep_recipe(recipe: Recipe, *, primary: bool, folder: Path | None = None) -> None:
    """Store a recipe in `folder` (by default this machine's own); `primary` where its task is the type's first.

    Raises `OutputError`.
    """
    folder = folder or cache_folder(DERIVED)
    name = _file_name(recipe.model_type, None if primary else recipe.task)
    write_recipe(recipe, folder / folder_name(recipe.library, recipe.library_version) / name)


def refusals() -> Mapping[str, Refusal]:
    """Why model types of the installed libraries have no recipe of their primary task, by type.

    Raises `BrokenInput` for a file that can't be read.
    """
    return {name: refusal for (name, task), refusal in sorted(_all_refusals().items()) if not task}


def refusal_of(model_type: str, task: str | None = None) -> Refusal | None:
    """Why a type has no recipe of a task, None where nothing is known to stand in its way; no `task` is the first."""
    found = (_refusals_in(path).get((model_type, task or "")) for path in _refused_paths())
    return next((one for one in found if one is not None and not one.is_outlived), None)


def _all_refusals() -> dict[tuple[str, str], Refusal]:
    found: dict[tuple[str, str], Refusal] = {}
    for path in reversed(_refused_paths()):
        found |= {key: one for key, one in _refusals_in(path).items() if not one.is_outlived}
    return found


def _refused_paths() -> list[Path]:
    """The files that say why types have no recipe; what ships comes first."""
    return [_refused_path(root, name) for root in (SHIPPED, cache_folder(DERIVED)) for name in folders()]


def _refusals_in(path: Path) -> dict[tuple[str, str], Refusal]:
    if not path.is_file():
        return {}
    state = path.stat()
    return _read_refusals(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def _read_refusals(path: Path, _changed: int, _size: int) -> dict[tuple[str, str], Refusal]:
    return _refusals_now(path)


def _refusals_now(path: Path) -> dict[tuple[str, str], Refusal]:
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        return {(one.model_type, one.task): one for one in map(Refusal.from_dict, listed)}
    except (OSError, ValueError, TypeError) as error:
        raise BrokenInput(f"{echo(str(path))} is not a list of refusals", why=str(error), fix="Delete it.") from error


def _refused_path(folder: Path, of: str) -> Path:
    return folder / f"refused-{of}.json"


def keep_refusal(model_type: str, task: str | None, refusal: Refusal | None, folder: Path | None = None) -> None:
    """Store in `folder` (by default this machine's own) why a type has no recipe, or with None that it has one now.

    Raises `OutputError`.
    """
    folder = folder or cache_folder(DERIVED)
    catalog = catalog_of(model_type)
    path = _refused_path(folder, folder_name(catalog.library, catalog.version))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(path.parent):
            _refuse(path, (model_type, task or ""), refusal)
    except OSError as error:
        raise OutputError(f"{echo(str(path))} cannot be written", why=str(error)) from error


def _refuse(path: Path, asked: tuple[str, str], refusal: Refusal | None) -> None:
    before = _refusals_now(path) if path.is_file() else {}  # another process may have written in the same moment
    after = {key: one for key, one in before.items() if key != asked}
    if refusal is not None:
        after[asked] = refusal
    if after != before:
        text = json.dumps([after[key].to_dict() for key in sorted(after)], indent=1, ensure_ascii=False)
        write_whole(path, text + "\n")
