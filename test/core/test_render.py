"""Rendering: pure, one line of truth for each fact, and no text that comes in ever becomes code.

Models that users bring: the recipe of a module or graph file, its inputs, and the suite that shows both.
"""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from typing import Any

import jinja2
import numpy as np
import pytest
from given_recipes import graph_recipe, module_recipe
from golden_suites import recipe_of
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from suite_inputs import make_inputs_of

from generators.models.given_recipe import GivenInput, GivenRecipe, draw_inputs
from generators.models.recipe import Recipe
from generators.suites.render import environment, render, render_given
from generators.suites.render_command import command_for
from hardware.cell import Cell
from hardware.errors import HwCompatError, UsageError
from hardware.target import Target
from hardware.testing.suite_file import is_edited, stamp
from hardware.testing.tolerances import OwnTolerance

QUOTES = ('"', "'", '"""', "'''", '""""""', "\\", '\\"""', '\\\\"""\\')
CONTROLS = ("\n", "\r\n", "\f", "\0", "\t", " ", "\u2028", "\ud800", "\x1b[31m", "é")
TEMPLATES = ("{{ 1 }}", "{% raw %}", "{# #}", "{}", "{x!r}", "%s")
CODE = (
    '"""\nimport os\nos.abort()\n"""',
    '")\nimport os\n("',
    "# coding: latin-1",
    "import os",
    "; import os",
    "x = 1",
)
HOSTILE = (*QUOTES, *CONTROLS, *TEMPLATES, *CODE, "../../etc/passwd", "$(ls)", "`ls`")

hostile = (
    st.sampled_from(HOSTILE) | st.text(max_size=12) | st.lists(st.sampled_from(HOSTILE), max_size=4).map("".join)
)


def cell_of(recipe: Recipe, target: str = "cpu", precision: str = "float32") -> Cell:
    return Cell(model=recipe.model_type, task=recipe.task, target=Target.parse(target), precision=precision)


def shape(text: str) -> str:
    """The tree of a module with each constant replaced by its type, and each docstring by nothing but its place."""

    class Blank(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            return ast.copy_location(ast.Name(id=f"<{type(node.value).__name__}>", ctx=ast.Load()), node)

    return ast.dump(Blank().visit(ast.parse(text)))


def rendered(recipe: Recipe, rule_ids: tuple[str, ...] = ("simulated.everything",), target: str = "cpu") -> str:
    return render(recipe, cell_of(recipe, target), rule_ids)


# What is in a suite


def test_a_suite_names_its_cell_weights_rules_and_command():
    recipe = recipe_of("bert")
    text = render(
        recipe, cell_of(recipe, "openvino:NPU", "float16"), ["a.rule", "b.rule", "own.rule+mine.toml:0123456789ab"]
    )
    doc = ast.get_docstring(ast.parse(text)) or ""
    assert doc.startswith("bert/fill-mask/openvino:NPU/float16\n")
    assert "hwcompat generate --model bert --device openvino:NPU --precision float16" in doc
    assert "a.rule, b.rule\n" in f"{doc}\n", "rules of the user's own change no suite"
    assert "transformers 5.5.4" in doc
    assert "90,416 parameters" in doc


def test_a_suite_shows_its_configuration_and_its_recorded_numbers_literally():
    recipe = recipe_of("bert")
    constants: dict[str, Any] = {}
    for node in ast.parse(rendered(recipe)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = ast.literal_eval(node.value)
    assert constants["CONFIG"] == recipe.config
    assert constants["PARAMETERS"] == recipe.parameters
    assert list(constants["RECORDED"].values()) == recipe.recorded["values"]
    assert [list(position) for position in constants["RECORDED"]] == recipe.recorded["positions"]


def test_a_composed_configuration_is_copied_before_it_is_taken_apart():
    assert "**deepcopy(CONFIG)" in rendered(recipe_of("rag"))
    assert "deepcopy" not in rendered(recipe_of("bart"))


def test_a_suite_has_the_checks_of_its_task_and_target():
    for model_type, target, there, absent in (
        ("bert", "cpu", {"honours_mask", "backward"}, {"cache_matches"}),
        ("gpt2", "cpu", {"cache_matches", "generates_like_reference"}, set()),
        ("vit", "cpu", {"save_reload"}, {"honours_mask"}),
        ("bert", "openvino", {"runs_natively"}, {"backward"}),
    ):
        tree = ast.parse(rendered(recipe_of(model_type), target=target))
        names = {node.name.removeprefix("test_") for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert there <= names
        assert not absent & names


def test_a_checkpoints_suite_holds_its_hash_and_no_path():
    recipe = replace(recipe_of("bert"), subject="checkpoint", weights_hash="a" * 64, gain=None)
    text = render(recipe, replace(cell_of(recipe), model="my-bert"), [])
    assert f'MODEL_REVISION = "{"a" * 64}"' in text
    assert "<folder of my-bert>" in text
    assert "CONFIG = " not in text
    assert (
        "return load_checkpoint(BertForMaskedLM, checkpoint_folder(CELL, MODEL_REVISION, config=CONFIG_HASH))" in text
    )


def test_tf32_is_checked_as_the_precision_that_operators_report():
    recipe = recipe_of("bert")
    assert 'execution.dtype == "float32"' in render(recipe, cell_of(recipe, "cuda", "tf32"), [])
    assert 'execution.dtype == "float16"' in render(recipe, cell_of(recipe, "cuda", "float16"), [])


def test_an_architecture_without_a_template_is_named_and_is_no_way_to_another_file():
    with pytest.raises(UsageError, match="the architecture quantum has no template"):
        rendered(replace(recipe_of("bert"), architecture="quantum"))
    for architecture in ("../templates/vision", "/etc/passwd", "a\0b", "..", "", "x\ny"):
        with pytest.raises(HwCompatError):
            rendered(replace(recipe_of("bert"), architecture=architecture))


# What comes in stays data


def test_hostile_text_does_not_change_what_a_shell_would_run():
    import shlex

    command = command_for(cell_of(recipe_of("bert")), model='a b\'; rm -rf ~ "$(x)"')
    assert shlex.split(command)[3] == 'a b\'; rm -rf ~ "$(x)"'


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), field=st.sampled_from(["transformers_version", "config_hash", "subject", "generate", "rules"]))
def test_hostile_text_in_a_field_never_becomes_code(data, field):
    recipe, text = recipe_of("bert"), data.draw(hostile)
    assume(field != "generate" or text not in ("none", "causal", "seq2seq"))
    harmless = {"generate": "unheard-of", "subject": "config"}.get(field, "x")
    if field == "rules":
        assert shape(rendered(recipe, (text,))) == shape(rendered(recipe, ("x",)))
        return
    _same_shape_or_refused(replace(recipe, **{field: text}), replace(recipe, **{field: harmless}))


@settings(max_examples=30, deadline=None)
@given(text=hostile, other=hostile, number=st.floats() | st.integers() | st.booleans() | st.none())
def test_hostile_text_in_a_configuration_never_becomes_code(text, other, number):
    recipe = recipe_of("bert")

    def with_config(key: str, value: str) -> Recipe:
        config = {**recipe.config, key: {value: [value, [value] * 20, {value: number}]}, "zz": number}
        return replace(recipe, config=config)

    assume(text not in recipe.config)
    _same_shape_or_refused(with_config(text, other), with_config("q", "q"))


@settings(max_examples=40, deadline=None)
@given(
    text=hostile, where=st.sampled_from(["config_class", "model_class", "output", "outputs", "masked_by", "input"])
)
def test_a_hostile_name_is_refused_or_stays_a_name(text, where):
    recipe = recipe_of("bert")

    def with_name(name: str) -> Recipe:
        if where in ("config_class", "model_class"):
            return replace(recipe, **{where: name})
        if where == "output":
            return replace(recipe, recorded={**recipe.recorded, "output": name})
        if where == "outputs":
            return replace(recipe, outputs=(name,))
        if where == "masked_by":
            return replace(recipe, masked_by={name: name})
        return replace(recipe, inputs={**recipe.inputs, name: recipe.inputs["input_ids"]})

    try:
        got = rendered(with_name(text))
    except HwCompatError:
        return
    if text.isidentifier():
        compile(got, "suite", "exec")
    else:
        assert shape(got) == shape(rendered(with_name("q")))


def _same_shape_or_refused(changed: Recipe, harmless: Recipe) -> None:
    try:
        got = rendered(changed)
    except HwCompatError:
        return
    compile(got, "suite", "exec")
    assert shape(got) == shape(rendered(harmless))


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40) | hostile)
def test_a_literal_evaluates_to_what_went_in(text):
    made = environment().from_string("{{ value | literal }}").render(value=text)
    assert ast.literal_eval(made) == text
    assert made.isprintable()


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40) | hostile)
def test_a_docstring_cannot_be_ended_by_what_stands_in_it(text):
    made = environment().from_string('"""{{ value | doc }}\n"""\n').render(value=text)
    (only,) = ast.parse(made).body
    assert isinstance(only, ast.Expr)
    assert isinstance(only.value, ast.Constant)


def test_what_is_no_literal_and_no_name_is_refused():
    recipe = recipe_of("bert")
    for number in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(UsageError, match="it has no Python literal"):
            rendered(replace(recipe, config={**recipe.config, "x": number}))
    for name in ("", "a b", "1a", "class", "a.b", "a-b", "a\n", 'a"', "None", "ｉｆ"):
        with pytest.raises(UsageError):
            environment().from_string("{{ value | identifier }}").render(value=name)


# Templates


def test_a_template_variable_that_is_not_there_or_has_no_filter_that_makes_it_code_raises():
    for template in ("{{ value }}", "{{ value ~ 'x' }}", "{{ value | upper }}", "{{ value | literal | upper }}"):
        with pytest.raises(jinja2.TemplateRuntimeError, match="without a filter"):
            environment().from_string(template).render(value="x")
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ nothing | literal }}").render()


# Knowing an edit


@given(st.text(max_size=60).filter(lambda text: "\r" not in text))
def test_what_was_stamped_is_not_edited(body):
    assert not is_edited(stamp(body))


def test_any_edit_is_seen():
    text = rendered(recipe_of("bert"))
    assert not is_edited(text)
    for edited in (
        text.replace("2e", "3e", 1) if "2e" in text else text.replace("0", "1", 1),
        text + "\n\ndef test_mine(): pass\n",
        "# mine\n" + text,
        text.rpartition("\n\n#")[0],
        "",
    ):
        assert is_edited(edited)


MODULE = Cell.parse("own_net.make/module-forward/cpu/float32")
GRAPH = Cell.parse("net/graph-forward/openvino/float32")


def test_inputs_are_drawn_in_order_inside_their_range() -> None:
    drawn = draw_inputs(module_recipe().inputs, {"batch": 500})
    rng = np.random.default_rng(0)
    assert np.array_equal(drawn["ids"], rng.integers(0, 9, (500, 4)))
    assert np.array_equal(drawn["x"], rng.normal(1, 2, (500, 3)).astype(np.float32))
    assert np.array_equal(drawn["share"], rng.uniform(-1, 1, (500,)).astype(np.float32))
    assert 0.4 < drawn["mask"].mean() < 0.6
    assert [str(one.dtype) for one in drawn.values()] == ["int64", "float32", "float32", "bool"]
    with pytest.raises(ValueError, match="isn't a kind of input"):
        GivenInput(kind="text", dtype="int64", shape=(2,)).draw(rng, {})


def test_a_recipe_survives_json() -> None:
    for recipe in (module_recipe(), graph_recipe()):
        assert GivenRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("recipe", "cell"), [(module_recipe(), MODULE), (graph_recipe(), GRAPH)], ids=["module", "graph"]
)
def test_a_suite_draws_the_inputs_of_its_recipe_and_shows_what_was_recorded(recipe: GivenRecipe, cell: Cell) -> None:
    text = render_given(recipe, cell, ("a.rule",))
    assert not is_edited(text)
    assert "a.rule" in text
    made = make_inputs_of(text)
    for sizes in (recipe.sizes, recipe.other_sizes):
        ours, written = draw_inputs(recipe.inputs, sizes, 1), made(1, **sizes)
        assert list(ours) == list(written)
        assert all(np.array_equal(ours[name], written[name]) for name in ours)
        assert all(ours[name].dtype == written[name].dtype for name in ours)
    constants = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = ast.literal_eval(node.value)
    assert constants["CELL"] == cell.id
    checks = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert {"test_builds", "test_matches_reference", "test_runs_natively"} <= checks
    of_modules = {"test_backward", "test_matches_recorded"}
    if recipe.kind == "graph":  # has no recorded numbers and no gradients
        assert not of_modules & checks
    else:
        assert of_modules <= checks
        assert list(constants["RECORDED"].items()) == [((0, 1), 0.5), ((1, 2), -0.25)]


def test_a_suite_names_its_model_its_tolerance_and_no_path() -> None:
    text = render_given(module_recipe(), MODULE, ())
    assert "from own_net import make" in text
    assert "return from_factory(factory)" in text
    alone = render_given(replace(module_recipe(), paired=False, name="own_net:make(n=2)"), MODULE, ())
    assert "return from_factory(lambda: factory(n=2), example_inputs)" in alone
    assert "--model own_net:make" in text
    graph = render_given(graph_recipe(), GRAPH, (), folder="../models")
    assert "<path of net.onnx>" in graph
    assert '"../models' in graph
    assert "a" * 64 in graph
    own = OwnTolerance(limit=1e-3, reason="sums in another order", source="hwcompat.toml")
    assert "tolerance=0.001" in render_given(module_recipe(), MODULE, (), tolerance=own)
