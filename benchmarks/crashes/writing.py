"""`python -m benchmarks.crashes.writing KIND FOLDER`: write one kind of file repeatedly until the process is killed.

First, each possible content of the file is written to `known/`. `ready` on standard output means that writing has
started. Folders of evidence are merged or compacted once.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

RUNS = 60
"""The number of runs that are merged or compacted, one file each."""

Write = Callable[[], object]


def _recipe(folder: Path) -> Sequence[Write]:
    from generators.models.recipe import write_recipe
    from generators.models.recipe_store import load_recipe

    path = folder / "recipe.json"
    recipes = [load_recipe(name) for name in ("bert", "gpt2")]
    return [lambda one=one: write_recipe(one, path) for one in recipes if one is not None]


def _refusals(folder: Path) -> Sequence[Write]:
    from generators.models.recipe_store import Obstacle, Refusal, keep_refusal

    refusal = Refusal(model_type="bert", task="x", obstacle=Obstacle.NOT_DERIVED, reason="r" * 20_000)
    keep_refusal("gpt2", "x", Refusal(model_type="gpt2", task="x", obstacle=Obstacle.NOT_DERIVED, reason="r"), folder)
    return [lambda one=one: keep_refusal("bert", "x", one, folder) for one in (refusal, None)]


def _reference(folder: Path) -> Sequence[Write]:
    import numpy as np

    from hardware.testing.reference import ReferenceStore

    store, inputs = ReferenceStore(folder), {"ids": np.arange(4)}
    return [lambda one=one: store.put("model", inputs, {"out": np.full((64, 257), one)}) for one in (0.5, 1.5)]


def _manifest(folder: Path) -> Sequence[Write]:
    import os

    from generators.suites.manifest import remember
    from hardware.files import CACHE_VARIABLE

    os.environ[CACHE_VARIABLE] = str(folder)
    suites = folder.parent / "suites"
    suites.mkdir()
    names = [f"test_{number}.py" for number in range(300)]
    for name in names:
        (suites / name).write_text(name, encoding="utf-8")
    return [lambda few=few: remember(suites, "key", dict.fromkeys(names[:few], "said")) for few in (100, 300)]


def _lock(folder: Path) -> Sequence[Write]:
    from generators.compatibility.verdict import Level
    from generators.project.project_plan import update_expected

    path, cell = folder / "hwcompat.toml", "bert/fill-mask/cpu/float32"
    comments = "# a line of a project file\n" * 2000
    model = '[[model]]\nname = "bert"\ntargets = ["cpu"]\n'
    text = f'schema_version = 1\n{comments}{model}\n[expected]\n"{cell}" = "none"\n'
    path.write_text(text, encoding="utf-8")
    return [lambda level=level: update_expected(path, {cell: level}) for level in (Level.HIGH, Level.LOW)]


def _report(folder: Path) -> Sequence[Write]:
    from reports.reporter import HardwareCompatibilityReporter

    reporter = HardwareCompatibilityReporter(output_folder=folder)
    texts = [json.dumps({"rows": ["a row of a report"] * rows}) for rows in (100, 20_000)]
    return [lambda text=text: reporter.save_to_file(text, "report.json") for text in texts]


def _seal(folder: Path) -> Sequence[Write]:
    from hardware.evidence.pages import keep_seal, seal_text

    text = seal_text({"rows": ["a seal"] * 20_000})
    return [lambda: keep_seal(folder, text)]


def _bundle(folder: Path) -> Sequence[Write]:
    from generators.chosen_models import choose_models, profiles_of
    from generators.run import plan_job
    from generators.suites.bundle import write_bundle
    from hardware.basic_detection import inventory_here

    inventory = inventory_here()
    chosen = choose_models(("bert", "vit"), priority=None, architectures=(), read_list=list)
    profiles, _, _ = profiles_of(chosen, (), dims="tiny")
    planned = plan_job(profiles, ["cpu"], ["float32"], inventory)
    path = folder / "suite.zip"
    return [lambda few=few: write_bundle(path, planned[:few], {"torch": "2"}) for few in (1, 2)]


KINDS: Mapping[str, Callable[[Path], Sequence[Write]]] = MappingProxyType(
    {
        "recipe": _recipe,
        "refusals": _refusals,
        "reference": _reference,
        "manifest": _manifest,
        "lock": _lock,
        "report": _report,
        "seal": _seal,
        "bundle": _bundle,
    }
)


def visible(folder: Path) -> list[Path]:
    """Return the files of a folder that readers use, without partial files and locks."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".part"
    ]


def make_evidence(folder: Path) -> None:
    """Write many finished runs, one file each."""
    from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine
    from hardware.evidence.writer import EvidenceWriter

    cell, names = "bert/fill-mask/cpu/float32", [f"check_{number}" for number in range(40)]
    facts = {"subject": "tiny", "requested_target": "cpu", "actual_target": "cpu", "precision": "float32"}
    facts |= {"model": "bert", "task": "fill-mask", "suite_hash": "0" * 16, "started_at": "2026-01-01T00:00:00+00:00"}
    planned = PlannedCell(cell_id=cell, checks=tuple(names), suite="s.py", suite_hash="0" * 16, subject="tiny")
    for number in range(RUNS):
        run_id = f"20260101T000000Z-{number:06x}"
        writer = EvidenceWriter(folder, run_id)
        about = {"command": "c", "machine": "m", "inventory": {}, "versions": {}}
        writer.write(RunLine(run_id=run_id, started_at=facts["started_at"], plan=(planned,), **about))
        for name in names:
            outcome = Outcome.PASSED
            writer.write(
                CheckLine(run_id=run_id, cell_id=cell, check_name=name, outcome=outcome, duration_s=0.1, **facts)
            )
        writer.write(EndLine(run_id=run_id, ended_at=facts["started_at"], reason="finished", counts={"passed": 40}))
        writer.close()


def main(kind: str, folder: Path) -> None:
    """Write until the process is killed, or until a folder of evidence is merged or compacted."""
    own = folder / "written"
    own.mkdir(parents=True, exist_ok=True)
    if kind in ("merge", "compact"):
        from hardware.evidence.compacted import compact
        from hardware.evidence.merge import merge_evidence

        print("ready", flush=True)
        if kind == "merge":
            merge_evidence(folder / "source", own)
        else:
            compact(own)
        return
    writes = KINDS[kind](own)
    for number, write in enumerate(writes):
        write()
        for path in visible(own):
            known = folder / "known" / str(number) / path.relative_to(own)
            known.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, known)
    print("ready", flush=True)
    for write in itertools.cycle(writes):
        write()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
