"""Try graphs of one operator on targets: export, conversion, acceptance and results.

Each operator is called as tiny models call it (`generators/compatibility/operators/operator_names.py`). The
result for a single operator doesn't cover how compilers fuse it with others.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch

from generators.compatibility.operators.operator_names import recorded
from generators.recipes.operator_calls import OperatorCall
from hardware.backends.base import Unsupported
from hardware.evidence.record import Stage
from hardware.export.exported import ONNX
from hardware.export.onnx_export import OPSET, _clip_constants, _expand_added_constants, _exportable, drop_empty, fold
from hardware.target import Target
from hardware.testing.tolerances import tolerance_for

from .one_operator import OneOperator, apart, one_operator

FLOAT32_LIMIT = 1e-4
NOT_TENSORS = ("aten._local_scalar_dense", "aten.mkldnn_rnn_layer")
"""Operators without a graph: one returns a Python number, one is an LSTM variant of the CPU."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The result of one call on one target; `types` are the exported ONNX types.

    `stage` and `reason` say where and why it doesn't run, `tensors` describes its inputs.
    """

    operator: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    works: bool
    stage: str = ""
    reason: str = ""
    types: tuple[str, ...] = ()

    @property
    def given(self) -> str:
        """Return dtypes and ranks, such as `float32 3-D, int64 2-D`."""
        return ", ".join(f"{dtype} {len(shape)}-D" for dtype, shape in self.tensors) or "no tensor"


Try = Callable[[OneOperator, Path], tuple[str, ...]]


class Refused(Exception):
    """Raised if a target rejects a graph or computes it wrongly, with the stage."""

    def __init__(self, stage: str, reason: str, types: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.stage = stage
        self.types = types


def calls_to_try() -> Iterator[OperatorCall]:
    """Return the recorded examples of each operator, the most common first."""
    for operator, found in recorded()["operators"].items():
        for one in found if operator not in NOT_TENSORS else ():
            named = tuple((name, value) for name, value in one["named"])
            yield OperatorCall(
                operator=operator, overload=one["overload"], arguments=tuple(one["arguments"]), named=named
            )


def try_all(what: str) -> Iterator[Tried]:
    """Try every call on `onnx`, `openvino` or `qnn` in child processes, so that a crash loses one call."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, initializer=_prepare, initargs=(what,))
    try:
        for call in calls_to_try():
            try:
                yield pool.submit(_try_here, call).result()
            except BrokenProcessPool:
                yield _failed(call, Refused("run", "the process died of it"))
                pool.shutdown(wait=False)
                pool = ProcessPoolExecutor(1, context, initializer=_prepare, initargs=(what,))
    finally:
        pool.shutdown()


_here: list[Try] = []
"""The attempt function of this child."""


def _prepare(what: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _here.append({"onnx": lambda: on_onnx, "openvino": lambda: on_openvino, "qnn": qnn_attempt}[what]())


def _try_here(call: OperatorCall) -> Tried:
    with tempfile.TemporaryDirectory(prefix="hwcompat-operator-") as folder:
        return _tried(call, _here[0], Path(folder))


def _tried(call: OperatorCall, attempt: Try, folder: Path) -> Tried:
    try:
        subject = one_operator(call)
        with torch.no_grad():
            subject.module(*subject.inputs)
    except Exception as error:  # Operators that can't be called alone stay unknown.
        return _failed(call, Refused("call", _line(error)))
    try:
        types = attempt(subject, folder)
    except Refused as refused:
        return _failed(call, refused)
    return Tried(operator=call.operator, tensors=call.tensors, works=True, types=types)


def _failed(call: OperatorCall, refused: Refused) -> Tried:
    return Tried(
        operator=call.operator,
        tensors=call.tensors,
        works=False,
        stage=refused.stage,
        reason=str(refused),
        types=refused.types,
    )


def export(subject: OneOperator, folder: Path) -> tuple[str, ...]:
    """Export the operator to an ONNX file as models are; return its ONNX types. Raises `Refused`."""
    import onnx

    raw, file = folder / "raw.onnx", folder / ONNX
    try:
        with torch.no_grad(), _exportable(), contextlib.redirect_stdout(None):
            torch.onnx.export(
                subject.module,
                subject.inputs,
                str(raw),
                dynamo=False,
                opset_version=OPSET,
                input_names=[f"input{number}" for number in range(len(subject.inputs))],
            )
        fold(raw, file)
        drop_empty(file)
        _clip_constants(file)
        _expand_added_constants(file)
    except Exception as error:  # The exporter raises any exception.
        raise Refused("export", _line(error)) from error
    return tuple(sorted({node.op_type for node in onnx.load(str(file)).graph.node} - {"Constant", "Identity"}))


def on_onnx(subject: OneOperator, folder: Path) -> tuple[str, ...]:
    """Export and compute with ONNX Runtime's CPU provider. Raises `Refused`."""
    import onnxruntime

    types = export(subject, folder)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(folder / ONNX), options, providers=["CPUExecutionProvider"])
        found = session.run(None, _named(subject, {one.name for one in session.get_inputs()}))
    except Exception as error:  # an error of the runtime
        raise Refused("run", _line(error), types) from error
    _compare(subject, found, FLOAT32_LIMIT, types)
    return types


def on_openvino(subject: OneOperator, folder: Path) -> tuple[str, ...]:
    """Convert with OpenVINO and compute with its CPU plugin. Raises `Refused`."""
    import openvino

    from hardware.export.openvino_operators import convertible_operators

    with torch.no_grad(), convertible_operators():
        try:
            traced = torch.jit.trace(subject.module, subject.inputs, check_trace=False)
            converted = openvino.convert_model(traced, example_input=subject.inputs or None)
        except Exception as error:  # an error of the tracer or the converter
            raise Refused("convert", _line(error)) from error
        try:
            compiled = openvino.Core().compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            result = compiled([one.numpy() for one in subject.inputs])
        except Exception as error:  # an error of the plugin
            raise Refused("compile", _line(error)) from error
    _compare(subject, [result[number] for number in range(len(compiled.outputs))], FLOAT32_LIMIT, ())
    return ()


def qnn_attempt() -> Try:
    """Export, and compute on QNN in a strict session."""
    from hardware.backends.qnn import QNNBackend

    backend = QNNBackend(Target.parse("qnn:emulator"))
    limit = tolerance_for(backend.target, "float32").limit

    def attempt(subject: OneOperator, folder: Path) -> tuple[str, ...]:
        import onnx

        types = export(subject, folder)
        if not types:
            return ()  # It was constant-folded, so nothing is left to run.
        names = {one.name for one in onnx.load(str(folder / ONNX)).graph.input}
        try:
            found, proof = backend.exchange(
                "run",
                {"inputs": _named(subject, names)},
                stage=Stage.COMPILE,
                model=str((folder / ONNX).absolute()),
            )
        except Unsupported as error:
            raise Refused("compile", _line(error).removeprefix("QNN doesn't run the model: "), types) from error
        elsewhere = [ops for provider, ops in proof["assigned"].items() if provider != backend.PROVIDER]
        if left := sorted(name for ops in elsewhere for name in ops):
            raise Refused("compile", f"it leaves {', '.join(left)} to the host", types)
        outputs = [one.name for one in onnx.load(str(folder / ONNX)).graph.output]
        _compare(subject, [found[name] for name in outputs], limit, types)
        return types

    return attempt


def _named(subject: OneOperator, names: set[str]) -> dict[str, Any]:
    given = {f"input{number}": tensor.numpy() for number, tensor in enumerate(subject.inputs)}
    return {name: array for name, array in given.items() if name in names}


def _compare(subject: OneOperator, found: list[Any], limit: float, types: tuple[str, ...]) -> None:
    with torch.no_grad():
        expected = subject.module(*subject.inputs)
    wanted = list(expected) if isinstance(expected, tuple) else [expected]
    if len(wanted) != len(found):
        raise Refused("run", f"{len(found)} results instead of {len(wanted)}", types)
    pairs = list(zip(found, wanted, strict=True))[: subject.comparable]
    worst = max((apart(torch.as_tensor(a), b) for a, b in pairs), default=0.0)
    if not worst <= limit:
        raise Refused("run", f"other numbers than torch: {worst:.1e} of the largest", types)


_NOISE = (
    r"\[ONNXRuntimeError\] : \d+ : \w+ : ",
    r"Load model from \S+ failed:",
    r"; Unsupported nodes.*",
    r"Check '[^']*' failed at \S+ ",
    r"Exception from \S+:\d+: ",
    r"FrontEnd API failed with OpConversionFailure: ",
    r"_token_\d+",
    r"Model wasn't fully converted\. ",
    r"(?:Summary|Failed operations detailed log): -- ",
    r" This session contains graph nodes that are assigned to the default CPU EP.*",
    r" \[Caused by.*",
    r"(?<=[\s'(])/\S+/",
)


def _line(error: BaseException) -> str:
    """Return an error as one line, without parts of this machine or graph."""
    text = " ".join(str(error).split())
    for noise in _NOISE:
        text = re.sub(noise, "", text)
    return text[:200] or type(error).__name__


def said(tried: Iterator[Tried]) -> list[Tried]:
    """Yield all results, and print them as they end."""
    found = []
    for one in tried:
        found.append(one)
        outcome = "runs" if one.works else f"{one.stage}: {one.reason[:120]}"
        click.echo(f"{one.operator} ({one.given}): {outcome} {' '.join(one.types)}", err=True)
    return found
