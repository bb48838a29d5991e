"""Programs of torch.export, for runtimes that lower operators of torch: one file for the shapes of its example.

A program is held against the module that it was made of, on CPU and in the same dtype, before anything else takes it.
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
from .convert_model import Compute, Tensors, by_position
from .decoding_graphs import compute_call, decoder_of, grown_axes, recorded_calls, tensors_in
from .exported import PROMPT, STEP
from .traceable import traceable_parts

if TYPE_CHECKING:
    import torch

LANGUAGE = "language.json"
"""What a program's file carries besides: the names of its inputs and outputs, in order."""

INNER = "model."
"""What the names of a program's parameters begin with: the module lies inside the one that was exported."""

LIMITS = {"float32": 1e-4, "bfloat16": 4e-2}
"""The same operators compute on both sides; half the tolerance of bfloat16, since sums may be taken otherwise."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A file of torch.export; `graph` computes it in torch, from tensors by name to tensors by name."""

    file: Path
    graph: Compute


def export_forward(model: Any, tensors: Tensors, file: Path) -> Program:
    """The bare forward pass, without a cache, with all its results. Raises `Unsupported` with the reason."""
    from ..model.calls import without_cache
    from ..model.outputs import nested, results

    wishes = without_cache(model)

    def compute(values: Tensors) -> dict[str, torch.Tensor]:
        return results(model(**nested(values), **wishes))

    with traceable_parts(model):
        return export_function(model, compute, tensors, file)


def export_decoding(model: Any, tensors: Tensors, folder: Path) -> dict[str, Program]:
    """Programs for the encoder where there is one, the prompt and each further token, by `ENCODER`, `PROMPT`, `STEP`.

    The prompt has the shapes of the example; the states that a token is given may have another length each time.
    Raises `Unsupported`.
    """
    try:
        with traceable_parts(model):
            encoded, seen = recorded_calls(model, tensors, steps=3)
    except Exception as error:  # the library's, of a model that decodes in no way that is known here
        raise _refused(f"decoding can't be recorded: {_said(error)}", Stage.EXPORT) from error
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
    """A function of `part` from tensors by name to tensors by name, with axes that may have another size, by input.

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
            # Tracing warns of what it specialises; the result is held against torch. A length that is 1 in the
            # example stays one that grows: a decoder's first states have it.
            with warnings.catch_warnings(action="ignore"), _config.patch(backed_size_oblivious=True):
                made = torch.export.export(
                    by_position(part, compute, names), tuple(tensors.values()), dynamic_shapes=shapes, strict=False
                )
        except Exception as error:  # the exporter raises whatever it met; its reason is kept
            raise _refused(f"torch.export doesn't take the model: {_said(error)}", Stage.EXPORT) from error
    outputs = list(want)
    language = json.dumps({"inputs": names, "outputs": outputs})
    torch.export.save(made, str(file), extra_files={LANGUAGE: language})
    module = made.module()

    def graph(values: Tensors) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            given = (values[name].to(tensors[name].dtype) for name in names)
            return dict(zip(outputs, module(*given), strict=True))

    _hold_against(graph(tensors), want)
    return Program(file=file, graph=graph)


def _hold_against(got: Tensors, want: Tensors) -> None:
    """Raises `Unsupported` where a program gives other numbers than the module."""
    from ..compare import compare
    from ..model.calls import to_arrays

    half = any(str(one.dtype) == "torch.bfloat16" for one in want.values())
    comparison = compare(to_arrays(got), to_arrays(want))
    if not comparison.max_rel_error <= LIMITS["bfloat16" if half else "float32"]:
        raise _refused(f"the program gives other numbers than torch: {comparison}", Stage.CONVERT)


def _refused(reason: str, stage: Stage) -> Unsupported:
    kind = "conversion_wrong" if stage is Stage.CONVERT else "export_failed"
    return Unsupported(reason, error_type=kind, stage=stage)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
