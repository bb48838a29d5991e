"""Which target is taken, in the declared order, with each step's reason; and what is suggested instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.compatibility.rule_facts import Facts
from generators.compatibility.rules import RuleSet, load_rules, predict
from generators.compatibility.selection import StepResult, select, suggest
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.cell import Cell
from hardware.expected_targets import TargetStatus
from hardware.target import Target

GIB = 2**30


def status(target: str, expected: bool = True, memory: int | None = 8 * GIB, name: str = "") -> TargetStatus:
    reason = "" if expected else f"no {target} driver"
    return TargetStatus(target=target, expected=expected, reason=reason, memory_bytes=memory, device_name=name)


def taken(family, architecture="encoder-only", traits=(), here=(), memory=None) -> str:
    statuses = [status(one) for one in (*here, "cpu")]
    return select(family, architecture, traits, "some-task", statuses, memory).target


@pytest.mark.parametrize(
    ("family", "architecture", "traits", "order"),
    [
        ("text_generation", "decoder-only", (), "cuda rocm mps cpu"),
        ("embedding", "encoder-only", (), "cuda rocm mps cpu"),
        ("vision", "vision", (), "cuda rocm mps openvino:NPU qnn cpu"),
        ("audio", "speech", (), "cuda rocm openvino:GPU qnn mps cpu"),
        ("other", "diffusion", (), "cuda rocm mps cpu"),
        ("text_generation", "decoder-only", ("mixture-of-experts",), "cuda rocm cpu"),
        ("text_generation", "decoder-only", ("state-space",), "cuda rocm cpu"),
        ("multimodal", "multimodal", (), "cuda cpu"),
    ],
)
def test_targets_are_taken_in_the_declared_order(family, architecture, traits, order):
    names = order.split()
    for i, best in enumerate(names):
        assert taken(family, architecture, traits, here=names[i:]) == best


def test_a_trait_goes_before_an_architecture_and_that_before_a_family():
    assert taken("text_generation", "decoder-only", here=["mps"]) == "mps"
    assert taken("text_generation", "decoder-only", ("mixture-of-experts",), here=["mps"]) == "cpu"
    assert taken("multimodal", "speech", here=["rocm"]) == "rocm"
    assert taken("other", "time-series", here=["xpu"]) == "xpu"


def test_a_target_that_rules_say_fails_is_passed_over_and_a_declared_none_is_not():
    def said(basis: Basis):
        def predicted(target: Target) -> Verdict:
            level = Level.UNSUPPORTED if target.name == "cuda" else Level.HIGH
            cell = f"bert/fill-mask/{target}/float32"
            reasons = (Reason.of("text", text="no kernel"),)
            return Verdict(cell=cell, level=level, basis=basis, reasons=reasons, rule_ids=("a.rule",))

        return predicted

    statuses = [status("cuda"), status("rocm"), status("cpu")]
    chosen = select("embedding", "encoder-only", (), "fill-mask", statuses, None, said(Basis.PREDICTED))
    assert chosen.target == "rocm"
    assert chosen.steps[0].result is StepResult.PREDICTED_TO_FAIL
    assert "no kernel" in chosen.steps[0].reason
    assert select("embedding", "encoder-only", (), "fill-mask", statuses, None, said(Basis.ASSUMED)).target == "cuda"


def test_every_step_is_recorded_with_its_reason():
    statuses = [
        status("cuda", expected=False),
        status("rocm", memory=2 * GIB, name="small GPU"),
        status("mps", memory=16 * GIB),
        status("cpu"),
    ]
    selection = select("text_generation", "decoder-only", (), "text-generation", statuses, 4 * GIB)
    assert [(step.target, step.result) for step in selection.steps] == [
        ("cuda", StepResult.NOT_HERE),
        ("rocm", StepResult.MEMORY_TOO_SMALL),
        ("mps", StepResult.TAKEN),
    ]
    assert selection.steps[0].reason == "no cuda driver"
    assert "4 GiB needed, 2 GiB there" in selection.steps[1].reason
    assert selection.to_dict()["steps"][2]["result"] == "taken"


def test_cpu_is_the_end_even_where_it_is_too_small_or_not_listed():
    small = select("vision", "vision", (), "x", [status("cuda", memory=GIB), status("cpu", memory=GIB)], 4 * GIB)
    assert small.target == "cpu"
    assert "4 GiB needed, 1 GiB there" in small.steps[-1].reason
    nothing = select("vision", "vision", (), "x", [], None)
    assert nothing.target == "cpu"
    assert [step.result for step in nothing.steps].count(StepResult.TAKEN) == 1


def test_a_second_device_with_more_memory_is_tried():
    statuses = [status("cuda:0", memory=GIB), status("cuda:1", memory=80 * GIB), status("cpu")]
    assert select("vision", "vision", (), "x", statuses, 4 * GIB).target == "cuda:1"


def test_unknown_memory_is_said_and_not_taken_for_enough_or_too_little():
    selection = select("vision", "vision", (), "x", [status("cuda", memory=None)], 4 * GIB)
    assert selection.target == "cuda"
    assert "isn't known" in selection.steps[-1].reason


@pytest.mark.parametrize("name", ["", "CPU", "Intel(R) Xeon(R) Processor"])
def test_openvino_on_the_cpu_is_not_preferred_to_cpu(name):
    selection = select("vision", "vision", (), "x", [status("openvino", name=name), status("cpu")], None)
    assert selection.target == "cpu"
    assert any(step.result is StepResult.NOT_PREFERRED for step in selection.steps)


@pytest.mark.parametrize("target", ["openvino:GPU", "openvino:NPU", "openvino:GPU.1"])
def test_openvino_with_a_device_of_its_own_is_taken(target):
    assert taken("vision", "vision", here=[target]) == target


def model(name: str, family: str = "multimodal", architecture: str = "multimodal", **changes):
    values = {"model_type": name, "family": family, "architecture": architecture, "traits": (), "task": "some"}
    return SimpleNamespace(**{**values, "parameters": 100, "operators": ("aten.mm",), **changes})


def clip_on(facts: Facts, rules: RuleSet) -> Callable[[Target], Verdict]:
    return lambda target: predict(Cell(model="clip", task="some", target=target), facts, rules)


def test_an_incompatible_pair_suggests_hardware_best_first():
    facts = Facts(model_type="clip", family="multimodal", architecture="multimodal", precision="float32")
    rules = load_rules()
    present = predict(Cell.parse("clip/some/webgpu/float32"), facts, rules)
    assert present.level is Level.UNSUPPORTED
    suggestion = suggest(present, facts, rules, clip_on(facts, rules))
    assert suggestion.hardware[0].cell == "clip/some/cuda/float32"
    assert suggestion.hardware[0].rule_ids
    assert all(verdict.level.is_supported for verdict in suggestion.hardware)
    assert suggestion.models == ()
    assert any("multimodal" in reason for reason in suggestion.reasons)


def test_other_hardware_is_asked_with_facts_of_its_own():
    facts = Facts(model_type="clip", family="multimodal", architecture="multimodal", precision="float32")
    rules = load_rules()
    present = predict(Cell.parse("clip/some/webgpu/float32"), facts, rules)
    lacking = Facts(precision="float32", operators=("aten.mm",), traced="no")

    def predicted(target: Target):
        return clip_on(lacking if target.name == "qnn" else facts, rules)(target)

    suggestion = suggest(present, facts, rules, predicted, limit=20)
    assert {Cell.parse(one.cell).target.name for one in suggestion.hardware}.isdisjoint({"qnn", "webgpu"})


def test_models_suggested_are_rated_better_and_those_of_the_same_kind_come_first(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[rule]]\nid = "test.small"\ntarget = "webgpu"\nlevel = "medium"\nbasis = "predicted"\n'
        'when = { family = "multimodal", parameters = { at_most = 50 } }\n'
        'reason = "small"\nsource = "https://example.org"\n',
        encoding="utf-8",
    )
    rules = load_rules([file])
    facts = Facts(model_type="clip", family="multimodal", architecture="multimodal", parameters=100)
    present = predict(Cell.parse("clip/some/webgpu/float32"), facts, rules)
    models = [
        model("big", parameters=90),
        model("another", architecture="speech", parameters=10),
        model("small", parameters=40),
        model("smallest", parameters=20),
        model("vit", family="vision", parameters=5),
        model("clip", parameters=1),
    ]
    suggestion = suggest(present, facts, rules, clip_on(facts, rules), models)
    assert [verdict.cell.split("/")[0] for verdict in suggestion.models] == ["small", "smallest", "another"]
    assert len(suggest(present, facts, rules, clip_on(facts, rules), models, limit=1).models) == 1


def test_a_measured_failure_is_answered_though_a_rule_had_predicted_better():
    facts = Facts(model_type="vit", family="vision", architecture="vision", precision="float32")
    failed = Verdict(
        cell="vit/some/mps/float32", level=Level.UNSUPPORTED, basis=Basis.MEASURED, evidence_ids=("r/c/builds",)
    )
    rules = load_rules()
    suggestion = suggest(
        failed, facts, rules, lambda target: predict(Cell(model="vit", task="some", target=target), facts, rules)
    )
    assert suggestion.hardware
    assert all("/mps/" not in verdict.cell for verdict in suggestion.hardware)
