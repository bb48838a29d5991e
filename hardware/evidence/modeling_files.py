"""The fingerprint of a model type's installed modeling files: evidence expires when an installation is edited."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..cell import DIFFUSION_TASKS, Cell
from .record import PlannedCell

_SPECIAL = "SPECIAL_MODEL_TYPE_TO_MODULE_NAME"
"""The table in transformers with the folders of types whose folders have other names."""


def modeling_fingerprint(cell: Cell) -> str:
    """Return the fingerprint of the modeling files of a cell's type: 12 hexadecimal digits over their bytes.

    For transformers these are all Python files in the type's folder; for diffusers, whose types have no folders,
    those of all models. Empty if the library isn't installed or has no such type, as for checkpoints and the user's
    own modules. Neither library is imported.
    """
    if cell.task in DIFFUSION_TASKS:
        models = _models("diffusers")
        return _fingerprint(models, recursive=True) if models else ""
    models = _models("transformers")
    folder = _folders(models).get(_plain(cell.model)) if models else None
    return _fingerprint(folder, recursive=False) if folder else ""


def modeling_moved(planned: PlannedCell, cell: Cell) -> bool:
    """Whether the installed modeling files of a cell's type have changed since it was planned.

    False if they aren't installed: the version of their library shows that.
    """
    now = modeling_fingerprint(cell) if planned.modeling else ""
    return now not in ("", planned.modeling)


def modeling_stamp() -> str:
    """Return a digest of sizes and modification times of all installed modeling files."""
    digest = hashlib.sha256()
    for library in ("transformers", "diffusers"):
        models = _models(library)
        for path in sorted(models.rglob("*.py")) if models else ():
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _models(library: str) -> Path | None:
    """Return the folder of the models of an installed library."""
    try:
        spec = importlib.util.find_spec(library)
    except (ImportError, ValueError):  # another module has its name
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return next((path for path in (Path(place) / "models" for place in places) if path.is_dir()), None)


@functools.cache
def _folders(models: Path) -> Mapping[str, Path]:
    """Return the folder of each type by its plain name."""
    found = {_plain(path.name): path for path in models.iterdir() if path.is_dir()}
    special = {_plain(name): found[_plain(folder)] for name, folder in _special(models) if _plain(folder) in found}
    return found | special


def _special(models: Path) -> Iterable[tuple[str, str]]:
    try:
        tree = ast.parse((models / "auto" / "configuration_auto.py").read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(one, ast.Name) and one.id == _SPECIAL for one in targets):
            pairs = (one for one in ast.walk(node) if isinstance(one, ast.Tuple) and len(one.elts) == 2)
            texts = ([part.value for part in one.elts if isinstance(part, ast.Constant)] for one in pairs)
            return [(str(one[0]), str(one[1])) for one in texts if len(one) == 2]
    return ()


def _plain(name: str) -> str:
    """Return a type's name without the difference between `xlm-roberta` and `xlm_roberta`."""
    return name.lower().replace("-", "_").replace(".", "_")


@functools.cache
def _fingerprint(folder: Path, *, recursive: bool) -> str:
    paths = folder.rglob("*.py") if recursive else folder.glob("*.py")
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
