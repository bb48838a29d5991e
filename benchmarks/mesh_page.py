"""Make docs/MESH.md from the results of `benchmarks/mesh.py`: how meshes are planned and which types can be split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardware.detection import detect
from hardware.recording import ReplayedMachine
from hwcompat.plugins.placement.mesh.axes import Split
from hwcompat.plugins.placement.mesh.mesh_case import CHECKS
from hwcompat.plugins.placement.mesh.mesh_plan import MeshRefused, plan_mesh
from hwcompat.plugins.placement.mesh.model_figures import ModelFigures
from hwcompat.plugins.placement.mesh_command import mesh_text, plan_text
from hwcompat.plugins.placement.placement_device import Device, accelerators_of

EXAMPLE = "python run_test_generation.py --mesh pipeline=2,tensor=2 --model llama --device cpu"
FIXTURES = Path(__file__).parents[1] / "test" / "fixtures"

HEAD = """# A model over several devices

`--mesh` plans one model over several devices, and checks the split for real: one process a rank, `torch.distributed`,
and outputs and gradients held against one device.

```
python run_test_generation.py --mesh data=2,tensor=2 --model llama --device cpu
python run_test_generation.py --mesh auto --model mixtral --precision bfloat16
python run_test_generation.py --mesh pipeline=2 --model llama --device cpu --device simulated
```

| axis | what is split | whose code | who talks |
|---|---|---|---|
| `data` | the batch; each copy has the whole model | DDP | gradients are averaged |
| `tensor` | each layer | transformers' plan of the type (`from_pretrained(tp_plan="auto")`) | sums in a layer |
| `pipeline` | the layers, as stages | torch's `ScheduleGPipe` over stages cut here | stages hand on hidden states |

The plan is of the real model: its bytes are counted on a model without data, of the library's default configuration
or of a checkpoint's `config.json`. The check runs the tiny model of the type, made large enough for four ranks, with
seeded test weights, in float32. What is planned: parameters. Activations, caches, optimisers and links aren't
counted; a tenth of each device's memory is left for them. An unknown figure isn't guessed: the plan then says that it
isn't shown to fit. Exit code 1: a check failed, a rank died, or nothing fits; 4: no such split can be.

A split model is another condition than a cell has, so that this is no evidence and makes no level: the result is a
file of its own, `mesh.json` in the folder of reports ([schema](../hardware/schemas/mesh.json)).

## What is checked
"""

MIDDLE = """
A process that computes everything by itself has right outputs; it fails the last three. For `every_rank_is_heard` all
parameters of one rank after another are multiplied by 1.25: the outputs of its share of the batch must move on every
rank that has outputs, and the other copies' must not. A model that is computed whole, in disguise, with the right
parts on show and calls for show, is seen by that alone (`test/device/broken_rank.py` has it, and seven other faults).

A rank that dies or stands still ends all, and is named: killed by a signal, its own error before that of those whose
partner is gone, or the one that has talked to others least when the time is over (`--timeout`).

Calls are counted as torch's dispatcher sees them. A pipeline sends each microbatch, and before the first the shapes
of what it will send, for which torch runs every stage once more.

## What a stage is
The model's own code runs on every stage, so that masks and positions are made as ever. Which modules run before, in
and behind the layers is learnt from one pass of the library's own random weights. What another stage holds keeps its
shape and gives up its data; the first own layer takes what was sent, and behind the last own layer the pass ends.
Layers that hand on more than one tensor can't be stages, and the plan says so. Of a tied embedding both ends hold
one, and its gradient is the sum of the two.

## Who can be in one group
Copies and parts of a layer meet in collectives: NCCL on NVIDIA, RCCL on AMD, oneCCL on Intel, gloo on processors.
These don't speak to one another, so that devices of different vendors are joined as stages alone, point to point
through memory of the host (gloo). Devices of targets that run whole graphs (openvino, qnn, tpu, webgpu, webnn) can't
be in a mesh.

## Plans of recorded machines
"""

FOUND = """
What isn't equal is so by the library's code. Outputs, which a pass without DDP gives, were right in all of these but
`clip`, and gradients weren't:
- `qwen3`, `qwen3_moe`, `exaone4`: norms of queries and keys are whole on every rank, and transformers adds their
  gradients up in a hook of the module, on what `.grad` holds by then. With one microbatch and no DDP they are right;
  each further microbatch adds up what was added up before, and under DDP the hook and DDP write to the same gradient.
- `apertus`: the parameters of its activation stand inside a split layer, and the tensor plan doesn't add their
  gradients up.
- `gemma3_text`: its module of rotary embeddings registers buffers in the order of a `set` of texts, which each
  process has in its own order. DDP sends buffers by their order, so that copies learn with one another's frequencies.
  The ranks of a check have fixed and different orders (`PYTHONHASHSEED`), so that this shows in every run. Its norms
  are as those of `qwen3`.
- `clip` compares all pictures with all texts: a copy that has a share of the batch can't, and its outputs are others.

"""

LIMITS = """
## What this doesn't show
- On processors the ranks share one CPU: the split is proven, not its speed.
- NCCL, RCCL and oneCCL are chosen by the kind of device, and no GPU was here: `test/gpu/test_mesh_gpu.py` runs the
  three splits where there are two of a kind, and is skipped by name elsewhere. Two vendors need two builds of torch,
  and all ranks of a check start with one: such a mesh is planned here; processor and simulated device are checked.
- Ranks are started on one machine. Links between machines have no part in a plan.
- `from_pretrained` reads a rank's part of each layer alone. A stage is cut from a model that was whole on the host.
- Generation, caches and other precisions than float32 aren't checked.
"""


def mesh_page(kept: Mapping[str, Any], splits: Sequence[str]) -> str:
    """Return the page as Markdown."""
    checks = "".join(f"- `{name}`: {what}\n" for name, what in CHECKS.items())
    parts = [
        HEAD,
        checks,
        MIDDLE,
        *_plans(kept["figures"]),
        "\n## A check\n",
        _block(EXAMPLE, mesh_text(kept["example"])),
    ]
    return "".join([*parts, *_table(kept, splits), LIMITS])


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
        model = ModelFigures.from_dict(figures[name])
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
        f"{tried} of the {len(kept['with_plan'])} that\nhave a tensor plan and a recipe, and some that have none; "
        "`make mesh` tries the rest. Numbers are the error of the\noutputs against float64, relative to their scale: "
        "at most 2e-05 passes, and all other checks passed with it.\n\n"
    ]
    lines.append(f"| | {' | '.join(splits)} |\n|---|{'---|' * len(splits)}\n")
    words = {"right": "equal to one device", "wrong": "something else", "broke": "raised", "no": "can't be"}
    for word, said in (words | {"untried": "not tried: no tiny model that four divides"}).items():
        lines.append(f"| {said} | {' | '.join(str(counts[split][word]) for split in splits)} |\n")
    lines.append(f"\n| type | {' | '.join(splits)} |\n|---|{'---|' * len(splits)}\n")
    notes: dict[str, int] = {}
    for name in sorted(types):
        cells = [_cell(types[name][split], notes) for split in splits]
        lines.append(f"| {name} | {' | '.join(cells)} |\n")
    lines.append(FOUND)
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
