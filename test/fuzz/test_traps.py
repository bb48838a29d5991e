"""What is no plain file in the place of each kind of file that is read: it is never waited for, read to its end or
written through."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from hostile import TRAPS
from made_evidence import files, write
from test_checkpoint_folders import CONFIG, safetensors
from test_graphs import elsewhere, model
from test_recordings import SMALL
from test_template_folders import NAME, rendered
from watched import MEMORY, Surroundings, limited, refused_or

from generators.compatibility.rule import read_rules
from generators.models.checkpoint import read_checkpoint
from generators.project.project_reader import read_project
from generators.recipes.memory.memory_request import weights_of_another
from generators.suites.suite_files import state_of, write_suite
from hardware.detection import detect
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.pages import SEALS, read_seal
from hardware.evidence.shipped_evidence import read_shipped
from hardware.evidence.store import read_folder
from hardware.inventory_text import list_text
from hardware.recording import INDEX, ReplayedMachine
from hardware.testing.checkpoints import weights_hash
from hardware.testing.graph_weights import graph_hash
from hardware.testing.suite_file import read_suite
from hwcompat.plugins.stress.stress_report import load_stress
from reports.baseline import read_baseline
from reports.coverage.coverage_report import read_report
from reports.matrix_changes import read_baseline as read_matrix

HOLES = "a terabyte of holes"
EVIDENCE = ("20260101T000000Z-0a1b2c-2.jsonl", "20260103T000000Z-aaaaaa-1.jsonl", "x.parquet")


def checkpoint(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(safetensors({}))


def graph(folder: Path) -> None:
    (folder / "a.onnx").write_bytes(elsewhere(model(), "weights.bin", "initializer").SerializeToString())


def read_graph(file: Path) -> str:
    with contextlib.suppress(OSError):
        return graph_hash(file.with_name("a.onnx"))
    return ""


def read_evidence(file: Path) -> None:
    refused_or(merge_evidence, file.parent, file.parents[1] / "other")
    refused_or(read_latest, file.parent)
    found = refused_or(read_folder, file.parent)
    assert found is None or len(found.checks) in (12, 24)


Read = Callable[[Path], Any]
DOCUMENTS: dict[str, Read] = {
    "rules": read_rules,
    "project": read_project,
    "baseline": read_baseline,
    "matrix": read_matrix,
    "stress": load_stress,
    "coverage": read_report,
}
KINDS: dict[str, tuple[Callable[[Path], object] | None, Sequence[str], Sequence[Read], Collection[str]]] = {
    "checkpoint": (
        checkpoint,
        ("model.safetensors", "config.json", "model.safetensors.index.json"),
        (
            lambda file: (read_checkpoint(file.parent), weights_hash(file.parent)),
            lambda file: weights_of_another(file.parent, 10),
        ),
        TRAPS,
    ),
    "weights of a graph": (graph, ("weights.bin",), (read_graph,), ("empty",)),
    "evidence": (lambda folder: write(folder, files()), EVIDENCE, (read_evidence,), ()),
    "packed evidence": (None, ("kept.gz",), (read_shipped,), ("empty", HOLES)),  # holes end at their first byte
    "seal": (
        lambda folder: (folder / SEALS).mkdir(),
        (f"{SEALS}/{'0' * 64}.json",),
        (lambda file: read_seal(file.parents[1], file.stem),),
        (),
    ),
    "suite": (
        None,
        ("test_a.py",),
        (
            read_suite,
            lambda file: state_of(file, ""),
            lambda file: write_suite(file.parent, file.name, "", force=True),
        ),
        TRAPS,
    ),
    "template": (None, (NAME,), (lambda file: "def test_" in rendered(file.parent),), ()),
    **{name: (None, ("kept",), (read,), ()) for name, read in DOCUMENTS.items()},
    **{
        name: (
            lambda folder: shutil.copytree(SMALL, folder, symlinks=True, dirs_exist_ok=True),
            (name,),
            (
                lambda file, name=name: list_text(
                    detect(ReplayedMachine(file.parents[name.count("/")])), everything=True
                ),
            ),
            TRAPS,
        )
        for name in (INDEX, "sysfs.txt", "files/proc/cpuinfo", "libraries/pci_ids.json")
    },
}
"""What is written beside a file of a kind, the names that it may have, what reads it, and the traps in which that
finds something."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_trap_is_waited_for_or_written_through(kind: str, place: Path) -> None:
    beside, names, reads, finds = KINDS[kind]
    (place.parent / "outside").mkdir()
    memory = 2 << 30 if kind == "evidence" else MEMORY  # DuckDB maps more than it uses
    for number, (name, trap) in enumerate((name, trap) for name in names for trap in TRAPS):
        if (kind, trap) == ("evidence", HOLES):
            continue  # read to its end as what it says it is: there is no trick in it but its size
        folder = place / str(number)
        folder.mkdir()
        if beside:
            beside(folder)
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        TRAPS[trap](file, place.parent / "outside")
        around = Surroundings(place.parent, place)
        for read in reads:
            assert not limited(read, file, memory=memory) or trap in finds, (name, trap)
        around.check()
