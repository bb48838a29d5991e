"""Rounds of mutants: a break of nothing is told, only a check that disagrees kills, clean runs stay clean."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import broken, run, tiny

from benchmarks.mutants.__main__ import KINDS
from benchmarks.mutants.runs import plan_rounds
from generators.models.catalog import installed_version
from generators.models.recipe_store import stored_recipes
from generators.mutants import mutation_plugin
from generators.mutants.model_anatomy import SMALLEST_CHANGE, ModelAnatomy, change
from generators.mutants.mutation_operators import CONTROL, OPERATORS, Mutant, mutate, parse_mutant
from generators.mutants.orders import (
    ORDERS_VARIABLE,
    Made,
    MutantStatus,
    Order,
    judge_clean,
    judge_mutant,
    read_orders,
    write_orders,
)
from hardware.backends._torch import TorchBackend
from hardware.backends.base import ModelSubject
from hardware.backends.factory import get_backend
from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.evidence.record import CheckLine, Outcome
from hardware.testing.model_test import ModelTest
from hardware.testing.suite_file import SuiteFile

ROOT = Path(__file__).parents[2]
MUTANT = Mutant(operator="half_batch", seed=0, site="layer 1", side="under test", describe="a break")


def line(check: str, outcome: Outcome, **fields: Any) -> CheckLine:
    return CheckLine(
        run_id="r",
        cell_id="bert/fill-mask/cpu/float32",
        check_name=check,
        outcome=outcome,
        requested_target="cpu",
        actual_target="cpu",
        precision="float32",
        model="bert",
        task="fill-mask",
        subject="tiny",
        suite_hash="",
        started_at="",
        duration_s=0.0,
        **fields,
    )


PASSED = [line(name, Outcome.PASSED) for name in ("builds", "matches_reference")]
FAILED = line("matches_reference", Outcome.FAILED, error_type="numerical_mismatch", max_rel_error=0.5)
CRASHED = line("matches_reference", Outcome.FAILED, error_type="missing_dependency", error_message="ImportError: x")


CHECKS = ("builds", "matches_reference")
LEFT_OUT = line("matches_reference", Outcome.NOT_RUN, error_type="deselected")


def test_a_break_that_changes_nothing_is_reported_and_never_killed() -> None:
    model, inputs, recipe = tiny("bert")
    mutant, _ = broken(model, inputs, CONTROL)
    moved = change(model, mutant, inputs, masked_by=recipe.masked_by)
    assert moved == 0.0
    for lines in (PASSED, [PASSED[0], FAILED]):
        judged = judge_mutant(CHECKS, lines, Made(mutant=MUTANT, change=moved), least=SMALLEST_CHANGE)
        assert judged.status is MutantStatus.EQUIVALENT
        assert not judged.status.is_good


@pytest.mark.parametrize(
    ("lines", "moved", "status"),
    [
        ([PASSED[0], FAILED], 0.3, MutantStatus.KILLED),
        ([PASSED[0], FAILED], float("inf"), MutantStatus.KILLED),
        (PASSED, 0.3, MutantStatus.SURVIVED),
        ([PASSED[0], CRASHED], 0.3, MutantStatus.ERROR),
        ([PASSED[0], LEFT_OUT], 0.3, MutantStatus.ERROR),
        ([PASSED[0], FAILED], None, MutantStatus.ERROR),
        ([], 0.3, MutantStatus.ERROR),
    ],
)
def test_only_a_check_that_disagreed_kills(lines: list[CheckLine], moved: float | None, status: MutantStatus) -> None:
    made = Made(refused={"half_batch@0": "no batch"}) if moved is None else Made(mutant=MUTANT, change=moved)
    judged = judge_mutant(CHECKS, lines, made, least=SMALLEST_CHANGE)
    assert judged.status is status
    assert judged.status.is_good is (status is MutantStatus.KILLED)
    if status is MutantStatus.KILLED:
        assert (judged.caught_by, judged.error) == ("matches_reference", 0.5)
    else:
        assert judged.message


@pytest.mark.parametrize(
    ("lines", "good"),
    [
        (PASSED, True),
        (PASSED[:1], False),
        ([PASSED[0], FAILED], False),
        ([PASSED[0], LEFT_OUT], False),
        ([PASSED[0], line("matches_reference", Outcome.SKIPPED, error_type="skipped")], False),
        ([PASSED[0], line("matches_reference", Outcome.SKIPPED, error_type="not_applicable")], True),
    ],
)
def test_a_clean_run_passes_every_check_or_counts_as_raised(lines: list[CheckLine], good: bool) -> None:
    assert judge_clean(CHECKS, lines).status.is_good is good


def test_a_sweep_breaks_each_suite_in_each_way_and_leaves_half_of_the_clean_runs_alone() -> None:
    cell = Cell.parse("bert/fill-mask/cpu/float32")
    suite = SuiteFile(path=Path("test_x.py"), cell=cell, subject="tiny", checks=CHECKS, suite_hash="")
    rounds = plan_rounds([suite], tuple(OPERATORS), 2, 4)
    jobs = [job for jobs in rounds for job in jobs]
    assert [job.mutant for job in jobs if job.counts] == [f"{name}@{seed}" for name in OPERATORS for seed in (0, 1)]
    clean = [job for job in jobs if not job.counts]
    assert sorted(job.mutant for job in clean) == ["", "", f"{CONTROL}@1", f"{CONTROL}@3"]
    assert {(bool(job.mutant), job.threads) for job in clean} == {(a, b) for a in (False, True) for b in (1, 2)}


def test_every_architecture_and_trait_has_a_kind_in_the_short_sweep() -> None:
    recipes = {recipe.model_type: recipe for recipe in stored_recipes()}
    if not recipes:
        pytest.skip(f"no recipe ships for transformers {installed_version()}")

    def shapes(kinds: Any) -> set[str]:
        return {shape for kind in kinds for shape in (recipes[kind].architecture, *recipes[kind].traits)}

    assert shapes(KINDS) == shapes(recipes)


def test_a_mutant_is_named_by_operator_and_seed() -> None:
    assert parse_mutant("half_batch@12") == ("half_batch", 12)
    for text in ("half_batch", "half_batch@", "half_batch@-1", "half_batch@x"):
        with pytest.raises(UsageError, match="<operator>@<seed>"):
            parse_mutant(text)
    with pytest.raises(UsageError, match="Did you mean 'half_batch'"):
        parse_mutant("half_bach@0")


def load(model: Any, recipe: Any, inputs: Mapping[str, Any]) -> Any:
    subject = ModelSubject(model=copy.deepcopy(model), task=recipe.task, identity="x")
    return get_backend("cpu").load(subject, inputs, "float32")


def start_plugin() -> Any:
    manager = SimpleNamespace(registered=[])
    manager.register = manager.registered.append
    config: Any = SimpleNamespace(stash=pytest.Stash(), pluginmanager=manager)
    mutation_plugin.pytest_configure(config)
    return config


def test_the_plugin_breaks_what_is_loaded_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, recipe = tiny("vit")
    clean, loading = run(model, inputs)["logits"], TorchBackend.load
    monkeypatch.setenv(mutation_plugin.MUTANT_VARIABLE, "nan_row@0")
    config = start_plugin()
    try:
        outputs = load(model, recipe, inputs)(**inputs)
    finally:
        mutation_plugin.pytest_unconfigure(config)
    assert np.isnan(outputs["logits"][-1]).all()
    assert np.array_equal(run(model, inputs)["logits"], clean)
    assert TorchBackend.load is loading


def test_each_suite_is_broken_as_ordered_and_taken_to_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model, inputs, recipe = tiny("vit")
    clean = run(model, inputs)["logits"]
    orders = {
        tmp_path / "test_a.py": Order(mutants=("nan_row@0",), report=str(tmp_path / "a.json"), on_cpu=True),
        tmp_path / "test_b.py": Order(),
    }
    write_orders(tmp_path / "orders.json", orders)
    assert read_orders(tmp_path / "orders.json") == orders
    monkeypatch.setenv(ORDERS_VARIABLE, str(tmp_path / "orders.json"))
    config = start_plugin()
    (breaker,) = config.pluginmanager.registered
    try:
        for name, is_broken in (("test_b.py", False), ("test_a.py", True), ("test_c.py", False)):
            item: Any = SimpleNamespace(path=tmp_path / name)
            breaker.pytest_runtest_setup(item)
            outputs = load(model, recipe, inputs)(**inputs)["logits"]
            assert np.array_equal(outputs, clean) is not is_broken
            case = ModelTest("vit/image-classification/cuda/float32", lambda: model, inputs, gain=1.0, outputs=())
            assert case.requested_target.name == "cuda"
            if is_broken:
                assert (case.actual_target.name, case.substitution_reason) == ("cpu", "")
    finally:
        mutation_plugin.pytest_unconfigure(config)
    made = Made.from_dict(json.loads((tmp_path / "a.json").read_text()))
    assert (made.mutant.operator if made.mutant else "", made.change) == ("nan_row", float("inf"))


def test_the_first_break_that_the_model_has_a_place_for_is_made() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    inputs = {"input": np.ones((2, 4), dtype=np.float32)}
    subject = ModelSubject(model=model, task="own", identity="x")
    order = Order(mutants=("dropped_mask@0", f"{CONTROL}@0", "nan_row@0", "half_batch@0"))
    made = mutation_plugin.break_subject(subject, inputs, order)
    assert made.mutant is not None
    assert made.mutant.name == "nan_row@0"
    assert "no mask" in made.refused["dropped_mask@0"]
    assert "moves the outputs by 0.0e+00" in made.refused[f"{CONTROL}@0"]
    assert torch.isnan(model(torch.ones(2, 4))[-1]).all()


def test_a_break_that_a_model_of_an_unknown_shape_refuses_becomes_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    subject = ModelSubject(model=model, task="own", identity="x")

    def fail(*_: Any) -> Any:
        raise RuntimeError("shape '[-1]' is invalid")

    monkeypatch.setattr(mutation_plugin, "mutate", fail)
    made = mutation_plugin.break_subject(subject, {}, Order(mutants=("half_batch@0",)))
    assert made.mutant is None
    assert str(made) == "no half_batch@0: RuntimeError: shape '[-1]' is invalid"


def test_a_model_without_gradients_has_no_sites_and_says_why() -> None:
    class Frozen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj = torch.nn.Linear(4, 4)
            self.k_proj = torch.nn.Linear(4, 4)

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return self.q_proj(input) * self.k_proj(input)

    model = torch.nn.Sequential(Frozen())
    with pytest.raises(ValueError, match="nothing tells which weights of Sequential matter"):
        mutate(model, "attention_scale", 0, ModelAnatomy(model, {"input": np.ones((2, 4), dtype=np.float32)}))


def test_where_no_break_can_be_made_nothing_is_broken_and_the_reason_is_kept() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    subject = ModelSubject(model=model, task="own", identity="x")
    before = copy.deepcopy(model.state_dict())
    made = mutation_plugin.break_subject(
        subject, {"input": np.ones((2, 4), dtype=np.float32)}, Order(mutants=("dropped_mask@0",))
    )
    assert made.mutant is None
    assert "no mask" in made.refused["dropped_mask@0"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_plugin_refuses_an_unknown_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mutation_plugin.MUTANT_VARIABLE, "half_bach@0")
    with pytest.raises(pytest.UsageError, match=mutation_plugin.MUTANT_VARIABLE):
        start_plugin()


@pytest.mark.slow
def test_the_command_kills_a_mutant_in_a_child_and_passes_clean_runs(tmp_path: Path) -> None:
    command = ["--model", "vit", "--operator", "wrong_precision", "--clean", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutants", *command, str(tmp_path / "out.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed 1 of 1 mutants" in done.stdout
    assert "clean runs that raised something: 0 of 2" in done.stdout
    mutant = json.loads((tmp_path / "out.json").read_text())[0]
    found = {key: mutant[key] for key in ("operator", "status", "site")}
    assert found == {"operator": "wrong_precision", "status": "killed", "site": "all outputs"}
