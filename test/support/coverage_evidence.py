"""Seven model types, four of them with recipes, in the place of all that the library has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from whole_runs import write_run as write_run  # tests of coverage import both from here

from generators.models.catalog import load_catalog
from generators.models.recipe_store import Obstacle, Refusal, stored_recipes
from hardware.detection import detect
from hardware.evidence.store import Evidence
from reports import coverage_command
from reports.coverage import coverage_results
from reports.coverage.coverage_facts import Coverage, CoverageStatus
from reports.coverage.coverage_report import CoverageReport

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


def with_standings(coverage: Coverage, words: str = "", **standings: CoverageStatus) -> Coverage:
    """Return the coverage with other standings; `words` are in the reason of a failure."""
    (target,) = coverage.targets
    wrong = {"level": "unsupported", "error_types": ("numerical_mismatch",), "reason": f"output differs {words}"}
    results = []
    for one in target.results:
        standing = standings.get(one.model_type, one.standing)
        results.append(replace(one, standing=standing, **(wrong if standing is CoverageStatus.FAILED else {})))
    return replace(coverage, targets=(replace(target, results=tuple(results)),))


def made_report(patch: pytest.MonkeyPatch, words: str = "") -> CoverageReport:
    """Return a report of seven types, one of which can't be built; bert passed and gpt2 failed."""
    seven_types(patch, refusal("electra", Obstacle.MISSING_DEPENDENCY, f"ImportError: {words}"))
    coverage = coverage_results.coverage_here(Evidence(), detect(), ("cpu",))
    standings = {"bert": CoverageStatus.PASSED, "gpt2": CoverageStatus.FAILED}
    return CoverageReport(
        timestamp="2026-01-02T03:04:05.000000+00:00",
        command="hwcompat coverage",
        machine="a-machine",
        versions={"transformers": "5.5.4", "torch": "2.13.0"},
        coverage=with_standings(coverage, words, **standings),
    )
