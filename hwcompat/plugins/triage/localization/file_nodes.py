"""Compare a graph file node by node with its reference: the same file in the most exact of several implementations.

Branches that are taken (`If`) and local functions are written into the graph first, so that their nodes are compared
too; a `Loop` or `Scan` is compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.generators.models.given_recipe import draw_inputs
from hwcompat.hardware.backends.base import FileInput, Runnable
from hwcompat.hardware.compare import ReferenceNotFinite, compare, scale_of
from hwcompat.hardware.errors import NothingMatched
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.testing.graph_files import GraphTest, open_reference
from hwcompat.hardware.testing.measurement import Ambiguous, Outputs
from hwcompat.hardware.testing.tolerances import tolerance_for
from hwcompat.hardware.testing.user_inputs import read_inputs

from .file_runs import FileRuns
from .graph_nodes import Errors, GraphNode, Values, on_the_device, place_of
from .localization_result import ErrorPlace, Localization, LocalizationOutcome
from .tensor_errors import error_of

if TYPE_CHECKING:
    from hwcompat.generators.models.given_recipe import GivenRecipe
    from hwcompat.hardware.backends.base import BaseBackend
    from hwcompat.hardware.cell import Cell
    from hwcompat.hardware.compare import Array
    from hwcompat.hardware.testing.graph_reference import GraphReference

_STEPS = 3
_NOT_OF_NODES = ("unsupported_format", "unsupported_dtype", "missing_dependency")
_AS_RIGHT = 0.1
"""A node is wrong by itself if its inputs' errors are at most this share of the tolerance."""

Progress = Callable[[str], None]


def localize_file(
    cell: Cell,
    file: Path,
    recipe: GivenRecipe,
    inputs: Path | None,
    backend: BaseBackend,
    folder: Path,
    say: Progress,
) -> Localization:
    """Return the first node of an `.onnx` file that a target computes wrongly, or that its runtime refuses.

    `inputs` are those that were given; intermediate files are written into `folder`. Raises what the target raises
    if the runtime refuses the whole file and no single node of it.
    """

    def load(path: Path, example: Mapping[str, Array]) -> Runnable:
        return backend.load_file(FileInput(file=path), example, cell.precision)

    given = _inputs_of(recipe, inputs)
    case = _case_of(cell, file, recipe, given[0])
    reference = open_reference(file)
    reference.scales, reference.parts = recipe.scales, recipe.parts
    make = partial(FileRuns, folder=folder, load=load)
    say("the file as it is")
    tried: Mapping[str, Array] = given[0]
    results = []
    try:
        for tried, want in _cases(given, case, recipe.states):
            results.append((_outputs_error(case, case.run(tried), want), tried, want))
        case.runnable.close()
    except ReferenceNotFinite:
        raise
    except Exception as refused:  # each runtime has error classes of its own
        if getattr(refused, "error_type", "") in _NOT_OF_NODES:
            raise NothingMatched(f"{cell.id} can't be localized", why=one_line(str(refused))) from refused
        return _refused(cell, file, tried, reference, make, say, refused)
    worst, arrays, want = max(results, key=lambda one: one[0])
    made = make(file, arrays)
    found = Localization(
        cell=cell.id,
        finding=LocalizationOutcome.AGREES,
        granularity="node",
        reference="",
        tolerance=case.tolerance,
        outputs_error=worst,
    )
    say("the reference of all nodes")
    values = made.of_reference(reference)
    plain = replace(want, arrays=made.plain()) if made.is_flat and not found.is_whole else want
    if plain is not want and _outputs_error(case, plain, want) <= case.tolerance:
        note = "the nodes of its branches are right when they are run without If: the fault is in If"
        found = replace(found, notes=(note,))
        made = make(file, arrays, flattens=False)
        values = made.of_reference(reference)
    precision = backend.COMPUTES_IN.get(cell.precision, cell.precision)
    how = {"precision": precision, "tolerance": case.tolerance}
    return _compared(replace(found, reference=made.method), made, values, want.scales, how, say)


def _inputs_of(recipe: GivenRecipe, inputs: Path | None) -> list[dict[str, Array]]:
    """Return the given inputs, or those that the file's suite draws."""
    if inputs:
        return read_inputs(inputs)
    sizes = [recipe.sizes, recipe.sizes, {**recipe.sizes, **recipe.other_sizes}]
    return [draw_inputs(recipe.inputs, one, seed) for seed, one in enumerate(sizes)]


def _case_of(cell: Cell, file: Path, recipe: GivenRecipe, example: Mapping[str, Array]) -> GraphTest:
    """Return the test case of the file's suite."""
    return GraphTest(
        cell.id,
        lambda: file,
        example,
        gain=None,
        outputs=recipe.outputs,
        weights=recipe.subject,
        scales=recipe.scales,
        parts=recipe.parts,
        float32_costs=recipe.float32_costs,
    )


def _outputs_error(case: GraphTest, got: Outputs, want: Outputs) -> float:
    """Return the error of outputs; the tolerance if rounding may explain it."""
    try:
        return case.error(got, want)
    except Ambiguous:
        return case.tolerance


def _cases(
    given: Sequence[Mapping[str, Array]], case: GraphTest, states: Mapping[str, str]
) -> Iterator[tuple[Mapping[str, Array], Outputs]]:
    """Yield inputs with their expected outputs; if the file has states, also those of the steps before."""
    for arrays in given:
        yield arrays, case.reference(arrays)
    last: dict[str, Array] = {}
    for step in range(_STEPS if states else 0):
        arrays = {**given[step % len(given)], **last}
        want = case.reference(arrays)
        yield arrays, want
        last = {name: want.arrays[output].astype(arrays[name].dtype) for name, output in states.items()}
        if any(given[(step + 1) % len(given)][name].shape != one.shape for name, one in last.items()):
            return


def _compared(
    found: Localization,
    runs: FileRuns,
    values: Values,
    scales: Mapping[str, float],
    how: Mapping[str, Any],
    say: Progress,
) -> Localization:
    say("all nodes at once")
    together = runs.on_device()
    ordinary = _errors(together, values, scales, how)
    say("all nodes apart")
    try:
        apart = runs.apart(values)
    except Exception as error:  # a runtime may accept nodes only as parts of others
        why = one_line(str(error), longest=160)
        found = replace(found, notes=(*found.notes, f"the nodes can't be run one by one here: {why}"))
        return _in_order(found, runs.nodes, ordinary, lambda node: place_of(node, together, values, {}, ordinary))
    own = _errors(apart, values, scales, how)
    return on_the_device(found, runs.nodes, ordinary, own, lambda one: place_of(one, apart, values, own, ordinary))


def _in_order(
    found: Localization, nodes: Sequence[GraphNode], ordinary: Errors, place: Callable[[GraphNode], ErrorPlace]
) -> Localization:
    """Return the first node beyond tolerance in an ordinary run: wrong by itself if its inputs are right."""
    errors = {node: error for node in nodes if (error := max_of(ordinary, node.gives)) is not None}
    found = replace(found, compared=len(errors), left_out=len(nodes) - len(errors))
    first = next((node for node, error in errors.items() if not error <= found.tolerance), None)
    if first is None:
        fused = "no node is wrong while all are observed, so the fault is in nodes that the runtime fuses"
        outcome = LocalizationOutcome.AGREES if found.is_whole else LocalizationOutcome.UNNAMED
        return replace(found, finding=outcome, notes=found.notes if found.is_whole else (*found.notes, fused))
    right = (max_of(ordinary, first.takes) or 0.0) <= _AS_RIGHT * found.tolerance
    return replace(
        found, finding=LocalizationOutcome.NAMED if right else LocalizationOutcome.GROWS, place=place(first)
    )


def max_of(errors: Errors, names: Sequence[str]) -> float | None:
    """Return the largest known error among these tensors; None if none is known."""
    return max((errors[one] for one in names if one in errors), default=None)


def _errors(got: Values, want: Values, scales: Mapping[str, float], how: Mapping[str, Any]) -> dict[str, float]:
    found = {name: _error(got[name], one, scales.get(name), how) for name, one in want.items() if name in got}
    return {name: error for name, error in found.items() if error is not None}


def _error(got: Array, want: Array, scale: float | None, how: Mapping[str, Any]) -> float | None:
    """Return the error of a tensor, by the scale that an output of the file has. Numbers in 8 bits may differ by one:
    a value between two goes to either."""
    if scale is not None and want.dtype.kind == "f":
        return compare({"": got}, {"": want}, scales={"": scale}).max_rel_error
    if want.dtype.itemsize == 1 and want.dtype.kind in "iu" and got.shape == want.shape and want.size:
        numbers = want.astype(np.float64)
        return max(0.0, float(np.abs(got.astype(np.float64) - numbers).max()) - 1) / scale_of(numbers)
    return error_of(got, want, **how)


def _refused(
    cell: Cell,
    file: Path,
    inputs: Mapping[str, Array],
    reference: GraphReference,
    made: Callable[..., FileRuns],
    say: Progress,
    refused: Exception,
) -> Localization:
    """Return the first node with which a runtime refuses the file up to it. Raises `refused` if there is none."""
    say("the first node that the runtime refuses")
    runs = made(file, inputs)
    runs.of_reference(reference)
    low, high = 0, len(runs.nodes)  # the first `low` nodes load, the first `high` don't
    flat_loads = runs.loads(high)
    if flat_loads:
        runs = made(file, inputs, flattens=False)
        runs.of_reference(reference)
        low, high = 0, len(runs.nodes)
    if runs.loads(high):
        raise refused
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs.loads(middle) else (low, middle)
    node = runs.nodes[low]
    notes = [f"the runtime loads the {low} nodes before it, and refuses the file with it"]
    if node.operator == "If" and flat_loads:
        notes.append("it runs the file if the branch that is taken replaces each If")
    return Localization(
        cell=cell.id,
        finding=LocalizationOutcome.BROKE,
        granularity="node",
        reference="none: the runtime refuses the file",
        tolerance=tolerance_for(cell.target, cell.precision).limit,
        outputs_error=None,
        place=ErrorPlace(name=node.name, kind=node.operator),
        notes=(*notes, one_line(str(refused), longest=500)),
    )
