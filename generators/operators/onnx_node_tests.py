"""ONNX's own tests of its operators as suites: `onnx.backend.test`, which builds a small graph for each."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hwcompat.generators.suites.render import environment
from hwcompat.generators.suites.suite_files import prepare_folder, write_suite
from hwcompat.hardware.backends.factory import targets_that_read
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.compare import Array
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.files import write_whole
from hwcompat.hardware.operators.node_test import ARRAYS, GRAPH, PREFIX
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.suite_file import SuiteFile, read_suite, stamp

from .render_operator import operator_cell

_PLAIN = "biuf"
_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Dropout"}
)


@functools.cache
def node_tests() -> Mapping[str, Any]:
    """Return ONNX's tests of operators by name. Left out are those with random results, those whose inputs or results
    aren't tensors of numbers that numpy has, and those of constants alone, which run nothing. Raises `UsageError`
    without the package onnx."""
    try:
        from onnx.backend.test.case.node import collect_testcases
    except ModuleNotFoundError as error:
        raise UsageError(
            "ONNX's tests of operators can't be made", why=str(error), fix="Install the package onnx."
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about infinities that the tests divide
        every = collect_testcases(None)
    return MappingProxyType({PREFIX + one.name.removeprefix("test_"): one for one in every if _is_plain(one)})


def _is_plain(case: Any) -> bool:
    arrays = [one for pair in case.data_sets for side in pair for one in side]
    kinds = {one.op_type for one in case.model.graph.node}
    are_plain = all(isinstance(one, np.ndarray | np.generic) and one.dtype.kind in _PLAIN for one in arrays)
    return are_plain and kinds != {"Constant"} and not kinds & _RANDOM


def refuse_onnx(target: Target, others: bool) -> None:
    """Raise `UsageError` for a target that runs no ONNX files, or together with options of torch's operators."""
    readers = targets_that_read("onnx")
    if target.name not in readers:
        raise UsageError(f"{target} runs no ONNX files", fix=f"Targets that do: {', '.join(readers)}.")
    if others:
        raise UsageError(
            "--onnx runs ONNX's tests as they are",
            fix="Leave out --precision, --mode, --breadth, --coverage and --operators-of.",
        )


def chosen_nodes(names: Sequence[str]) -> tuple[str, ...]:
    """Return the tests with these names, or whose names contain one that no test has, or all. Raises `UsageError` for
    one that is in no name."""
    every = node_tests()
    for one in names:
        if not any(one in name for name in every):
            raise UsageError(f"no test of ONNX is called {echo(one)}", fix=did_you_mean(PREFIX + one, every))
    return tuple(
        name for name in every if not names or name in names or any(one in name for one in names if one not in every)
    )


def write_nodes(names: Sequence[str], target: Target, folder: Path) -> Iterator[SuiteFile]:
    """Write tests of ONNX with their graphs and arrays as suites, one for each kind of operator, and yield them: a
    runtime or a browser for each test would take hours."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(group_of(name), []).append(name)
    for group, tests in sorted(groups.items()):
        own = folder / group
        prepare_folder(own)
        for name in tests:
            case = node_tests()[name]
            write_whole(own / f"{name}{GRAPH}", case.model.SerializeToString())
            write_whole(own / f"{name}{ARRAYS}", _packed(dict(_arrays(case))))
        cell = operator_cell(group, target, "float32")
        asked = " ".join(["--onnx", *(f"--operator {name}" for name in tests)])
        body = (
            environment()
            .get_template("operators/node.py.j2")
            .render(
                cell=cell,
                command=f"{PROGRAM} ops {cell.target} {asked if len(tests) == 1 else '--onnx'}",
                tests={name.removeprefix(PREFIX): _operators_of(name) for name in tests},
            )
        )
        file = f"test_{cell.slug}.py"
        write_suite(own, file, stamp(body.rstrip("\n") + "\n"), force=True)
        suite = read_suite(own / file)
        assert suite is not None  # a rendered suite has a cell
        yield suite


def _operators_of(name: str) -> str:
    return ", ".join(sorted({one.op_type for one in node_tests()[name].model.graph.node}))


@functools.cache
def group_of(name: str) -> str:
    """Return the name of the suite that has a test: that of its operator, which ONNX may also write as a function of
    others (`test_gelu_default_1_expanded`)."""
    plain = name.partition("_expanded")[0]
    operators = _operators_of(plain if plain in node_tests() else name)
    return f"{PREFIX}{operators.lower()}" if "," not in operators else plain.partition("_")[0]


def _arrays(case: Any) -> Iterator[tuple[str, Array]]:
    (inputs, outputs), graph = case.data_sets[0], case.model.graph
    for one, array in zip(graph.input, inputs, strict=True):
        yield f"input:{one.name}", np.asarray(array)
    for one, array in zip(graph.output, outputs, strict=True):
        yield f"output:{one.name}", np.asarray(array)
    yield "relative", np.asarray(case.rtol)
    yield "absolute", np.asarray(case.atol)


def _packed(arrays: Mapping[str, Array]) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    return packed.getvalue()
