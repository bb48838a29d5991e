"""`CapturedTest`: replaces `ModelTest` while a suite runs, and records the computations of each check on a target.

The suite alone defines the assertions of a check: passes, references and limits are recorded from its run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hwcompat.hardware.backends._exported_runnable import of_sizes
from hwcompat.hardware.backends._web import WebBackend
from hwcompat.hardware.backends.base import Execution, ModelInput
from hwcompat.hardware.backends.factory import get_backend
from hwcompat.hardware.compare import is_meant
from hwcompat.hardware.export.exported import ONNX
from hwcompat.hardware.export.onnx_decoding_graphs import is_dynamic
from hwcompat.hardware.export.onnx_export import export_onnx, with_positions
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.testing.graph_files import GraphTest
from hwcompat.hardware.testing.graph_outputs import NO_PARTS, Parts, border_of, with_parts
from hwcompat.hardware.testing.graph_weights import weight_files
from hwcompat.hardware.testing.measurement import Outputs
from hwcompat.hardware.testing.model_test import ModelTest
from hwcompat.hardware.testing.reference import digest_of

if TYPE_CHECKING:
    from hwcompat.hardware.compare import Array


class NotCaptured(Exception):
    """A check does something that a page can't do; the message says what."""


class Bytes:
    """Concatenated arrays, each at an offset that is aligned for its dtype."""

    def __init__(self) -> None:
        self.data = bytearray()

    def places(self, arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Append arrays, and return the offset of each."""
        found = {}
        for name, array in arrays.items():
            self.data += b"\0" * (-len(self.data) % 8)
            found[name] = {"type": str(array.dtype), "dims": list(array.shape), "at": len(self.data)}
            found[name]["bytes"] = array.nbytes
            self.data += array.tobytes()
        return found


@dataclass
class CapturedCase:
    """The computations of a suite's checks, in order.

    `steps` are by check; a step names a pass and a reference by their numbers. `files` are the exports by shapes,
    `passes` their inputs, `wanted` the reference outputs with their masks, as offsets in `inputs` and `expected`.
    """

    check: str = ""
    steps: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    passes: list[dict[str, Any]] = field(default_factory=list)
    wanted: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    inputs: Bytes = field(default_factory=Bytes)
    expected: Bytes = field(default_factory=Bytes)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, key: str, entries: list[dict[str, Any]], made: Callable[[], dict[str, Any]]) -> int:
        """Return the number of the entry with this key in `entries`; a new entry is created by `made`."""
        if key not in self._numbers:
            self._numbers[key] = len(entries)
            entries.append(made())
        return self._numbers[key]

    def ask(self, step: Mapping[str, Any]) -> None:
        """Append a step of the running check."""
        self.steps.setdefault(self.check, []).append(dict(step))


captured = CapturedCase()
"""The computations of the suite in this process so far."""


class AskedCall:
    """A number that a page will measure. Comparing it with a limit records the step; all other uses raise."""

    def __init__(self, step: Mapping[str, Any]) -> None:
        self.step = step

    def __le__(self, limit: float) -> bool:
        captured.ask({**self.step, "at_most": float(limit)})
        return True

    def __gt__(self, limit: float) -> bool:
        captured.ask({**self.step, "more_than": float(limit)})
        return True

    def _refused(self, *_: object) -> NoReturn:
        raise NotCaptured("it does more with an error than compare it with a limit")

    __lt__ = __ge__ = __float__ = __add__ = __mul__ = __bool__ = _refused


class _NotComputed(Mapping[str, Any]):
    """The outputs of a pass that a page will run."""

    def __init__(self, number: int) -> None:
        self.number = number

    def _refused(self, *_: object) -> NoReturn:
        raise NotCaptured("it reads outputs itself")

    __getitem__ = __iter__ = __len__ = _refused


class CapturedTest(ModelTest):
    """A `ModelTest` whose target computes nothing: every pass is exported and numbered, every reference is real."""

    @property
    def backend(self) -> WebBackend:
        return self._target

    @cached_property
    def _target(self) -> WebBackend:
        target = get_backend(self.requested_target)
        assert isinstance(target, WebBackend), "pages are for browsers only"
        return target

    @property
    def substitution_reason(self) -> str:
        return ""

    @property
    def runs_module(self) -> bool:
        return False

    @cached_property
    def _subject(self) -> ModelInput:
        captured.facts |= {"conditions": self._conditions(None), "subject": str(self.weights)}
        return ModelInput(
            model=self._changed(),
            task=self.cell.task,
            identity=self._identity,
            generates=self.generates,
            masked_by=self.masked_by,
            trains_only=self.trains_only,
            rebuild=self._changed,
        )

    @property
    def _conditions_of_graph(self) -> Mapping[str, str]:
        return captured.conditions

    @property
    def parts_of_outputs(self) -> Parts:
        """Slices of outputs that have a scale of their own."""
        return NO_PARTS

    def parameter_count(self) -> int:
        found = super().parameter_count()
        captured.facts["parameters"] = found
        return found

    def run(self, inputs: Mapping[str, Array]) -> Outputs:
        return Outputs(
            arrays=_NotComputed(self._pass_of(inputs)), masks=masks_of(self.masked_by, inputs), inputs=inputs
        )

    def _exported(self, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array], Path, Mapping[str, str]]:
        """Return the inputs of a pass, the file that runs it, and its conditions."""
        exported = export_onnx(self._subject, inputs)
        return with_positions(self._subject, inputs), exported.folder / ONNX, exported.conditions()

    def _pass_of(self, inputs: Mapping[str, Array]) -> int:
        given, file, conditions = self._exported(inputs)
        arrays = {name: np.ascontiguousarray(one).reshape(one.shape) for name, one in given.items()}
        captured.conditions |= {**conditions, **self.backend.coarse_in(file)}
        captured.files.setdefault(str(file), file)
        first, tokens = next(iter(inputs.values())), inputs.get("input_ids")

        def made() -> dict[str, Any]:
            return {
                "file": list(captured.files).index(str(file)),
                "inputs": captured.inputs.places(arrays),
                "batch": int(first.shape[0]) if first.ndim else None,
                "sequence_length": None if tokens is None or tokens.ndim < 2 else int(tokens.shape[1]),
            }

        return captured.number(f"pass {file} {digest_of(arrays)}", captured.passes, made)

    def error(self, got: Outputs, want: Outputs) -> Any:
        return self._record_error("error", got, want)

    def difference(self, got: Outputs, want: Outputs) -> Any:
        return self._record_error("difference", got, want)

    def _record_error(self, what: str, got: Outputs, want: Outputs) -> AskedCall:
        if not isinstance(got.arrays, _NotComputed):
            raise NotCaptured("it compares values that aren't outputs of the target")
        if not all(is_meant(one) for one in want.arrays.values()):
            raise NotCaptured("the reference isn't finite")

        def made() -> dict[str, Any]:
            kinds = {name: np.float64 if one.dtype.kind == "f" else np.int64 for name, one in want.arrays.items()}
            exact = {name: np.ascontiguousarray(one, dtype=kinds[name]) for name, one in want.arrays.items()}
            exact = with_parts(exact, self.parts_of_outputs)
            masks = {name: np.asarray(mask, dtype=np.uint8) for name, mask in want.masks.items()}
            places = captured.expected.places
            arrays = {"outputs": places(exact), "masks": places(masks)}
            parts = {name: list(one) for name, one in self.parts_of_outputs.items()}
            return {**arrays, "required": list(self.required), "scales": dict(want.scales), "parts": parts}

        key = f"want {digest_of(want.arrays)} {digest_of(want.masks)} {sorted(want.scales.items())}"
        number = captured.number(key, captured.wanted, made)
        return AskedCall({"what": what, "pass": got.arrays.number, "want": number})

    def recorded_error(
        self,
        output: str,
        recorded: Mapping[tuple[int, ...], float],
        scale: float,
        inputs: Mapping[str, Array] | None = None,
    ) -> Any:
        values = [[list(map(int, place)), float(value)] for place, value in recorded.items()]
        number = self._pass_of(self.inputs if inputs is None else inputs)
        return AskedCall(
            {"what": "recorded", "pass": number, "output": output, "values": values, "scale": float(scale)}
        )

    def execution(self) -> Execution:
        captured.ask({"what": "execution", "pass": self._pass_of(self.inputs)})
        return Execution(native={"planned": 1}, offloaded={}, dtype=self.cell.precision, device="", unseen="")

    def attention_error(self, inputs: Mapping[str, Array], *, without: Collection[str] = ()) -> Any:
        return self._known(super().attention_error(inputs, without=without))

    def causality_error(self, inputs: Mapping[str, Array], tokens: str, *, limit: int) -> Any:
        return self._known(super().causality_error(inputs, tokens, limit=limit))

    def _known(self, _: float) -> AskedCall:
        """Return an error that no device can change: it was computed in float64."""
        found = self.measured.comparison
        assert found is not None
        return AskedCall(
            {"what": "known", "rel": found.max_rel_error, "abs": found.max_abs_error, "worst": found.worst}
        )

    def save_and_reload(self, *_: object) -> NoReturn:
        raise NotCaptured("a page can't save a model")

    def gradient_error(self) -> NoReturn:
        raise NotCaptured("a page can't compute gradients")

    def generate(self) -> NoReturn:
        raise NotCaptured("a page can't decode step by step")


@cache
def _files() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hwcompat-page-")  # until the process ends


class CapturedFile(CapturedTest, GraphTest):
    """The same for a graph file, which is run with constant sizes as on the targets of a browser."""

    @property
    def parts_of_outputs(self) -> Parts:
        return self.parts

    def _exported(self, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array], Path, Mapping[str, str]]:
        captured.facts |= {"conditions": self._conditions(None), "subject": str(self.weights)}
        file = of_sizes(self._file, {name: one.shape for name, one in inputs.items()}, Path(_files().name))
        if file == self._file and weight_files(file):
            raise NotCaptured("its weights are in files beside it, and its sizes can't be made constants")
        return inputs, file, {"shapes": "static"} if file != self._file and is_dynamic(self._file) else {}

    def reference(self, inputs: Mapping[str, Array]) -> Outputs:
        found = super().reference(inputs)
        if any(border_of(one) is not None for one in found.arrays.values()):
            raise NotCaptured("it masks entries of its outputs with large numbers")
        return found

    def fed_back_error(self, *_: object) -> NoReturn:
        raise NotCaptured("a page can't feed states back")
