"""A small folder of evidence as JSON values: two runs of three cells, with passes, failures and what is neither."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_runs

from hardware.evidence.record import EndLine, Outcome, Stage, to_dict

CELLS = ("bert/fill-mask/cpu/float32", "gpt2/text-generation/cpu/float32", "bert/fill-mask/openvino/float32")
RUNS = ("20260101T000000Z-0a1b2c", "20260102T000000Z-3d4e5f")
OUTCOMES = ("passed", "failed", "crashed", "skipped", "out_of_memory", "ambiguous", "timeout", "not_run")
DETAILS = {
    "architecture": "encoder-only",
    "batch": 2,
    "sequence_length": 16,
    "conditions": {"attention": "sdpa"},
    "max_abs_error": 1e-6,
    "latency_ms": 1.5,
    "peak_memory_bytes": 1_000_000,
    "native_ops": {"aten.mm": 3},
}
BROKEN = {
    "stage": Stage.RUN,
    "error_type": "unknown",
    "error_message": "RuntimeError: it broke",
    "traceback": "Traceback (most recent call last):\n  File x\nRuntimeError: it broke",
    "offloaded_ops": {"aten.add": 1},
}

File = tuple[str, list[dict[str, Any]]]


def _verdict(number: int, cell: str) -> dict[str, Any]:
    """A prediction with reasons as the first edition wrote them, as texts, or as they are written now."""
    parameters = {"check": "builds", "outcome": "failed", "message": "it broke", "error": 0.5, "tolerance": 2e-5}
    known = {"code": "rule", "parameters": {"text": "every operator is known"}}
    reasons = [known, {"code": "check", "parameters": parameters}] if number else ["every operator is known"]
    conditions = [{"code": "on_host", "parameters": {"operators": ["aten.add", "aten.mul"]}}]
    found = {"cell": cell, "level": "high", "basis": "predicted", "reasons": reasons, "conditions": conditions}
    return {**found, "rule_ids": ["cpu.known"], "evidence_ids": []}


def files() -> list[File]:
    """Names of files with their lines: for each run one of the parent and one of a child."""
    found: list[File] = []
    for number, run_id in enumerate(RUNS):
        inventory = {"host": {"system": "Linux"}, "cpu": {"model": "a processor"}, "accelerators": []}
        run = made_runs.a_run(run_id, number + 1, *CELLS, inventory=inventory)
        run = replace(run, plan=tuple(replace(one, verdict=_verdict(number, one.cell_id)) for one in run.plan))
        end = EndLine(run_id=run_id, ended_at=run.started_at, reason="finished", counts={"passed": 3})
        outcomes = map(Outcome, itertools.islice(itertools.cycle(OUTCOMES), 3 * number, None))
        lines = made_runs.lines_of(run, **DETAILS)
        checks = [
            replace(line, outcome=outcome, **({} if outcome in ("passed", "not_run") else BROKEN))
            for line, outcome in zip(lines, outcomes, strict=False)
        ]
        names = f"{run_id}-1.jsonl", f"{run_id}-2.jsonl"
        found += zip(names, ([to_dict(run), to_dict(end)], [*map(to_dict, checks)]), strict=True)
    return json.loads(json.dumps(found))


def write(folder: Path, made: Sequence[File], as_json: Callable[[Any], bytes] | None = None) -> None:
    """Put files into a folder, each line as `as_json` gives it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in made:
        texts = [as_json(line) if as_json else json.dumps(line).encode() for line in lines]
        (folder / name).write_bytes(b"".join(text + b"\n" for text in texts))
