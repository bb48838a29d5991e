"""What runs in the child: builds a cell's tiny model and its reference, and compares them place by place."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generators.derivation.building import build, filled_model
from generators.derivation.on_demand import recipe_for
from generators.models.inputs import make_inputs
from hardware.backends.base import BaseBackend, ModelSubject, Unsupported
from hardware.backends.factory import get_backend
from hardware.cell import Cell
from hardware.errors import BackendUnavailable, HwCompatError, NothingMatched
from hardware.output_masks import masks_of
from hardware.plain_text import one_line
from hardware.process import answer
from hardware.testing import reference
from hardware.testing.devices import requested_device
from hardware.testing.tolerances import tolerance_for
from hwcompat.plugins.triage.localization.comparing import padding_of
from hwcompat.plugins.triage.localization.graphs import GraphRuns, localize_graph
from hwcompat.plugins.triage.localization.modules import localize_modules
from hwcompat.plugins.triage.localization.result import Localization
from hwcompat.plugins.triage.localization.traced import traced_values

from .asking import MODULES, broke

if TYPE_CHECKING:
    import torch

    from generators.models.recipe import Recipe

Progress = Callable[[str], None]


def localize(cell: Cell, progress: Progress) -> Localization:
    """The answer for a cell whose target is here.

    Raises `BackendUnavailable`, `NothingMatched` where no graph can be made of the model, and what the device raises.
    """
    recipe = recipe_for(cell.model, cell.task)
    inputs = dict(make_inputs(recipe.inputs, 0))
    with get_backend(requested_device(cell.target)) as backend:
        if reason := backend.unavailable():
            raise BackendUnavailable(f"{cell.target} isn't here", why=reason)
        if cell.target.name in MODULES:
            return _by_modules(cell, recipe, inputs, backend, progress)
        return _by_nodes(cell, recipe, inputs, backend, progress)


def built(recipe: Recipe) -> torch.nn.Module:
    """A recipe's tiny model with its loud weights."""
    if recipe.gain is None:
        return build(recipe.config_class, recipe.model_class, recipe.config)
    return filled_model(recipe)


def subject_of(recipe: Recipe) -> ModelSubject:
    """The same as it is loaded."""
    model = built(recipe)
    return ModelSubject(
        model=model,
        task=recipe.task,
        identity=reference.identity_of(model),
        generates=recipe.generate,
        masked_by=recipe.masked_by,
    )


def _by_modules(
    cell: Cell, recipe: Recipe, inputs: Mapping[str, Any], backend: BaseBackend, progress: Progress
) -> Localization:
    exact = reference.as_reference(built(recipe))
    runnable: Any = backend.load(subject_of(recipe), inputs, cell.precision)

    def control() -> Any:
        return get_backend("cpu").load(subject_of(recipe), inputs, cell.precision)

    return localize_modules(
        runnable,
        exact,
        inputs,
        cell=cell.id,
        tolerance=tolerance_for(cell.target, cell.precision).limit,
        masked_by=recipe.masked_by,
        control=None if cell.target.name == "cpu" else control,
        progress=progress,
    )


def _by_nodes(
    cell: Cell, recipe: Recipe, inputs: Mapping[str, Any], backend: BaseBackend, progress: Progress
) -> Localization:
    padding = padding_of(inputs)
    traced, want = traced_values(reference.as_reference(built(recipe)), inputs, padding)
    subject = subject_of(recipe)
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
        try:
            make = _openvino_runs if backend.WATCHED_GRAPH == "ir" else _onnx_runs
            return localize_graph(
                make(subject, inputs, backend, cell, Path(folder)),
                traced,
                want,
                cell=cell.id,
                tolerance=tolerance_for(cell.target, cell.precision).limit,
                precision=backend.COMPUTES_IN.get(cell.precision, cell.precision),
                masks=masks_of(recipe.masked_by, inputs),
                padding=padding,
                progress=progress,
            )
        except Unsupported as error:  # QNN takes some nodes only as part of others: watched, it refuses them
            raise NothingMatched(
                f"{cell.id} has no graph that can be watched", why=one_line(str(error), longest=500)
            ) from error


def _openvino_runs(
    subject: ModelSubject, inputs: Mapping[str, Any], backend: Any, cell: Cell, folder: Path
) -> GraphRuns:
    """The forward pass as OpenVINO's own converter traces it: it keeps the names of modules, and has one graph. A
    conversion that gives other numbers than torch is looked into as well."""
    from hardware.backends._openvino_calls import OPENVINO_OPTIONS
    from hardware.backends._openvino_model import open_model
    from hardware.export.exported import FORWARD
    from hardware.export.onnx import with_positions
    from hardware.export.openvino import export_openvino
    from hardware.export.tracing import with_convert_model
    from hwcompat.plugins.triage.localization.openvino_nodes import OpenVINORuns

    exact = OPENVINO_OPTIONS["float32"]
    try:
        made = export_openvino(subject, inputs, lambda it: open_model(it, subject, "CPU", exact), traced_anew=True)
    except Unsupported as error:
        if error.error_type != "conversion_wrong":
            raise
        made = with_convert_model(subject, inputs, folder)
    options = OPENVINO_OPTIONS[cell.precision]
    return OpenVINORuns(made.folder / FORWARD, with_positions(subject, inputs), backend.device, options)


def _onnx_runs(subject: ModelSubject, inputs: Mapping[str, Any], backend: Any, cell: Cell, folder: Path) -> GraphRuns:
    from hardware.export.exported import ONNX
    from hardware.export.onnx import export_onnx, with_positions
    from hwcompat.plugins.triage.localization.onnx_nodes import OnnxRuns

    file = export_onnx(subject, inputs).folder / ONNX

    def compute(model: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return dict(backend.compute(model, arrays)[0])

    return OnnxRuns(file, with_positions(subject, inputs), compute, folder)


def _answer(asked: Mapping[str, str]) -> dict[str, Any]:
    cell, place = Cell.parse(asked["cell"]), Path(asked["progress"])
    last = [""]

    def progress(name: str) -> None:
        last[0] = name
        place.write_text(name, encoding="utf-8")

    try:
        return localize(cell, progress).to_dict()
    except HwCompatError:
        raise
    except Exception as error:  # whatever a device raises is what it ended with
        ended = f"{type(error).__name__}: {one_line(str(error), longest=500)}"
        return broke(cell, ended, last[0]).to_dict()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    answer(_answer)
