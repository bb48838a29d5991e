"""Localization in graphs: the first node that is wrong by itself; errors by scale; what can't be localized."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from hardware.errors import NothingMatched, UsageError
from hardware.plain_values import from_values
from hwcompat.plugins.triage.localization.graph_nodes import GraphNode, GraphRuns, TracedValues, localize_graph
from hwcompat.plugins.triage.localization.localization_result import ErrorPlace, Localization, LocalizationOutcome
from hwcompat.plugins.triage.localization.localize_cell import checked_cell
from hwcompat.plugins.triage.localization.tensor_errors import error_of, padding_of
from hwcompat.plugins.triage.localize_command import answer_of, exit_code, localization_json
from reports.document import document

TOLERANCE = 2e-5
SCHEMA = Path(__file__).parents[2] / "reports" / "schemas" / "localization.json"


def test_errors_are_by_scale_and_leave_out_padding_and_rounding() -> None:
    want = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    got = want + np.array([[[0.0, 0.0], [9.0, 9.0]]])
    how: dict[str, Any] = {"precision": "float32", "tolerance": TOLERANCE}
    (padding,) = padding_of({"attention_mask": np.array([[1, 0]]), "token_type_ids": np.array([[1, 0]])})
    assert error_of(got, want, **how) == pytest.approx(9 / want.std())
    assert error_of(got, want, **how, padding=[padding]) == 0
    assert error_of(got * math.nan, want, **how, padding=[padding], finite=True) == math.inf
    assert error_of(got[..., :1], want, **how) == math.inf
    assert error_of(got, want * math.nan, **how) is None
    near = 1e6 + np.array([0.0, 1e-3])
    assert (error_of(near + 0.1, near, **how) or 0) < TOLERANCE  # float32 holds no more digits
    assert (error_of(near + 9.0, near, **how) or 0) > TOLERANCE


NODES = [
    GraphNode(name="a", operator="MatMul", module="m", takes=("x",), gives=("a",)),
    GraphNode(name="b", operator="Add", module="m", takes=("a",), gives=("b",)),
    GraphNode(name="c", operator="Tanh", module="", takes=("b",), gives=("c",)),
]


class Chain(GraphRuns):
    """x+1, times 2, minus 3; `wrong` breaks nodes by name: on the device, or with `converted` everywhere."""

    nodes = NODES

    def __init__(self, wrong: str = "", *, converted: bool = False) -> None:
        self.wrong, self.converted = wrong, converted

    def _values(self, wrong: str, given: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = {"x": np.arange(1.0, 5.0)}
        steps: dict[str, Any] = {"a": lambda x: x**2, "b": lambda x: np.sin(x) * 2, "c": lambda x: np.exp(x) - 3}
        for node in NODES:
            value = steps[node.name]((given or found)[node.takes[0]] if node.takes[0] != "x" else found["x"])
            found[node.name] = value * 1.1 if node.name == wrong else value
        return {name: found[name] for name in steps}

    def on_cpu(self) -> dict[str, Any]:
        return self._values(self.wrong if self.converted else "")

    def on_device(self) -> dict[str, Any]:
        return self._values(self.wrong)

    def apart(self, given: Any) -> dict[str, Any]:
        return self._values(self.wrong, given)

    def outputs(self, values: Any) -> dict[str, Any]:
        return {"y": values["c"]}

    def plain(self) -> dict[str, Any]:
        return self.outputs(self.on_device())


def graph(runs: Chain) -> Localization:
    right = Chain()._values("")
    traced = TracedValues(right.values(), [])
    return localize_graph(
        runs, traced, {"y": right["c"]}, cell="c", tolerance=TOLERANCE, precision="float32", masks={}
    )


def test_the_broken_node_is_named_on_the_device_and_in_the_graph() -> None:
    assert graph(Chain()).finding is LocalizationOutcome.AGREES
    for name in "abc":
        for converted in (False, True):
            found = graph(Chain(name, converted=converted))
            assert found.place is not None
            assert (found.finding, found.place.name) == (LocalizationOutcome.NAMED, name)
            assert not found.others
            assert any("itself is wrong" in one for one in found.notes) is converted


def test_a_report_says_where_keeps_its_schema_and_comes_back() -> None:
    place = ErrorPlace(name="a.`<b>`", kind="Linear", own_error=math.inf, error=0.5, shape=(2, 3), dtype="float16")
    found = Localization(
        cell="bert/fill-mask/cpu/float32",
        finding=LocalizationOutcome.NAMED,
        granularity="module",
        reference="r",
        tolerance=TOLERANCE,
        outputs_error=math.inf,
        place=place,
        others=(place,),
        compared=3,
        notes=("<script>",),
    )
    data = json.loads(localization_json(found, "2026-01-01T00:00:00+00:00"))
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    del data["schema_version"], data["timestamp"]
    assert from_values(Localization, data) == found
    assert exit_code(found) == 1
    assert "<script>" not in document([answer_of(found)], "markdown")
    text = document([answer_of(found)], "text", 100)
    assert text.splitlines()[0] == "bert/fill-mask/cpu/float32: a.`<b>` (Linear) is wrong by itself"
    assert "  Tensor                    output, float16 [2, 3]" in text


def test_a_cell_that_cannot_be_localized_is_refused_with_the_next_step() -> None:
    for cell, error, words in (
        ("bert/fill-mask/cup/float32", UsageError, "cpu"),
        ("bertt/fill-mask/cpu/float32", UsageError, "bert"),
        ("bert/fill-mosk/cpu/float32", NothingMatched, "fill-mask"),
        ("bert/fill-mask/tpu/float32", NothingMatched, "openvino"),
        ("bert/fill-mask/openvino/int8", NothingMatched, "int8"),
    ):
        with pytest.raises(error, match=words):
            checked_cell(cell)
    assert checked_cell("bert/fill-mask/cpu/float32").model == "bert"
