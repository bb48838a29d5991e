"""Honest evidence of failing cells, made by the main job: broken models, absent devices and edited suites.

Evidence of other versions and of killed runs is made from a green run, with valid checksums.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import product

Files = dict[str, list[dict[str, Any]]]
"""The lines of a folder of evidence as JSON values, by file name."""

MODELS = ("bert", "gpt2", "vit", "resnet", "t5", "whisper")
_CELL = {
    "bert": "fill-mask",
    "gpt2": "text-generation",
    "vit": "image-classification",
    "resnet": "image-classification",
    "t5": "text2text-generation",
    "whisper": "automatic-speech-recognition",
}
PLANTING = Path(__file__).resolve().parents[1] / "deceits" / "planting"
_LONGEST_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A folder's lines, its failing cell and the reason; `donor` is a green cell in the folder."""

    state: str
    cell_id: str
    files: Files
    donor: str = ""


def cell_of(model: str, target: str = "cpu") -> str:
    """Return the id of a model's cell."""
    return f"{model}/{_CELL[model]}/{target}/float32"


def victims(folder: Path) -> list[Victim]:
    """Make every state for every model below `folder`; takes some minutes."""
    clean = _ran(folder / "clean")
    found = [
        Victim(state=state, cell_id=cell_of(model), files=change(clean, cell_of(model)))
        for state, change in (("stale", _stale), ("killed", _killed))
        for model in MODELS
    ]
    broken = _ran(folder / "broken", plant="broken_model")
    donors = _ran(folder / "donors", models=("mixtral",))
    found += [
        Victim(
            state="broken",
            cell_id=cell_of(model),
            files={**broken, **donors},
            donor="mixtral/text-generation/cpu/float32",
        )
        for model in MODELS
    ]
    absent = _ran(folder / "absent", device="cuda")
    found += [Victim(state="fallback", cell_id=cell_of(model, "cuda"), files=absent) for model in MODELS]
    edited = _ran(folder / "edited", prepare=_edit)
    found += [Victim(state="edited", cell_id=cell_of(model), files=edited) for model in MODELS]
    return found


def _ran(
    folder: Path,
    *,
    device: str = "cpu",
    models: tuple[str, ...] = MODELS,
    prepare: Callable[[Path], None] | None = None,
    plant: str = "",
) -> Files:
    command = product.command(folder, models, device)
    folder.mkdir(parents=True)
    environment = product.environment(folder.parent / "cache")
    if prepare is not None:
        _call(command, environment)
        prepare(folder / "suites")
    if plant:
        environment = product.planted(environment, plant, folder / "took_effect", PLANTING)
    _call([*command, "--run"], environment)
    if plant and not (folder / "took_effect").exists():
        raise RuntimeError(f"{plant} took no effect")
    return {path.name: _lines(path) for path in sorted((folder / "evidence").glob("*.jsonl"))}


def _call(command: list[str], environment: Mapping[str, str]) -> None:
    ran = product.run(command, environment, _LONGEST_S)
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"the main job ended with {ran.returncode}:\n{ran.stderr[-2000:]}")


def _edit(suites: Path) -> None:
    for path in suites.glob("test_*.py"):
        path.write_text(path.read_text(encoding="utf-8") + "\n# changed by hand\n", encoding="utf-8")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def copied(files: Files) -> Files:
    """Return a copy of lines that may be changed."""
    made: Files = json.loads(json.dumps(files))
    return made


def without_seals(files: Files) -> Files:
    """Return the lines as runs without checksums wrote them."""
    made = copied(files)
    for line in (line for lines in made.values() for line in lines if line["kind"] == "end"):
        line.pop("files", None)
    return made


def _stale(files: Files, _cell: str) -> Files:
    made = copied(files)
    for line in (line for lines in made.values() for line in lines if line["kind"] == "run"):
        line["versions"] = {**line["versions"], "torch": "2.9.0"}
    for lines in made.values():
        for end in (line for line in lines if line["kind"] == "end"):
            end["files"] = {name: _digest([line for line in made[name] if line is not end]) for name in end["files"]}
    return made


def _digest(lines: list[dict[str, Any]]) -> str:
    return hashlib.sha256(written(lines)).hexdigest()


def written(lines: list[dict[str, Any]]) -> bytes:
    """Return the bytes of a file with these lines as a run writes them."""
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _killed(files: Files, cell: str) -> Files:
    """Remove the last checks of a cell and the run's end, as SIGKILL does."""
    made = copied(files)
    for lines in made.values():
        own = [line for line in lines if line["kind"] == "check" and line["cell_id"] == cell]
        lost = own[len(own) // 2 :]
        lines[:] = [line for line in lines if line not in lost and line["kind"] != "end"]
    return made
