"""Export a torch module to OpenVINO: with optimum-intel's exporter if possible, else by a trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..applied_fix import AppliedFix, current_changes
from ..model.model_types import ModelInput, Unsupported
from . import convert_model, decoding_graphs, onnx_export, optimum_exporter
from .exported import ENCODER, EXPORTER, FORWARD, ONNX, PROMPT, STEP, Exported, Opener
from .program import export_function
from .routes import Route, Way, export_failure, export_once, opened
from .traceable import traceable_parts
from .verify_export import Proof

if TYPE_CHECKING:
    from ..model.model_types import Inputs

_TRACES: tuple[tuple[str, Way], ...] = (
    ("convert_model", convert_model.with_convert_model),
    ("convert_model with sizes as constants", convert_model.holding_numbers),
)
_OPERATORS = {
    "No conversion rule found for operations: ": "no conversion rule for",
    "Conversion is failed for: ": "the conversion rule fails for",
}
"""Messages of OpenVINO's converter before the operators that it can't convert, and ours."""


def export_openvino(
    model_input: ModelInput, example: Inputs, open_on_cpu: Opener, *, traced_anew: bool = False
) -> Exported:
    """Return the OpenVINO model of a torch module, from the cache or made now.

    With `traced_anew` it is the forward pass alone of a model whose trace is static, for the shapes of `example`.

    Tries optimum-intel's exporter, the same beyond its stated versions, then `openvino.convert_model`. Raises
    `Unsupported` with every way's reason if none is right; stage and error type are the last way's: `export_failed`
    or `unsupported_operator` (stage `export`), `export_failed` if the result doesn't run and `conversion_wrong` if it
    gives other numbers than torch (stage `convert`).
    """
    changes = current_changes()
    if traced_anew or changes.cache:
        model_input = replace(model_input, generates="none")
    route = Route(
        ways=changed_ways(changes) or (_TRACES if traced_anew else tuple(_ways(model_input))),
        prove=_proven,
        runtime="OpenVINO's own CPU device",
        packages=("openvino", "optimum-intel", "nncf"),
        refused=_OPERATORS,
        best=EXPORTER,
        decodes=True,
    )
    return export_once(model_input, example, open_on_cpu, route)


def changed_ways(changes: AppliedFix) -> tuple[tuple[str, Way], ...]:
    """Return the ways of a fix that changes the export, instead of the usual ones, or none."""
    if changes.shapes:
        return (("convert_model for these shapes", _for_these_shapes),)
    found: dict[str, tuple[tuple[str, Way], ...]] = {
        "trace": _TRACES,
        "onnx": (("by way of ONNX", _over_onnx),),
        "program": (("torch.export", _over_program),),
    }
    return found.get(changes.export, ())


def _for_these_shapes(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Trace as usual with every size a constant, for each shape anew."""
    return convert_model.with_convert_model(model_input, example, folder, held=frozenset())


def _over_onnx(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Read torch's ONNX file of the forward pass with OpenVINO's converter, for the shapes of the example.

    Raises the errors of both.
    """
    onnx_export.traced(model_input, example, folder)
    import onnx as library
    import openvino

    file = folder / ONNX
    graph = library.load(str(file), load_external_data=False).graph
    given, results = ([one.name for one in ports] for ports in (graph.input, graph.output))
    convert_model.save_named(openvino.convert_model(str(file)), given, results, folder / FORWARD)
    file.unlink()
    return Exported(folder=folder, method="onnx", static=True)


def _over_program(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Read the program of torch.export with OpenVINO's converter, for the shapes of the example.

    Raises the errors of both.
    """
    import openvino
    import torch

    model = model_input.model
    tensors, positions, compute = convert_model.bare_forward(model, example)
    given = {**tensors, **positions}
    file = folder / "forward.pt2"
    with traceable_parts(model), torch.no_grad():
        outputs = list(compute(given))
        export_function(model, compute, given, file)
    converted = openvino.convert_model(torch.export.load(str(file)))
    convert_model.save_named(converted, list(given), outputs, folder / FORWARD)
    file.unlink()
    return Exported(folder=folder, method="torch.export", static=True)


def _ways(model_input: ModelInput) -> Iterator[tuple[str, Way]]:
    yield EXPORTER, optimum_exporter.with_exporter
    if optimum_exporter.limit_of(model_input):
        yield "optimum-intel beyond its limit", optimum_exporter.beyond_limit
    yield from _TRACES


def _proven(made: Exported, proof: Proof, open_on_cpu: Opener) -> tuple[Exported, float]:
    if made.method == EXPORTER:
        return made, proof.of_all(opened(open_on_cpu, made), made)
    return _proven_trace(made, proof, open_on_cpu)


def _proven_trace(made: Exported, proof: Proof, open_on_cpu: Opener) -> tuple[Exported, float]:
    """Return a traced export, whether it is right for other shapes, and whether it decodes or why not."""
    trace = opened(open_on_cpu, made)
    error = proof.of_forward(trace, made)
    try:
        if not made.static:
            proof.of_other_shapes(trace, made)
    except Unsupported:  # the runtime refuses shapes that the trace froze, or computes with frozen values
        made = replace(made, static=True)
    if proof.model_input.generates == "none":
        return made, error
    decodes = replace(made, decodes=True)
    try:
        decoding_graphs.write_decoding(proof.model_input, proof.example, made.folder, made)
        proof.of_decoding(open_on_cpu(decodes), decodes)
    except MemoryError:
        raise
    except Exception as problem:  # as for the forward pass: any error of the library or the converter
        for file in (ENCODER, PROMPT, STEP):
            for part in (made.folder / file, (made.folder / file).with_suffix(".bin")):
                part.unlink(missing_ok=True)
        reason = problem if isinstance(problem, Unsupported) else export_failure(problem, _OPERATORS)
        return replace(made, why_no_cache=str(reason), no_cache_error=reason.error_type), error
    return decodes, error
