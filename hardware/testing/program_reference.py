"""Evaluate a TorchScript file or an exported program in float64: every operator widens what it gets and returns."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.base import coarsest
from ..compare import Array
from ..errors import ModelError, echo
from ..model.calls import to_arrays
from ..model.outputs import results
from ..model.torch_program import open_program
from .graph_ladder import agree
from .graph_reference import GraphReference, dimension

FLOAT64 = "float64 by PyTorch"
AGREED = "float32, in which PyTorch and OpenVINO agree"


class ProgramReference(GraphReference):
    """A program of torch on the CPU. Where an operator has no float64, PyTorch and OpenVINO must agree in float32."""

    def __init__(self, file: Path) -> None:
        self._file, self._program = file, open_program(file)
        weights = self._program.floats()
        self.parameters = sum(one.numel() for one in weights)
        kinds = {str(one.dtype).removeprefix("torch.") for one in weights}
        kinds = kinds or {one.dtype for one in self._program.inputs.values() if one.dtype}
        self.sizes = {}
        half = kinds & {"float16", "bfloat16"}
        self.computes_in = coarsest(half) if half and kinds == half else "float32"

    def inputs(self) -> dict[str, tuple[str, tuple[int | str, ...], int]]:
        given = self._program.inputs
        first = {one.shape[0] for one in given.values() if one.shape}
        is_batched = len(first) == 1 and all(one.shape for one in given.values())
        shapes: dict[str, list[int | str]] = {}
        for name, one in given.items():
            shapes[name] = [dimension(axis, size) for axis, size in enumerate(one.shape or ())]
            if is_batched and one.example is not None and one.example.is_meta:  # sizes of a trace may all be dynamic
                shapes[name][0] = "batch"
            if one.example is not None:
                known = zip(shapes[name], one.example.shape, strict=True)
                self.sizes = {**self.sizes, **{size: number for size, number in known if isinstance(size, str)}}
        return {n: (one.dtype or "", tuple(shapes[n]), self._rows(n)) for n, one in given.items()}

    def examples(self) -> dict[str, Array]:
        found = {name: one.example for name, one in self._program.inputs.items()}
        if any(one is None or one.is_meta or str(one.dtype) == "torch.bfloat16" for one in found.values()):
            return {}
        return {name: one.detach().cpu().numpy() for name, one in found.items()}

    def _rows(self, name: str) -> int:
        """Return the rows of the smallest table that an input of whole numbers selects from, seen by a call in which
        it alone is ones; 0 for another input, or if the program doesn't run with zeros."""
        import torch

        inputs = {key: one.example for key, one in self._program.inputs.items()}
        if any(one is None for one in inputs.values()) or inputs[name].is_floating_point():
            return 0
        zeros = {key: torch.zeros(one.shape, dtype=one.dtype) for key, one in inputs.items()}
        lookups = _watching()
        with contextlib.suppress(Exception), torch.no_grad(), lookups:  # sizes of examples may not fit together
            self._program(**zeros | {name: torch.ones_like(zeros[name])})
        return min(lookups.rows, default=0)

    def runs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        with torch.no_grad():
            return to_arrays(results(self._program(**_tensors(inputs))))

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        mode, wide = _widened(), self._wide
        given = {name: one.double() if one.is_floating_point() else one for name, one in _tensors(inputs).items()}
        try:
            with torch.no_grad(), torch.jit.optimized_execution(False), mode:
                found, again = (to_arrays(results(wide(**given))) for _ in range(2))
        except Exception as error:  # an operator without float64, of any class
            return self._agreed(inputs, error)
        if any(not np.array_equal(one, again[name], equal_nan=True) for name, one in found.items()):
            raise ModelError(
                f"{echo(self._file.name)} gives different results each time",
                why="it draws random numbers, or keeps a state between calls",
                fix="Save it in evaluation mode, model.eval(), with states as inputs and outputs.",
            )
        self.method = FLOAT64
        return found

    @cached_property
    def _wide(self) -> Any:
        program = open_program(self._file)
        for one in program.floats():
            one.data = one.data.double()
        return program

    def _agreed(self, inputs: Mapping[str, Array], reason: Exception) -> dict[str, Array]:
        """Return float32 outputs of OpenVINO, if those of PyTorch agree. Raises `ModelError` with the `reason` why
        there is no float64."""

        try:
            import openvino

            given = tuple(_tensors(inputs).values())
            with _same_log_level():
                model = openvino.convert_model(
                    getattr(self._program, "program", self._program.narrow), example_input=given
                )
            compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            found = dict(
                zip(own := self.runs(inputs), compiled([one.numpy() for one in given]).values(), strict=True)
            )
            if not agree(own, found, self.scales):
                raise ValueError("OpenVINO computes other outputs than PyTorch")
        except Exception as error:  # openvino may be missing, and has classes for what it cannot convert
            why = f"float64: {_line(reason)}; float32: {_line(error)}"
            raise ModelError(f"{echo(self._file.name)} has no reference", why=why) from error
        self.said = self.method = AGREED
        return found


@contextlib.contextmanager
def _same_log_level() -> Iterator[None]:
    """Restore the level of the root logger, which OpenVINO's converter sets."""
    level = logging.getLogger().level
    try:
        yield
    finally:
        logging.getLogger().setLevel(level)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}"


def _tensors(inputs: Mapping[str, Array]) -> dict[str, Any]:
    import torch

    return {name: torch.as_tensor(np.array(one, order="C")) for name, one in inputs.items()}


def _widened() -> Any:
    """Return a dispatch mode in which operators get and return float64, whatever dtypes a program names."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    dtypes = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}
    dtypes[torch.complex64] = torch.complex128

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(dtypes[value.dtype]) if value.dtype in dtypes else value
        return dtypes.get(value, value) if isinstance(value, torch.dtype) else value

    class Widened(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name
            if name == "aten::_assert_tensor_metadata":  # of the dtype that was exported
                return None
            if func._schema.is_mutable and any(
                isinstance(one, torch.Tensor) and one.dtype in dtypes for one in args[:1]
            ):
                raise RuntimeError(f"{name} writes into a constant that isn't float64")
            return tree_map(wide, func(*tree_map(wide, args), **tree_map(wide, kwargs or {})))

    return Widened()


def _watching() -> Any:
    """Return a dispatch mode that keeps in `rows` the sizes of tables that are indexed by ones alone."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Lookups(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[int] = []

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.embedding.default and bool((args[1] == 1).all()):
                self.rows.append(int(args[0].shape[0]))
            return func(*args, **(kwargs or {}))

    return Lookups()
