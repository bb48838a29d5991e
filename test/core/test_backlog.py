"""The backlog of operators that keep model types from a target: counts, ranks and texts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from generators.compatibility.operators import OperatorTable, Section
from generators.models.recipe_store import load_recipe
from hardware.cell import Cell
from hardware.errors import BrokenInput, UsageError
from hardware.evidence.record import CheckLine, Outcome, Stage, to_dict
from hardware.evidence.shipped_evidence import last_checks, read_shipped
from hardware.target import Target
from hwcompat.plugins.study.backlog import Backlog, Item, backlog
from hwcompat.plugins.study.backlog_command import (
    _at_real_size,
    _target,
    backlog_json,
    backlog_markdown,
    backlog_text,
)

ROOT = Path(__file__).parents[2]
QNN = Target(name="qnn")
HAS = ("aten.add", "aten.mm")


def recipe(model_type: str, *operators: str):
    return replace(load_recipe("bert"), model_type=model_type, operators=operators)


def lines(model: str, message: str = "", *, offloaded: dict[str, int] | None = None, **facts: Any) -> list[CheckLine]:
    cell = Cell.parse(f"{model}/fill-mask/qnn/float32")
    known: dict[str, Any] = {
        "run_id": "one", "cell_id": cell.id, "subject": "tiny", "requested_target": "qnn", "actual_target": "qnn",
        "precision": "float32", "model": model, "task": "fill-mask", "suite_hash": "h", "duration_s": 1.0,
        "started_at": "2026-01-01T00:00:00Z",
    } | facts  # fmt: skip
    outcome = Outcome.FAILED if message else Outcome.PASSED
    told: dict[str, Any] = {"error_message": message, "stage": Stage.COMPILE, "error_type": "odd"} if message else {}
    return [
        CheckLine(check_name="matches_reference", outcome=outcome, **told, **known),
        CheckLine(check_name="runs_natively", outcome=outcome, offloaded_ops=offloaded or {}, **told, **known),
    ]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Backlog:
    table = OperatorTable(
        target="qnn",
        sections=(
            Section(
                kind="trial", names="aten", source="trials", made_by="python -m x", made_on="2026-01-01",
                versions={"qnn": "1"}, supported=HAS, missing={"aten.pad": "no kernel", "aten.sort": "wrong numbers"},
            ),
        ),
    )  # fmt: skip
    monkeypatch.setattr("generators.compatibility.operators.operator_table.table_of", lambda name: table)
    recipes = [
        recipe("clear", *HAS),
        recipe("alone1", "aten.add", "aten.pad"),
        recipe("alone2", "aten.pad"),
        recipe("both", "aten.pad", "aten.sort"),
        recipe("odd", "aten.add", "aten.new"),
        recipe("ran", "aten.add", "aten.pad"),
        recipe("refused", "aten.add", "aten.pad"),
        recipe("wrong", "aten.add", "aten.sort"),
        recipe("off", "aten.add"),
    ]
    checks = [
        *lines("ran"),
        *lines("refused", "QNN doesn't run the model: it leaves Einsum (2) to the host; x"),
        *lines("wrong", "off by 2.0 of the output's scale"),
        *lines("off", offloaded={"onnx.com.ms.internal.nhwc.Conv": 1}),
    ]
    return backlog(QNN, recipes, checks, evidence="kept")


def test_operators_that_unlock_most_types_come_first(found: Backlog) -> None:
    ranked = [(one.operator, one.unlocks, one.part_in) for one in found.items]
    assert ranked == [
        ("aten.pad", ("alone1", "alone2"), ("both",)),
        ("onnx.Conv", ("off",), ()),
        ("onnx.Einsum", ("refused",), ()),
        ("aten.sort", (), ("both", "wrong")),
    ]
    assert [(one.operators, one.unlocks) for one in found.groups] == [(("aten.pad", "aten.sort"), ("both",))]
    # Types that ran are judged by what they showed.
    states = {one.operator: dict(one.states) for one in found.items}
    assert states["onnx.Einsum"] == states["onnx.Conv"] == {"offloaded": 1}
    assert states["aten.pad"] == {"missing": 3}  # `ran` passes, whatever the table says; `refused` names another
    assert (found.types, found.passing, found.failing, found.predicted, found.clear) == (9, 1, 3, 5, 2)
    assert found.other == {}
    assert found.unknown == {"aten.new": 1}
    # A failure without an operator unlocks nothing.
    alone = backlog(QNN, [recipe("wrong", "aten.add")], lines("wrong", "off by 2.0 of the output's scale"))
    assert alone.items == ()
    assert alone.other == {"odd at compile": ("wrong",)}
    data = json.loads(backlog_json(found))
    jsonschema.validate(data, json.loads((ROOT / "reports/schemas/backlog.json").read_text()))
    assert data["items"][0]["reason"] == "no kernel"


def test_the_latest_run_in_the_same_precision_counts() -> None:
    later = lines("bert", run_id="two", started_at="2026-02-01T00:00:00Z")
    earlier = lines("bert", "it leaves Einsum (2) to the host")
    assert backlog(QNN, [], [*later, *earlier]).passing == 1
    assert backlog(QNN, [], earlier, precision="int8").failing == 0
    dated = {"run_id": "three", "started_at": "2026-03-01T00:00:00Z"}
    elsewhere = [replace(line, **dated, substitution_reason="it isn't here") for line in later]
    assert next(iter(last_checks([*elsewhere, *later], QNN).values()))["runs_natively"].run_id == "two"
    assert next(iter(last_checks([*later, *earlier], QNN).values()))["runs_natively"].run_id == "two"


def test_texts_show_the_rank_and_nothing_of_a_message_is_obeyed(found: Backlog) -> None:
    evil = replace(found.items[0], operator="aten.<b>|\x1b[31m\tx", reason="<script>|x")
    shown = replace(found, items=(evil, *found.items[1:]))
    text, page = backlog_text(shown, width=80, most=2), backlog_markdown(shown)
    assert "1. aten.<b>|\\x1b[31m x\n" in text
    assert "unlocks: 2 (alone1, alone2)" in text
    assert "and 2 more" in text
    assert "together aten.pad, aten.sort: unlock both" in text
    assert "<" not in page
    assert "\x1b" not in page + text
    rows: Sequence[str] = [line for line in page.splitlines() if line.startswith("| 1 |")]
    assert rows[0].count("|") - rows[0].count("\\|") == 8
    shapes = tuple(f"float32[{number}x2x3]" for number in range(40))
    folded = backlog_text(replace(found, items=(replace(found.items[0], shapes=shapes),)), width=80)
    assert [line for line in folded.splitlines() if len(line) > 80] == []
    assert all(shape in folded for shape in shapes)


def test_an_unknown_target_and_broken_evidence_are_refused(tmp_path: Path) -> None:
    assert _target("qnn:1") == QNN
    assert str(_target("openvino:NPU")) == "openvino:NPU"
    with pytest.raises(UsageError, match="Did you mean 'qnn'"):
        _target("qn")
    file = tmp_path / "qnn.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(to_dict(lines("bert")[0])).encode()))
    assert [line.run_id for line in read_shipped(file) if isinstance(line, CheckLine)] == ["one"]
    for broken in (b"no gzip", gzip.compress(b"{}"), gzip.compress(b"{\n"), gzip.compress(b"x")[:-9]):
        file.write_bytes(broken)
        with pytest.raises(BrokenInput, match=r"qnn\.jsonl\.gz"):
            read_shipped(file)


def test_a_dozen_types_at_most_are_looked_at_in_their_real_size(found: Backlog, monkeypatch):
    from generators.recipes import on_demand

    asked = []
    monkeypatch.setattr(on_demand, "real_calls_of", lambda name: asked.append(name) or ())
    item = Item(operator="aten.mm", states={}, unlocks=(), part_in=(), measured=0, reason="r", shapes=())
    many = [replace(item, unlocks=(f"one-{n}", f"two-{n}", f"three-{n}")) for n in range(10)]
    _at_real_size(replace(found, items=(replace(item, operator="onnx.Gemm", unlocks=("never",)), *many)))
    assert asked == [f"{name}-{n}" for n in range(6) for name in ("one", "two")]
