"""Shipped rules give the stated levels, the more specific rule wins, and a faulty set is refused at load."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from generators.compatibility.explanation import explain
from generators.compatibility.matrix import build_matrix
from generators.compatibility.rule import SCHEMA, read_rules
from generators.compatibility.rule_facts import Facts, facts_of
from generators.compatibility.rules import RULES_FOLDER, RuleSet, check_together, load_rules, predict
from generators.compatibility.verdict import Basis, Fault, Level, Verdict
from generators.compatibility.vocabulary import not_computed
from generators.models.recipe_store import load_recipe
from hardware.cell import GRAPH_TASK, Cell
from hardware.errors import BrokenInput
from hardware.target import Target
from reports.reason_text import texts

ROOT = Path(__file__).parents[2]

# The assumed table of the specification, in the order cuda, rocm, mps, openvino, webnn, webgpu.
ASSUMED = {
    "embedding": "high high high medium high medium",
    "text_generation": "high medium medium low unsupported low",
    "vision": "high medium high high medium medium",
    "audio": "high medium medium medium unsupported unsupported",
    "multimodal": "high low low low unsupported unsupported",
}
VISION = {"family": "vision", "precision": "float32"}


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


def two(**changes: object) -> str:
    return rule("test.two", **changes)


def test_rules_say_that_only_a_run_can_tell_about_a_graph_file():
    """Also in int8, in which the CPU computes no model, but files as they are."""
    for precision in ("float32", "int8"):
        cell = Cell(model="net.onnx", task=GRAPH_TASK, target=Target(name="cpu"), precision=precision)
        facts = Facts(family="other", task=GRAPH_TASK, precision=precision)
        found = predict(cell, facts, load_rules())
        assert (found.level, [one.code for one in found.reasons]) == (Level.UNKNOWN, ["no_rule_for_files"])
        assert explain(cell.target, facts, load_rules()).changes == ()
    assert not_computed(Target(name="cpu"), "int8")


@pytest.fixture
def load(tmp_path):
    """Load the shipped rules together with a file of these."""

    def load(*texts: str) -> RuleSet:
        file = tmp_path / "mine.toml"
        file.write_text("\n".join(texts), encoding="utf-8")
        return load_rules([file])

    return load


def verdict(cell: str, rules: RuleSet | None = None, **facts: object) -> Verdict:
    return predict(Cell.parse(cell), Facts(**facts), rules or load_rules())


def level(rules: RuleSet, cell: str, **facts: object) -> Level:
    return verdict(cell, rules, **facts).level


# What ships


def test_shipped_rules_fit_the_schema_and_their_sources_exist():
    files = sorted(RULES_FOLDER.glob("*.toml"))
    assert files
    for file in files:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
        local = [entry["source"].partition("#")[0] for entry in data["rule"] if entry["source"][:4] != "http"]
        assert [source for source in local if not (ROOT / source).is_file()] == []


def test_priors_are_the_assumed_table():
    targets = ("cuda", "rocm", "mps", "openvino", "webnn", "webgpu")
    for family, levels in ASSUMED.items():
        verdicts = [verdict(f"some/task/{one}/float32", family=family, precision="float32") for one in targets]
        assert [(str(one.level), one.basis) for one in verdicts] == [(name, Basis.ASSUMED) for name in levels.split()]
        assert all(one.rule_ids and "not measured" in texts(one.reasons)[0] for one in verdicts)
        on_qnn = verdict("some/task/qnn/float32", family=family)
        assert (on_qnn.level, on_qnn.rule_ids) == (Level.UNKNOWN, ())
        assert "no rule" in texts(on_qnn.reasons)[0]


def test_priors_are_for_wide_floating_point_precisions_that_hwcompat_runs_there():
    wide = ("float32", "tf32", "float16", "bfloat16")
    cases = [("cuda", name, Level.HIGH) for name in wide]
    for target, name, wanted in (*cases, ("openvino", "float32", Level.HIGH), ("openvino", "int8", Level.UNKNOWN)):
        assert verdict(f"vit/x/{target}/{name}", family="vision", precision=name).level is wanted, (target, name)
    facts = {"family": "embedding", "precision": "bfloat16"}
    refused = verdict("bert/fill-mask/webgpu/bfloat16", **facts)
    assert refused.level is Level.UNKNOWN
    assert texts(refused.reasons) == ("webgpu in bfloat16: it supports only float32, float16, int8",)
    assert explain(Target(name="webgpu"), Facts(**facts), load_rules()).changes == ()
    families = build_matrix(load_rules(), timestamp="now", precision="bfloat16").families
    assert families["embedding"]["webgpu"].level is None
    assert families["embedding"]["openvino"].level is Level.MEDIUM


def test_cpu_is_predicted_from_recorded_operators_only():
    rules, known = load_rules(), {"operators": ("aten.addmm",), "family": "embedding"}
    assert level(rules, "bert/fill-mask/cpu/float32", precision="float32", **known) is Level.HIGH
    half = verdict("bert/fill-mask/cpu/bfloat16", precision="bfloat16", **known)
    assert half.level is Level.MEDIUM
    assert half.conditions
    assert level(rules, "bert/fill-mask/cpu/float32", precision="float32", operators=()) is Level.UNKNOWN
    assert level(rules, "bert/fill-mask/cpu/int8", precision="int8", **known) is Level.UNKNOWN
    simulated = verdict("bert/fill-mask/simulated/float32", precision="float32", operators=("aten.addmm",))
    assert any("not numerics" in text for text in texts(simulated.conditions))


def test_a_recipe_gives_the_facts_that_rules_need():
    recipe = load_recipe("bert")
    if recipe is None:
        pytest.skip("no recipe of bert for the installed transformers")
    cell = Cell.parse("bert/fill-mask/cpu/float32")
    facts = facts_of(recipe, cell, {"torch": "2.13.0"})
    assert predict(cell, facts, load_rules()).level is Level.HIGH
    assert facts.value("versions.torch") == "2.13.0"
    assert facts.value("versions.jax") is None


def test_order_of_rules_decides_nothing():
    reverse = tuple(reversed(load_rules().rules))
    check_together(reverse)
    facts = VISION | {"operators": ("aten.mm",)}
    cell = "vit/some/cuda/float32"
    assert verdict(cell, RuleSet(rules=reverse), **facts) == verdict(cell, **facts)


# Which rule counts


def test_a_prior_is_the_weakest_of_all_rules(load):
    contains = '{ operators = { contains = "aten.x" } }'
    rules = load(rule(when=contains, target='"mps"', level='"none"', basis='"predicted"'))
    assert level(rules, "vit/some/mps/float32", operators=("aten.x",), **VISION) is Level.UNSUPPORTED
    assert level(rules, "vit/some/mps/float32", operators=("aten.y",), **VISION) is Level.HIGH
    rules = load(rule(when='{ family = "vision", precision = "float16" }', target='"cuda"', level='"low"'))
    assert level(rules, "vit/some/cuda/float16", family="vision", precision="float16") is Level.LOW
    assert level(rules, "vit/some/cuda/float32", **VISION) is Level.HIGH
    rules = load(rule(when='{ task = "some" }', target='"cuda"', level='"none"', basis='"predicted"'))
    found = verdict("x/some/cuda/float32", rules, task="some", **VISION)
    assert (found.level, found.rule_ids) == (Level.UNSUPPORTED, (rules.rules[-1].id,))


def test_a_limit_counts_only_if_it_lowers_the_level(load):
    for at_most, found in (("medium", Level.MEDIUM), ("low", Level.LOW)):
        rules = load(rule(target='"webgpu"', level=None, at_most=f'"{at_most}"', basis='"predicted"'))
        limited = verdict("vit/some/webgpu/float32", rules, **VISION)
        assert (limited.level, rules.rules[-1].id in limited.rule_ids) == (found, found is Level.LOW)


def test_a_predicted_failure_has_the_fault_of_its_error_type(load):
    for error_type, fault in (("upstream_bug", Fault.MODEL), ("export_failed", Fault.ROUTE), ("crash", None)):
        limit = rule(
            target='"webgpu"', level=None, at_most='"low"', basis='"predicted"', error_type=f'"{error_type}"'
        )
        assert verdict("vit/some/webgpu/float32", load(limit), **VISION).fault is fault
    limit = rule(target='"webgpu"', level=None, at_most='"medium"', basis='"predicted"', error_type='"upstream_bug"')
    assert verdict("vit/some/webgpu/float32", load(limit), **VISION).fault is None


def test_more_conditions_and_a_variant_are_more_specific(load):
    special = '{ family = "vision", parameters = { at_least = 1000 } }'
    rules = load(rule(when=special, target='"cuda"', level='"low"'), two(target='"openvino:NPU"', level='"low"'))
    assert level(rules, "vit/some/cuda/float32", parameters=2000, **VISION) is Level.LOW
    assert level(rules, "vit/some/cuda/float32", parameters=10, **VISION) is Level.HIGH
    assert level(rules, "vit/some/cuda/float32", **VISION) is Level.HIGH
    assert level(rules, "vit/some/openvino:NPU/float32", **VISION) is Level.LOW
    assert level(rules, "vit/some/openvino:GPU/float32", **VISION) is Level.HIGH


def test_operators_hold_on_facts_and_never_on_what_is_not_known(load):
    traits = '{ traits = { contains = ["state-space", "hybrid"] } }'
    torch = '{ versions = { torch = ">=2.9,<3" } }'
    for when, facts, holds in (
        (traits, {"traits": ("hybrid", "state-space")}, True),
        (traits, {"traits": ("hybrid",)}, False),
        ('{ architecture = { one_of = ["vision", "video"] } }', {"architecture": "video"}, True),
        ("{ parameters = { at_most = 10 } }", {"parameters": 10}, True),
        ("{ parameters = { at_most = 10 } }", {"parameters": None}, False),
        (torch, {"versions": {"torch": "2.13.0+cpu"}}, True),
        (torch, {"versions": {"torch": "2.8.1"}}, False),
        (torch, {"versions": {}}, False),
        (torch, {"versions": {"torch": "unknown"}}, False),
    ):
        assert (level(load(rule(when=when)), "x/some/xpu/float32", **facts) is Level.HIGH) is holds, (when, facts)
    rules = load(rule(since='">=5.0"', until='"<5.6"'))
    versions = ("4.57.6", "5.0.0rc1", "5.5.4", "5.6.0rc1", "5.6.0")
    levels = {v: level(rules, "x/y/xpu/float32", family="vision", versions={"transformers": v}) for v in versions}
    holds = [version for version, found in levels.items() if found is Level.HIGH]
    assert holds == ["5.0.0rc1", "5.5.4"], "a candidate counts as its release"


# What is refused


def test_a_faulty_rule_is_refused_with_file_rule_and_field(load):
    for text, message in (
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
        (rule(when='{ family = { contains = "vision" } }'), "'contains' isn't a condition"),
        (rule(when="{ parameters = { at_least = 5, at_most = 4 } }"), "never apply"),
        (rule(when='{ parameters = { at_least = "5" } }'), "must be a number"),
        (rule(when='{ versions = { torch = ">=3,<2" } }'), "never apply"),
        (rule(when='{ versions = { torch = "two" } }'), "version specifier"),
        (rule(when="{ operators = { known = false } }"), "known"),
        (rule(when="{ family = { one_of = [] } }"), "one_of is empty"),
        (rule(name="NoDots"), "lowercase parts separated by dots"),
        (rule(conditions='"none"'), "a list of texts"),
        (rule(conditions="[1]"), "a list of texts"),
        (rule(conditions='["none", ""]'), "a list of texts"),
        (rule(error_type='"exprot_failed"'), "Did you mean 'export_failed'"),
    ):
        with pytest.raises(BrokenInput) as caught:
            load(text)
        assert message in str(caught.value), text
        assert "mine.toml, rule" in str(caught.value), text


def test_a_file_that_is_no_toml_or_not_there_is_named(load, tmp_path):
    with pytest.raises(BrokenInput, match=r"mine\.toml"):
        load("[[rule")
    with pytest.raises(BrokenInput, match=r"gone\.toml"):
        load_rules([tmp_path / "gone.toml"])
    load(rule(error_type='"export_failed"'))
    assert read_rules(tmp_path / "mine.toml")[0].error_type == "export_failed"


def test_rules_that_could_both_hold_and_disagree_are_refused(load):
    old, new = (rule(when=f'{{ versions = {{ torch = "{bound}" }} }}', level='"low"') for bound in ("<2.9", "<2.10"))
    since = two(when='{ versions = { torch = ">=2.9" } }')
    small = rule(when="{ parameters = { at_most = 10 } }", level='"low"')
    large = two(when="{ parameters = { at_least = 11 } }")
    for first, second in (
        (rule(), two(level='"low"')),
        (rule(), two(level='"low"', when='{ task = "image-classification" }')),
        (rule(), two(level='"low"', when='{ versions = { torch = ">=2" } }')),
        (
            rule(target='"openvino"', when='{ task = "some", precision = "int8" }'),
            two(target='"openvino:NPU"', when='{ task = "some" }', level='"none"'),
        ),
        (old.replace("<2.9", "<=2.9"), since),
        (new, since.replace(">=2.9", ">2.9")),
        (small, large.replace("11", "10")),
    ):
        with pytest.raises(BrokenInput, match=r"contradict") as caught:
            load(first, second)
        assert [name for name in ("test.one", "test.two") if name not in str(caught.value)] == []
    for first, second in (
        (rule(), two(level='"low"', when='{ family = "audio" }')),
        (rule(), two(level='"low"', target='"tpu"')),
        (rule(), two(level='"low"', basis='"predicted"', when='{ task = "some" }')),
        (rule(), two(level='"high"', when='{ task = "some" }')),
        (old, since),
        (small, large),
    ):
        assert load(first, second).rules[-1].id.startswith("test.two+mine.toml:")


def test_a_rule_that_can_never_count_and_a_second_of_its_name_are_refused(load):
    for covered, covering in (
        (rule(), two(basis='"predicted"')),
        (rule(), two(basis='"predicted"', when='{ family = { one_of = ["vision", "audio"] } }')),
        (rule(), two()),
        (
            rule(when='{ versions = { torch = ">=2.9,<3" } }'),
            two(basis='"predicted"', when='{ versions = { torch = ">=2" } }'),
        ),
    ):
        with pytest.raises(BrokenInput, match=r"rule test\.(one|two) .* has no effect on xpu"):
            load(covered, covering)
    with pytest.raises(BrokenInput, match="have the id"):
        load(rule(), rule(target='"tpu"'))
