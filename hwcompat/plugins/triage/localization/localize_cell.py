"""Localize a cell in a child process: build its tiny model and its reference, and compare them place by place.

Run as a module, this is the child. If it ends without an answer, the parent reports what it was computing.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.models.catalog import load_catalog
from hwcompat.generators.models.given_recipe import GivenRecipe
from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.generators.recipes.build_model import build
from hwcompat.generators.recipes.on_demand import recipe_for
from hwcompat.hardware.backends.base import ModelInput, Unsupported
from hwcompat.hardware.backends.factory import backend_class, built_in_targets, get_backend, resolve_target
from hwcompat.hardware.cell import GRAPH_TASK, Cell
from hwcompat.hardware.errors import BackendUnavailable, HwCompatError, NothingMatched, did_you_mean, echo
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.plain_values import from_values
from hwcompat.hardware.process import NoAnswer, answer, ask
from hwcompat.hardware.testing import reference
from hwcompat.hardware.testing.pytest_environment import requested_device
from hwcompat.hardware.testing.seeded_weights import fill
from hwcompat.hardware.testing.tolerances import tolerance_for

from .graph_nodes import localize_graph, traced_values
from .localization_result import ErrorPlace, Localization, LocalizationOutcome
from .tensor_errors import padding_of
from .torch_modules import localize_modules

if TYPE_CHECKING:
    import torch

    from hwcompat.generators.models.recipe import Recipe
    from hwcompat.generators.plan import PlannedSuite

MODULES = tuple(name for name in built_in_targets() if backend_class(name).DEVICE_TYPE)
"""Targets on which torch's own modules run."""
GRAPHS = tuple(name for name in built_in_targets() if backend_class(name).WATCHED_GRAPH)
"""Targets in whose graphs single nodes can be read."""
_LONGEST = 600


def localize_cell(cell: Cell, planned: PlannedSuite | None = None) -> Localization:
    """Return the first difference of a checked cell from its reference. Takes seconds, in a child.

    `planned` is the suite of a graph file's cell. Raises `BackendUnavailable` if its target is absent,
    `NothingMatched` if its model has no graph to read.
    """
    limit = backend_class(cell.target.name).DEADLINE_S
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        progress = Path(name) / "progress"
        asked: dict[str, Any] = {"cell": cell.id, "progress": str(progress)}
        if planned is not None:
            given = planned.profile.inputs
            asked["file"] = str(Path(planned.profile.asked).expanduser().resolve())
            asked |= {"recipe": planned.profile.recipe.to_dict(), "inputs": str(given) if given else ""}
        try:
            return from_values(Localization, ask(__name__, asked, limit_s=limit))
        except NoAnswer as error:
            place = progress.read_text(encoding="utf-8")[:_LONGEST] if progress.is_file() else ""
            return broke(cell, str(error), place)


def checked_cell(text: str) -> Cell:
    """Return the cell of a text if it can be localized. Raises `UsageError` and `NothingMatched`."""
    cell = Cell.parse(text)
    resolve_target(str(cell.target))
    if cell.task == GRAPH_TASK:
        return cell
    if cell.target.name not in (*MODULES, *GRAPHS):
        raise NothingMatched(
            f"{cell.target} can't be localized",
            why="it exposes neither torch modules nor nodes of a graph",
            fix=f"Choose a cell of one of these targets: {', '.join((*MODULES, *GRAPHS))}.",
        )
    known = backend_class(cell.target.name).PRECISIONS
    if cell.precision not in known:
        fix = f"{did_you_mean(cell.precision, known)} {cell.target} computes in {', '.join(known)}."
        raise NothingMatched(f"cell {echo(cell.id)} doesn't exist", why="its target has no such precision", fix=fix)
    if cell.precision == "int8":
        raise NothingMatched(
            "cells in int8 can't be localized",
            why="a quantized graph has other nodes than its reference",
        )
    if not load_catalog().config_class(cell.model) and load_recipe(cell.model) is None:
        classify(cell.model)  # raises with similar names
        raise NothingMatched(
            f"{echo(cell.model)} can't be localized",
            why="only model types and .onnx files are supported yet, not checkpoints or your own modules",
        )
    recipe = load_recipe(cell.model, cell.task)
    primary = load_recipe(cell.model)
    if recipe is None and primary is not None:
        raise NothingMatched(
            f"no recipe of {cell.model} for {echo(cell.task)} is stored",
            fix=did_you_mean(cell.task, [primary.task]) or f"Its primary task is {primary.task}.",
        )
    return cell


def broke(cell: Cell, ended: str, place: str) -> Localization:
    """Return the result for a device that ended at `place` (a module's path, or empty), `ended` in words."""
    return Localization(
        cell=cell.id,
        finding=LocalizationOutcome.BROKE,
        granularity="module" if cell.target.name in MODULES else "node",
        reference="none: the device ended before the comparison",
        tolerance=tolerance_for(cell.target, cell.precision).limit,
        outputs_error=None,
        place=ErrorPlace(name=place, kind="") if place else None,
        notes=(ended,),
    )


# In the child


def localize(cell: Cell, progress: Callable[[str], None]) -> Localization:
    """Return the localization of a cell whose target is available.

    Raises `BackendUnavailable`, `NothingMatched` if no graph can be made of the model, and what the device raises.
    """
    tolerance = tolerance_for(cell.target, cell.precision).limit
    with get_backend(requested_device(cell.target)) as backend:
        if reason := backend.unavailable():
            raise BackendUnavailable(f"{cell.target} isn't available here", why=reason)
        recipe = recipe_for(cell.model, cell.task)
        inputs = dict(make_inputs(recipe.inputs, 0))
        exact = reference.as_reference(built(recipe))
        if cell.target.name in MODULES:
            runnable: Any = backend.load(subject_of(recipe), inputs, cell.precision)

            def control() -> Any:
                return get_backend("cpu").load(subject_of(recipe), inputs, cell.precision)

            return localize_modules(
                runnable,
                exact,
                inputs,
                cell=cell.id,
                tolerance=tolerance,
                masked_by=recipe.masked_by,
                control=None if cell.target.name == "cpu" else control,
                progress=progress,
            )
        padding = padding_of(inputs)
        traced, want = traced_values(exact, inputs, padding)
        make = _openvino_runs if backend.WATCHED_GRAPH == "ir" else _onnx_runs
        with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
            try:
                return localize_graph(
                    make(subject_of(recipe), inputs, backend, cell, Path(folder)),
                    traced,
                    want,
                    cell=cell.id,
                    tolerance=tolerance,
                    precision=backend.COMPUTES_IN.get(cell.precision, cell.precision),
                    masks=masks_of(recipe.masked_by, inputs),
                    padding=padding,
                    progress=progress,
                )
            except Unsupported as error:  # QNN accepts some nodes only as part of others
                raise NothingMatched(
                    f"{cell.id} has no graph whose nodes can be read", why=one_line(str(error), longest=500)
                ) from error


def built(recipe: Recipe) -> torch.nn.Module:
    """Return a recipe's tiny model with its seeded test weights."""
    model = build(recipe.config_class, recipe.model_class, recipe.config)
    if recipe.gain is None:
        return model.eval()
    return fill(model, gain=recipe.gain, zero_centered=recipe.zero_centered)


def subject_of(recipe: Recipe) -> ModelInput:
    """Return the recipe's model as a backend loads it."""
    model = built(recipe)
    return ModelInput(
        model=model,
        task=recipe.task,
        identity=reference.identity_of(model),
        generates=recipe.generate,
        masked_by=recipe.masked_by,
    )


def _openvino_runs(subject: ModelInput, inputs: Mapping[str, Any], backend: Any, cell: Cell, folder: Path) -> Any:
    """Return the runs of the forward pass as OpenVINO's own converter traces it: one graph with names of modules. A
    conversion that differs from torch is localized too."""
    from hwcompat.hardware.backends._openvino_model import OPENVINO_OPTIONS, open_model
    from hwcompat.hardware.export.convert_model import with_convert_model
    from hwcompat.hardware.export.exported import FORWARD
    from hwcompat.hardware.export.onnx_export import with_positions
    from hwcompat.hardware.export.openvino_export import export_openvino

    from .openvino_nodes import OpenVINORuns

    exact = OPENVINO_OPTIONS["float32"]
    try:
        made = export_openvino(subject, inputs, lambda it: open_model(it, subject, "CPU", exact), traced_anew=True)
    except Unsupported as error:
        if error.error_type != "conversion_wrong":
            raise
        made = with_convert_model(subject, inputs, folder)
    options = OPENVINO_OPTIONS[cell.precision]
    return OpenVINORuns(made.folder / FORWARD, with_positions(subject, inputs), backend.device, options)


def _onnx_runs(subject: ModelInput, inputs: Mapping[str, Any], backend: Any, cell: Cell, folder: Path) -> Any:
    from hwcompat.hardware.export.exported import ONNX
    from hwcompat.hardware.export.onnx_export import export_onnx, with_positions

    from .onnx_nodes import OnnxRuns

    file = export_onnx(subject, inputs).folder / ONNX
    given = with_positions(subject, inputs)
    return OnnxRuns(file, given, lambda model, arrays: dict(backend.compute(model, arrays)[0]), folder)


def _localize_file(cell: Cell, asked: Mapping[str, Any], progress: Callable[[str], None]) -> Localization:
    from .file_nodes import localize_file

    inputs = Path(asked["inputs"]) if asked["inputs"] else None
    with (
        get_backend(requested_device(cell.target)) as backend,
        tempfile.TemporaryDirectory(prefix="hwcompat-") as folder,
    ):
        if reason := backend.unavailable():
            raise BackendUnavailable(f"{cell.target} isn't available here", why=reason)
        recipe = GivenRecipe.from_dict(asked["recipe"])
        return localize_file(cell, Path(asked["file"]), recipe, inputs, backend, Path(folder), progress)


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    cell, place = Cell.parse(asked["cell"]), Path(asked["progress"])
    last = [""]

    def progress(name: str) -> None:
        last[0] = name
        place.write_text(name, encoding="utf-8")

    try:
        work = _localize_file(cell, asked, progress) if "file" in asked else localize(cell, progress)
        return work.to_dict()
    except HwCompatError:
        raise
    except Exception as error:  # a device may raise anything, which is the result
        return broke(cell, f"{type(error).__name__}: {one_line(str(error), longest=500)}", last[0]).to_dict()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    answer(_answer)
