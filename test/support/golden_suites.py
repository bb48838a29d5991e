"""The suites whose bytes are recorded, rendered with rules of their own so that today's rules don't change them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from generators.models.recipe import Recipe, read_recipe
from generators.models.recipe_store import SHIPPED
from generators.suites.render import render
from hardware.cell import Cell
from hardware.target import Target

FOLDER = Path(__file__).parents[1] / "recorded" / "suites"
HASHES = FOLDER.with_name("suites.sha256")
RULES = ("golden.first", "golden.second")
MODEL_TYPES = ("bert", "gpt2", "t5", "vit", "clip", "whisper", "mixtral", "mamba")
OTHERS = ("llava", "wav2vec2", "patchtst", "resnet", "videomae", "rag", "gemma", "blip", "stable-diffusion")
TARGETS = ("cpu", "openvino", "simulated", "cuda")
AS_TEXT = {
    *("bert cpu", "bert openvino", "gpt2 cpu", "t5 cpu", "vit cpu"),
    *("clip cpu", "whisper cpu", "llava cpu", "patchtst cpu", "videomae cpu", "stable-diffusion cpu"),
}
"""Suites that are kept as text: one of each template, and what is peculiar to a target."""
MORE = (
    *("bert cuda tf32", "gpt2 cuda bfloat16", "vit openvino:NPU float16", "whisper openvino bfloat16"),
    *("bert qnn", "gpt2 webgpu", "resnet webnn float16", "vit mps", "mixtral tpu bfloat16"),
)


def every_suite() -> dict[str, str]:
    """Return the text of each golden suite by the name of its file."""
    found = {}
    for cell in every_cell():
        found[f"test_{cell.slug}.py"] = render(recipe_of(cell.model), cell, RULES)
    return found


def every_cell() -> list[Cell]:
    asked = [f"{name} {target}" for name in MODEL_TYPES for target in TARGETS]
    asked += [f"{name} {target}" for name in OTHERS for target in TARGETS[:2]]
    return [_cell(*words.split()) for words in (*asked, *MORE)]


def texts_kept(suites: dict[str, str]) -> dict[str, str]:
    names = {_cell(*words.split()).slug for words in AS_TEXT}
    return {name: text for name, text in suites.items() if name.removeprefix("test_").removesuffix(".py") in names}


def hashes_of(suites: dict[str, str]) -> str:
    """Return a line with the SHA-256 and the file name of each suite, as `sha256sum` writes it."""
    return "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(suites.items()))


def recipe_of(model_type: str) -> Recipe:
    folder = "diffusers-0.37.1" if model_type == "stable-diffusion" else "5.5.4"
    return read_recipe(SHIPPED / folder / f"{model_type}.json")


def _cell(model_type: str, target: str, precision: str = "float32") -> Cell:
    task = recipe_of(model_type).task
    return Cell(model=model_type, task=task, target=Target.parse(target), precision=precision)
