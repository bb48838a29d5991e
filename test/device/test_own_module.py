"""A user's own module through the whole job: it passes where it is right, and fails where it isn't."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import CommandLine

from hardware.evidence.record import Outcome

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parents[1] / "fixtures"
CELL = "mypackage.models-make_net/module-forward/{}/float32"
SOURCE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 32)
        self.inner = torch.nn.Linear(32, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.out = torch.nn.Linear(64, 7)

    def forward(self, tokens, weight):
        hidden = self.norm(torch.tanh(self.inner(self.embed(tokens)))) * weight[..., None]
        return self.out(hidden), hidden.mean(1)


def make_net():
    print("built")
    return Net()


def example_inputs():
    return {"tokens": torch.arange(50).reshape(2, 25), "weight": torch.rand(2, 25)}


def leave():
    raise SystemExit(0)


def crash():
    import os

    os.abort()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "project" / "mypackage"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "models.py").write_text(SOURCE, encoding="utf-8")
    (package.parent / "json.py").write_text("raise RuntimeError('not the library')\n", encoding="utf-8")
    return package.parent


def test_passes_on_each_target_and_is_never_worth_more_than_its_own_word(
    command_line: CommandLine, project: Path, tmp_path: Path
) -> None:
    devices = ("cpu", "openvino", "simulated")
    named = [word for device in devices for word in ("--device", device)]
    ran = command_line.run(tmp_path, "--model", "mypackage.models:make_net", *named, "--run", cwd=project)
    assert ran.code == 0
    assert "is your own code" in ran.err
    for device in devices:
        assert set(ran.outcomes(CELL.format(device)).values()) == {Outcome.PASSED}
        assert ran.verdict(CELL.format(device)) == "medium"
    assert {"matches_reference", "save_reload", "backward"} <= set(ran.outcomes(CELL.format("cpu")))
    assert str(project) not in "".join(path.read_text(encoding="utf-8") for path in ran.suites.glob("test_*.py"))


@pytest.mark.nightly
def test_a_device_that_computes_wrong_fails(command_line: CommandLine, project: Path, tmp_path: Path) -> None:
    ran = command_line.run(
        tmp_path,
        *("--model", "mypackage.models:make_net", "--device", "simulated", "--run"),
        env={"HWCOMPAT_SIMULATED_FAULT": "wrong"},
        cwd=project,
    )
    assert ran.code == 1
    outcomes = ran.outcomes(CELL.format("simulated"))
    assert {outcomes[name] for name in ("matches_reference", "matches_recorded", "backward")} == {Outcome.FAILED}


@pytest.mark.nightly
def test_a_model_that_leaves_its_device_for_other_lengths_alone_fails(
    command_line: CommandLine, project: Path, tmp_path: Path
) -> None:
    models = project / "mypackage" / "models.py"
    right, leaves = "return self.out(hidden), hidden.mean(1)", "return self.there(hidden), hidden.mean(1)"
    method = """
    def there(self, hidden):
        if hidden.shape[:2] == (2, 25):
            return self.out(hidden)
        weight, bias = self.out.weight.cpu(), self.out.bias.cpu()
        return torch.nn.functional.linear(hidden.cpu(), weight, bias).to(hidden.device)
"""
    models.write_text(SOURCE.replace(right, leaves + method), encoding="utf-8")
    asked = ("--model", "mypackage.models:make_net", "--device", "simulated", "--run")
    ran = command_line.run(tmp_path, *asked, cwd=project)
    assert ran.code == 1
    outcomes = ran.outcomes(CELL.format("simulated"))
    failed = {name for name, outcome in outcomes.items() if outcome is Outcome.FAILED}
    assert outcomes["runs_natively"] is Outcome.PASSED
    assert failed
    assert ran.verdict(CELL.format("simulated")) == "low"


@pytest.mark.parametrize(
    ("old", "new", "failing"),
    [
        ("torch.tanh(", "torch.sigmoid(", "matches_recorded"),
        pytest.param("Linear(64, 7)", "Linear(64, 7, bias=False)", "builds", marks=pytest.mark.extended),
    ],
)
def test_code_that_changed_since_the_suite_was_made_fails(
    command_line: CommandLine, project: Path, tmp_path: Path, old: str, new: str, failing: str
) -> None:
    asked = ("--model", "mypackage.models:make_net", "--device", "cpu")
    made = command_line.run(tmp_path / "made", *asked, cwd=project)
    models = project / "mypackage" / "models.py"
    models.write_text(models.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    (suite,) = made.suites.glob("test_*.py")
    words = ("-P", "-m", "pytest", "-p", "no:cacheprovider", suite)
    env = {"HWCOMPAT_EVIDENCE": str(tmp_path / "ran" / "evidence")}
    ran = command_line.python(tmp_path / "ran", *words, env=env, cwd=project)
    assert ran.code == 1
    outcomes = ran.outcomes(CELL.format("cpu"))
    assert outcomes[failing] is Outcome.FAILED


@pytest.mark.extended
def test_a_factory_that_ends_its_process_is_one_line(
    command_line: CommandLine, project: Path, tmp_path: Path
) -> None:
    for factory, code in (("leave", "code 0"), ("crash", "signal 6")):
        ran = command_line.run(tmp_path, "--model", f"mypackage.models:{factory}", "--device", "cpu", cwd=project)
        assert (ran.code, code in ran.error) == (4, True)


def _works() -> list[object]:
    """Return the factories of the fixture that a user expects to work, without importing torch: a few by default."""
    text = (FIXTURES / "own_factories.py").read_text(encoding="utf-8")
    cases = re.findall(r"^@case\((.*)\)\ndef (\w+)", text, re.MULTILINE)
    names = [name + _arguments(given) for given, name in cases if "cpu=" not in given]
    default = ("tuple_input", "nested_output")
    return [pytest.param(name, marks=() if name.startswith(default) else pytest.mark.extended) for name in names]


def _arguments(given: str) -> str:
    found = re.match(r'"(\(.*?\))"', given)
    return found[1] if found else ""


@pytest.mark.parametrize("name", _works())
def test_factories_as_users_write_them_pass(command_line: CommandLine, tmp_path: Path, name: str) -> None:
    ran = command_line.run(tmp_path, "--model", f"own_factories:{name}", "--device", "cpu", "--run", cwd=FIXTURES)
    model = "own_factories-" + re.sub(r"[^A-Za-z0-9._@+-]+", "-", name).rstrip("-")
    precision = "bfloat16" if "bfloat16" in name else "float32"
    outcomes = ran.outcomes(f"{model}/module-forward/cpu/{precision}")
    assert set(outcomes.values()) == {Outcome.PASSED}
