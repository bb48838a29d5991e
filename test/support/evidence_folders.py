"""Folders of evidence of several runs, written line by line."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

from evidence_lines import BERT, check_line, planned_cell, run_line

from hardware.evidence.record import CheckLine, EndLine, Line, Origin, Outcome, RunLine, to_dict

GPT2 = "gpt2/text-generation/cuda/float16"
CHECKS = ("builds", "matches_reference", "backward")
OUTCOMES = (Outcome.PASSED, Outcome.PASSED, Outcome.FAILED, Outcome.AMBIGUOUS, Outcome.SKIPPED, Outcome.NOT_RUN)


def append(folder: Path, name: str, *lines: Line) -> Path:
    """Add lines to the file that the first process of a run writes."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(to_dict(line)) + "\n" for line in lines)
    return path


def a_run(run_id: str, *cells: str, day: int = 1, **changes: object) -> RunLine:
    """Return a run of a day of January 2026 that planned `CHECKS` of each cell."""
    plan = (planned_cell(cell, CHECKS, suite_hash=run_id) for cell in cells)
    facts = {"started_at": f"2026-01-{day:02}", "machine": "here", "versions": {"torch": run_id}}
    return run_line(*plan, run_id=run_id, **{**facts, **changes})


def a_check(run_id: str, cell: str = BERT, name: str = "builds", day: int = 1, **changes: object) -> CheckLine:
    facts = {"run_id": run_id, "cell_id": cell, "suite_hash": run_id, "accelerator": "A"}
    return check_line(name, **{**facts, "started_at": f"2026-01-{day:02}T", **changes})


def an_end(run_id: str) -> EndLine:
    return EndLine(run_id=run_id, ended_at="2026-02-01", reason="done", counts={})


def write_random_runs(folder: Path, seed: int) -> None:
    """Write seven runs that plan more or less than what they have lines of, on two machines and accelerators."""
    draw = random.Random(seed)
    cells = [f"m{number}/some-task/{target}/float32" for number in range(6) for target in ("cpu", "cuda")]
    cells.append("no cell at all")
    for number in range(7):
        run_id = f"r{number}"
        own = draw.sample(cells, 9)
        tidy = draw.random() < 0.5
        lines: list[Line] = []
        origin, at = Origin.HWCOMPAT, draw.randrange(1, 28)
        if draw.random() < 0.9:
            origin = Origin.TRANSFORMERS if draw.random() < 0.1 else Origin.HWCOMPAT
            lines.append(a_run(run_id, *own, machine=draw.choice(("a", "b")), day=at, origin=origin))
        for cell in own[:-1]:
            for name in CHECKS if tidy else draw.choices((*CHECKS, "unplanned"), k=4):
                cell = cell if "/" in cell else cells[0]
                changes = {} if tidy else _odd(draw, cell)
                lines.append(a_check(run_id, cell, name, day=draw.randrange(at, 29), origin=origin, **changes))
        append(folder, run_id, *lines, an_end(run_id))


def _odd(draw: random.Random, cell: str) -> dict[str, object]:
    outcome = draw.choice(OUTCOMES)
    silent = outcome is Outcome.NOT_RUN
    return {
        "outcome": outcome,
        "error_type": draw.choice(("not_reached", "interrupted", "else")) if silent else "",
        "accelerator": draw.choice(("A", "B™", None, "")),
        "requested_target": draw.choice(("cpu", "cpu:1") if "/cpu/" in cell else ("cuda", "cuda:1")),
        "substitution_reason": "" if silent else draw.choice(("", "", "it isn't here")),
        **({"started_at": "2999-01-01"} if draw.random() < 0.1 else {}),
    }


def write_killed_run(folder: Path) -> None:
    """Write three runs of two machines: one ended, one that the third resumes, and the third, killed in a line."""

    def planned(day: int, **changes: object) -> RunLine:
        line = a_run(f"r{day}", BERT, GPT2, machine=f"lab-{day % 2}", day=day, **changes)
        verdict = {"level": "high", "basis": "predicted", "rule_ids": [f"rule.{day}"]}
        facts = {"recipe": "digest", "modeling": "0123456789ab"}
        plan = tuple(replace(one, verdict={"cell": one.cell_id, **verdict}, **facts) for one in line.plan)
        return replace(line, plan=plan, inventory={"cpu": {"model": f"of run {day}"}})

    for day in (1, 2):
        lines = [a_check(f"r{day}", cell, name, day) for cell in (BERT, GPT2) for name in CHECKS]
        append(folder, f"r{day}", planned(day), *lines, *([an_end("r1")] if day == 1 else []))
    wrong = {"outcome": Outcome.FAILED, "error_type": "numerical_mismatch", "error_message": "off by far"}
    failed = a_check("r3", BERT, "matches_reference", 3, max_rel_error=float("nan"), tolerance=2e-5, **wrong)
    path = append(folder, "r3", planned(3, resumes=("r2",)), failed, a_check("r3", BERT, "builds", 3))
    path.write_text(path.read_text(encoding="utf-8") + '{"kind": "check", "run', encoding="utf-8")
