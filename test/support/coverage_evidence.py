"""Seven model types, four of them with recipes, and made-up evidence of them that the real writer wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from generators.compatibility.judge import required_checks
from generators.models.catalog import load_catalog
from generators.models.recipe_store import Obstacle, Refusal, stored_recipes
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter
from reports import coverage_command
from reports.coverage import coverage_results

WITH_RECIPE = ("bert", "gpt2", "t5", "vit")
WITHOUT = ("albert", "clip_text_model", "electra")

BERT = "bert/fill-mask/cpu/float32"
GPT2 = "gpt2/text-generation/cpu/float32"
T5 = "t5/text2text-generation/cpu/float32"
VIT = "vit/image-classification/cpu/float32"


def seven_types(patch: pytest.MonkeyPatch, *refused: Refusal, more: Sequence[str] = ()) -> None:
    """Make these the types that transformers has, with these refusals, whatever ships; `more` are further types."""
    whole = load_catalog()
    configs = {name: whole.configs[name] for name in (*WITH_RECIPE, *WITHOUT, *more)}
    recipes = tuple(recipe for recipe in stored_recipes() if recipe.model_type in WITH_RECIPE)
    for module in (coverage_command, coverage_results):
        patch.setattr(module, "load_catalog", lambda: replace(whole, configs=configs))
    patch.setattr(coverage_results, "stored_recipes", lambda: recipes)
    patch.setattr(coverage_results, "refusals", lambda: {one.model_type: one for one in refused})


def refusal(model_type: str, obstacle: Obstacle, reason: str = "its own words") -> Refusal:
    return Refusal(model_type=model_type, obstacle=obstacle, reason=reason)


def write_run(
    folder: Path,
    cell: str,
    *broken: str,
    run_id: str = "r1",
    versions: dict[str, str] | None = None,
    subject: str = "tiny",
    of_all: dict[str, object] | None = None,
    **of_broken: object,
) -> None:
    """A whole run of one cell in which every required check passed but those that are `broken`: they failed, or what
    `of_broken` says. `of_all` is so in every line; `versions` differ from those of this machine."""
    parsed = Cell.parse(cell)
    checks = required_checks(parsed)
    writer = EvidenceWriter(folder, run_id)
    planned = PlannedCell(cell_id=cell, checks=checks, suite="s.py", suite_hash=run_id, subject=subject)
    run = RunLine(
        run_id=run_id,
        started_at=f"2026-01-01T00:00:00-{run_id}",
        command="",
        machine="a-machine",
        inventory={},
        versions={**versions_of(detect()), **(versions or {})},
        plan=(planned,),
    )
    writer.write(run)
    for check in checks:
        values: dict[str, object] = {
            "run_id": run_id,
            "cell_id": cell,
            "check_name": check,
            "outcome": Outcome.PASSED,
            "subject": subject,
            "requested_target": str(parsed.target),
            "actual_target": str(parsed.target),
            "precision": parsed.precision,
            "actual_dtype": "float32",
            "max_rel_error": 1e-6,
            "tolerance": 2e-5,
            "native_ops": {"aten.mm": 1} if check == "runs_natively" else {},
            "model": parsed.model,
            "task": parsed.task,
            "suite_hash": run_id,
            "started_at": f"2026-01-01T00:00:01-{run_id}",
            "duration_s": 0.1,
            "accelerator": "a processor",
        }
        failed = {"outcome": Outcome.FAILED, **of_broken} if check in broken else {}
        writer.write(CheckLine(**{**values, **failed, **(of_all or {})}))
    writer.write(EndLine(run_id=run_id, ended_at="2026-01-01T00:00:02", reason="finished", counts={}))
    writer.close()
