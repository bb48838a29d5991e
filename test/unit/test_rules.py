"""Rules: what ships says what was declared, the more specific one wins, and a faulty set is refused at load."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import torch

from generators.compatibility.explanation import explain
from generators.compatibility.matrix import build_matrix
from generators.compatibility.rule import SCHEMA
from generators.compatibility.rule_facts import Facts, facts_of
from generators.compatibility.rules import RULES_FOLDER, RuleSet, check_together, load_rules, predict
from generators.compatibility.verdict import Basis, Level
from generators.models.recipe_store import load_recipe
from hardware.cell import Cell
from hardware.errors import BrokenInput
from hardware.target import Target
from reports.reason_text import texts

ROOT = Path(__file__).parents[2]

# The declared table of the specification, in the order cuda, rocm, mps, openvino, webnn, webgpu.
ASSUMED = {
    "embedding": "high high high medium high medium",
    "text_generation": "high medium medium low unsupported low",
    "vision": "high medium high high medium medium",
    "audio": "high medium medium medium unsupported unsupported",
    "multimodal": "high low low low unsupported unsupported",
}


def rule(name: str = "test.one", **changes: object) -> str:
    """The TOML text of one rule; a value of `None` leaves the field out."""
    fields = {
        "id": f'"{name}"',
        "when": '{ family = "vision" }',
        "target": '"xpu"',
        "level": '"high"',
        "basis": '"declared"',
        "reason": '"it is so"',
        "source": '"https://example.org/table"',
        **changes,
    }
    lines = [f"{key} = {value}" for key, value in fields.items() if value is not None]
    return "\n".join(["[[rule]]", *lines, ""])


def load(folder: Path, *texts: str) -> RuleSet:
    file = folder / "mine.toml"
    file.write_text("\n".join(texts), encoding="utf-8")
    return load_rules([file])


def level(rules: RuleSet, cell: str, **facts: object) -> Level:
    return predict(Cell.parse(cell), Facts(**facts), rules).level


@pytest.mark.parametrize("file", sorted(RULES_FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_rules_fit_the_schema_and_their_sources_exist(file):
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    for entry in data["rule"]:
        if not entry["source"].startswith("http"):
            assert (ROOT / entry["source"].partition("#")[0]).is_file()


@pytest.mark.parametrize("family", ASSUMED)
def test_priors_are_the_assumed_table(family):
    rules = load_rules()
    targets = ("cuda", "rocm", "mps", "openvino", "webnn", "webgpu")
    for target, expected in zip(targets, ASSUMED[family].split(), strict=True):
        verdict = predict(Cell.parse(f"some/task/{target}/float32"), Facts(family=family, precision="float32"), rules)
        assert (str(verdict.level), verdict.basis) == (expected, Basis.ASSUMED)
        assert verdict.rule_ids
        assert "no run" in texts(verdict.reasons)[0]


@pytest.mark.parametrize(
    ("target", "precision", "expected"),
    [("cuda", wide, Level.HIGH) for wide in ("float32", "tf32", "float16", "bfloat16")]
    + [("openvino", "float32", Level.HIGH), ("openvino", "int8", Level.UNKNOWN)],
)
def test_priors_speak_of_wide_floating_point_precisions_only(target, precision, expected):
    cell = Cell.parse(f"vit/image-classification/{target}/{precision}")
    verdict = predict(cell, Facts(family="vision", precision=precision), load_rules())
    assert verdict.level is expected


def test_nothing_is_predicted_in_a_precision_that_the_target_is_not_asked_for():
    facts = Facts(family="embedding", precision="bfloat16")
    verdict = predict(Cell.parse("bert/fill-mask/webgpu/bfloat16"), facts, load_rules())
    assert verdict.level is Level.UNKNOWN
    assert texts(verdict.reasons) == ("webgpu in bfloat16: hwcompat runs it in float32, float16, int8 only",)
    assert explain(Target(name="webgpu"), facts, load_rules()).changes == ()
    matrix = build_matrix(load_rules(), timestamp="now", precision="bfloat16")
    assert matrix.families["embedding"]["webgpu"].level is None
    assert matrix.families["embedding"]["openvino"].level is Level.MEDIUM


def test_a_prior_is_the_weakest_of_all_rules(tmp_path):
    rules = load(tmp_path, rule(when='{ operators = { contains = "aten.x" } }', target='"mps"', level='"none"',
                                basis='"predicted"'))  # fmt: skip
    facts = {"family": "vision", "precision": "float32"}
    assert level(rules, "vit/some/mps/float32", operators=("aten.x",), **facts) is Level.UNSUPPORTED
    assert level(rules, "vit/some/mps/float32", operators=("aten.y",), **facts) is Level.HIGH


def test_a_declared_level_of_one_precision_goes_before_a_prior_of_several(tmp_path):
    rules = load(tmp_path, rule(when='{ family = "vision", precision = "float16" }', target='"cuda"', level='"low"'))
    assert level(rules, "vit/some/cuda/float16", family="vision", precision="float16") is Level.LOW
    assert level(rules, "vit/some/cuda/float32", family="vision", precision="float32") is Level.HIGH


def test_nothing_was_declared_of_qnn():
    rules = load_rules()
    for family in ASSUMED:
        verdict = predict(Cell.parse("some/task/qnn/float32"), Facts(family=family), rules)
        assert verdict.level is Level.UNKNOWN
        assert verdict.rule_ids == ()
        assert "no rule" in texts(verdict.reasons)[0]


def test_cpu_is_predicted_from_recorded_operators_only():
    rules = load_rules()
    known = {"operators": ("aten.addmm",), "family": "embedding"}
    assert level(rules, "bert/fill-mask/cpu/float32", precision="float32", **known) is Level.HIGH
    half = predict(Cell.parse("bert/fill-mask/cpu/bfloat16"), Facts(precision="bfloat16", **known), rules)
    assert half.level is Level.MEDIUM
    assert half.conditions
    assert level(rules, "bert/fill-mask/cpu/float32", precision="float32", operators=()) is Level.UNKNOWN
    assert level(rules, "bert/fill-mask/cpu/int8", precision="int8", **known) is Level.UNKNOWN


def test_simulated_says_that_it_proves_no_numerics():
    verdict = predict(
        Cell.parse("bert/fill-mask/simulated/float32"),
        Facts(precision="float32", operators=("aten.addmm",)),
        load_rules(),
    )
    assert any("not numerics" in text for text in texts(verdict.conditions))


def test_a_recipe_gives_the_facts_that_rules_ask_for():
    recipe = load_recipe("bert")
    if recipe is None:
        pytest.skip("no recipe of bert for the installed transformers")
    cell = Cell.parse("bert/fill-mask/cpu/float32")
    facts = facts_of(recipe, cell, {"torch": "2.13.0"})
    assert predict(cell, facts, load_rules()).level is Level.HIGH
    assert facts.value("versions.torch") == "2.13.0"
    assert facts.value("versions.jax") is None


def test_more_conditions_win_over_a_prior(tmp_path):
    special = '{ family = "vision", parameters = { at_least = 1000 } }'
    rules = load(tmp_path, rule(when=special, target='"cuda"', level='"low"'))
    cell, facts = "vit/image-classification/cuda/float32", {"family": "vision", "precision": "float32"}
    assert level(rules, cell, parameters=2000, **facts) is Level.LOW
    assert level(rules, cell, parameters=10, **facts) is Level.HIGH
    assert level(rules, cell, **facts) is Level.HIGH


def test_predicted_wins_over_declared_among_equals(tmp_path):
    rules = load(tmp_path, rule(when='{ task = "some" }', target='"cuda"', level='"none"', basis='"predicted"'))
    verdict = predict(
        Cell.parse("x/some/cuda/float32"), Facts(family="vision", task="some", precision="float32"), rules
    )
    assert (verdict.level, verdict.rule_ids) == (Level.UNSUPPORTED, ("test.one",))


def test_a_variant_is_more_specific_than_its_target(tmp_path):
    rules = load(tmp_path, rule(target='"openvino:NPU"', level='"low"'))
    facts = {"family": "vision", "precision": "float32"}
    assert level(rules, "vit/some/openvino:NPU/float32", **facts) is Level.LOW
    assert level(rules, "vit/some/openvino:GPU/float32", **facts) is Level.HIGH


@pytest.mark.parametrize(
    ("when", "facts", "holds"),
    [
        ('{ traits = { contains = ["state-space", "hybrid"] } }', {"traits": ("hybrid", "state-space")}, True),
        ('{ traits = { contains = ["state-space", "hybrid"] } }', {"traits": ("hybrid",)}, False),
        ('{ architecture = { one_of = ["vision", "video"] } }', {"architecture": "video"}, True),
        ("{ parameters = { at_most = 10 } }", {"parameters": 10}, True),
        ("{ parameters = { at_most = 10 } }", {"parameters": None}, False),
        ('{ versions = { torch = ">=2.9,<3" } }', {"versions": {"torch": "2.13.0+cpu"}}, True),
        ('{ versions = { torch = ">=2.9,<3" } }', {"versions": {"torch": "2.8.1"}}, False),
        ('{ versions = { torch = ">=2.9,<3" } }', {"versions": {}}, False),
        ('{ versions = { torch = ">=2.9,<3" } }', {"versions": {"torch": "unknown"}}, False),
    ],
)
def test_operators_hold_on_facts_and_never_on_what_is_not_known(tmp_path, when, facts, holds):
    rules = load(tmp_path, rule(when=when))
    assert (level(rules, "x/some/xpu/float32", **facts) is Level.HIGH) is holds


def test_since_and_until_bound_the_transformers_version(tmp_path):
    rules = load(tmp_path, rule(since='">=5.0"', until='"<5.6"'))
    found = {v: level(rules, "x/y/xpu/float32", family="vision", versions={"transformers": v}) for v in
             ("4.57.6", "5.0.0rc1", "5.5.4", "5.6.0rc1", "5.6.0")}  # fmt: skip
    holds = [version for version, said in found.items() if said is Level.HIGH]
    assert holds == ["5.0.0rc1", "5.5.4"], "a candidate counts as its release"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (rule(levle='"high"'), "Did you mean 'level'"),
        (rule(level='"hgih"'), "Did you mean 'high'"),
        (rule(level='"unknown"'), "level"),
        (rule(basis='"measured"'), "basis"),
        (rule(source=None), "field 'source'"),
        (rule(source='"somebody said so"'), "document of the repository"),
        (rule(source='"../../secret.md"'), "document of the repository"),
        (rule(target='"opnvino"'), "Did you mean 'openvino'"),
        (rule(target='"cuda:1"'), "index"),
        (rule(target="[]"), "at least one target"),
        (rule(when='{ family = "vison" }'), "Did you mean 'vision'"),
        (rule(when='{ famly = "vision" }'), "Did you mean 'family'"),
        (rule(when="{}"), "at least one condition"),
        (rule(when='{ family = { contains = "vision" } }'), "'contains' is no operator"),
        (rule(when="{ parameters = { at_least = 5, at_most = 4 } }"), "never hold"),
        (rule(when='{ parameters = { at_least = "5" } }'), "takes a number"),
        (rule(when='{ versions = { torch = ">=3,<2" } }'), "never hold"),
        (rule(when='{ versions = { torch = "two" } }'), "version specifier"),
        (rule(when="{ operators = { known = false } }"), "known"),
        (rule(when="{ family = { one_of = [] } }"), "one_of is empty"),
        (rule(name="NoDots"), "lower case with dots"),
        (rule(conditions='"none"'), "a list of texts"),
        (rule(conditions="[1]"), "a list of texts"),
        (rule(conditions='["none", ""]'), "a list of texts"),
    ],
)
def test_a_faulty_rule_is_refused_with_file_rule_and_field(tmp_path, text, said):
    with pytest.raises(BrokenInput) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "mine.toml, rule" in str(caught.value)


def test_a_file_that_is_no_toml_or_not_there_is_named(tmp_path):
    with pytest.raises(BrokenInput, match=r"mine\.toml"):
        load(tmp_path, "[[rule")
    with pytest.raises(BrokenInput, match=r"gone\.toml"):
        load_rules([tmp_path / "gone.toml"])


@pytest.mark.parametrize(
    "second",
    [
        rule("test.two", level='"low"'),
        rule("test.two", level='"low"', when='{ task = "image-classification" }'),
        rule("test.two", level='"low"', when='{ versions = { torch = ">=2" } }'),
    ],
)
def test_rules_that_could_both_hold_and_disagree_are_refused(tmp_path, second):
    with pytest.raises(BrokenInput, match=r"contradict") as caught:
        load(tmp_path, rule(), second)
    assert "test.one" in str(caught.value)
    assert "test.two" in str(caught.value)


def test_a_variant_rule_can_contradict_its_target(tmp_path):
    wide = rule(target='"openvino"', when='{ task = "some", precision = "int8" }')
    narrow = rule("test.two", target='"openvino:NPU"', when='{ task = "some" }', level='"none"')
    with pytest.raises(BrokenInput, match="contradict"):
        load(tmp_path, wide, narrow)


@pytest.mark.parametrize(
    "second",
    [
        rule("test.two", level='"low"', when='{ family = "audio" }'),
        rule("test.two", level='"low"', target='"tpu"'),
        rule("test.two", level='"low"', basis='"predicted"', when='{ task = "some" }'),
        rule("test.two", level='"high"', when='{ task = "some" }'),
    ],
)
def test_rules_that_exclude_each_other_or_are_ranked_or_agree_are_taken(tmp_path, second):
    assert load(tmp_path, rule(), second).rule("test.two")


def test_versions_that_do_not_meet_are_no_contradiction(tmp_path):
    old = rule(when='{ versions = { torch = "<2.9" } }', level='"low"')
    new = rule("test.two", when='{ versions = { torch = ">=2.9" } }')
    assert load(tmp_path, old, new)
    with pytest.raises(BrokenInput, match="contradict"):
        load(tmp_path, old.replace("<2.9", "<=2.9"), new)
    with pytest.raises(BrokenInput, match="contradict"):
        load(tmp_path, old.replace("<2.9", "<2.10"), new.replace(">=2.9", ">2.9"))


def test_ranges_contradict_where_they_touch_and_not_where_they_do_not(tmp_path):
    small = rule(when="{ parameters = { at_most = 10 } }", level='"low"')
    large = rule("test.two", when="{ parameters = { at_least = 11 } }")
    assert load(tmp_path, small, large)
    with pytest.raises(BrokenInput, match="contradict"):
        load(tmp_path, small, large.replace("11", "10"))


@pytest.mark.parametrize(
    ("covered", "covering"),
    [
        (rule(), rule("test.two", basis='"predicted"')),
        (
            rule(),
            rule("test.two", basis='"predicted"', when='{ family = { one_of = ["vision", "audio"] } }'),
        ),
        (rule(), rule("test.two")),
        (
            rule(when='{ versions = { torch = ">=2.9,<3" } }'),
            rule("test.two", basis='"predicted"', when='{ versions = { torch = ">=2" } }'),
        ),
    ],
)
def test_a_rule_that_can_never_count_is_refused(tmp_path, covered, covering):
    with pytest.raises(BrokenInput, match=r"rule test\.(one|two) .* can never count on xpu"):
        load(tmp_path, covered, covering)


def test_two_rules_of_one_name_are_refused(tmp_path):
    with pytest.raises(BrokenInput, match="are called"):
        load(tmp_path, rule(), rule(target='"tpu"'))


def test_order_of_rules_decides_nothing():
    rules = load_rules().rules
    check_together(tuple(reversed(rules)))
    facts = Facts(family="vision", operators=("aten.mm",), precision="float32")
    cell = Cell.parse("vit/some/cuda/float32")
    assert predict(cell, facts, RuleSet(rules=tuple(reversed(rules)))) == predict(cell, facts, load_rules())


def test_a_plug_in_can_name_its_own_target(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(rule(target='"mychip"'), encoding="utf-8")
    with pytest.raises(BrokenInput, match="mychip"):
        load_rules([file])
    assert level(load_rules([file], extra_targets=["mychip"]), "x/y/mychip/float32", family="vision") is Level.HIGH


def test_the_floor_imports_no_heavy_library():
    heavy = "torch transformers pandas duckdb jsonschema numpy"
    code = (
        "import sys; from generators.compatibility import judge, matrix, rules, selection; "
        "matrix.build_matrix(rules.load_rules(), timestamp='t'); "
        f"print([name for name in {heavy.split()} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_fourier_transform_is_held_for_inexact_on_openvino():
    transforms = [name for name in dir(torch.fft) if re.fullmatch(r"i?[rh]?fft[2n]?|ir?fft[2n]?", name)]
    assert len(transforms) == 18
    for name in transforms:
        facts = Facts(precision="float32", trace_operators=("aten::matmul", f"aten::fft_{name}"), traced="any_length")
        found = explain(Target(name="openvino"), facts, load_rules())
        assert "openvino.fourier" in {link.rule.id for link in found.links}, name
