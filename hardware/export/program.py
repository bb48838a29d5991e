"""Programs of torch.export, for runtimes that lower operators of torch: one file for the shapes of its example.

A program is compared with its module, on CPU and in the same dtype, before it is used.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evidence.record import Stage
from ..model.model_types import Unsupported
from ..step_times import timed_step
from .convert_model import Compute, Tensors, by_position
from .decoding_graphs import compute_call, decoder_of, grown_axes, recorded_calls, tensors_in
from .exported import PROMPT, STEP
from .traceable import traceable_parts

if TYPE_CHECKING:
    import torch

LANGUAGE = "language.json"
"""Extra file of a program: the names of its inputs and outputs, in order."""

INNER = "model."
"""Prefix of the names of a program's parameters: the module is inside the exported one."""

LIMITS = {"float32": 1e-4, "bfloat16": 4e-2}
"""Allowed errors; half the tolerance of bfloat16, since the order of sums may differ."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A file of torch.export; `graph` computes it in torch, from tensors by name to tensors by name."""

    file: Path
    graph: Compute


def export_forward(model: Any, tensors: Tensors, file: Path) -> Program:
    """Export the bare forward pass, without a cache, with all its results. Raises `Unsupported` with the reason."""
    from ..model.calls import without_cache
    from ..model.outputs import nested, results

    options = without_cache(model)

    def compute(values: Tensors) -> dict[str, torch.Tensor]:
        return results(model(**nested(values), **options))

    with traceable_parts(model):
        return export_function(model, compute, tensors, file)


def export_decoding(model: Any, tensors: Tensors, folder: Path) -> dict[str, Program]:
    """Export the encoder, if there is one, the prompt and each further token, by `ENCODER`, `PROMPT`, `STEP`.

    The prompt has the shapes of the example; the states of a token may have any length. Raises `Unsupported`.
    """
    try:
        with traceable_parts(model):
            encoded, seen = recorded_calls(model, tensors, steps=3)
    except Exception as error:  # of the library, for a model that decodes in an unknown way
        raise _refused(f"decoding can't be captured: {_reason(error)}", Stage.EXPORT) from error
    decoder = decoder_of(model)
    found: dict[str, Program] = {}
    for part, name, call in [*encoded, (decoder, PROMPT, seen[0]), (decoder, STEP, seen[1])]:
        given = tensors_in(call)
        growing = grown_axes(given, seen[2]) if name == STEP else {}
        compute = functools.partial(compute_call, part, call)
        with traceable_parts(model):
            found[name] = export_function(part, compute, given, folder / f"{name}.pt2", growing)
    return found


def export_function(
    part: Any, compute: Compute, tensors: Tensors, file: Path, growing: Mapping[str, Sequence[int]] | None = None
) -> Program:
    """Export a function of `part` from tensors by name to such tensors; `growing` names axes of any size, by input.

    Raises `Unsupported` with the reason.
    """
    import torch
    from torch.fx.experimental import _config

    names = list(tensors)
    dims = torch.export.Dim
    free = {name: dict.fromkeys(axes, dims.AUTO) for name, axes in (growing or {}).items()}
    shapes = {"values": tuple(free.get(name) for name in names)} if any(free.values()) else None
    with torch.no_grad():
        want = compute(tensors)
        try:
            # Tracing warns of what it specializes; the result is compared with torch. A length that is 1 in the
            # example stays dynamic: a decoder's first states have it.
            with (
                timed_step("export"),
                warnings.catch_warnings(action="ignore"),
                _config.patch(backed_size_oblivious=True),
            ):
                made = torch.export.export(
                    by_position(part, compute, names), tuple(tensors.values()), dynamic_shapes=shapes, strict=False
                )
        except Exception as error:  # the exporter raises any error; its reason is kept
            raise _refused(f"torch.export failed: {_reason(error)}", Stage.EXPORT) from error
    outputs = list(want)
    language = json.dumps({"inputs": names, "outputs": outputs})
    torch.export.save(made, str(file), extra_files={LANGUAGE: language})
    module = made.module()

    def graph(values: Tensors) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            given = (values[name].to(tensors[name].dtype) for name in names)
            return dict(zip(outputs, module(*given), strict=True))

    _compare_with_module(graph(tensors), want)
    return Program(file=file, graph=graph)


def _compare_with_module(got: Tensors, want: Tensors) -> None:
    """Raise `Unsupported` if a program gives other numbers than the module."""
    from ..model.calls import to_arrays
    from .verify_export import compared

    half = any(str(one.dtype) == "torch.bfloat16" for one in want.values())
    comparison = compared(to_arrays(got), to_arrays(want), {})
    if not comparison.max_rel_error <= LIMITS["bfloat16" if half else "float32"]:
        raise _refused(f"the exported program gives different numbers than torch: {comparison}", Stage.CONVERT)


def _refused(reason: str, stage: Stage) -> Unsupported:
    kind = "conversion_wrong" if stage is Stage.CONVERT else "export_failed"
    return Unsupported(reason, error_type=kind, stage=stage)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
