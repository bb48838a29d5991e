"""Tools of plants: patches applied when a module is imported, and a mark when one takes effect."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Patch = Callable[[ModuleType], None]

_patches: dict[str, list[Patch]] = {}


class _Patching(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def patched(module: ModuleType) -> None:
            load(module)
            for patch in _patches[name]:
                patch(module)

        spec.loader.exec_module = patched  # type: ignore[method-assign]
        return spec


def after_import(name: str) -> Callable[[Patch], Patch]:
    """Decorate a function that is called with a module after its import."""

    def keep(patch: Patch) -> Patch:
        _patches.setdefault(name, []).append(patch)
        return patch

    return keep


def wrap(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorate a function that replaces `owner.name` and gets the original before the arguments."""
    original = getattr(owner, name)

    def put(change: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def changed(*args: Any, **kwargs: Any) -> Any:
            return change(original, *args, **kwargs)

        setattr(owner, name, changed)

    return put


def took_effect() -> None:
    """Write the mark: a plant that didn't run can't be detected."""
    Path(os.environ["HWCOMPAT_PLANTED"]).touch()


def change_export(change: Callable[[Path], None]) -> None:
    """Change the file of each export to ONNX."""

    @after_import("hwcompat.hardware.backends._exported_runnable")
    def patch(module: ModuleType) -> None:
        @wrap(module, "export_onnx")
        def export_onnx(original: Any, *args: Any, **kwargs: Any) -> Any:
            exported = original(*args, **kwargs)
            folder = Path(tempfile.mkdtemp(dir=os.environ["HWCOMPAT_CACHE"]))
            shutil.copytree(exported.folder, folder, dirs_exist_ok=True)
            change(folder / module.ONNX)
            return dataclasses.replace(exported, folder=folder)


def found(name: str) -> list[Callable[[], None]]:
    """Return the functions of this name in the modules `planted_*` of the plant folders."""
    paths = os.environ.get("HWCOMPAT_PLANTING", str(Path(__file__).parent))
    folders = [Path(one) for one in paths.split(os.pathsep)]
    names = sorted(path.stem for folder in folders for path in folder.glob("planted_*.py"))
    modules = map(importlib.import_module, names)
    return [getattr(module, name) for module in modules if callable(getattr(module, name, None))]


def plant(name: str) -> None:
    """Call the functions with these names (joined by `+`), which patch current and future imports."""
    sys.meta_path.insert(0, _Patching())
    for each in name.split("+"):
        for one in found(each):
            one()
