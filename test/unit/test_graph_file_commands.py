"""What commands do with `.onnx` files: localize, repro, verify, fit, bundle and page, each on a small file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from generators.compatibility.rules import load_rules
from generators.model_profile import Profile, profile_of
from generators.mutants.file_breaks import FILE_OPERATORS, break_file
from generators.mutants.orders import Order
from generators.plan import PlanChoice, plan_suite
from generators.recipes import memory_answer
from generators.suites.bundle import bundle_files
from generators.suites.suite_files import PlannedSuite, suite_environment
from hardware.backends.base import FileInput
from hardware.backends.cpu import CPUBackend
from hardware.backends.factory import get_backend
from hardware.detection import detect
from hardware.target import Target
from hardware.testing import GraphTest
from hardware.testing.tolerances import OwnTolerance
from hwcompat.plugins.triage.localization.file_nodes import localize_file
from hwcompat.plugins.triage.localization.localization_result import Localization, LocalizationOutcome
from hwcompat.plugins.triage.repro.capture_failure import capture
from hwcompat.plugins.triage.repro.captured_failure import INPUTS, Shape, Way
from hwcompat.plugins.triage.repro.repro_script import ModelSource, arrays_in, run_script, script_text
from hwcompat.plugins.triage.repro_match import judge
from hwcompat.plugins.web_page.page_seal import capture as capture_page
from hwcompat.plugins.web_page.page_seal import require_page

pytestmark = pytest.mark.slow
RANDOM = np.random.default_rng(3)
WEIGHTS, MORE = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8, 4)))
FIRST, SECOND = np.float32([[0.5] * 4]), np.float32([[-0.5] * 4])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products with a Tanh between them, and a branch that depends on the input's number of rows."""
    branches = {
        name: helper.make_graph(
            [helper.make_node("Add", ["product", f"{name}_c"], [f"{name}_sum"], f"add in {name}")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_sum", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(constant, f"{name}_c")],
        )
        for name, constant in (("then_branch", FIRST), ("else_branch", SECOND))
    }
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["hidden"], "first product"),
        helper.make_node("Tanh", ["hidden"], ["active"], "activation"),
        helper.make_node("MatMul", ["active", "more"], ["product"], "second product"),
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Greater", ["size", "many"], ["is_large"]),
        helper.make_node("If", ["is_large"], ["y"], "choice", **branches),
    ]
    constants = {"weights": WEIGHTS, "more": MORE, "many": np.int64(6)}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("files") / "net.onnx"
    onnx.save(made, str(path))
    return path


@pytest.fixture(scope="module")
def profile(file: Path) -> Profile:
    return profile_of(str(file))


def planned(profile: Profile, target: str = "cpu", limit: float = 0.0) -> PlannedSuite:
    own = OwnTolerance(limit=limit, reason="a test", source="hwcompat.toml") if limit else None
    choice = PlanChoice(target=Target.parse(target), required=True)
    return plan_suite(profile, choice, "float32", load_rules(), detect(), tolerance_for=lambda _: own)


def localized(profile: Profile, file: Path, folder: Path) -> Localization:
    cell = planned(profile).cell
    return localize_file(cell, file, profile.recipe, None, get_backend("cpu"), folder, lambda _: None)


@pytest.mark.parametrize(("operator", "name"), [("Tanh", "activation"), ("Add", "add in then_branch")])
def test_localize_names_the_node_that_a_runtime_computes_wrongly(
    profile: Profile, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str, name: str
) -> None:
    """Also inside of the branch that is taken."""
    assert localized(profile, file, tmp_path).finding is LocalizationOutcome.AGREES
    load = CPUBackend.load_file

    def faulty(backend: CPUBackend, given: FileInput, example: Any, precision: str) -> Any:
        model = onnx.load(str(given.file))
        for node in every_node(model.graph):
            if node.op_type == operator:
                node.op_type = {"Tanh": "Softsign", "Add": "Sub"}[operator]
        broken = tmp_path / f"broken-{given.file.name}"
        onnx.save(model, str(broken))
        return load(backend, FileInput(file=broken), example, precision)

    monkeypatch.setattr(CPUBackend, "load_file", faulty)
    found = localized(profile, file, tmp_path)
    assert found.finding is LocalizationOutcome.NAMED
    assert found.place is not None
    assert (found.place.name, found.place.kind) == (name, operator)
    assert found.others == ()


def every_node(graph: Any) -> list[Any]:
    inner = [one.g for node in graph.node for one in node.attribute if one.HasField("g")]
    return [*graph.node, *(node for one in inner for node in every_node(one))]


def test_localize_names_the_node_that_a_runtime_refuses(
    profile: Profile, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = CPUBackend.load_file

    def refusing(backend: CPUBackend, given: FileInput, example: Any, precision: str) -> Any:
        if any(node.op_type == "Tanh" for node in onnx.load(str(given.file)).graph.node):
            raise RuntimeError("no kernel")
        return load(backend, given, example, precision)

    monkeypatch.setattr(CPUBackend, "load_file", refusing)
    found = localized(profile, file, tmp_path)
    assert found.finding is LocalizationOutcome.BROKE
    assert found.place is not None
    assert found.place.name == "activation"


@pytest.mark.parametrize("target", ["cpu", "openvino"])
def test_a_script_with_the_file_beside_it_shows_the_same_error(profile: Profile, tmp_path: Path, target: str) -> None:
    """A limit below what rounding to float32 costs fails."""
    suite = planned(profile, target, 1e-9)
    found = capture(suite.text, ["matches_reference"], tmp_path, seconds=300, variables=suite_environment([suite]))
    assert (found.shape, found.refused) == (Shape.NUMBERS, "")
    assert found.step is not None
    assert found.step.way is {"cpu": Way.ONNX_FILE, "openvino": Way.OPENVINO_GRAPH}[target]
    source = ModelSource(imports=(), code="")
    text = script_text(found, source, arrays_in(tmp_path), title="t", story=["s"])
    (tmp_path / "repro.py").write_text(text, encoding="utf-8")
    assert {"net.onnx", INPUTS} <= {path.name for path in tmp_path.iterdir()}
    shown = run_script(tmp_path, python=sys.executable, seconds=120)
    assert judge(found, shown).same
    assert shown.error == pytest.approx(found.error, rel=1e-2)


@pytest.mark.parametrize("operator", FILE_OPERATORS)
def test_a_suite_notices_a_broken_file(profile: Profile, file: Path, tmp_path: Path, operator: str) -> None:
    recipe = profile.recipe
    inputs = {"x": RANDOM.standard_normal((2, 6)).astype(np.float32)}
    case = GraphTest(planned(profile).cell.id, lambda: file, inputs, gain=None, outputs=("y",), scales=recipe.scales)
    broken, made = break_file(case, file, Order(mutants=(f"{operator}@0",), least=2 * case.tolerance), tmp_path)
    assert made.mutant is not None, made.refused
    case.__dict__["runnable"] = case.backend.load_file(FileInput(file=broken), inputs, "float32")
    other = {"x": inputs["x"] * np.float32(0.5)}
    errors = [case.error(case.run(one), case.reference(one)) for one in (inputs, other)]
    assert max(errors) > case.tolerance


def test_the_memory_of_a_file_is_that_of_its_weights_and_live_results(file: Path) -> None:
    from generators.recipes.memory.file_memory import memory_of_file

    found = memory_of_file(str(file), {"batch": 3})
    (estimate,) = found["estimates"]
    constants = WEIGHTS.nbytes + MORE.nbytes + FIRST.nbytes + SECOND.nbytes + 8
    live = 3 * (8 + 8) * 4  # the first product and its Tanh
    assert (estimate["weights"], estimate["inputs"], estimate["activations"]) == (constants, 3 * 6 * 4, live)
    assert memory_answer.MemoryAnswer.from_dict(found).anatomy.is_file


def test_a_bundle_contains_the_file_and_its_references(profile: Profile, file: Path) -> None:
    files = bundle_files("b", [planned(profile), planned(profile, "openvino")], {})
    (name,) = [name for name in files if name.endswith(".onnx")]
    assert files[name] == file.read_bytes()
    assert any(name.startswith("cache/references/") for name in files)
    assert "net.onnx" in files["README.md"].decode()
    assert "--checkpoint" not in files["README.md"].decode()


def test_a_page_has_the_passes_of_a_file(profile: Profile, tmp_path: Path) -> None:
    suite = planned(profile, "webgpu")
    assert require_page([suite]) is suite
    path = tmp_path / suite.file_name
    path.write_text(suite.text, encoding="utf-8")
    found = capture_page(path, suite_environment([suite]))
    steps = found.asked["steps"]["matches_reference"]
    assert len(steps) == 3  # two draws, and other sizes
    assert {step["what"] for step in steps} == {"error"}
    assert found.asked["not_captured"] == {}
    assert onnx.load_from_string(found.files[0]).graph.output[0].name == "y"
    json.dumps(found.asked)
