"""Mutants: a break of nothing is never killed, only a check that disagrees kills, and clean runs stay clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutants.__main__ import KINDS
from benchmarks.mutants.runs import plan_rounds
from generators.models.recipe_store import stored_recipes
from generators.mutants.model_anatomy import SMALLEST_CHANGE
from generators.mutants.mutation_operators import CONTROL, OPERATORS, Mutant, parse_mutant
from generators.mutants.orders import Made, MutantStatus, Order, judge_clean, judge_mutant, read_orders, write_orders
from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.evidence.record import CheckLine, Outcome
from hardware.testing.check_lines import line_for
from hardware.testing.suite_file import SuiteFile

CHECKS = ("builds", "matches_reference")
CELL = Cell.parse("bert/fill-mask/cpu/float32")
SUITE = SuiteFile(path=Path("test_x.py"), cell=CELL, subject="tiny", checks=CHECKS, suite_hash="")
MUTANT = Mutant(operator="half_batch", seed=0, site="layer 1", side="under test", describe="a break")


def lines(outcome: Outcome = Outcome.PASSED, **facts: Any) -> list[CheckLine]:
    """Return a line of each check, the second with this outcome."""
    second = line_for(SUITE, "r", "matches_reference", outcome=outcome, **facts)
    return [line_for(SUITE, "r", "builds", outcome=Outcome.PASSED), second]


PASSED = lines()
FAILED = lines(Outcome.FAILED, error_type="numerical_mismatch", max_rel_error=0.5)
CRASHED = lines(Outcome.FAILED, error_type="missing_dependency", error_message="ImportError: x")
LEFT_OUT = lines(Outcome.NOT_RUN, error_type="deselected")


def test_only_a_check_that_disagreed_kills_a_break_that_changes_something() -> None:
    for found, moved, status in (
        (FAILED, 0.3, MutantStatus.KILLED),
        (FAILED, float("inf"), MutantStatus.KILLED),
        (PASSED, 0.3, MutantStatus.SURVIVED),
        (CRASHED, 0.3, MutantStatus.ERROR),
        (LEFT_OUT, 0.3, MutantStatus.ERROR),
        (FAILED, None, MutantStatus.ERROR),
        ([], 0.3, MutantStatus.ERROR),
        (PASSED, 0.0, MutantStatus.EQUIVALENT),
        (FAILED, 0.0, MutantStatus.EQUIVALENT),
    ):
        made = Made(refused={"half_batch@0": "no batch"}) if moved is None else Made(mutant=MUTANT, change=moved)
        judged = judge_mutant(CHECKS, found, made, least=SMALLEST_CHANGE)
        assert judged.status is status
        assert judged.status.is_good is (status is MutantStatus.KILLED)
        if status is MutantStatus.KILLED:
            assert (judged.caught_by, judged.error) == ("matches_reference", 0.5)
        elif status is not MutantStatus.EQUIVALENT:
            assert judged.message


def test_a_clean_run_passes_every_check_or_counts_as_raised() -> None:
    good = [PASSED, lines(Outcome.SKIPPED, error_type="not_applicable")]
    bad = [PASSED[:1], FAILED, LEFT_OUT, lines(Outcome.SKIPPED, error_type="skipped")]
    assert [judge_clean(CHECKS, found).status.is_good for found in good + bad] == [True] * 2 + [False] * 4


def test_a_sweep_breaks_each_suite_in_each_way_and_leaves_half_of_the_clean_runs_alone() -> None:
    rounds = plan_rounds([SUITE], tuple(OPERATORS), 2, 4)
    jobs = [job for jobs in rounds for job in jobs]
    assert [job.mutant for job in jobs if job.counts] == [f"{name}@{seed}" for name in OPERATORS for seed in (0, 1)]
    clean = [job for job in jobs if not job.counts]
    assert sorted(job.mutant for job in clean) == ["", "", f"{CONTROL}@1", f"{CONTROL}@3"]
    assert {(bool(job.mutant), job.threads) for job in clean} == {(a, b) for a in (False, True) for b in (1, 2)}


def test_every_architecture_and_trait_has_a_kind_in_the_short_sweep() -> None:
    recipes = {recipe.model_type: recipe for recipe in stored_recipes()}
    if not recipes:
        pytest.skip("no recipe ships for this version of transformers")

    def shapes(kinds: Any) -> set[str]:
        return {shape for kind in kinds for shape in (recipes[kind].architecture, *recipes[kind].traits)}

    assert shapes(KINDS) == shapes(recipes)


def test_a_mutant_is_named_by_operator_and_seed_and_ordered_in_a_file(tmp_path: Path) -> None:
    assert parse_mutant("half_batch@12") == ("half_batch", 12)
    for text in ("half_batch", "half_batch@", "half_batch@-1", "half_batch@x"):
        with pytest.raises(UsageError, match="<operator>@<seed>"):
            parse_mutant(text)
    with pytest.raises(UsageError, match="Did you mean 'half_batch'"):
        parse_mutant("half_bach@0")
    orders = {
        tmp_path / "test_a.py": Order(mutants=("nan_row@0",), report=str(tmp_path / "a.json"), on_cpu=True),
        tmp_path / "test_b.py": Order(),
    }
    write_orders(tmp_path / "orders.json", orders)
    assert read_orders(tmp_path / "orders.json") == orders
