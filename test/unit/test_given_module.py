"""A user's own module: what is found out about it, and which are refused with what to do."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from generators.models.given_recipe import GivenRecipe, draw_inputs
from generators.models.recipe import HERE
from generators.recipes.own_module import derive_own_module
from generators.suites.render import render_given
from generators.suites.suite_files import regenerate
from hardware.cell import MODULE_TASK, Cell
from hardware.detection import detect
from hardware.errors import ModelError
from hardware.target import Target
from hardware.testing.suite_file import is_edited, read_suite

FIXTURES = Path(__file__).parents[1] / "fixtures"
SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, compute=lambda scores, weight: {"scores": scores}):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.out = torch.nn.Linear(8, 3)
        self.compute = compute

    def forward(self, tokens, weight):
        return self.compute(self.out(self.embed(tokens) * weight[..., None]), weight)

def raises(error):
    raise error

def inputs(**changes):
    given = {"tokens": torch.tensor([[3, 9, 4, 7], [5, 3, 8, 9]]), "weight": torch.rand(2, 4) + 1}
    return {**given, **changes}

def with_output(value):
    net = Net()
    torch.nn.init.constant_(net.out.weight, value)
    torch.nn.init.zeros_(net.out.bias)
    return net, inputs()

def pair(): return Net(), inputs()
def fixed(): return Net(lambda scores, weight: scores.reshape(2, 12)), inputs()
def chance(): return Net(lambda scores, weight: scores + torch.rand(3)), inputs()
def deaf(): return Net(lambda scores, weight: weight * 3.0 + 1e-9 * scores.sum()), inputs()
def wordy(): return Net(lambda scores, weight: "scores"), inputs()
def broken(): return Net(lambda scores, weight: raises(RuntimeError("no such kernel"))), inputs()
def zero(): return with_output(0.0)
def infinite(): return with_output(float("inf"))
def alone(): return Net()
def zeros(): return Net(), inputs(tokens=torch.zeros(2, 4, dtype=torch.long))
def misnamed(): return Net(), {"token": torch.zeros(2, 4)}
def text(): return Net(), inputs(tokens="a b c")
def not_a_number(): return Net(), inputs(weight=torch.full((2, 4), float("nan")))
def empty(): return Net(), inputs(weight=torch.zeros(0, 4))
def no_module(): return 3
def needs_more(size): return Net()
def raising(): raise KeyError("config")
constant = 3
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "brought_nets.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "brought_nets"
    sys.modules.pop("brought_nets", None)


def test_inputs_are_drawn_like_the_example(factories: str) -> None:
    recipe = derive_own_module(f"{factories}:pair")
    assert (recipe.subject, recipe.task, recipe.outputs, recipe.paired) == ("config", MODULE_TASK, ("scores",), True)
    assert (recipe.parameters, recipe.gradients) == (50 * 8 + 8 * 3 + 3, 3)
    assert recipe.recorded["origin"] == HERE
    drawn = draw_inputs(recipe.inputs, {"batch": 500})
    assert drawn["tokens"].dtype == np.int64
    assert (drawn["tokens"].min(), drawn["tokens"].max()) == (3, 9)
    assert drawn["weight"].shape == (500, 4)
    assert drawn["weight"].min() >= 1.0
    assert recipe.other_sizes == {"batch": 3}
    assert GivenRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    recipe = derive_own_module(f"{factories}:fixed")
    assert (recipe.sizes, recipe.other_sizes) == ({}, {}), "it takes one batch size only"
    assert recipe.inputs["tokens"].shape == (2, 4)


def test_an_example_of_zeros_stands_for_ids(factories: str) -> None:
    recipe = derive_own_module(f"{factories}:zeros")
    assert (recipe.inputs["tokens"].low, recipe.inputs["tokens"].high) == (0, 2)


def test_a_module_that_cannot_be_tested_is_refused_in_one_line(factories: str, tmp_path: Path) -> None:
    (tmp_path / "half_a_module.py").write_text("import a_library_that_is_nowhere\n", encoding="utf-8")
    reasons = {
        "alone": "example_inputs",
        "chance": "a different result in each run",
        "deaf": "can't be detected",
        "zero": "are constant",
        "wordy": "returns no tensor",
        "broken": "no such kernel",
        "infinite": "infinity in 'out.weight'",
        "misnamed": "don't fit forward",
        "text": "fails on its example inputs",
        "not_a_number": "isn't finite",
        "empty": "fails on its example inputs",
        "no_module": "not a module",
        "needs_more": "missing a required argument: 'size'",
        "raising": "KeyError",
        "constant": "isn't callable",
        "missing": "has no factory",
        "brought_nets_that_are_nowhere.models:make": "working directory",
        "half_a_module:make": "a_library_that_is_nowhere",
    }
    for factory, reason in reasons.items():
        with pytest.raises(ModelError, match=reason) as caught:
            derive_own_module(factory if ":" in factory else f"{factories}:{factory}")
        assert "\n" not in str(caught.value), factory


def test_the_suite_is_an_ordinary_file_that_imports_the_factory(factories: str, tmp_path: Path) -> None:
    recipe = derive_own_module(f"{factories}:pair")
    cell = Cell(model="brought_nets-pair", task=MODULE_TASK, target=Target(name="cpu"))
    text = render_given(recipe, cell, ())
    assert "from brought_nets import pair" in text
    assert "random.integers(3, 10, (batch, 4))" in text
    assert "the suite runs this code" in text
    assert 'recorded_by="this installation"' in text
    checks = ["builds", "matches_reference", "matches_recorded", "save_reload", "backward", "runs_natively"]
    assert [line[9:].partition("(")[0] for line in text.splitlines() if line.startswith("def test_")] == checks
    compile(text, "suite", "exec")
    assert not is_edited(text)
    assert render_given(recipe, cell, ()) == text
    assert "Rules     no rule applies\n" in text
    assert "Rules     a.first, b.second\n" in render_given(recipe, cell, ("a.first", "b.second"))
    path = tmp_path / "test_it.py"
    path.write_text(text, encoding="utf-8")
    suite = read_suite(path)
    assert suite is not None
    with pytest.raises(ModelError, match="command at the top of the suite"):
        regenerate(suite, detect())


NESTED = """
import dataclasses
import torch

@dataclasses.dataclass
class Found:
    scores: torch.Tensor
    parts: tuple

class Nested(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.out = torch.nn.Linear(8, size)
        self.tiny = torch.nn.Linear(8, size, bias=False)
        self.calls = []
        torch.nn.init.normal_(self.tiny.weight, std=1e-9)

    def forward(self, batch, *, scale, mask=None):
        assert (scale, type(batch["pair"])) == (0.5, tuple)
        left, right = batch["pair"]
        self.calls.append(left)
        found = self.out(left - right) * scale * len(self.calls)
        if left.mean() > 0:
            found = found + 1
        return Found(scores=found + self.tiny(left), parts=({"mean": found.mean()}, torch.complex(found, found)))

def nested(size, dropout=0.0):
    net = torch.nn.Sequential() if not size else Nested(size)
    net.drop = torch.nn.Dropout(0.5)
    pair = (torch.randn(2, 8), torch.randn(2, 8))
    return net.double(), {"batch": {"pair": pair}, "scale": 0.5, "mask": torch.zeros(2, 8)}
"""


def test_nested_arguments_and_outputs_state_and_what_no_output_shows_are_stated(
    factories: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nested_nets.py").write_text(NESTED, encoding="utf-8")
    recipe = derive_own_module("nested_nets:nested(size=4)")
    assert list(recipe.inputs) == ["batch_pair_0", "batch_pair_1", "mask"], "a number isn't drawn"
    assert recipe.outputs == ("scores", "parts_0_mean", "parts_1_real", "parts_1_imag")
    assert (recipe.keeps_state, recipe.unread, recipe.undetected) == (True, ("mask",), ("tiny",))
    assert recipe.gain > 0, "seeded weights of the layer show"
    assert len(recipe.seeds) > 1, "one that goes into the branch and one that doesn't"
    assert "float64 became float32" in recipe.differs
    assert "Dropout" in recipe.differs
    text = render_given(recipe, Cell.parse("nested/module-forward/cpu/float32"), ())
    assert "from_factory(lambda: factory(size=4), keeps_state=True)" in text
    assert "case.seeded_error(" in text
    for arguments in ("(size=open('x'))", "(4)", "(size={1})"):
        with pytest.raises(ModelError, match="arguments"):
            derive_own_module(f"nested_nets:nested{arguments}")
    sys.modules.pop("nested_nets", None)


def test_factories_of_the_fixture_are_refused_for_the_reason_that_a_user_expects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(FIXTURES)
    monkeypatch.setattr(sys, "path", [*sys.path, str(FIXTURES)])
    cases = importlib.import_module("own_factories").CASES
    refused = {name: case for name, case in cases.items() if case.cpu == "refused"}
    assert len(cases) == 55
    assert len(refused) > 10
    for name, case in refused.items():
        with pytest.raises(ModelError) as caught:
            derive_own_module(f"own_factories:{name}")
        assert re.search(case.says, str(caught.value), re.IGNORECASE), name
    sys.modules.pop("own_factories", None)
