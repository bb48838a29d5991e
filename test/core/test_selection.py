"""`auto` takes the first target of the stated order that can run a model; poor cells get suggestions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.compatibility.rule_facts import Facts
from generators.compatibility.rules import RuleSet, load_rules, predict
from generators.compatibility.selection import StepResult, recommended_lists, select, suggest
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.expected_targets import TargetStatus
from hardware.target import Target

GIB = 2**30


def status(target: str, expected: bool = True, memory: int | None = 8 * GIB, name: str = "") -> TargetStatus:
    reason = "" if expected else f"no {target} driver"
    return TargetStatus(target=target, expected=expected, reason=reason, memory_bytes=memory, device_name=name)


def taken(family, architecture="encoder-only", traits=(), here=(), memory=None) -> str:
    statuses = [status(one) for one in (*here, "cpu")]
    return select(family, architecture, traits, "some-task", statuses, memory).target


def test_targets_are_taken_in_the_order_of_trait_architecture_or_family():
    for family, architecture, traits, order in (
        ("text_generation", "decoder-only", (), "cuda rocm mps cpu"),
        ("embedding", "encoder-only", (), "cuda rocm mps cpu"),
        ("vision", "vision", (), "cuda rocm mps openvino:NPU qnn cpu"),
        ("audio", "speech", (), "cuda rocm openvino:GPU qnn mps cpu"),
        ("other", "diffusion", (), "cuda rocm mps cpu"),
        ("text_generation", "decoder-only", ("mixture-of-experts",), "cuda rocm cpu"),
        ("text_generation", "decoder-only", ("state-space",), "cuda rocm cpu"),
        ("multimodal", "multimodal", (), "cuda cpu"),
    ):
        names = order.split()
        assert [taken(family, architecture, traits, here=names[i:]) for i in range(len(names))] == names
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
    assert "4 GiB needed, 2 GiB available" in selection.steps[1].reason
    assert selection.to_dict()["steps"][2]["result"] == "taken"


def test_memory_decides_between_devices_and_cpu_is_the_last_resort():
    def chosen(*statuses: TargetStatus, memory: int | None = 4 * GIB):
        return select("vision", "vision", (), "x", list(statuses), memory)

    small = chosen(status("cuda", memory=GIB), status("cpu", memory=GIB))
    assert small.target == "cpu"
    assert "4 GiB needed, 1 GiB available" in small.steps[-1].reason
    nothing = chosen(memory=None)
    assert nothing.target == "cpu"
    assert [step.result for step in nothing.steps].count(StepResult.TAKEN) == 1
    two = (status("cuda:0", memory=GIB), status("cuda:1", memory=80 * GIB), status("cpu"))
    assert chosen(*two).target == "cuda:1"
    unknown = chosen(status("cuda", memory=None))
    assert unknown.target == "cuda"
    assert "is unknown" in unknown.steps[-1].reason


def test_openvino_is_taken_with_a_device_of_its_own_and_not_on_the_cpu():
    for name in ("", "CPU", "Intel(R) Xeon(R) Processor"):
        selection = select("vision", "vision", (), "x", [status("openvino", name=name), status("cpu")], None)
        assert selection.target == "cpu", name
        assert any(step.result is StepResult.NOT_PREFERRED for step in selection.steps)
    for target in ("openvino:GPU", "openvino:NPU", "openvino:GPU.1"):
        assert taken("vision", "vision", here=[target]) == target


def model(name: str, family: str = "multimodal", architecture: str = "multimodal", **changes):
    values = {"model_type": name, "family": family, "architecture": architecture, "traits": (), "task": "some"}
    return SimpleNamespace(**{**values, "parameters": 100, "operators": ("aten.mm",), **changes})


CLIP = Facts(model_type="clip", family="multimodal", architecture="multimodal", precision="float32")


def predicted_for(model: str, facts: Facts, rules: RuleSet) -> Callable[[Target], Verdict]:
    return lambda target: predict(Cell(model=model, task="some", target=target), facts, rules)


def test_an_incompatible_pair_suggests_hardware_best_first():
    rules = load_rules()
    present = predict(Cell.parse("clip/some/webgpu/float32"), CLIP, rules)
    assert present.level is Level.UNSUPPORTED
    suggestion = suggest(present, CLIP, rules, predicted_for("clip", CLIP, rules))
    assert suggestion.hardware[0].cell == "clip/some/cuda/float32"
    assert suggestion.hardware[0].rule_ids
    assert all(verdict.level.is_supported for verdict in suggestion.hardware)
    assert suggestion.models == ()
    assert any("multimodal" in reason for reason in suggestion.reasons)
    lacking = Facts(precision="float32", operators=("aten.mm",), traced="no")

    def with_facts_of_its_own(target: Target):
        return predicted_for("clip", lacking if target.name == "qnn" else CLIP, rules)(target)

    suggestion = suggest(present, CLIP, rules, with_facts_of_its_own, limit=20)
    assert {Cell.parse(one.cell).target.name for one in suggestion.hardware}.isdisjoint({"qnn", "webgpu"})


def test_suggestions_are_better_than_the_pair_or_known_if_it_is_unknown():
    rules = load_rules()
    facts = Facts(family="text_generation", architecture="decoder-only", precision="float32")

    def levels(target: str) -> set[Level]:
        present = predict(Cell.parse(f"gpt2/some/{target}/float32"), facts, rules)
        return {
            one.level
            for one in suggest(present, facts, rules, predicted_for("gpt2", facts, rules), limit=20).hardware
        }

    assert levels("openvino") == levels("webgpu") == {Level.HIGH, Level.MEDIUM}  # both are low
    assert levels("qnn") == {Level.HIGH, Level.MEDIUM, Level.LOW}  # unknown


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
    suggestion = suggest(present, facts, rules, predicted_for("clip", facts, rules), models)
    assert [verdict.cell.split("/")[0] for verdict in suggestion.models] == ["small", "smallest", "another"]
    assert len(suggest(present, facts, rules, predicted_for("clip", facts, rules), models, limit=1).models) == 1


def test_a_measured_failure_is_answered_though_a_rule_had_predicted_better():
    facts = Facts(model_type="vit", family="vision", architecture="vision", precision="float32")
    failed = Verdict(
        cell="vit/some/mps/float32", level=Level.UNSUPPORTED, basis=Basis.MEASURED, evidence_ids=("r/c/builds",)
    )
    rules = load_rules()
    suggestion = suggest(failed, facts, rules, predicted_for("vit", facts, rules))
    assert suggestion.hardware
    assert all("/mps/" not in verdict.cell for verdict in suggestion.hardware)


def test_recommended_targets_are_told_for_an_architecture_a_trait_and_a_family():
    assert recommended_lists("speech")["speech"][0] == ("cuda", "rocm", "openvino", "qnn", "mps", "cpu")
    assert recommended_lists("Mixture-of-Experts")["mixture-of-experts"][0] == ("cuda", "rocm", "cpu")
    assert recommended_lists("encoder-only") == {"encoder-only": recommended_lists("embedding")["embedding"]}
    every = recommended_lists()
    assert {"speech", "diffusion", "vision", "multimodal", "default"} <= set(every)
    assert all(targets[-1] == "cpu" and reason for targets, reason in every.values())
    with pytest.raises(UsageError, match="Did you mean 'speech'"):
        recommended_lists("speach")
