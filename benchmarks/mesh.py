"""Measure which model types can be split over four ranks, for every type with a tensor plan in transformers.

python -m benchmarks.mesh run --out docs/evidence/mesh.json     half an hour on two cores; resumes
python -m benchmarks.mesh figures --out docs/evidence/mesh.json    the plans and the example of the page
python -m benchmarks.mesh page docs/evidence/mesh.json > docs/measured/mesh.md
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.mesh_page import EXAMPLE, mesh_page
from generators.models.catalog import load_catalog
from generators.models.recipe_store import load_recipe
from hardware.basic_detection import inventory_here
from hardware.errors import ModelError
from hardware.files import write_whole
from hwcompat.plugins.placement.mesh.axes import Split
from hwcompat.plugins.placement.mesh.mesh_case import GRADIENTS, OUTPUTS, CaseResult, MeshCase
from hwcompat.plugins.placement.mesh.mesh_check import check_mesh
from hwcompat.plugins.placement.mesh.mesh_input import MeshInput, mesh_input
from hwcompat.plugins.placement.mesh.mesh_plan import MeshRefused, plan_mesh
from hwcompat.plugins.placement.placement_device import processor_ranks

SPLITS = (Split(data=4), Split(tensor=4), Split(pipeline=4), Split(data=2, tensor=2), Split(pipeline=2, tensor=2))
OTHERS = ("gpt2", "bert", "vit", "roberta", "distilbert", "t5", "opt", "bloom", "gpt_neo", "whisper", "clip")
"""Types without a tensor plan whose data and pipeline splits are tried."""
RANKS, TOGETHER, DEADLINE_S = 4, 4, 240.0


def types_with_a_plan() -> list[str]:
    """Return model types with a recipe whose configuration, or a part of it, has a tensor plan."""
    import transformers

    found = []
    for model_type, name in load_catalog().configs.items():
        made = getattr(transformers, name, None)
        parts = [made, *(getattr(made, "sub_configs", None) or {}).values()]
        planned = any(getattr(one, "base_model_tp_plan", None) for one in parts if inspect.isclass(one))
        if planned and load_recipe(model_type) is not None:
            found.append(model_type)
    return sorted(found)


def run(out: Path, types: Sequence[str]) -> None:
    """Try the splits without a result in `out`, which is written after each start of the ranks."""
    kept: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {"types": {}}
    kept["date"] = datetime.now(UTC).date().isoformat()
    kept["versions"] = {name: metadata.version(name) for name in ("torch", "transformers")}
    kept["with_plan"] = types_with_a_plan()
    write_whole(out, json.dumps(kept, indent=1, sort_keys=True) + "\n")
    missing = [name for name in types if name not in kept["types"]]
    for at in range(0, len(missing), TOGETHER):
        names = missing[at : at + TOGETHER]
        kept["types"] |= tried(names)
        write_whole(out, json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(f"{min(at + TOGETHER, len(missing))} of {len(missing)}: {', '.join(names)}", flush=True)


def keep_figures(out: Path) -> None:
    """Store the figures of two real models, and the command's output for one split."""
    kept = json.loads(out.read_text(encoding="utf-8"))
    subjects = {name: mesh_input(name) for name in ("llama", "mixtral")}
    kept["figures"] = {name: one.real.to_dict() for name, one in subjects.items() if one.real is not None}
    with tempfile.TemporaryDirectory() as folder:
        words = [*EXAMPLE.split()[1:], "--format", "json", "--report-dir", folder]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    kept["example"] = json.loads(done.stdout)
    write_whole(out, json.dumps(kept, indent=1, sort_keys=True) + "\n")


def tried(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the result of each split of these types: an error, or the reason why there is none."""
    subjects: dict[str, MeshInput] = {}
    found: dict[str, dict[str, str]] = {}
    cases: list[MeshCase] = []
    for name in names:
        try:
            subjects[name] = mesh_input(name)
        except ModelError as error:
            found[name] = dict.fromkeys(map(str, SPLITS), f"untried: {error}")
    for number, (name, subject) in enumerate(subjects.items()):
        found[name] = {}
        for split in SPLITS:
            case = _case(number, name, subject, split)
            if isinstance(case, MeshCase):
                cases.append(case)
            else:
                found[name][str(split)] = f"no: {case}"
    models = [(one.tiny, one.arrays(RANKS)) for one in subjects.values()]
    for case, told in _results(models, cases):
        name, _, split = case.partition(" ")
        found[name][split] = told
    return found


def _case(number: int, name: str, subject: MeshInput, split: Split) -> MeshCase | str:
    try:
        plan = plan_mesh(processor_ranks(inventory_here(), RANKS), subject.tiny_figures, split)
    except MeshRefused as refusal:
        return refusal.why
    return MeshCase(
        name=f"{name} {split}",
        model=number,
        split=split,
        stages=plan.stages,
        devices=("cpu",) * RANKS,
        microbatches=2 if split.pipeline > 1 else 1,
    )


def _results(models: Sequence[Any], cases: list[MeshCase]) -> Iterator[tuple[str, str]]:
    """Return the result of each case. A case that ends the ranks is removed, and the others start again."""
    while cases:
        result = check_mesh(models, cases, deadline_s=DEADLINE_S)
        yield from ((one.case.name, _told(one)) for one in result.cases)
        done = {one.case.name for one in result.cases}
        cases = [one for one in cases if one.name not in done]
        if not result.broken:
            return
        guilty = next((one for one in cases if result.step.startswith(f"{one.name}:")), None)
        if guilty is None:
            yield from ((one.name, f"broke: {result.broken}") for one in cases)
            return
        yield guilty.name, f"broke: {result.broken.partition(': ')[2]}"
        cases.remove(guilty)


def _told(result: CaseResult) -> str:
    errors = {one.name: one.error for one in result.checks}
    failed = [f"{one.name} {one.detail}".strip() for one in result.checks if not one.passed]
    if failed:
        return f"wrong: {'; '.join(failed)}"
    return f"right: {errors[OUTPUTS]:.1e} {errors[GRADIENTS]:.1e}"


def summary(types: Mapping[str, Mapping[str, str]]) -> dict[str, Counter[str]]:
    """Count by split how many types were right, wrong, broken or impossible."""
    return {str(split): Counter(one[str(split)].partition(":")[0] for one in types.values()) for split in SPLITS}


def main() -> None:
    """Run or print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    running = jobs.add_parser("run")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--types", default="", help="only these, separated by commas")
    figures = jobs.add_parser("figures")
    figures.add_argument("--out", type=Path, required=True)
    page = jobs.add_parser("page")
    page.add_argument("results", type=Path)
    options = parser.parse_args()
    if options.job == "run":
        run(options.out, options.types.split(",") if options.types else [*types_with_a_plan(), *OTHERS])
    elif options.job == "figures":
        keep_figures(options.out)
    else:
        kept = json.loads(options.results.read_text(encoding="utf-8"))
        print(mesh_page(kept, [str(one) for one in SPLITS]), end="")


if __name__ == "__main__":
    main()
