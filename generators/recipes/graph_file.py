"""Read the inputs of a graph file (`.onnx`, or OpenVINO's `.xml`), choose sizes for its dimensions, and run it."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from hwcompat.generators.models.given_recipe import GivenInput, GivenRecipe, draw_inputs
from hwcompat.hardware.cell import GRAPH_TASK
from hwcompat.hardware.compare import Array, is_meant
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.inventory.system.main_memory import free_bytes
from hwcompat.hardware.testing.graph_files import open_reference
from hwcompat.hardware.testing.graph_reference import GraphReference
from hwcompat.hardware.testing.graph_weights import graph_hash, weight_files
from hwcompat.hardware.testing.user_inputs import inputs_hash, read_inputs

from .example_draws import spec_like
from .graph_inputs import Port, attempts, states_of, with_sums
from .graph_scales import FACTORS, Spreads, are_too_large, float32_costs, judged, spreads

log = logging.getLogger(__name__)

_BYTES_A_BYTE = 7
"""Memory per byte of the file: the weights, again in float64 and moved a little, in the runtime, and results."""

_ROLLED = 2
"""How often given inputs are rolled along their last axis, to see which outputs move."""
_GIVE = "Give inputs of its users with --inputs FILE.npz."
_UNCONFIRMED = 3
"""Sizes that are tried while a single implementation alone evaluates the file."""


def derive_graph(name: str, inputs: str = "") -> GivenRecipe:
    """Return the recipe of a graph file, with the `inputs` of a `.npz` file or a folder of them, or drawn ones.

    Raises `BrokenInput` if a file can't be read, `ModelError` if it can't be tested: it doesn't fit into free memory,
    no implementation evaluates it, or the inputs aren't its own.
    """
    file = Path(name).expanduser()
    _require_memory(file, ())
    evaluator = open_reference(file)
    _require_memory(file, weight_files(file))
    ports = {name: Port(dtype=one[0], shape=one[1], rows=one[2]) for name, one in evaluator.inputs().items()}
    if not ports:
        raise ModelError(f"{echo(file.name)} has no inputs", why="its outputs are always the same")
    given = read_inputs(Path(inputs).expanduser()) if inputs else []
    found = _of_given(file.name, evaluator, ports, given) if given else _first_that_runs(file.name, evaluator, ports)
    specs, sizes, outputs = found.specs, found.sizes, found.outputs
    make = partial(_made, given, specs, sizes)
    if not outputs:
        raise ModelError(f"{echo(file.name)} has no output of numbers", why="there is nothing to compare")
    unmoved = tuple(name for name in outputs if name not in found.spreads.scales)
    if len(unmoved) == len(outputs):
        raise ModelError(
            f"{echo(file.name)} has constant outputs",
            why="they are the same for all inputs that were tried, so that a wrong result would look the same",
            fix=_GIVE,
        )
    other_sizes, others = _other_sizes(evaluator, specs, sizes, outputs)
    whole, costs = _judged(evaluator, found, other_sizes, others)
    if whole.parts:
        evaluator.scales, evaluator.parts = whole.scales, whole.parts
        outputs = evaluator(make(0))
    return GivenRecipe(
        kind="graph",
        name=file.name,
        subject="checkpoint",
        task=GRAPH_TASK,
        inputs=specs,
        sizes=sizes,
        other_sizes=other_sizes,
        parameters=evaluator.parameters,
        gradients=0,
        gradient_norm=0.0,
        operators=(),  # predictions use only torch's operators
        outputs=tuple(outputs),
        weights_hash=graph_hash(file),
        computes_in=evaluator.computes_in,
        states=states_of(make(0), outputs),
        unmoved=unmoved,
        not_compared=tuple(name for name in evaluator.output_names if name not in outputs),
        scales=whole.scales,
        parts=whole.parts,
        float32_costs=costs,
        given=inputs_hash(given) if given else "",
        given_count=len(given),
    )


def _judged(
    evaluator: GraphReference, found: _Choice, other_sizes: dict[str, int], others: Mapping[str, Array]
) -> tuple[Spreads, dict[str, float]]:
    """Return scales and costs with which outputs are judged, for inputs of both sizes. `others` are the outputs of
    the other ones; empty without any."""
    costs = dict(found.costs)
    if others:
        with contextlib.suppress(Exception):  # other numbers of these sizes may be refused
            at_others = float32_costs(evaluator, partial(draw_inputs, found.specs, other_sizes), found.spreads)
            costs |= {key: max(cost, costs.get(key, 0.0)) for key, cost in at_others.items()}
    fixed = found.spreads.along_fixed_axes(found.outputs, others)
    return judged(fixed, {key: cost for key, cost in costs.items() if key in fixed.scales})


def _require_memory(file: Path, weights: tuple[Path, ...]) -> None:
    needed = _BYTES_A_BYTE * sum(path.stat().st_size for path in (file, *weights))
    free = free_bytes()
    if needed > free:
        raise ModelError(
            f"{echo(file.name)} doesn't fit into memory",
            why=f"the test needs about {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free",
            fix="Run it on a machine with more memory.",
        )


def _made(
    given: Sequence[Mapping[str, Array]], specs: Mapping[str, GivenInput], sizes: Mapping[str, int], seed: int
) -> Mapping[str, Array]:
    return given[seed % len(given)] if given else draw_inputs(specs, sizes, seed)


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """Inputs that a file accepts, with the first outputs and their spreads."""

    specs: dict[str, GivenInput]
    sizes: dict[str, int]
    outputs: dict[str, Array]
    spreads: Spreads
    costs: Mapping[str, float]


def _of_given(
    name: str, evaluator: GraphReference, ports: Mapping[str, Port], given: Sequence[Mapping[str, Array]]
) -> _Choice:
    """Return the given inputs. Raises `ModelError` if they aren't the graph's."""
    for inputs in given:
        if inputs.keys() != ports.keys():
            raise ModelError(
                f"the inputs aren't those of {echo(name)}",
                why=f"it has {', '.join(ports)}; given are {', '.join(inputs) or 'none'}",
                fix="Give each array the name of its input.",
            )
        for key, array in inputs.items():
            shape = ports[key].shape if ports[key].dtype else array.shape
            fits = len(shape) == array.ndim and all(
                isinstance(size, str) or size == one for size, one in zip(shape, array.shape, strict=True)
            )
            if array.dtype.name != (ports[key].dtype or array.dtype.name) or not fits:
                raise ModelError(
                    f"the input {echo(key)} isn't what {echo(name)} takes",
                    why=f"given is {array.dtype.name} {list(array.shape)}, it takes {ports[key].dtype} {list(shape)}",
                )
    specs = {
        key: GivenInput(
            kind="given", dtype=given[0][key].dtype.name, shape=one.shape if one.dtype else given[0][key].shape
        )
        for key, one in ports.items()
    }
    tried = [
        *given,
        *(
            {key: np.roll(one, by, -1) if one.ndim else one for key, one in given[0].items()}
            for by in range(1, _ROLLED + 1)
        ),
    ]
    try:
        return _chosen(evaluator, specs, {}, tried.__getitem__, [1.0] * len(tried))
    except Exception as error:  # a runtime may raise anything, and outputs may not be finite
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ModelError(f"{echo(name)} can't be evaluated on the given inputs", why=why) from error


def _first_that_runs(name: str, evaluator: GraphReference, ports: Mapping[str, Port]) -> _Choice:
    """Return the first inputs that the file accepts, whose outputs two implementations confirm and float32 doesn't
    change too much to judge them; without such inputs those of the first few that float32 changes least."""
    reasons: list[str] = []
    found: list[_Choice] = []
    unknown = [key for key, port in ports.items() if not port.dtype]
    examples = evaluator.examples()
    if unknown and not examples:
        raise ModelError(
            f"the input {echo(unknown[0])} of {echo(name)} has an unknown shape",
            why="a scripted module states none",
            fix="Give arrays with --inputs FILE.npz, or trace the module: TorchScript keeps the shapes of a trace.",
        )
    for specs, drawn in [(_like(name, ports, examples), {})] if examples else attempts(ports):
        sizes = {**drawn, **evaluator.sizes}
        try:
            found.append(_chosen(evaluator, specs, sizes, partial(draw_inputs, specs, sizes), FACTORS))
        except ModelError:  # other sizes don't help
            raise
        except Exception as error:  # a runtime may raise anything for an unsupported size
            reasons.append(f"{sizes or 'fixed sizes'}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            continue
        moves = bool(found[-1].spreads.scales)
        if moves and not evaluator.is_alone and not are_too_large(found[-1].costs):
            return found[-1]
        if len(found) >= _UNCONFIRMED or (evaluator.is_alone and not sizes):
            break
    if found:
        best = min(found, key=lambda one: max(one.costs.values(), default=math.inf))
        specs, sizes = best.specs, best.sizes  # evaluated again, since the evaluator keeps the last scales
        return _chosen(evaluator, specs, sizes, partial(draw_inputs, specs, sizes), FACTORS)
    raise ModelError(
        f"{echo(name)} can't be evaluated on random inputs",
        why=f"tried {len(reasons)} choices; the first failed with {reasons[0]}",
        fix=f"{_GIVE} Or export it with fixed input shapes.",
    )


def _like(name: str, ports: Mapping[str, Port], examples: Mapping[str, Array]) -> dict[str, GivenInput]:
    """Return specifications like the inputs that the file holds."""
    specs = {key: spec_like(key, one) for key, one in examples.items()}
    return {key: replace(one, dtype=ports[key].dtype, shape=ports[key].shape) for key, one in specs.items()}


def _chosen(
    evaluator: GraphReference,
    specs: dict[str, GivenInput],
    sizes: dict[str, int],
    make: Callable[[int], Mapping[str, Array]],
    factors: Sequence[float],
) -> _Choice:
    """Return inputs with their outputs, whose scales the evaluator gets. Raises the errors of a runtime that can't
    run them, and `ReferenceNotFinite`."""
    spread = spreads(evaluator, make, factors)
    evaluator.scales = {key: one for key, one in spread.scales.items() if key not in spread.parts}
    evaluator.parts, evaluator.said = {}, ""
    costs = float32_costs(evaluator, make, spread)
    return _Choice(specs=specs, sizes=sizes, outputs=evaluator(make(0)), spreads=spread, costs=costs)


def _alternatives(specs: Mapping[str, GivenInput], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    first = {spec.shape[0] for spec in specs.values() if spec.shape}
    yield with_sums({name: size + 1 if name in first else 2 * size for name, size in sizes.items()})
    yield with_sums({name: size + 1 if name in first else size for name, size in sizes.items()})
    yield with_sums({name: size if name in first else 2 * size for name, size in sizes.items()})


def _other_sizes(
    evaluator: GraphReference, specs: Mapping[str, GivenInput], sizes: Mapping[str, int], outputs: Mapping[str, Array]
) -> tuple[dict[str, int], dict[str, Array]]:
    """Return a second choice of sizes with which the graph runs and gives other shapes, and its outputs; both are
    empty without one."""
    for other in _alternatives(specs, sizes) if sizes else ():
        try:
            found = evaluator.runs(draw_inputs(specs, other))
            if not all(map(is_meant, found.values())):
                continue
        except Exception as error:  # any error means that it doesn't run with these sizes
            log.debug("sizes %s: %s", other, error)
            continue
        if any(found[name].shape != value.shape for name, value in outputs.items()):
            return other, found
    return {}, {}
