"""The chain behind a prediction: every rule that counted with the facts that it asked, and what would change it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from generators.compatibility.explanation import ExplainRequest, explain
from generators.compatibility.rule_facts import Facts
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Level
from hardware.target import Target
from run_test_generation import main

KNOWN = {
    "family": "embedding",
    "precision": "float32",
    "operators": ("aten.addmm",),
    "traced": "any_length",
    "onnx_export": "yes",
    "onnx_operators": ("onnx.MatMul",),
}


def chain(target: str, **facts: object):
    return explain(Target.parse(target), Facts(**{**KNOWN, **facts}), load_rules())


def test_a_limit_says_which_fact_it_rests_on_and_what_the_level_would_be_without_it():
    found = chain("cpu", padding_error=0.3)
    assert found.level is Level.UNSUPPORTED
    limits = [link for link in found.links if link.role == "limits"]
    assert {"code.padding_heard", "code.padding_heard_widely"} == {link.rule.id for link in limits}
    assert "padding_error is at least 2e-05 (here 0.3)" in [asked.text for link in limits for asked in link.asked]
    assert all(asked.holds for link in found.links for asked in link.asked)


def test_the_level_without_a_single_limit_is_the_claim():
    found = chain("qnn", onnx_operators=("onnx.Transpose[6]", "onnx.MatMul"))
    assert found.level is Level.UNSUPPORTED
    asked = "onnx_operators has onnx.Transpose[6] (here onnx.Transpose[6] of 2)"
    wanted = f"medium if this stopped applying: {asked} [qnn.six_axes]"
    assert found.changes[0] == wanted


def test_where_nothing_is_claimed_the_nearest_claim_is_named():
    found = chain("qnn", onnx_export=None)
    assert found.level is Level.UNKNOWN
    assert found.links == ()
    assert "medium if onnx_export is yes (here not known) [qnn.float32]" in found.changes


def test_a_supported_level_names_what_would_end_it():
    found = chain("qnn")
    assert found.level is Level.MEDIUM
    assert any(text.startswith("unsupported if onnx_operators has onnx.") for text in found.changes)


def test_a_cell_is_explained_from_the_command_line(tmp_path):
    cell = "nystromformer/fill-mask/cpu/float32"
    done = CliRunner().invoke(main, ["--explain", cell, "--format", "json"], standalone_mode=False)
    assert done.exception is None, done.output
    said = json.loads(done.output)
    assert said["predicted"]["level"] == said["chain"]["level"] == "unsupported"
    assert [one["rule"] for one in said["chain"]["rules"] if one["role"] == "limits"]


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("bert/fill-mask/cpu", "cell"),
        ("no-such-model/fill-mask/cpu/float32", "not a model type"),
        ("bert/fil-mask/cpu/float32", "fill-mask"),
        ("bert/fill-mask/openvno/float32", "'openvino'"),
    ],
)
def test_what_is_no_cell_is_refused_with_what_is_wrong(cell, why):
    done = CliRunner().invoke(main, ["--explain", cell], standalone_mode=False)
    assert why in str(done.exception)


def test_a_short_list_is_told_and_a_long_one_counted():
    names = ("a", "b", "c", "d", "e")
    asked = [ExplainRequest(fact="operators", wants="has x", value=names[:count], holds=False) for count in (4, 5)]
    assert [one.text for one in asked] == [
        "operators has x (here a, b, c, d)",
        "operators has x (here 5 of them)",
    ]
