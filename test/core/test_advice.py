"""Advice: each error type has remedies for each target, and poor cells get other hardware."""

from __future__ import annotations

from report_parts import finding as make_finding
from report_parts import verdict

from generators.compatibility.verdict import Level
from hardware.backends.factory import known_targets
from hardware.detection import detect
from reports.advice import (
    FILE,
    advised_error_types,
    diagnostics,
    other_targets,
    recommend,
    remedies,
    with_alternatives,
)
from reports.diagnose import error_types
from reports.finding import COSTS

CELL = "bert/fill-mask/webnn/float32"


def test_every_target_and_error_type_has_advice():
    poor = [
        (target, error_type)
        for target in (*known_targets(), *diagnostics(), "any")
        for error_type in error_types()
        if not all(text.strip() for text in recommend(error_type, target)) or not recommend(error_type, target)
    ]
    assert poor == []
    assert set(advised_error_types()) == set(error_types())
    assert set(known_targets()) <= set(diagnostics())


def test_advice_for_a_graph_file_is_about_files():
    cell = "net.onnx@1a2b3c4d/graph-forward/cpu/float32"
    for error_type in (
        "numerical_mismatch",
        "unsupported_operator",
        "export_failed",
        "unknown",
        "non_finite",
        "crash",
    ):
        for target in ("cpu", "openvino", "qnn", "webgpu", "webnn"):
            said = " ".join(one.text for one in remedies(error_type, target, cell=cell, facts=[FILE]))
            assert said
            assert not any(word in said for word in ("attention", "transformers", "eager", "optimum", "torch"))
    (first, *_) = remedies("numerical_mismatch", "webgpu", cell=cell, facts=[FILE])
    assert f"localize {cell}" in first.text


def test_advice_names_the_vendors_command_and_versions():
    for error_type, target, *wanted in (
        ("device_absent", "cuda", "nvidia-smi"),
        ("device_absent", "rocm", "rocminfo"),
        ("device_absent", "mps", "torch.backends.mps.is_available()", "torch 1.12"),
        ("device_absent", "openvino:NPU", "available_devices"),
        ("device_absent", "qnn", "QNN_SDK_ROOT"),
        ("device_absent", "webnn", "browser"),
        ("memory_pressure", "cuda", "Close other applications that use the GPU", "smaller model or a smaller batch"),
        ("memory_pressure", "cuda", "FP16", "Split the model across"),
        ("something_new", "cpu", "traceback"),
    ):
        advice = recommend(error_type, target)
        assert [words for words in wanted if not any(words in text for text in advice)] == [], (error_type, target)


def test_the_command_that_makes_an_environment_comes_first():
    for target, command in (("webgpu", "make setup-web"), ("webnn", "make setup-web")):
        for error_type in ("device_absent", "browser_required", "missing_dependency"):
            assert f"`{command}`" in recommend(error_type, target)[0], (error_type, target)
    assert "`make setup-qnn`" in recommend("device_absent", "qnn")[0]
    assert "`make setup-xla`" in recommend("device_absent", "tpu")[0]


def test_costs_of_remedies_are_data_and_part_of_their_text():
    (found,) = [one for one in remedies("out_of_memory", "cuda") if "half precision" in one.do]
    assert "accuracy" in found.cost
    assert found.text.endswith(f"Cost: accuracy ({found.cost['accuracy']}).")
    known = {name for kind in error_types() for one in remedies(kind, "any") for name in one.cost}
    assert known <= set(COSTS)


def test_targets_that_have_an_operator_are_named_but_not_the_one_that_lacks_it():
    (remedy,) = other_targets(
        make_finding(hardware_type="qnn", error_type="unsupported_operator", message="no kernel for aten::addmm")
    )
    assert "aten.addmm is supported on" in remedy.do
    assert "openvino" in remedy.do
    assert "qnn" not in remedy.do


def test_other_hardware_is_named_for_a_poor_cell_of_one_model():
    def named(level: Level, **changes: object) -> bool:
        values = {"hardware_type": "webnn", "error_type": "export_failed", "model_name": "bert", "cells": (CELL,)}
        poor = make_finding(**{**values, **changes})
        (found,) = with_alternatives([poor], [verdict(level, poor.cells[0])], detect())
        assert len(found.remedies) == len(found.recommendations)
        return any(text.startswith("Use other hardware for bert: ") for text in found.recommendations)

    assert named(Level.UNSUPPORTED)
    assert not named(Level.HIGH)
    for changes in (
        {"error_type": "corrupt_checkpoint"},
        {"model_name": None},
        {"cells": ("no-such-type/fill-mask/webnn/float32",)},
    ):
        assert not named(Level.UNSUPPORTED, **changes), changes
