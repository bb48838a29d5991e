"""Make docs/measured/mesh.md from the results of `benchmarks/mesh.py`: how meshes are planned and which types can be
split."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardware.detection import detect
from hardware.plain_values import from_values
from hardware.recording import ReplayedMachine
from hwcompat.plugins.placement.mesh.axes import Split
from hwcompat.plugins.placement.mesh.mesh_case import CHECKS
from hwcompat.plugins.placement.mesh.mesh_plan import MeshRefused, plan_mesh
from hwcompat.plugins.placement.mesh.model_figures import ModelFigures
from hwcompat.plugins.placement.mesh_command import mesh_text, plan_text
from hwcompat.plugins.placement.placement_device import Device, accelerators_of

EXAMPLE = "hwcompat mesh pipeline=2,tensor=2 --model llama --device cpu"
FIXTURES = Path(__file__).parents[1] / "test" / "fixtures"
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def mesh_page(kept: Mapping[str, Any], splits: Sequence[str]) -> str:
    """Return the page as Markdown."""
    checks = "".join(f"- `{name}`: {what}\n" for name, what in CHECKS.items())
    counts = {
        split: sum(one[split].partition(":")[0] == "right" for one in kept["types"].values()) for split in splits
    }
    listed = ", ".join(f"{count} with `{split}`" for split, count in counts.items())
    result = f"Of {len(kept['types'])} model types on four ranks, split and whole model agree for {listed}."
    parts = [
        TEXTS["head"].format(result=result),
        checks,
        TEXTS["middle"],
        *_plans(kept["figures"]),
        "\n## A check\n",
        _block(EXAMPLE, mesh_text(kept["example"])),
    ]
    return "".join([*parts, *_table(kept, splits), TEXTS["limits"]])


def _block(command: str, text: str) -> str:
    first = f"$ {command}\n" if command else ""
    return f"```\n{first}{text}```\n"


def _plans(figures: Mapping[str, Any]) -> list[str]:
    """Return plans on recorded inventories of one vendor and of several."""
    asked: list[tuple[str, str, list[Device], Split | None]] = [
        ("Eight H100: the fewest that a Mixtral in float32 fits.", "mixtral", _devices("nvidia/h100-x8"), None),
        (
            "A Radeon and an Arc, in two machines: stages of 24 and 15 GiB. The processor's graphics are left out.",
            "llama",
            [*_devices("amd/radeon-and-apu"), *_devices("intel/arc-laptop")[:1]],
            Split(pipeline=2),
        ),
        (
            "Two H100 and two MI300X: parts of a layer on one vendor, stages across.",
            "mixtral",
            [*_devices("nvidia/h100-container")[:2], *_devices("amd/mi300x-x2")[:2]],
            Split(pipeline=2, tensor=2),
        ),
        (
            "The same devices, and a split that can't be.",
            "mixtral",
            [*_devices("nvidia/h100-container")[:2], *_devices("amd/mi300x-x2")[:2]],
            Split(tensor=4),
        ),
    ]
    lines = []
    for title, name, devices, split in asked:
        model = from_values(ModelFigures, figures[name])
        whose = "the library's default configuration"
        try:
            text = plan_text(model.to_dict(), whose, plan_mesh(devices, model, split).to_dict())
        except MeshRefused as refusal:
            text = plan_text(model.to_dict(), whose, None, f"{refusal.what}: {refusal.why}")
        lines.append(f"\n{title}\n{_block('', text)}")
    return lines


def _devices(name: str) -> list[Device]:
    found = accelerators_of(detect(ReplayedMachine(FIXTURES / name)), name.rpartition("/")[2])
    return [replace(one) for one in found]


def _table(kept: Mapping[str, Any], splits: Sequence[str]) -> list[str]:
    types = kept["types"]
    versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    counts = {split: Counter(one[split].partition(":")[0] for one in types.values()) for split in splits}
    tried = sum(1 for name in kept["with_plan"] if name in types)
    lines = [
        f"\n## Which types can be split\n{len(types)} types on four ranks of one CPU, {kept['date']}, {versions}: "
        f"{tried} of the {len(kept['with_plan'])} that\nhave a tensor plan and a recipe, and some without a plan; "
        "`make mesh` tries the rest. Numbers are the error of the\noutputs against float64, relative to their scale: "
        "at most 2e-05 passes, and all other checks passed with it.\n\n"
    ]
    lines.append(f"| | {' | '.join(splits)} |\n|---|{'---|' * len(splits)}\n")
    words = {"right": "equal to one device", "wrong": "different", "broke": "raised an error", "no": "impossible"}
    for word, said in (words | {"untried": "not tried: no tiny model for four ranks"}).items():
        lines.append(f"| {said} | {' | '.join(str(counts[split][word]) for split in splits)} |\n")
    lines.append(f"\n| type | {' | '.join(splits)} |\n|---|{'---|' * len(splits)}\n")
    notes: dict[str, int] = {}
    for name in sorted(types):
        cells = [_cell(types[name][split], notes) for split in splits]
        lines.append(f"| {name} | {' | '.join(cells)} |\n")
    lines.append(TEXTS["differences"])
    lines += [f"{number}. {_plain(note)}\n" for note, number in notes.items()]
    return lines


def _cell(text: str, notes: dict[str, int]) -> str:
    word, _, rest = text.partition(": ")
    if word == "right":
        return rest.partition(" ")[0]
    why = rest
    if word == "no" and "has no tensor plan" in rest:
        why = "transformers has no tensor plan for the type"
    elif word == "no" and "=" in rest.partition(": ")[0]:
        why = rest.partition(": ")[2]
    number = notes.setdefault(why, len(notes) + 1)
    words = {"wrong": "**wrong**", "broke": "**broke**", "no": "–", "untried": "not tried"}[word]
    return f"{words} ({number})"


def _plain(note: str) -> str:
    return note.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")[:400]
