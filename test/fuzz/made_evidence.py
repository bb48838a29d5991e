"""A small folder of evidence as JSON values: two runs of three cells, with passes, failures and what is neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CELLS = ("bert/fill-mask/cpu/float32", "gpt2/text-generation/cpu/float32", "bert/fill-mask/openvino/float32")
CHECKS = ("builds", "matches_reference", "honours_mask", "runs_natively")
RUNS = ("20260101T000000Z-0a1b2c", "20260102T000000Z-3d4e5f")
OUTCOMES = ("passed", "failed", "crashed", "skipped", "out_of_memory", "ambiguous", "timeout", "not_run")
VERSIONS = {
    "torch": "2.13.0",
    "transformers": "5.5.4",
    "numpy": "2.4.6",
    "openvino": "2026.4.1",
    "hwcompat": "0.1.0+a",
}

File = tuple[str, list[dict[str, Any]]]


def _reasons(number: int) -> list[Any]:
    """Reasons as the first edition wrote them, as texts, or as they are written now."""
    if number == 0:
        return ["every operator is known"]
    parameters = {"check": "builds", "outcome": "failed", "message": "it broke", "error": 0.5, "tolerance": 2e-5}
    known = {"code": "rule", "parameters": {"text": "every operator is known"}}
    return [known, {"code": "check", "parameters": parameters}]


def a_run(number: int) -> dict[str, Any]:
    """The line of a run."""
    return {
        "kind": "run",
        "schema_version": 1,
        "run_id": RUNS[number],
        "started_at": f"2026-01-0{number + 1}T00:00:00.000000+00:00",
        "command": "python run_test_generation.py --model bert --device cpu --run",
        "machine": "desk",
        "inventory": {"host": {"system": "Linux"}, "cpu": {"model": "a processor"}, "accelerators": []},
        "versions": dict(VERSIONS),
        "plan": [
            {
                "cell_id": cell,
                "checks": list(CHECKS),
                "suite": "test_bert_fill_mask_cpu_float32.py",
                "suite_hash": "0123456789abcdef",
                "subject": "tiny",
                "verdict": {
                    "cell": cell,
                    "level": "high",
                    "basis": "predicted",
                    "reasons": _reasons(number),
                    "conditions": [{"code": "on_host", "parameters": {"operators": ["aten.add", "aten.mul"]}}],
                    "rule_ids": ["cpu.known"],
                    "evidence_ids": [],
                },
                "selection": None,
                "recipe": "abc",
                "modeling": "0123456789ab",
            }
            for cell in CELLS
        ],
        "isolation": "process",
        "resumes": [],
        "jobs": 1,
        "origin": "hwcompat",
    }


def a_check(number: int, cell: str, check: str, outcome: str) -> dict[str, Any]:
    """The line of a check."""
    model, task, target, precision = cell.split("/")
    failed = outcome not in ("passed", "not_run")
    return {
        "kind": "check",
        "schema_version": 1,
        "run_id": RUNS[number],
        "cell_id": cell,
        "check_name": check,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": target,
        "actual_target": target if outcome != "not_run" else None,
        "precision": precision,
        "model": model,
        "task": task,
        "suite_hash": "0123456789abcdef",
        "started_at": f"2026-01-0{number + 1}T00:00:01.000000+00:00",
        "duration_s": 0.5,
        "model_revision": None,
        "config_hash": "c0ffee",
        "architecture": "encoder-only",
        "substitution_reason": "",
        "accelerator": "a processor",
        "actual_dtype": precision,
        "batch": 2,
        "sequence_length": 16,
        "conditions": {"attention": "sdpa"},
        "stage": "run" if failed else None,
        "error_type": "unknown" if failed else "",
        "error_message": "RuntimeError: it broke" if failed else "",
        "traceback": "Traceback (most recent call last):\n  File x\nRuntimeError: it broke" if failed else "",
        "max_abs_error": 1e-6,
        "max_rel_error": 1e-6,
        "tolerance": 2e-5,
        "native_ops": {"aten.mm": 3},
        "offloaded_ops": {"aten.add": 1} if outcome == "failed" else {},
        "unseen": "",
        "latency_ms": 1.5,
        "peak_memory_bytes": 1_000_000,
        "origin": "hwcompat",
    }


def an_end(number: int) -> dict[str, Any]:
    """The line of a run's end."""
    return {
        "kind": "end",
        "schema_version": 1,
        "run_id": RUNS[number],
        "ended_at": f"2026-01-0{number + 1}T00:01:00.000000+00:00",
        "reason": "finished",
        "counts": {"passed": 3},
    }


def files() -> list[File]:
    """Names of files with their lines: for each run one of the parent and one of a child."""
    found: list[File] = []
    for number, run_id in enumerate(RUNS):
        outcomes = (OUTCOMES[(place + 3 * number) % len(OUTCOMES)] for place in range(100))
        checks = [a_check(number, cell, check, next(outcomes)) for cell in CELLS for check in CHECKS]
        found += [(f"{run_id}-1.jsonl", [a_run(number), an_end(number)]), (f"{run_id}-2.jsonl", checks)]
    return found


def write(folder: Path, made: Sequence[File], as_json: Callable[[Any], bytes] | None = None) -> None:
    """Put files into a folder, each line as `as_json` gives it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in made:
        texts = [as_json(line) if as_json else json.dumps(line).encode() for line in lines]
        (folder / name).write_bytes(b"".join(text + b"\n" for text in texts))
