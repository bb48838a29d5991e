"""Tables of operators: which a target has, by which list, and which operators a message names.

Tables and rules of operators agree with the installed torch.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import torch

from benchmarks.operators.writing import text_of, with_section
from generators.compatibility.explanation import explain
from generators.compatibility.operators import OperatorTable, Section, coverage, known_tables, table_of
from generators.compatibility.operators.operator_names import examples, operators_named
from generators.compatibility.operators.operator_table import FOLDER, read_table
from generators.compatibility.prediction_scores import is_held_out
from generators.compatibility.rule_facts import Facts
from generators.compatibility.rules import load_rules
from generators.models.recipe_store import stored_recipes
from hardware.errors import BrokenInput
from hardware.target import Target

ROOT = Path(__file__).parents[2]
TABLE = "generators.compatibility.operators.operator_table"


def section(**given: object) -> Section:
    known: dict[str, object] = {
        "kind": "declared", "names": "aten", "source": "a list", "made_by": "python -m x", "made_on": "2026-01-01",
        "versions": {"x": "1"}, "supported": (),
    }  # fmt: skip
    return Section(**(known | given))  # type: ignore[arg-type]


@pytest.fixture
def a_table(monkeypatch: pytest.MonkeyPatch):
    """Give a target these sections, in one table."""

    def give(*sections: Section, target: str = "chip") -> Target:
        made = OperatorTable(target=target, sections=())
        for one in sections:
            made = with_section(made, one)
        monkeypatch.setattr(f"{TABLE}.table_of", lambda name: made if name == target else table_of(name))
        return Target(name=target)

    return give


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"aten.gelu": ("Div", "Erf"), "aten.relu": ("Relu",), "aten.fft": "torch's exporter: no rule"}
    monkeypatch.setattr(f"{TABLE}.onnx_types", lambda: types)


def test_every_shipped_table_follows_the_schema_and_contradicts_nothing_in_itself() -> None:
    schema = json.loads((ROOT / "generators/compatibility/schemas/operators.json").read_text())
    assert known_tables()
    for path in FOLDER.glob("*.json"):
        jsonschema.validate(json.loads(path.read_text()), schema)
        for one in read_table(path).sections:
            assert not one.known & set(one.missing), path.name
            assert set(one.conditions) <= one.known, path.name
            assert set(one.made_of_others) <= one.known, path.name
            assert {*one.before_device, *one.on_host} <= set(one.missing), path.name
            assert one.source, path.name
            assert all(one.versions.values()), path.name
            assert all(name.startswith(f"{one.names}.") for name in (*one.supported, *one.missing)), path.name


def test_tables_from_our_own_runs_leave_out_types_that_are_held_out() -> None:
    held_out = {recipe.model_type for recipe in stored_recipes() if is_held_out(recipe.model_type)}
    runs = [one for name in known_tables() for one in table_of(name).sections if one.kind == "runs"]
    assert runs
    for one in runs:
        assert "held out" in one.left_out
        said = " ".join([*one.missing.values(), *one.conditions.values()]).replace(",", " ").split()
        assert not held_out & set(said)


def test_the_cpu_has_every_operator_that_recipes_record_on_it() -> None:
    recorded = {name for recipe in stored_recipes() for name in recipe.operators}
    found = coverage(Target(name="cpu"), sorted(recorded))
    assert set(found.supported) == recorded
    assert "torch" in found.source


def test_an_operator_of_the_cpu_alone_is_replaced_by_that_of_every_device() -> None:
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert coverage(Target(name="cuda"), [name]).conditions[name].endswith("which is made of other operators")
    assert name in coverage(Target(name="mps"), [name]).supported
    unlisted = coverage(Target(name="nochip"), ["aten.add"])
    assert (unlisted.supported, unlisted.missing, unlisted.unknown) == ((), (), ("aten.add",))
    assert (unlisted.source, unlisted.is_known) == ("", False)


def test_runs_go_before_trials_and_trials_before_lists(a_table) -> None:
    target = a_table(
        section(missing={"aten.a": "listed as missing", "aten.b": "listed as missing"}, supported=("aten.c",)),
        section(kind="trial", supported=("aten.a",), missing={"aten.c": "failed"}),
        section(kind="runs", supported=("aten.c",)),
    )
    found = coverage(target, ["aten.c", "aten.b", "aten.a", "aten.x"])
    assert found.supported == ("aten.c", "aten.a")
    assert found.reasons == {"aten.b": "listed as missing"}
    assert found.unknown == ("aten.x",)


def test_an_operator_needs_every_onnx_type_that_it_becomes(a_table, exported) -> None:
    target = a_table(section(names="onnx", supported=("onnx.Relu", "onnx.Div"), complete=True, source="a web page"))
    found = coverage(target, ["aten.gelu", "aten.relu", "aten.fft", "aten.new"])
    assert found.supported == ("aten.relu",)
    assert found.reasons["aten.gelu"] == "it is exported as Erf (a web page doesn't list it)"
    assert found.reasons["aten.fft"] == "torch's exporter: no rule"
    assert found.unknown == ("aten.new",)
    incomplete = a_table(section(names="onnx", supported=("onnx.Div",)))
    assert coverage(incomplete, ["aten.gelu"]).unknown == ("aten.gelu",)


def test_what_graphs_are_without_is_no_obstacle_and_what_most_are_without_is_unknown(
    a_table, exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = a_table(section(names="onnx", supported=("onnx.Relu",), complete=True))

    def among(gone: int, graphs: int):
        counted = {"aten.gelu": (gone, graphs)}
        monkeypatch.setattr(f"{TABLE}.left_out_of_graphs", lambda: counted)
        return coverage(target, ["aten.gelu"])

    assert among(9, 9).conditions == {
        "aten.gelu": "the graphs of all 9 tested models with this operator don't contain it"
    }
    assert among(8, 9).unknown == ("aten.gelu",)
    assert among(3, 9).missing == ("aten.gelu",)
    assert among(4, 4).unknown == ("aten.gelu",)


def test_another_variant_keeps_only_what_fails_before_any_device(a_table) -> None:
    a_table(
        section(
            kind="trial",
            supported=("aten.a",),
            missing={"aten.b": "convert: no rule", "aten.c": "compile: no kernel"},
            before_device=("aten.b",),
            variants=("", "CPU"),
        )
    )
    asked = ["aten.a", "aten.b", "aten.c"]
    assert coverage(Target(name="chip", variant="CPU"), asked).missing == ("aten.b", "aten.c")
    elsewhere = coverage(Target(name="chip", variant="NPU"), asked)
    assert (elsewhere.missing, elsewhere.unknown) == (("aten.b",), ("aten.a", "aten.c"))


def test_graphs_have_other_operators_in_the_place_of_some(a_table) -> None:
    becomes = ("aten.bmm", "aten.clamp", "aten.ge", "aten.masked_fill_")
    qnn = a_table(section(supported=becomes, missing={"aten.histc": "no rule"}), target="qnn")
    assert coverage(qnn, ["aten._grouped_mm", "aten.histc"]).supported == ("aten._grouped_mm", "aten.histc")
    assert coverage(qnn, ["aten.histc"]).missing == ("aten.histc",)
    a_table(section(supported=becomes[1:], missing={"aten.bmm": "no kernel"}), target="qnn")
    reason = coverage(qnn, ["aten._grouped_mm"]).reasons["aten._grouped_mm"]
    assert reason == "graphs contain aten.bmm instead: no kernel"
    a_table(section(supported=becomes), target="cuda")
    assert coverage(Target(name="cuda"), ["aten._grouped_mm"]).unknown == ("aten._grouped_mm",)


def test_a_table_is_read_as_it_was_written_and_a_broken_one_is_named(tmp_path: Path) -> None:
    made = OperatorTable(
        target="chip", sections=(section(supported=("aten.a",), variants=("",), conditions={"aten.a": "x"}),)
    )
    file = tmp_path / "chip.json"
    file.write_text(text_of(made))
    assert read_table(file) == made
    newer = text_of(made).replace('"schema_version": 1', '"schema_version": 9')
    for text in (newer, '{"schema_version": 1, "target": "chip", "sections": [{"kind": "x"}]}'):
        file.write_text(text)
        with pytest.raises(BrokenInput, match=r"chip\.json"):
            read_table(file)


MESSAGES = {
    "QNN doesn't run the model: it leaves Einsum (4), Pad (2) to the host; [ONNXRuntimeError]": (
        "onnx.Einsum offloaded onnx.Pad offloaded"
    ),
    "x; Unsupported nodes in QNN EP: { name: /m/Slice, type: Slice }{ name: /m, type: Shape }": (
        "onnx.Slice offloaded onnx.Shape offloaded"
    ),
    "torch's exporter has no rule for aten::expm1' to ONNX": "aten.expm1 missing",
    "convert_model: no conversion rule for aten::a, aten::b; convert_model with sizes as constants: "
    "no conversion rule for aten::b": "aten.b missing",
    "the conversion rule fails for ComplexTypeMark, aten::repeat": "aten.repeat failing",
    "torchax has no lowering for aten.histc.default (2)": "aten.histc missing",
    "Could not run 'aten::empty_strided' with arguments": "aten.empty_strided missing",
    "[CPU] Split node with name 'x' Check": "openvino.Split failing",
    "off by 2.4e+00 of the output's scale": "",
}


def test_messages_name_operators() -> None:
    for message, named in MESSAGES.items():
        found = operators_named(message).items()
        assert " ".join(f"{name} {said.how}" for name, said in found) == named, message


def test_recorded_calls_tell_how_models_call_an_operator() -> None:
    commonest = examples("aten.addmm")[0]
    assert [dtype for dtype, _ in commonest.tensors] == ["float32", "float32", "float32"]
    assert commonest.types > 100
    assert str(commonest).startswith("float32[")
    assert examples("aten.no_such_operator") == ()


def test_the_table_of_the_cpu_agrees_with_torchs_dispatcher() -> None:
    table = table_of("cpu").sections[0]
    asked = {name: found for name in (*table.supported, *table.missing) if (found := _has_kernel(name)) is not None}
    assert len(asked) > 1500
    assert [name for name, has in asked.items() if has != (name in table.known)] == []


def _has_kernel(name: str) -> bool | None:
    """Whether any form of an operator without `out=` has a kernel on the CPU or is made of others; None: no such."""
    packet = getattr(torch.ops.aten, name.removeprefix("aten."), None)
    if packet is None:
        return None
    overloads = [form for form in packet.overloads() if not form.endswith("out")]
    return any(_registered(f"aten::{packet.__name__}.{form}".removesuffix(".default")) for form in overloads)


def _registered(form: str) -> bool:
    keys = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    try:
        return any(torch._C._dispatch_has_kernel_for_dispatch_key(form, key) for key in keys)
    except RuntimeError:  # TorchScript's own forms, of numbers, aren't the dispatcher's
        return False


def test_a_rule_limits_every_fourier_transform_on_openvino():
    transforms = [name for name in dir(torch.fft) if re.fullmatch(r"i?[rh]?fft[2n]?|ir?fft[2n]?", name)]
    assert len(transforms) == 18
    for name in transforms:
        facts = Facts(precision="float32", trace_operators=("aten::matmul", f"aten::fft_{name}"), traced="any_length")
        found = explain(Target(name="openvino"), facts, load_rules())
        assert "openvino.fourier" in {link.rule.id for link in found.links}, name
