"""Mutants: each break is what it says, a break of nothing is told, only a check that disagrees kills."""

from __future__ import annotations

import copy
import functools
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

from benchmarks.mutants.__main__ import KINDS
from benchmarks.mutants.runs import plan_rounds
from generators.models.derive import build
from generators.models.inputs import make_inputs
from generators.models.recipe import installed_version, load_recipe, stored_recipes
from generators.models.sites import attention_sites, scale_attention
from generators.mutants import plugin
from generators.mutants.anatomy import Anatomy
from generators.mutants.made import Made
from generators.mutants.operators import CONTROL, OPERATORS, Mutant, mutate, parse_mutant
from generators.mutants.order import ORDERS_VARIABLE, Order, read_orders, write_orders
from generators.mutants.outcome import Status, judge_clean, judge_mutant
from generators.mutants.probe import SMALLEST_CHANGE, change
from hardware.backends._torch import TorchBackend, forward, greedy, to_arrays, to_tensors
from hardware.backends.base import ModelSubject
from hardware.backends.factory import get_backend
from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.evidence.record import CheckLine, Outcome
from hardware.target import Target
from hardware.testing.loud_weights import fill
from hardware.testing.model_test import ModelTest
from hardware.testing.suite_file import SuiteFile
from hardware.testing.tolerances import tolerance_for

ROOT = Path(__file__).parents[2]
SHAPES = ("bert", "vit", "mixtral", "mamba", "resnet", "patchtst", "wav2vec2", "detr", "swin", "rag", "deepseek_v3")
"""Kinds that are broken in different ways: each has a break that no other has in this form."""

MUTANT = Mutant(operator="half_batch", seed=0, site="layer 1", side="under test", describe="a break")


@functools.cache
def _built(model_type: str) -> tuple[Any, Any]:
    recipe = load_recipe(model_type)
    if recipe is None:
        pytest.skip(f"no recipe ships for transformers {installed_version()}")
    assert recipe.gain is not None
    return fill(build(recipe.config_class, recipe.model_class, recipe.config), gain=recipe.gain), recipe


def tiny(model_type: str) -> tuple[Any, dict[str, Any], Any]:
    """Model, inputs and recipe of a kind that ships; the model is built once and isn't to be changed."""
    model, recipe = _built(model_type)
    return model, make_inputs(recipe.inputs), recipe


def broken(model: Any, inputs: Mapping[str, Any], operator: str, seed: int = 0) -> tuple[Any, str]:
    copied = copy.deepcopy(model)
    return copied, mutate(copied, operator, seed, Anatomy(model, inputs)).site


def run(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        return to_arrays(forward(model, to_tensors(inputs, "cpu", torch.float32)))


def changed_parameters(model: Any, mutant: Any) -> dict[str, tuple[Any, Any]]:
    after = dict(mutant.named_parameters())
    return {n: (p.detach(), after[n].detach()) for n, p in model.named_parameters() if not torch.equal(p, after[n])}


@pytest.mark.parametrize("model_type", SHAPES)
def test_every_operator_changes_every_kind(model_type: str) -> None:
    model, inputs, recipe = tiny(model_type)
    anatomy = Anatomy(model, inputs)
    for operator in OPERATORS:
        mutant = copy.deepcopy(model)
        assert mutate(mutant, operator, 0, anatomy).site
        moved = change(model, mutant, inputs, generates=recipe.generate, masked_by=recipe.masked_by)
        assert moved > 1e-4, operator


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


@pytest.mark.parametrize(
    ("model_type", "mask"),
    [("bert", "attention_mask"), ("patchtst", "past_observed_mask"), ("rag", "context_attention_mask")],
)
def test_dropped_mask_is_a_mask_of_ones(model_type: str, mask: str) -> None:
    model, inputs, recipe = tiny(model_type)
    mutant, site = broken(model, inputs, "dropped_mask")
    unmasked = inputs | {mask: np.ones_like(inputs[mask])}
    output = recipe.outputs[0]
    assert site == f"input {mask}"
    assert np.array_equal(run(mutant, inputs)[output], run(model, unmasked)[output])


@pytest.mark.parametrize(
    ("model_type", "site"), [("swin", "blocks.1"), ("speecht5", "decoder"), ("whisper", "decoder")]
)
def test_without_a_mask_input_the_mask_inside_is_dropped(model_type: str, site: str) -> None:
    model, inputs, _ = tiny(model_type)
    found = broken(model, inputs, "dropped_mask")[1]
    assert found.startswith("mask of ")
    assert site in found


def test_without_any_mask_one_place_of_the_cut_input_is_lost() -> None:
    model, inputs, _ = tiny("vit")
    mutant, site = broken(model, inputs, "dropped_mask")
    patches = {}
    for name, one in (("clean", model), ("broken", mutant)):
        projection = one.get_submodule(site.partition(",")[0])
        patches[name] = projection(torch.tensor(inputs["pixel_values"]))
    lost = (patches["broken"] == 0).all(dim=1)
    assert lost.sum() == len(inputs["pixel_values"])
    assert torch.equal(patches["broken"][:, :, ~lost[0]], patches["clean"][:, :, ~lost[0]])


def test_where_query_and_key_have_other_shapes_key_and_value_are_exchanged() -> None:
    model, inputs, _ = tiny("deepseek_v3")
    mutant, _ = broken(model, inputs, "swapped_query_key")
    ((name, (before, after)),) = changed_parameters(model, mutant).items()
    site = next(site for site in attention_sites(model) if site.query.weight.split(".")[:3] == name.split(".")[:3])
    assert site.key is not None
    assert site.value is not None
    for (start, stop), (other, end) in zip(site.key.ranges, site.value.ranges, strict=True):
        assert torch.equal(after[start:stop], before[other:end])
        assert torch.equal(after[other:end], before[start:stop])


@pytest.mark.parametrize("model_type", ["detr", "resnet", "clip", "mixtral"])
def test_a_tenth_more_at_any_attention_that_matters_is_well_above_the_tolerance(model_type: str) -> None:
    model, inputs, recipe = tiny(model_type)
    limit = tolerance_for(Target(name="cpu"), "float32").limit
    for site in Anatomy(model, inputs).sites:
        mutant = copy.deepcopy(model)
        scale_attention(mutant, site, 1.1)
        assert change(model, mutant, inputs, masked_by=recipe.masked_by) > 5 * limit, site.module


def test_channels_of_a_convolution_are_exchanged_where_there_are_no_heads() -> None:
    model, inputs, _ = tiny("resnet")
    mutant, site = broken(model, inputs, "transposed_head")
    ((name, (before, after)),) = changed_parameters(model, mutant).items()
    half = before.shape[1] // 2
    assert site == f"{name}, 2 groups of {half}"
    assert torch.equal(after[:, 0::2], before[:, :half])
    assert torch.equal(after[:, 1::2], before[:, half:])


@pytest.mark.parametrize(
    ("model_type", "site"),
    [
        ("bloom", "linear biases"),
        ("detr", "position_embedding, places"),
        ("wav2vec2", "pos_conv_embed, places"),
        ("resnet", "kernel"),
        ("marian", "embed_positions.weight, rows"),
        ("patchtst", "position_enc, rows"),
    ],
)
def test_whatever_tells_places_apart_is_off_by_one(model_type: str, site: str) -> None:
    model, inputs, _ = tiny(model_type)
    assert site in broken(model, inputs, "position_off_by_one")[1]


def test_a_weight_that_the_outputs_do_not_depend_on_is_no_site() -> None:
    """LLaVA reads its image before the last layer; the first attention among DETR's queries sees equal values."""
    for model_type, dead in (("llava", "vision_model.encoder.layers.1"), ("detr", "decoder.layers.0.self_attn")):
        model, inputs, recipe = tiny(model_type)
        unheard = next(site for site in attention_sites(model) if dead in site.module)
        assert unheard.module not in {site.module for site in Anatomy(model, inputs).sites}
        mutant = copy.deepcopy(model)
        scale_attention(mutant, unheard, 2.0)
        assert change(model, mutant, inputs, masked_by=recipe.masked_by) < SMALLEST_CHANGE


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
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    with pytest.raises(ValueError, match="no attention"):
        mutate(model, "attention_scale", 0, Anatomy(model, {}))


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
        assert judged.status is Status.EQUIVALENT
        assert not judged.status.is_good


@pytest.mark.parametrize(
    ("lines", "moved", "status"),
    [
        ([PASSED[0], FAILED], 0.3, Status.KILLED),
        ([PASSED[0], FAILED], float("inf"), Status.KILLED),
        (PASSED, 0.3, Status.SURVIVED),
        ([PASSED[0], CRASHED], 0.3, Status.ERROR),
        ([PASSED[0], LEFT_OUT], 0.3, Status.ERROR),
        ([PASSED[0], FAILED], None, Status.ERROR),
        ([], 0.3, Status.ERROR),
    ],
)
def test_only_a_check_that_disagreed_kills(lines: list[CheckLine], moved: float | None, status: Status) -> None:
    made = Made(refused={"half_batch@0": "no batch"}) if moved is None else Made(mutant=MUTANT, change=moved)
    judged = judge_mutant(CHECKS, lines, made, least=SMALLEST_CHANGE)
    assert judged.status is status
    assert judged.status.is_good is (status is Status.KILLED)
    if status is Status.KILLED:
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
    plugin.pytest_configure(config)
    return config


def test_the_plugin_breaks_what_is_loaded_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, recipe = tiny("vit")
    clean, loading = run(model, inputs)["logits"], TorchBackend.load
    monkeypatch.setenv(plugin.MUTANT_VARIABLE, "nan_row@0")
    config = start_plugin()
    try:
        outputs = load(model, recipe, inputs)(**inputs)
    finally:
        plugin.pytest_unconfigure(config)
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
        plugin.pytest_unconfigure(config)
    made = Made.from_dict(json.loads((tmp_path / "a.json").read_text()))
    assert (made.mutant.operator if made.mutant else "", made.change) == ("nan_row", float("inf"))


def test_the_first_break_that_the_model_has_a_place_for_is_made() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    inputs = {"input": np.ones((2, 4), dtype=np.float32)}
    subject = ModelSubject(model=model, task="own", identity="x")
    order = Order(mutants=("attention_scale@0", f"{CONTROL}@0", "nan_row@0", "half_batch@0"))
    made = plugin.break_subject(subject, inputs, order)
    assert made.mutant is not None
    assert made.mutant.name == "nan_row@0"
    assert "no attention" in made.refused["attention_scale@0"]
    assert "moves the outputs by 0.0e+00" in made.refused[f"{CONTROL}@0"]
    assert torch.isnan(model(torch.ones(2, 4))[-1]).all()


def test_a_break_that_a_model_of_an_unknown_shape_refuses_becomes_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    subject = ModelSubject(model=model, task="own", identity="x")

    def fail(*_: Any) -> Any:
        raise RuntimeError("shape '[-1]' is invalid")

    monkeypatch.setattr(plugin, "mutate", fail)
    made = plugin.break_subject(subject, {}, Order(mutants=("half_batch@0",)))
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
        mutate(model, "attention_scale", 0, Anatomy(model, {"input": np.ones((2, 4), dtype=np.float32)}))


def test_where_no_break_can_be_made_nothing_is_broken_and_the_reason_is_kept() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    subject = ModelSubject(model=model, task="own", identity="x")
    before = copy.deepcopy(model.state_dict())
    made = plugin.break_subject(
        subject, {"input": np.ones((2, 4), dtype=np.float32)}, Order(mutants=("dropped_mask@0",))
    )
    assert made.mutant is None
    assert "no mask" in made.refused["dropped_mask@0"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_plugin_refuses_an_unknown_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.MUTANT_VARIABLE, "half_bach@0")
    with pytest.raises(pytest.UsageError, match=plugin.MUTANT_VARIABLE):
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
