"""Store of recipes: those that ship with the product come first, then those derived on this machine.

There is one JSON file per model type (and task, except the primary one) and library version, and one with the reasons
why other types have none. Nothing is built here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hwcompat.hardware.cell import label_of
from hwcompat.hardware.errors import BrokenInput, ModelError, OutputError, echo
from hwcompat.hardware.files import cache_folder, one_at_a_time, write_whole

from .catalog import installed_version
from .model_libraries import LIBRARY, catalog_of, diffusers_version, installed_diffusers
from .recipe import DERIVED, Recipe, read_recipe, write_recipe
from .recipe import SHIPPED as SHIPPED


class _Kept(Protocol):
    """A record of one type and task, stored as JSON."""

    @property
    def model_type(self) -> str: ...
    @property
    def task(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


Record = TypeVar("Record", bound=_Kept)

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _file_name(model_type: str, task: str | None) -> str:
    for part in (model_type, task or "x"):
        if not _FILE_NAME.fullmatch(part):
            raise ModelError(f"{echo(part)} can't be a model type or a task")
    return f"{model_type}@{task}.json" if task else f"{model_type}.json"


def folder_name(library: str, version: str) -> str:
    """Return the name of a library's recipe folder: `5.5.4`, or `diffusers-0.37.1`."""
    return version if library == "transformers" else f"{library}-{version}"


def folders() -> tuple[str, ...]:
    """Return the folders of the recipes that are used here, one for each library."""
    return (folder_name("transformers", installed_version()), folder_name(LIBRARY, diffusers_version()))


def load_recipe(model_type: str, task: str | None = None) -> Recipe | None:
    """Return the stored recipe of a model type for the library version in use, or None; no `task` means the primary
    one. Without diffusers, that is the newest version that recipes ship for.

    Takes milliseconds: nothing is imported or built. Raises `BrokenInput` for a file that can't be read.
    """
    if label_of(model_type) != model_type:  # a checkpoint, whose recipe isn't stored
        return None
    places = [root / folder for root in (SHIPPED, cache_folder(DERIVED)) for folder in folders()]
    return next(filter(None, (_find(place, model_type, task) for place in places)), None)


def _find(folder: Path, model_type: str, task: str | None) -> Recipe | None:
    for name in dict.fromkeys((_file_name(model_type, None), _file_name(model_type, task))):
        if (folder / name).is_file():
            recipe = read_recipe(folder / name)
            if task in (None, recipe.task):
                return recipe
    return None


def shipped_recipes(model_type: str, task: str | None = None) -> tuple[Recipe, ...]:
    """Return the shipped recipes of a type's primary task, or another one, for any version, that of the installed
    one first."""
    found = []
    for folder in sorted(path for path in SHIPPED.iterdir() if path.is_dir()):
        with contextlib.suppress(BrokenInput):  # a recipe of an older schema isn't used
            found.append(_find(folder, model_type, task))
    here = folders()
    kept = [one for one in found if one is not None]
    return tuple(sorted(kept, key=lambda one: folder_name(one.library, one.library_version) not in here))


def stored_recipes() -> tuple[Recipe, ...]:
    """Return the stored recipes of primary tasks for the installed libraries, by model type."""
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
    """Store a recipe in `folder` (by default this machine's own); `primary` if its task is the type's primary one.

    Raises `OutputError`.
    """
    folder = folder or cache_folder(DERIVED)
    name = _file_name(recipe.model_type, None if primary else recipe.task)
    write_recipe(recipe, folder / folder_name(recipe.library, recipe.library_version) / name)


class Obstacle(StrEnum):
    """Why a type has no recipe. All but `NOT_DERIVED` mean that the type can't be built in this environment."""

    NO_CLASS = "no_class"
    """No class with a forward: a part of other models, or a class that only its parts compute."""
    MISSING_DEPENDENCY = "missing_dependency"
    """Importing or constructing its class needs a package that isn't installed."""
    DEFAULTS_FAIL = "defaults_fail"
    """Its constructor raises on its own default configuration."""
    NOT_DERIVED = "not_derived"
    """It can be built, but no acceptable tiny model was found."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A model type without a recipe: the obstacle, and the library's message.

    `task` is empty for the type's primary one; `package` is the import name of the missing package, if it is known.
    """

    model_type: str
    obstacle: Obstacle
    reason: str
    task: str = ""
    package: str = ""

    @property
    def is_resolved(self) -> bool:
        """Whether the missing package is installed now."""
        return bool(self.package) and importlib.util.find_spec(self.package) is not None

    @property
    def is_buildable(self) -> bool:
        """Whether the type counts as one that can be built."""
        return self.obstacle is Obstacle.NOT_DERIVED

    @property
    def cause(self) -> str:
        """Why there is nothing to run, in one line."""
        words = {
            Obstacle.NO_CLASS: "the library has no class for it alone",
            Obstacle.MISSING_DEPENDENCY: f"a package is missing{f', {self.package}' if self.package else ''}",
            Obstacle.DEFAULTS_FAIL: "the library can't build it with its default configuration",
            Obstacle.NOT_DERIVED: "no tiny model is known that would reveal faults",
        }
        return f"{self.model_type} has no suite: {words[self.obstacle]}: {self.reason.rstrip('.')}"

    @property
    def remedy(self) -> str:
        """What a user can do about it."""
        if self.obstacle is Obstacle.NO_CLASS:
            return "test the model that contains it"
        if self.obstacle is Obstacle.MISSING_DEPENDENCY:
            return f"install {self.package or 'the missing package'}, then run the same command again"
        return f"test real weights: --model FOLDER, with a checkpoint of {self.model_type}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = asdict(self) | {"obstacle": str(self.obstacle)}
        return plain if self.package else {name: value for name, value in plain.items() if name != "package"}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Refusal:
        """Return the refusal that `to_dict` wrote. Raises `BrokenInput`."""
        try:
            return cls(**{**data, "obstacle": Obstacle(data["obstacle"])})
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenInput("a refusal can't be read", why=str(error)) from error


class Records(Generic[Record]):
    """Facts by type and task: a JSON list for each library, among the shipped files and in this machine's folder.

    `name` begins the file names, `what` describes the list in messages, and `read` makes a record from its JSON.
    """

    def __init__(self, name: str, what: str, read: Callable[[dict[str, Any]], Record], *, indent: int) -> None:
        self._name, self._what, self._read, self._indent = name, what, read, indent
        self._seen: dict[Path, tuple[tuple[int, int], dict[tuple[str, str], Record]]] = {}

    def of(self, model_type: str, task: str) -> Iterator[Record]:
        """Return the records of a type and task, shipped ones first. Raises `BrokenInput` for an invalid file."""
        found = (self._in(path).get((model_type, task)) for path in self._paths())
        return (one for one in found if one is not None)

    def types(self) -> list[str]:
        """Return the types with a record of their primary task, in alphabetical order. Raise as `of` does."""
        return sorted({name for path in self._paths() for name, task in self._in(path) if not task})

    def keep(self, model_type: str, task: str, record: Record | None, folder: Path | None = None) -> None:
        """Store a record in `folder` (by default this machine's own); None removes it. Raises `OutputError`."""
        catalog = catalog_of(model_type)
        path = self._path(folder or cache_folder(DERIVED), folder_name(catalog.library, catalog.version))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with one_at_a_time(path.parent):  # another process may write at the same time
                before = self._in(path)
                after = {key: one for key, one in before.items() if key != (model_type, task)}
                if record is not None:
                    after[model_type, task] = record
                if after != before:
                    listed = [after[key].to_dict() for key in sorted(after)]
                    text = json.dumps(listed, indent=self._indent, ensure_ascii=False, allow_nan=False)
                    write_whole(path, text + "\n")
        except OSError as error:
            raise OutputError(f"{echo(str(path))} can't be written", why=str(error)) from error

    def _path(self, folder: Path, of: str) -> Path:
        return folder / f"{self._name}-{of}.json"

    def _paths(self) -> list[Path]:
        return [self._path(root, name) for root in (SHIPPED, cache_folder(DERIVED)) for name in folders()]

    def _in(self, path: Path) -> dict[tuple[str, str], Record]:
        """Return the records of a file, read again only if it changed: a matrix needs them thousands of times."""
        try:
            status = path.stat()
        except OSError:
            return {}
        state = (status.st_mtime_ns, status.st_size)
        if path not in self._seen or self._seen[path][0] != state:
            try:
                listed = [self._read(one) for one in json.loads(path.read_text(encoding="utf-8"))]
            except (OSError, ValueError, TypeError) as error:
                what = f"{echo(str(path))} isn't a list of {self._what}"
                raise BrokenInput(what, why=str(error), fix="Delete it.") from error
            self._seen[path] = (state, {(one.model_type, one.task): one for one in listed})
        return self._seen[path][1]


_REFUSALS = Records("refused", "refusals", Refusal.from_dict, indent=1)


def refusals() -> Mapping[str, Refusal]:
    """Return why model types of the installed libraries have no recipe of their primary task, by type.

    Raises `BrokenInput` for a file that can't be read.
    """
    return {name: one for name in _REFUSALS.types() if (one := refusal_of(name)) is not None}


def refusal_of(model_type: str, task: str | None = None) -> Refusal | None:
    """Return why a type has no recipe of a task, or None if no obstacle is known; no `task` means the primary one."""
    return next((one for one in _REFUSALS.of(model_type, task or "") if not one.is_resolved), None)


def keep_refusal(model_type: str, task: str | None, refusal: Refusal | None, folder: Path | None = None) -> None:
    """Store in `folder` (by default this machine's own) why a type has no recipe; None removes the entry.

    Raises `OutputError`.
    """
    _REFUSALS.keep(model_type, task or "", refusal, folder)
