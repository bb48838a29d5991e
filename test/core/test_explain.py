"""The chain behind a prediction: each rule that counted with the facts that it needs, and what would change it."""

from __future__ import annotations

import hashlib
import json

from front_doors import ROOT, invoke
from packaging.specifiers import SpecifierSet

from generators.compatibility.conditions import Known, OneOf, Versions
from generators.compatibility.explanation import ExplainRequest, explain
from generators.compatibility.rule_facts import LIST_FIELDS, NUMBER_FIELDS, TEXT_FIELDS, Facts
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Level
from generators.compatibility.vocabulary import vocabulary
from hardware.target import Target

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


def test_a_limit_names_the_fact_that_it_rests_on():
    found = chain("cpu", padding_error=0.3)
    assert found.level is Level.UNSUPPORTED
    limits = [link for link in found.links if link.role == "limits"]
    assert {"code.padding_heard", "code.padding_heard_widely"} == {link.rule.id for link in limits}
    assert "the error due to padding is at least 2e-05 (0.3)" in [
        asked.text for link in limits for asked in link.asked
    ]
    assert all(asked.holds for link in found.links for asked in link.asked)


def test_what_would_change_the_level_is_named():
    supported = chain("qnn")
    assert supported.level is Level.MEDIUM
    assert any(
        text.startswith("unknown if the operators of the ONNX graph include onnx.") for text in supported.changes
    )
    limited = chain("qnn", onnx_operators=("onnx.Elu", "onnx.MatMul"))
    assert limited.level is Level.UNSUPPORTED
    limit = "the operators of the ONNX graph include onnx.Elu or onnx.GridSample or onnx.LSTM (onnx.Elu among 2)"
    assert limited.changes[0] == f"medium if this didn't apply: {limit} [qnn.no_kernel]"
    unclaimed = chain("qnn", onnx_export=None)
    assert (unclaimed.level, unclaimed.links) == (Level.UNKNOWN, ())
    assert "medium if the ONNX export gives torch's numbers (unknown here) [qnn.float32]" in unclaimed.changes


def test_a_short_list_is_shown_and_a_long_one_counted():
    names = ("a", "b", "c", "d", "e")
    requests = [ExplainRequest(fact="operators", condition=Known(), value=names[:n]) for n in (4, 5)]
    assert [one.text for one in requests] == ["the operators are known (a, b, c, d)", "the operators are known (5)"]


def test_each_fact_of_a_rule_has_a_name_in_sentences():
    assert vocabulary().facts.keys() == {*TEXT_FIELDS, *LIST_FIELDS, *NUMBER_FIELDS}
    cache = OneOf(values=frozenset({"fails", "wrong"}))
    shown = [ExplainRequest(fact="cache", condition=cache, value=value).text for value in (None, "right", "fails")]
    sentence = "decoding with a cache fails or is wrong"
    assert shown == [f"{sentence} (unknown here)", f"{sentence} (here it is right)", f"{sentence} (it fails)"]
    old = ExplainRequest(fact="versions.torch", condition=Versions(specifier=SpecifierSet("<3")), value="2.9.0")
    assert old.text == "the version of torch fits <3 (2.9.0)"


def test_the_command_explains_a_cell_and_refuses_what_is_none():
    def answer(cell: str) -> str:
        done = invoke("explain", cell, "--format", "json")
        return done.out or done.err

    said = json.loads(answer("nystromformer/fill-mask/cpu/float32"))
    assert said["predicted"]["level"] == said["chain"]["level"] == "unsupported"
    assert [one["rule"] for one in said["chain"]["rules"] if one["role"] == "limits"]
    for cell, why in (
        ("bert/fill-mask/cpu", "cell"),
        ("no-such-model/fill-mask/cpu/float32", "isn't a model type"),
        ("bert/fil-mask/cpu/float32", "fill-mask"),
        ("bert/fill-mask/openvno/float32", "'openvino'"),
    ):
        assert why in answer(cell)


def test_rules_of_your_own_count_beside_the_shipped_ones_and_are_named(tmp_path):
    text = (ROOT / "docs/ADDING_A_RULE.md").read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "rules").mkdir()
    own = tmp_path / "rules" / "my_rules.toml"
    own.write_text(text, encoding="utf-8")
    project = tmp_path / "hwcompat.toml"
    project.write_text('schema_version = 1\nrules = ["rules"]\n[[model]]\nname = "mixtral"\n', encoding="utf-8")
    line = ("explain", "mixtral/text-generation/xpu/float32", "--format", "json")
    wanted = f"mychip.no_experts+my_rules.toml:{hashlib.sha256(own.read_bytes()).hexdigest()[:12]}"
    config = ("--config", project)
    for words in (("--rules", own), ("--rules", own.parent), config, (*config, "--rules", own)):
        done = invoke(*line, *words)
        verdict = done.document["predicted"]
        assert (verdict["level"], verdict["rule_ids"]) == ("low", ["xpu.registered", wanted]), words
        assert "my_rules.toml (sha256" in done.err
    assert json.loads(invoke(*line).out)["predicted"]["level"] == "high"
    matrix = ("matrix", "--model", "mixtral", "--format", "markdown")
    assert "my_rules.toml (sha256" in invoke(*matrix, "--rules", own).out
    assert "my_rules.toml" not in invoke(*matrix).out
    own.write_text(text + text.replace("no_experts", "no_moe"), encoding="utf-8")
    assert "my_rules.toml) has no effect on xpu" in invoke(*line, *config).err
