"""The mutant harness: each break is what it says, a break of nothing is told, only a check that disagrees kills."""

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

from benchmarks.mutants import plugin
from benchmarks.mutants.operators import CONTROL, OPERATORS, mutate, parse_mutant
from benchmarks.mutants.probe import change
from benchmarks.mutants.runs import Job, Status, conclude
from generators.models.derive import build
from generators.models.inputs import make_inputs
from generators.models.recipe import installed_version, load_recipe
from generators.models.sites import attention_sites
from hardware.backends._torch import TorchBackend, forward, greedy, to_arrays, to_tensors
from hardware.backends.base import ModelSubject
from hardware.backends.factory import get_backend
from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.evidence.record import CheckLine, Outcome
from hardware.testing.loud_weights import fill
from hardware.testing.suite_file import SuiteFile

ROOT = Path(__file__).parents[2]
BROKEN = {"change": 0.3, "site": "layer 1", "side": "under test", "describe": "a break"}


def tiny(model_type: str) -> tuple[Any, dict[str, Any], Any]:
    """Model, inputs and recipe of a kind that ships."""
    recipe = load_recipe(model_type)
    if recipe is None:
        pytest.skip(f"no recipe ships for transformers {installed_version()}")
    assert recipe.gain is not None
    model = fill(build(recipe.config_class, recipe.model_class, recipe.config), gain=recipe.gain)
    return model, make_inputs(recipe.inputs), recipe


def broken(model: Any, inputs: Mapping[str, Any], operator: str, seed: int = 0) -> tuple[Any, str]:
    copied = copy.deepcopy(model)
    return copied, mutate(copied, operator, seed, inputs).site


def run(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        return to_arrays(forward(model, to_tensors(inputs, "cpu", torch.float32)))


def changed_parameters(model: Any, mutant: Any) -> dict[str, tuple[Any, Any]]:
    after = dict(mutant.named_parameters())
    return {n: (p.detach(), after[n].detach()) for n, p in model.named_parameters() if not torch.equal(p, after[n])}


@pytest.mark.parametrize("operator", sorted(OPERATORS))
@pytest.mark.parametrize("model_type", ["bert", "vit", "mixtral", "mamba"])
def test_every_operator_changes_every_kind(model_type: str, operator: str) -> None:
    model, inputs, recipe = tiny(model_type)
    mutant, site = broken(model, inputs, operator)
    assert site
    moved = change(model, mutant, inputs, generates=recipe.generate, masked_by=recipe.masked_by)
    assert moved > 1e-3


def test_scaled_attention_is_one_query_times_eleven_tenths() -> None:
    model, inputs, _ = tiny("bert")
    mutant, site = broken(model, inputs, "attention_scale")
    changed = changed_parameters(model, mutant)
    assert sorted(name.rpartition(".")[2] for name in changed) == ["bias", "weight"]
    for name, (before, after) in changed.items():
        assert ".query." in name
        torch.testing.assert_close(after, before * 1.1)
    assert site.partition("[")[0] in changed


def test_swapped_query_of_grouped_heads_gives_its_first_rows() -> None:
    model, inputs, _ = tiny("mixtral")
    mutant, _ = broken(model, inputs, "swapped_query_key")
    changed = changed_parameters(model, mutant)
    (query_before, query_after), (key_before, key_after) = (
        next(pair for name, pair in changed.items() if part in name) for part in ("q_proj", "k_proj")
    )
    rows = len(key_before)
    assert torch.equal(query_after[:rows], key_before)
    assert torch.equal(key_after, query_before[:rows])
    assert torch.equal(query_after[rows:], query_before[rows:])


def test_transposed_head_exchanges_heads_and_features() -> None:
    model, inputs, _ = tiny("gpt2")
    mutant, site = broken(model, inputs, "transposed_head")
    ((name, (before, after)),) = changed_parameters(model, mutant).items()
    heads = attention_sites(model)[0].heads
    out = before.shape[1]
    assert name.endswith("c_proj.weight")
    assert site.startswith(name)
    assert torch.equal(after.reshape(-1, heads, out), before.reshape(heads, -1, out).transpose(0, 1))


def test_shifted_rotation_is_the_rotation_of_the_next_position() -> None:
    from transformers.models.mixtral.modeling_mixtral import apply_rotary_pos_emb

    model, inputs, _ = tiny("mixtral")
    mutant, _ = broken(model, inputs, "position_off_by_one")
    ((_, (before, after)),) = changed_parameters(model, mutant).items()
    heads = attention_sites(model)[0].heads
    states = torch.randn(1, 1, before.shape[1], generator=torch.Generator().manual_seed(0))

    def at(weight: torch.Tensor, position: int) -> torch.Tensor:
        query = (states @ weight.T).reshape(1, 1, heads, -1).transpose(1, 2)
        cos, sin = model.model.rotary_emb(states, torch.tensor([[position]]))
        turned: torch.Tensor = apply_rotary_pos_emb(query, query, cos, sin)[0]
        return turned

    torch.testing.assert_close(at(after, 4), at(before, 5))
    assert not torch.allclose(at(after, 4), at(before, 4), atol=1e-2)


def test_dropped_mask_is_a_mask_of_ones() -> None:
    model, inputs, _ = tiny("bert")
    mutant, _ = broken(model, inputs, "dropped_mask")
    unmasked = inputs | {"attention_mask": np.ones_like(inputs["attention_mask"])}
    assert np.array_equal(run(mutant, inputs)["logits"], run(model, unmasked)["logits"])


@pytest.mark.parametrize("model_type", ["gpt2", "mamba"])
def test_stale_cache_spares_whoever_decodes_without_one(model_type: str) -> None:
    model, inputs, _ = tiny(model_type)
    mutant, _ = broken(model, inputs, "stale_cache")
    tensors = to_tensors(inputs, "cpu", torch.float32)
    for use_cache, spared in ((False, True), (True, False)):
        clean, other = (greedy(m, tensors, steps=4, use_cache=use_cache).logits for m in (model, mutant))
        assert np.array_equal(clean, other) is spared
        assert np.array_equal(clean[:, :2], other[:, :2])  # the second step is the first that leaves a wrong entry


def test_outputs_are_broken_in_the_rows_that_the_site_names() -> None:
    model, inputs, _ = tiny("vit")
    clean = run(model, inputs)["logits"]
    nan = run(broken(model, inputs, "nan_row")[0], inputs)["logits"]
    assert np.isnan(nan[-1]).all()
    assert np.array_equal(nan[:-1], clean[:-1])
    half = run(broken(model, inputs, "half_batch")[0], inputs)["logits"]
    assert np.array_equal(half, clean[[0, 0]])


def test_frozen_output_answers_the_second_call_with_the_first() -> None:
    model, inputs, _ = tiny("vit")
    mutant, _ = broken(model, inputs, "frozen_output")
    other = {name: value[::-1] for name, value in inputs.items()}
    assert np.array_equal(run(mutant, inputs)["logits"], run(model, inputs)["logits"])
    assert np.array_equal(run(mutant, other)["logits"], run(model, inputs)["logits"])


def test_a_seed_draws_one_site_and_other_seeds_draw_others() -> None:
    model, inputs, _ = tiny("t5")
    sites = [broken(model, inputs, "attention_scale", seed)[1] for seed in range(6)]
    assert broken(model, inputs, "attention_scale", 3)[1] == sites[3]
    assert len(set(sites)) > 1


def test_a_model_without_a_site_is_an_error_and_not_a_silent_mutant() -> None:
    with pytest.raises(ValueError, match="no attention"):
        mutate(torch.nn.Sequential(torch.nn.Linear(4, 4)), "attention_scale", 0, {})


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


def job(mutant: str = "half_batch@0", *, counts: bool = True) -> Job:
    cell = Cell.parse("bert/fill-mask/cpu/float32")
    checks = ("builds", "matches_reference")
    suite = SuiteFile(path=Path("test_x.py"), cell=cell, subject="tiny", checks=checks, suite_hash="")
    return Job(suite=suite, mutant=mutant, counts=counts)


def test_a_break_that_changes_nothing_is_reported_and_never_killed() -> None:
    model, inputs, recipe = tiny("bert")
    mutant, _ = broken(model, inputs, CONTROL)
    moved = change(model, mutant, inputs, masked_by=recipe.masked_by)
    assert moved == 0.0
    for code, lines in ((0, PASSED), (1, [PASSED[0], FAILED])):
        result = conclude(job(), code, lines, BROKEN | {"change": moved}, "")
        assert result.status is Status.EQUIVALENT
        assert not result.good


@pytest.mark.parametrize(
    ("code", "lines", "made", "status"),
    [
        (1, [PASSED[0], FAILED], BROKEN, Status.KILLED),
        (1, [PASSED[0], FAILED], BROKEN | {"change": "inf"}, Status.KILLED),
        (0, PASSED, BROKEN, Status.SURVIVED),
        (1, [PASSED[0], CRASHED], BROKEN, Status.ERROR),
        (1, [PASSED[0], FAILED], {}, Status.ERROR),
        (4, [], {}, Status.ERROR),
        (-11, PASSED[:1], BROKEN, Status.ERROR),
    ],
)
def test_only_a_check_that_disagreed_kills(code: int, lines: list[CheckLine], made: Any, status: Status) -> None:
    result = conclude(job(), code, lines, made, "log")
    assert result.status is status
    assert result.good is (status is Status.KILLED)
    if status is Status.KILLED:
        assert (result.caught_by, result.error, result.site) == ("matches_reference", 0.5, "layer 1")
    else:
        assert result.message


@pytest.mark.parametrize(
    ("code", "lines", "good"), [(0, PASSED, True), (0, PASSED[:1], False), (1, [PASSED[0], FAILED], False)]
)
def test_a_clean_run_passes_every_check_or_counts_as_raised(code: int, lines: list[CheckLine], good: bool) -> None:
    assert conclude(job("", counts=False), code, lines, {}, "").good is good


def test_a_mutant_is_named_by_operator_and_seed() -> None:
    assert parse_mutant("half_batch@12") == ("half_batch", 12)
    for text in ("half_batch", "half_batch@", "half_batch@-1", "half_batch@x"):
        with pytest.raises(UsageError, match="<operator>@<seed>"):
            parse_mutant(text)
    with pytest.raises(UsageError, match="Did you mean 'half_batch'"):
        parse_mutant("half_bach@0")


def test_the_plugin_breaks_what_is_loaded_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, inputs, recipe = tiny("vit")
    clean, load = run(model, inputs)["logits"], TorchBackend.load
    monkeypatch.setenv(plugin.MUTANT_VARIABLE, "nan_row@0")
    monkeypatch.setenv(plugin.REPORT_VARIABLE, str(tmp_path / "mutant.json"))
    config: Any = SimpleNamespace(stash=pytest.Stash())
    plugin.pytest_configure(config)
    try:
        subject = ModelSubject(model=copy.deepcopy(model), task=recipe.task, identity="x")
        outputs = get_backend("cpu").load(subject, inputs, "float32")(**inputs)
    finally:
        plugin.pytest_unconfigure(config)
    assert np.isnan(outputs["logits"][-1]).all()
    assert np.array_equal(run(model, inputs)["logits"], clean)
    assert TorchBackend.load is load
    said = json.loads((tmp_path / "mutant.json").read_text())
    assert (said["operator"], said["side"], said["change"]) == ("nan_row", "under test", "inf")


def test_the_plugin_refuses_an_unknown_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = SimpleNamespace(stash=pytest.Stash())
    monkeypatch.setenv(plugin.MUTANT_VARIABLE, "half_bach@0")
    with pytest.raises(pytest.UsageError, match=plugin.MUTANT_VARIABLE):
        plugin.pytest_configure(config)


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
