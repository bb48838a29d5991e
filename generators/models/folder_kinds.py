"""Name what a folder or a file is if it is no checkpoint of transformers, and what helps. Find the graph file that a
folder means. The kinds are in `folder_kinds.toml`."""

from __future__ import annotations

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import BrokenInput, echo
from hwcompat.hardware.plain_text import printable
from hwcompat.hardware.safe_read import is_plain_file, read_json

from .model_libraries import pipeline_mappings

GRAPH_SUFFIXES = (".onnx", ".xml", ".tflite", ".pt2")
_USUAL = ("model", "openvino_model")
"""Names of the whole model, of which others are parts or variants."""
_LARGEST_JSON = 2**20


@functools.cache
def _kinds() -> tuple[Mapping[str, Any], ...]:
    return tuple(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["kind"])


def refuse_other_kind(path: Path, config: Mapping[str, Any] | None = None, *, weights: bool = False) -> None:
    """Raise `BrokenInput` if a folder or file is of a known kind that isn't a checkpoint, or if it is empty.

    With the content of its config.json, only if that is of another library, or with `weights`, if its weights are of
    another format.
    """
    what = f"{echo(str(path))} isn't a checkpoint that can be tested"
    wanted = "weights" if weights else "why" if config is None else "setting"
    for kind in (one for one in _kinds() if wanted in one):
        files = sorted(set(_files(path, kind)), key=_by_number)
        value = (config or {}).get(kind.get("setting", ""), "")
        if not files and not value:
            continue
        if "key" in kind:
            value = _value(path / files[0], kind["key"])
        places = list(dict.fromkeys(Path(name).parent.as_posix() for name in files))
        facts = {"folder": path, "value": value, "type": _family(str(value)), "places": ", ".join(places)}
        facts |= {"name": (files or [""])[0], "names": ", ".join(files), "last": (places or [""])[-1]}
        facts = {key: printable(str(one)) for key, one in facts.items()}
        raise BrokenInput(what, why=kind["why"].format(**facts), fix=kind["fix"].format(**facts))
    if config is None and path.is_dir() and not any(path.iterdir()):
        raise BrokenInput(what, why="it is empty", fix="Download it: hf download NAME --local-dir FOLDER")


def graph_in(folder: Path) -> Path | None:
    """Return the graph file that a folder without weights for torch means: `model.onnx` or `openvino_model.xml`, else
    the only one, in the folder or in `onnx/`. None if there is none or if the choice isn't clear."""
    if any(folder.glob("*.safetensors")) or any(_files(folder, _kind_of_pickles())):
        return None
    found = [
        path
        for place in (folder, folder / "onnx")
        for path in (sorted(place.iterdir()) if place.is_dir() else ())
        if path.name.lower().endswith(GRAPH_SUFFIXES) and is_plain_file(path)
        if path.suffix.lower() != ".xml" or is_plain_file(path.with_suffix(".bin"))
    ]
    usual = [path for path in found if path.stem.lower() in _USUAL]
    return usual[0] if usual else found[0] if len(found) == 1 else None


def _kind_of_pickles() -> Mapping[str, Any]:
    return next(kind for kind in _kinds() if "not_files" in kind)


def _files(path: Path, kind: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files of a kind in a folder, relative to it, or the name of a file."""
    patterns = kind.get("files", ())
    if not path.is_dir():
        yield from (path.name for pattern in patterns if fnmatch.fnmatch(path.name.lower(), pattern))
        return
    for pattern in patterns:
        for found in path.glob("/".join("*" * (1 + pattern.count("/")))):
            name = found.relative_to(path).as_posix()
            is_other = any(fnmatch.fnmatch(found.name, other) for other in kind.get("not_files", ()))
            is_other |= found.with_suffix(".xml").exists()  # a .bin beside it is OpenVINO's
            if fnmatch.fnmatch(name.lower(), pattern) and not is_other:
                yield name


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `checkpoint-9` before `checkpoint-10`."""
    return [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def _value(file: Path, key: str) -> str:
    try:
        return str(read_json(file, longest=_LARGEST_JSON)[key])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def _family(pipeline: str) -> str:
    """Return the family of a pipeline's class."""
    classes = (names.items() for names in pipeline_mappings().values())
    return next((family for pairs in classes for family, name in pairs if name == pipeline), "stable-diffusion")
