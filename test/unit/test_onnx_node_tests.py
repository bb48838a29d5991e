"""ONNX's own tests of operators as suites: what is chosen, what passes, and what a wrong result gives.

And which suites of operators share a process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from evidence_lines import run_line
from front_doors import invoke

from generators.operators.onnx_node_tests import chosen_nodes, node_tests, write_nodes
from generators.operators.operator_results import OperatorOutcome, report_of
from generators.operators.run_operators import OperatorRun, run_operators
from hardware.backends.base import Execution
from hardware.basic_detection import inventory_here
from hardware.compare import Array
from hardware.errors import UsageError
from hardware.evidence.record import CheckLine, Stage
from hardware.evidence.store import read_file
from hardware.evidence.writer import EvidenceWriter
from hardware.operators import NodeTest
from hardware.operators.node_test import ARRAYS, PREFIX
from hardware.target import Target
from hardware.testing.measurement import Measurement
from hardware.testing.progress import Progress
from hardware.testing.pytest_plugin import _error_type
from hardware.testing.runner import Limits, run_suites
from hardware.testing.suite_file import SuiteFile, read_suite, stamp

pytest.importorskip("onnx")
CPU = Target(name="cpu")


def written(name: str, folder: Path) -> tuple[SuiteFile, Path]:
    """Write the suite of one test, and return it with the file of the test's arrays."""
    (suite,) = write_nodes([name], CPU, folder)
    return suite, suite.path.parent / f"{name}{ARRAYS}"


def test_tests_with_random_results_and_without_plain_tensors_are_left_out() -> None:
    assert len(node_tests()) > 1_400
    assert not [name for name in node_tests() if "bernoulli" in name or "sequence_insert" in name]
    assert chosen_nodes(["onnx.abs"]) == ("onnx.abs",)
    assert set(chosen_nodes(["argmax"])) > {"onnx.argmax_default_axis_example"}
    with pytest.raises(UsageError, match=r"'onnx\.absx'"):
        chosen_nodes(["onnx.abs", "onnx.absx"])


@pytest.mark.parametrize(
    ("change", "error", "computed"),
    [
        *((0.0, 0.0, "float32"), (1e-4, 0.1, "float32"), (0.1, 100.0, "float32"), (np.nan, np.inf, "float32")),
        *((4.8e-3, 0.5, "float16"), (0.096, 10.0, "float16"), (np.nan, np.inf, "float16")),
    ],
)
def test_an_error_is_a_multiple_of_what_the_test_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: float, error: float, computed: str
) -> None:
    monkeypatch.setattr(NodeTest, "_computed", computed)
    suite, file = written("onnx.add", tmp_path)
    with np.load(file) as found:
        arrays = dict(found)
    arrays["output:sum"][...] = 1.0
    arrays["input:x"][...], arrays["input:y"][...] = 0.5, 0.5 + change
    if np.isnan(change):
        arrays["input:y"][...], arrays["output:sum"][0, 0, 0] = 0.5, np.nan
    np.savez(file, **arrays)
    with NodeTest(suite.cell.id, file.parent) as case:
        assert case.node_error("add") == pytest.approx(error, rel=0.01, abs=1e-3)
        assert "times what the test allows" in str(case.measured.comparison) or not error
        assert case.node_execution("add").native


@pytest.mark.parametrize(
    ("name", "result", "change"),
    [
        ("onnx.add", "sum", lambda array: array[:1]),
        ("onnx.add", "sum", lambda array: array.astype(np.int64)),
        ("onnx.argmax_default_axis_example", "result", lambda array: array + 1),
        ("onnx.not_2d", "not", lambda array: ~array),
    ],
)
def test_another_shape_kind_or_whole_number_is_infinitely_wrong(
    tmp_path: Path, name: str, result: str, change: Callable[[Array], Array]
) -> None:
    suite, file = written(name, tmp_path)
    with np.load(file) as found:
        arrays = dict(found)
    with NodeTest(suite.cell.id, file.parent) as case:
        assert case.node_error(name.removeprefix(PREFIX)) == 0
    arrays["absolute"], arrays["relative"] = np.asarray(0.0), np.asarray(0.0)
    np.savez(file, **arrays)
    with NodeTest(suite.cell.id, file.parent) as case:
        assert case.node_error(name.removeprefix(PREFIX)) == 0, "equal numbers, where nothing is allowed"
    np.savez(file, **{**arrays, f"output:{result}": change(arrays[f"output:{result}"])})
    with NodeTest(suite.cell.id, file.parent) as case:
        assert case.node_error(name.removeprefix(PREFIX)) == np.inf


def test_a_test_that_ran_on_the_host_has_no_wrong_numbers() -> None:
    where = Execution(native={}, offloaded={"onnx.Add": 1}, dtype="float32", device="", unseen="")
    for stage, error_type in ((Stage.RUN, "silent_offload"), (Stage.COMPARE, "numerical_mismatch")):
        assert _error_type(AssertionError(), "add", Measurement(stage=stage, execution=where)) == error_type
    assert _error_type(AssertionError(), "add", Measurement(stage=Stage.RUN)) == "numerical_mismatch"


def test_a_run_gives_an_outcome_for_each(tmp_path: Path) -> None:
    names = ("onnx.add", "onnx.add_bcast", "onnx.argmax_default_axis_example", "onnx.if")
    run = OperatorRun(
        target=CPU, operators=names, precisions=("float32",), folder=tmp_path, command="test", limits=Limits()
    )
    found, _ = run_operators(run, inventory_here(), Progress())
    assert {one.operator: one.outcome for one in found.results} == dict.fromkeys(names, OperatorOutcome.SUPPORTED)
    nothing = report_of((), CPU, names, ("float32",), "no run")
    assert {one.outcome for one in nothing.results} == {OperatorOutcome.UNKNOWN}


@pytest.mark.parametrize(
    ("words", "said"),
    [("cuda --onnx", "cuda runs no ONNX files"), ("cpu --onnx --breadth", "--onnx runs ONNX's tests as they are")],
)
def test_what_cannot_be_asked_is_refused(words: str, said: str) -> None:
    done = invoke("ops", *words.split())
    assert done.code == 4
    assert said in done.err


@pytest.mark.forks
def test_an_operator_after_one_that_failed_gets_a_new_child(tmp_path: Path) -> None:
    """What a failure broke in a process or on a device isn't the fault of the next operator."""
    suites = []
    for name in ("a", "b", "c", "d"):
        path = tmp_path / f"test_{name}.py"
        body = f'CELL = "aten.{name}/operator/simulated/float32"\n\n\ndef test_first():\n    assert {name != "b"}\n'
        path.write_text(stamp(body), encoding="utf-8")
        suites.append(read_suite(path))
    folder = tmp_path / "evidence"
    writer = EvidenceWriter(folder, "run")
    run_suites(
        run_line(*(one.planned() for one in suites), run_id="run"), suites, writer, limits=Limits(timeout_s=60)
    )
    writer.close()
    ran = [{line.model for line in read_file(path)[0] if isinstance(line, CheckLine)} for path in folder.iterdir()]
    assert sorted(map(sorted, filter(None, ran))) == [["aten.a", "aten.b"], ["aten.c", "aten.d"]]
