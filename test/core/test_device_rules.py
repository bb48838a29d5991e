"""Rules for devices of torch and TPUs follow from what torch, torch-xpu-ops and torchax register."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from front_doors import invoke

from generators.compatibility.operators import registration, table_of
from generators.compatibility.rule_facts import facts_here, facts_of
from generators.compatibility.rules import load_rules, predict
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.models.recipe_store import load_recipe
from hardware.basic_detection import inventory_here
from hardware.cell import Cell
from hardware.inventory.vendors.vendor import AcceleratorInfo
from hardware.target import Target
from reports.reason_text import texts

DEVICES = ("cuda", "rocm", "mps", "xpu")


def predicted(cell: str, *also: str, capability: float | None = None, **measured: float) -> Verdict:
    """Predict a cell of a shipped recipe with further operators, and other measurements if any are given."""
    asked = Cell.parse(cell)
    recipe = load_recipe(asked.model, asked.task)
    assert recipe is not None
    recipe = replace(recipe, operators=(*recipe.operators, *also), sensitivity={**recipe.sensitivity, **measured})
    return predict(asked, facts_of(recipe, asked, {}, capability=capability), load_rules())


@pytest.mark.parametrize("target", DEVICES)
def test_a_model_whose_operators_are_all_registered_is_predicted_instead_of_assumed(target: str) -> None:
    found = predicted(f"bert/fill-mask/{target}/float32")
    assert (found.level, found.basis, found.rule_ids) == (Level.HIGH, Basis.PREDICTED, (f"{target}.registered",))
    half = predicted(f"bert/fill-mask/{target}/bfloat16")
    assert (half.level, half.basis) == (Level.MEDIUM, Basis.PREDICTED)
    assert any("half precision" in text for text in texts(half.conditions))


@pytest.mark.parametrize(
    ("target", "operator", "level", "why"),
    [
        ("mps", "aten.adaptive_max_pool3d", Level.UNSUPPORTED, "no Metal kernel"),
        ("xpu", "aten._add_relu", Level.UNSUPPORTED, "neither torch nor torch-xpu-ops"),
        ("xpu", "aten.linalg_qr", Level.LOW, "computes an operator of the model on the host"),
        ("cuda", "aten._add_relu", Level.UNSUPPORTED, "no CUDA kernel"),
        ("rocm", "aten._add_relu", Level.UNSUPPORTED, "built with HIP"),
        ("tpu", "aten.nonzero", Level.UNSUPPORTED, "size of a tensor depends on values"),
        ("tpu", "aten.repeat_interleave", Level.UNKNOWN, ""),
        ("tpu", "aten._is_all_true", Level.UNKNOWN, ""),
    ],
)
def test_an_operator_that_a_device_lacks_limits_the_level(target: str, operator: str, level: Level, why: str) -> None:
    assert predicted(f"bert/fill-mask/{target}/float32").level in (Level.HIGH, Level.MEDIUM)
    found = predicted(f"bert/fill-mask/{target}/float32", operator)
    assert found.level is level
    assert any(why in text for text in texts(found.reasons))


def test_an_operator_that_no_list_has_leaves_the_family_s_assumption() -> None:
    found = predicted("bert/fill-mask/mps/float32", "aten.of_tomorrow")
    assert (found.level, found.basis, found.rule_ids) == (Level.HIGH, Basis.ASSUMED, ("prior.embedding.high",))
    assert registration(Target(name="mps"), ("aten.of_tomorrow",)).answer is None
    assert registration(Target(name="mps"), ()) is None
    assert registration(Target(name="openvino"), ("aten.addmm",)) is None  # its table has runs, not only a list


def test_what_xpu_computes_on_the_host_is_named_by_its_own_list() -> None:
    (section,) = table_of("xpu").sections
    assert "torch-xpu-ops" in section.source
    found = registration(Target(name="xpu"), ("aten.addmm", "aten.linalg_qr", "aten._add_relu"))
    assert (found.answer, found.on_host, found.missing) == ("some", ("aten.linalg_qr",), ("aten._add_relu",))


def test_half_precision_follows_what_the_model_does_on_the_cpu() -> None:
    """Canine mixes dtypes, and its recipe has no error in bfloat16; the others' errors are given."""
    cases = {
        "canine/text-classification/cuda/float16": ({}, Level.UNSUPPORTED),
        "canine/text-classification/xpu/float16": ({}, Level.UNKNOWN),
        "canine/text-classification/cuda/float32": ({}, Level.HIGH),
        "bert/fill-mask/cuda/float16": ({"bfloat16_error": 0.1}, Level.UNSUPPORTED),
        "bert/fill-mask/cuda/bfloat16": ({"bfloat16_error": 0.2}, Level.UNKNOWN),
        "bert/fill-mask/cuda/tf32": ({"bfloat16_error": 0.2}, Level.HIGH),
    }
    for cell, (measured, level) in cases.items():
        assert predicted(cell, **measured).level is level, cell


def test_a_gpu_before_8_0_emulates_bfloat16_and_has_no_tf32() -> None:
    for precision, condition in (("bfloat16", "bfloat16 is emulated"), ("tf32", "computed in float32")):
        old, new = (predicted(f"bert/fill-mask/cuda/{precision}", capability=one) for one in (7.5, 8.0))
        assert (old.level, condition in texts(old.conditions)) == (Level.MEDIUM, True)
        assert condition not in texts(new.conditions)
    assert predicted("bert/fill-mask/cuda/float32", capability=7.5).level is Level.HIGH


def test_the_capability_is_the_lowest_of_the_machine_s_cards() -> None:
    def card(capability: str | None, **more: bool) -> AcceleratorInfo:
        return AcceleratorInfo(vendor="NVIDIA", device_type="gpu", model="x", compute_capability=capability, **more)

    def found(target: str, *cards: AcceleratorInfo) -> float | None:
        here = replace(inventory_here(), accelerators=cards)
        return facts_here(load_recipe("bert"), Cell.parse(f"bert/fill-mask/{target}/float32"), here).capability

    cards = (card("8.0"), card("7.5"), card(None), card("5.0", simulated=True))
    assert (found("cuda", *cards), found("cpu", *cards), found("rocm", *cards)) == (7.5, None, None)
    assert found("cuda", card(None)) is None


def test_the_score_against_others_has_a_range_and_shows_the_held_out_types_alone(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    done = invoke("calibration", "--external", "--format", "json", "--evidence", tmp_path / "evidence")
    shown = {one["target"]: one for one in done.document["scores"]}
    xpu, apart = shown["xpu"], shown["xpu"]["held_out"]
    assert xpu["balanced"] is None  # what failed there was too large: published.toml
    low, high = shown["openvino"]["balanced_range"]
    assert low < shown["openvino"]["balanced"] < high
    assert xpu["abstained"] <= 0.15
    assert 0 < apart["cells"] < xpu["cells"]
    assert apart["balanced"] is None  # every held-out type works there
    memory = {one["of"]: one for one in done.document["memory"]}
    assert float(memory["types that are held out"]["agreement"].rstrip(" %")) >= 85
    assert shown["qnn"]["balanced_range"] is None  # its source publishes only successes


def test_the_card_of_the_target_decides_and_without_one_the_weakest() -> None:
    def card(index: int, model: str, capability: str) -> AcceleratorInfo:
        return AcceleratorInfo(
            vendor="NVIDIA", device_type="gpu", model=model, index=index, compute_capability=capability
        )

    def capability(target: str, *cards: AcceleratorInfo) -> float | None:
        here = replace(inventory_here(), accelerators=cards)
        cell = Cell.parse("bert/fill-mask/cuda/bfloat16")
        recipe = load_recipe("bert", "fill-mask")
        assert recipe is not None
        return facts_here(recipe, cell, here, device=Target.parse(target)).capability

    slices = (card(0, "NVIDIA T4", "7.5"), card(1, "NVIDIA T4", "8.0"))  # one model, so that numbers are known
    assert [capability(one, *slices) for one in ("cuda", "cuda:0", "cuda:1")] == [7.5, 7.5, 8.0]
    mixed = (card(0, "NVIDIA T4", "7.5"), card(1, "NVIDIA H100", "9.0"))  # CUDA counts the fastest first
    assert [capability(one, *mixed) for one in ("cuda:0", "cuda:1")] == [7.5, 7.5]
