"""Splits of real model types over four processes that talk by gloo: equal to one device, and each fault is seen.

One start of the ranks does many cases, since each start imports torch once a rank.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
from command_line import REPOSITORY, CommandLine

from generators.models.inputs import make_inputs
from hwcompat.plugins.placement.mesh.axes import Split
from hwcompat.plugins.placement.mesh.mesh_case import (
    EFFECT,
    GRADIENTS,
    HELD,
    OUTPUTS,
    SAME,
    TRAFFIC,
    CaseResult,
    MeshCase,
    MeshModel,
    MeshResult,
)
from hwcompat.plugins.placement.mesh.mesh_check import check_mesh

pytestmark = pytest.mark.slow

BROKEN = (str(Path(__file__).with_name("broken_rank.py")),)
TEXT = {
    "input_ids": {"kind": "tokens", "high": 510},
    "attention_mask": {"kind": "mask", "side": "left"},
    "position_ids": {"kind": "positions"},
}
SMALL = {
    "bos_token_id": 511,
    "eos_token_id": 510,
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
}
TIED_SIZES = {"n_embd": 48, "n_head": 4, "n_layer": 4, "n_positions": 128, "vocab_size": 512}
LLAMA, MIXTRAL, TIED = (
    MeshModel(
        name=name,
        config_class=f"{name}Config",
        model_class=f"{name}{head}",
        config=config,
        gain=gain,
        masked_by={"logits": "attention_mask"},
    )
    for name, head, config, gain in (
        ("Llama", "ForCausalLM", SMALL, 0.7),
        ("Mixtral", "ForCausalLM", {**SMALL, "num_local_experts": 4}, 0.7),
        ("GPT2", "LMHeadModel", TIED_SIZES, 1.0),
    )
)
VIT = MeshModel(
    name="vit",
    config_class="ViTConfig",
    model_class="ViTForImageClassification",
    config={
        "hidden_size": 48,
        "image_size": 32,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "num_labels": 10,
    },
    gain=1.5,
)


def text() -> dict[str, Any]:
    return make_inputs(TEXT, 0, (16, 9, 12, 16))


def picture() -> dict[str, Any]:
    return make_inputs({"pixel_values": {"kind": "pixels", "shape": [3, 32, 32]}}, 0, (1, 1, 1, 1))


def case(name: str, model: int, *devices: str, **sizes: int) -> MeshCase:
    split = Split(**sizes)
    stages = {1: ((0, 4),), 2: ((0, 1), (1, 4)), 4: ((0, 1), (1, 2), (2, 3), (3, 4))}[split.pipeline]
    return MeshCase(
        name=name,
        model=model,
        split=split,
        stages=stages,
        devices=devices or ("cpu",) * split.size,
        microbatches=2 if split.pipeline > 1 and split.data == 1 else 1,
    )


GOOD = (
    case("llama copies", 0, data=4),
    case("llama parts", 0, tensor=4),
    case("llama stages", 0, pipeline=4),
    case("llama copies of parts", 0, data=2, tensor=2),
    case("llama stages of parts", 0, pipeline=2, tensor=2),
    case("llama stages of copies", 0, pipeline=2, data=2),
    case("mixtral parts", 1, tensor=4),
    case("gpt2 stages", 2, pipeline=4),
    case("vit stages of copies", 3, pipeline=2, data=2),
    case("llama on two kinds", 0, "cpu", "simulated", pipeline=2),
)
FAULTY = {
    "no_sum": (case("no_sum", 0, tensor=4), {OUTPUTS, SAME, EFFECT}),
    "own_part_of_sum": (case("own_part_of_sum", 0, tensor=4), {OUTPUTS, SAME}),
    "swapped_shard": (case("swapped_shard", 0, data=2, tensor=2), {OUTPUTS, SAME}),
    "skipped_stage": (case("skipped_stage", 0, pipeline=4), {OUTPUTS, SAME, EFFECT}),
    "whole_model": (case("whole_model", 0, tensor=4), {HELD, EFFECT, TRAFFIC}),
    "whole_model_in_disguise": (
        MeshCase(
            name="whole_model_in_disguise",
            model=0,
            split=Split(tensor=4),
            stages=((0, 4),),
            devices=("cpu",) * 4,
            gradients=False,
        ),
        {EFFECT},
    ),
    "gradients_alone": (case("gradients_alone", 0, data=4), {GRADIENTS, TRAFFIC}),
    "one_share_for_all": (case("one_share_for_all", 0, data=2, tensor=2), {OUTPUTS, SAME}),
}


@pytest.fixture(scope="module")
def good() -> MeshResult:
    models = [(LLAMA, text()), (MIXTRAL, text()), (TIED, text()), (VIT, picture())]
    found = check_mesh(models, GOOD, deadline_s=400)
    assert not found.broken
    return found


@pytest.fixture(scope="module")
def faulty() -> dict[str, CaseResult]:
    cases = [one for one, _ in FAULTY.values()]
    found = check_mesh([(LLAMA, text())], [*cases, GOOD[1]], deadline_s=400, program=BROKEN)
    assert not found.broken
    return {one.case.name: one for one in found.cases}


def result_of(found: MeshResult, name: str) -> CaseResult:
    return next(one for one in found.cases if one.case.name == name)


def test_a_split_model_gives_what_one_device_gives(good: MeshResult) -> None:
    for case_ in GOOD:
        found = result_of(good, case_.name)
        assert found.passed, [one for one in found.checks if not one.passed]
        errors = {one.name: one.error for one in found.checks}
        assert all(0 <= errors[check] <= 2e-5 for check in (OUTPUTS, GRADIENTS)), case_.name
        assert errors[EFFECT] > 0.01, case_.name
    kinds = result_of(good, "llama on two kinds").ranks
    assert [one.device.partition(":")[0] for one in kinds] == ["cpu", "simulated"]


def test_each_rank_holds_a_part_and_together_they_hold_the_model(good: MeshResult) -> None:
    parts = result_of(good, "llama parts")
    split = [one for one in parts.ranks if one.parts == 28]
    assert len(split) == 4
    assert "model.layers.0.self_attn.q_proj.weight 16x64 of 64x64" in split[0].examples
    assert all(one.forward == {"all_reduce on tensor": 8} for one in parts.ranks)
    stages = result_of(good, "llama stages")
    assert sum(one.bytes for one in stages.ranks) == stages.whole_bytes
    assert all(one.bytes < 0.5 * stages.whole_bytes for one in stages.ranks)
    assert all(one.bytes == parts.whole_bytes for one in result_of(good, "llama copies").ranks)


@pytest.mark.nightly
def test_a_fault_of_a_split_is_detected(faulty: dict[str, CaseResult]) -> None:
    for name, (_, checks) in FAULTY.items():
        failed = {one.name for one in faulty[name].checks if not one.passed}
        assert checks <= failed, (name, faulty[name].checks)
        assert not faulty[name].passed
    assert faulty["llama parts"].passed, "the same ranks are right without a fault"
    disguise = {one.name: one for one in faulty["whole_model_in_disguise"].checks}
    assert [name for name, one in disguise.items() if not one.passed] == [EFFECT]
    assert "damage to rank 1 changes the outputs of rank 0" in disguise[EFFECT].detail


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("dies", "ended by SIGKILL"),
        pytest.param("raises", "ValueError: a fault of rank 1", marks=pytest.mark.extended),
        pytest.param("hangs", "rank 1 hung at", marks=pytest.mark.extended),
    ],
)
@pytest.mark.nightly
def test_a_rank_that_dies_or_stands_still_ends_all_and_is_named(fault: str, reason: str) -> None:
    one = MeshCase(
        name=fault, model=0, split=Split(tensor=2), stages=((0, 4),), devices=("cpu", "cpu"), gradients=False
    )
    found = check_mesh([(LLAMA, text())], [one], deadline_s=45 if fault == "hangs" else 300, program=BROKEN)
    assert not found.passed
    assert found.rank == 1
    assert reason in found.broken
    assert fault in found.step


@pytest.mark.extended
def test_the_command_plans_checks_and_writes_what_its_schema_says(command_line: CommandLine, tmp_path: Path) -> None:
    words = ("--mesh", "pipeline=2", "--model", "bert", "--device", "cpu", "--format", "json")
    ran = command_line.run(tmp_path, *words)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    schema = json.loads((REPOSITORY / "hardware" / "schemas" / "mesh.json").read_text())
    jsonschema.validate(report, schema)
    assert report["passed"] is True
    assert report["remark"] == "2 ranks on one CPU: proves the split, not speed"
    assert report["plan"]["total_bytes"] > 4e8
    assert json.loads((ran.reports / "mesh.json").read_text()) == report
    assert 0 < report["cases"][0]["checks"][0]["error"] < 2e-5
    assert ran.network == []


@pytest.mark.extended
def test_ranks_end_with_their_launcher(command_line: CommandLine, tmp_path: Path) -> None:
    """Killed, a check can't end its ranks; they see that it is gone, however early it went."""
    started = command_line.start(tmp_path, "--mesh", "data=2", "--model", "bert", "--device", "cpu")
    ranks: list[psutil.Process] = []
    until = time.monotonic() + 120
    while len(ranks) < 3 and time.monotonic() < until and started.poll() is None:
        with contextlib.suppress(psutil.Error):  # another child of it that has just ended
            children = psutil.Process(started.pid).children()
            ranks = [
                one
                for one in children
                if {"hwcompat.plugins.placement.mesh.rank", "hwcompat.plugins.placement.mesh.mesh_model"}
                & {*one.cmdline()}
            ]
        time.sleep(0.1)
    started.kill()
    started.wait()
    assert len(ranks) == 3  # and who computes the whole model
    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert not alive
