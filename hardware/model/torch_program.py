"""TorchScript files and exported programs as modules that take tensors by name.

Both are programs: loading and running them runs what their author wrote, as a module of one's own does.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BrokenInput, ModelError, echo
from ..file_formats import format_name
from .outputs import named_outputs

if TYPE_CHECKING:
    import torch

_NUMBERS = {"int": "int64", "float": "float32", "bool": "bool"}
"""Types of TorchScript that a number of this dtype is given for."""


@dataclass(frozen=True, kw_only=True)
class ProgramInput:
    """One input of a program. `dtype` is NumPy's name; it and `shape` are None where the file doesn't say, and a text
    in the shape names a dynamic dimension. `example` is the value that the file holds, or only its shape (on `meta`).
    """

    dtype: str | None
    shape: tuple[int | str, ...] | None
    example: torch.Tensor | None = None


def open_program(file: Path) -> Any:
    """Return the program in a file, a `torch.nn.Module` that keeps its own dtypes and mode.

    `inputs` has a `ProgramInput` for each argument, `narrow` is the module inside, and `resaved(folder)` returns the
    program, saved by torch and loaded again. Raises `BrokenInput` if torch can't load it, `ModelError` if an input
    isn't a tensor or a number.
    """
    try:
        with _quiet():
            return (_exported_class() if format_name(file) == "exported" else _script_class())(file)
    except (BrokenInput, ModelError):
        raise
    except Exception as error:  # torch raises many classes for files that it can't load
        raise BrokenInput(
            f"torch can't load {echo(file.name)}",
            why=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="Save it again with the installed version of torch.",
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out that TorchScript is deprecated: the file is what it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@functools.cache
def _program_class() -> Any:
    """Return the base class, which is defined once torch is imported."""
    import torch

    class Program(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        inputs: dict[str, ProgramInput]
        numbers: set[str]
        narrow: Any

        def arguments(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
            """Return the arguments by name, in the dtypes that the file states."""
            found: dict[str, Any] = {}
            for name, one in tensors.items():
                dtype = self.inputs[name].dtype
                found[name] = one.item() if name in self.numbers else one.to(getattr(torch, dtype)) if dtype else one
            return found

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            """Keep the file's own dtypes; `to` moves it."""
            return self

        def train(self, mode: bool = True) -> Any:
            """Keep the mode in which it was saved."""
            return self

        def floats(self) -> list[torch.Tensor]:
            """Return its floating-point weights, each once."""
            found = {id(one): one for one in (*self.narrow.parameters(), *self.narrow.buffers())}
            return [one for one in found.values() if one.is_floating_point()]

    return Program


@functools.cache
def _script_class() -> Any:
    import torch

    class ScriptProgram(_program_class()):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self, file: Path) -> None:
            super().__init__()
            self.file, self.narrow = file, torch.jit.load(str(file), map_location="cpu")
            self.keeps_state = "prim::SetAttr" in str(self.narrow.inlined_graph)
            examples = _traced_inputs(file)
            self.inputs, self.numbers = {}, set()
            for place, one in enumerate(self.narrow.forward.schema.arguments[1:]):
                kind = str(one.type).removeprefix("Optional[").removesuffix("]")
                if one.has_default_value() and kind != "Tensor":
                    continue
                if kind not in ("Tensor", *_NUMBERS):
                    raise ModelError(
                        f"the input {echo(one.name)} of {echo(file.name)} is a {one.type}",
                        why="inputs are tensors or numbers",
                        fix="Script a module around it whose forward takes tensors.",
                    )
                example = examples[place] if place < len(examples) else None
                if kind in _NUMBERS:
                    self.numbers.add(one.name)
                    self.inputs[one.name] = ProgramInput(dtype=_NUMBERS[kind], shape=(), example=example)
                elif example is not None or not one.has_default_value():
                    self.inputs[one.name] = _like(example)

        def to(self, device: Any) -> Any:
            if torch.device(device).type != "cpu":
                with _quiet():
                    self.narrow = torch.jit.load(str(self.file), map_location=device)
            return self

        def forward(self, **tensors: torch.Tensor) -> Any:
            narrow = copy.deepcopy(self.narrow) if self.keeps_state else self.narrow  # each call is the first
            return dict(named_outputs(narrow(**self.arguments(tensors))))

        def resaved(self, folder: Path) -> Any:
            with _quiet():
                torch.jit.save(self.narrow, str(folder / "program.pt"))
            return open_program(folder / "program.pt")

    return ScriptProgram


def _like(example: torch.Tensor | None) -> ProgramInput:
    if example is None:
        return ProgramInput(dtype=None, shape=None)
    return ProgramInput(dtype=_dtype_name(example.dtype), shape=tuple(example.shape), example=example)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _traced_inputs(file: Path) -> list[torch.Tensor | None]:
    """Return tensors with the dtypes and shapes of a trace's inputs, which TorchScript keeps without their values;
    empty for a file without. They are read as plain data, without running code."""
    import torch
    from torch._weights_only_unpickler import Unpickler
    from torch.jit._pickle import restore_type_tag

    with zipfile.ZipFile(file) as archive:
        kept = next((name for name in archive.namelist() if name.endswith("/traced_inputs.pkl")), "")
        if not kept:
            return []
        reader = Unpickler(io.BytesIO(archive.read(kept)), encoding="utf-8")
    storage = functools.partial(torch.storage.TypedStorage, device="meta", _internal=True)
    reader.persistent_load = lambda saved: storage(saved[4], dtype=saved[1].dtype)
    with torch.serialization.safe_globals([restore_type_tag]):
        found = reader.load().get("forward", ())
    return [one if isinstance(one, torch.Tensor) else None for one in found]


@functools.cache
def _exported_class() -> Any:
    import torch
    from torch.utils._pytree import tree_leaves, tree_unflatten

    class ExportedProgram(_program_class()):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self, file: Path) -> None:
            super().__init__()
            self.program = torch.export.load(str(file))
            self.narrow = self.program.module()
            examples = tree_leaves(self.program.example_inputs or ())
            values = {
                node.name: node.meta.get("val") for node in self.program.graph.nodes if node.op == "placeholder"
            }
            self.inputs, self.numbers = {}, set()
            self.place = next((one.device.type for one in self.floats()), "cpu")
            self.places: list[tuple[str, Any]] = []
            for one in self.program.graph_signature.input_specs:
                if one.kind is not torch.export.graph_signature.InputKind.USER_INPUT:
                    continue
                name, value, place = one.arg.name, values.get(one.arg.name), len(self.places)
                self.places.append((name, getattr(one.arg, "value", None)))
                example = examples[place] if place < len(examples) else None
                if isinstance(value, torch.Tensor):
                    given = example if isinstance(example, torch.Tensor) else None
                    sizes = value.shape if given is None else given.shape  # for a size such as 2*s0
                    named = zip(map(str, value.shape), sizes, strict=True)
                    shape = tuple(text if text.isidentifier() else size for text, size in named)
                    self.inputs[name] = ProgramInput(dtype=_dtype_name(value.dtype), shape=shape, example=given)
                elif isinstance(value, torch.SymInt | torch.SymFloat):
                    self.numbers.add(name)
                    self.inputs[name] = replace(_like(torch.tensor(example)), shape=())

        def to(self, device: Any) -> Any:
            from torch.export.passes import move_to_device_pass

            if torch.device(device).type != self.place:
                self.place = torch.device(device).type
                self.program = move_to_device_pass(self.program, device)
                self.narrow = self.program.module()
            return self

        def forward(self, **tensors: torch.Tensor) -> Any:
            given = self.arguments(tensors)
            flat = [given.get(name, constant) for name, constant in self.places]
            args, kwargs = tree_unflatten(flat, self.program.call_spec.in_spec)
            return dict(named_outputs(self.narrow(*args, **kwargs)))

        def resaved(self, folder: Path) -> Any:
            torch.export.save(self.program, str(folder / "program.pt2"))
            return open_program(folder / "program.pt2")

    return ExportedProgram
