"""Probe what a type's own code does on every target, with torch on CPU.

Facts: outputs that depend on padding, decoding with a cache that gives other numbers, loops that can't be traced, the
ONNX export, and work that stays on the host. Imports torch and transformers.

For work on the host, each call of torch is observed with the place that its tensors would have: weights, buffers and
inputs are on a device; a tensor made without a device is on the host, as are plain attributes of modules and all
results of host tensors alone. No device is used, so code that depends on the kind of device takes the CPU's branch.
Calls from C++ and from inside `torch.nn.functional` aren't observed.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwcompat.generators.models.code_facts import ANY_LENGTH, NOT_TRACED, OWN_SIZES, CodeFacts
from hwcompat.generators.models.inputs import make_inputs, other_draws
from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.backends.base import ModelInput, Unsupported
from hwcompat.hardware.compare import Array, compare
from hwcompat.hardware.export.convert_model import Compute, Tensors, bare_forward, by_position, holding, traceable
from hwcompat.hardware.export.decoding_graphs import decoding_graphs
from hwcompat.hardware.export.exported import ONNX, Exported
from hwcompat.hardware.export.onnx_export import export_onnx, missing_packages
from hwcompat.hardware.export.verify_export import STEPS, Proof, held_inputs
from hwcompat.hardware.model.calls import forward, to_arrays, to_tensors
from hwcompat.hardware.model.positions import host_positions
from hwcompat.hardware.testing.reference import as_reference, float64_generation, float64_outputs, identity_of
from hwcompat.hardware.testing.widened_weights import copy_over

from . import measurements
from .build_model import filled_model, line_of

_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/:'\"]+/)+")
"""The folders of a local path, complete or truncated; not those of a URL."""
_MANY_AXES = 5
"""From this number of axes on, runtimes differ in their support."""
_TO_HOST = frozenset({"cpu", "tolist", "numpy", "__array__"})
"""Methods that read a tensor back."""
_MOVING = frozenset({"to", "type_as"})
_READING = frozenset({"__get__", "size", "dim", "stride", "numel", "is_floating_point", "__len__", "type"})
"""Methods that read properties of a tensor and compute nothing."""


class _Trace:
    """A torch trace, opened as exports are: arrays by name to arrays by name."""

    def __init__(self, model: Any, given: Tensors, compute: Compute) -> None:
        import torch

        self.model, self.inputs = model, list(given)
        module = by_position(model, compute, self.inputs)
        with torch.no_grad():
            self.outputs = list(compute(given))
            self.script = torch.jit.trace(module, tuple(given.values()), strict=False)

    def __call__(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        tensors = to_tensors(arrays, "cpu", torch.float32)
        given = {**tensors, **host_positions(self.model, tensors)}
        with torch.no_grad():
            results = self.script(*(given[name] for name in self.inputs))
        return to_arrays(dict(zip(self.outputs, results, strict=True)))

    def operators(self) -> tuple[str, ...]:
        """The operators of the trace, as a converter sees them: `aten::einsum`, not those that it is computed
        with."""
        return tuple(sorted({node.kind() for node in self._nodes() if node.kind().startswith("aten::")}))

    def largest_rank(self) -> int:
        """The largest number of axes of a tensor."""
        sizes = [
            value.type().sizes()
            for node in self._nodes()
            for value in node.outputs()
            if str(value.type()) != "None"
            if value.type().kind() == "TensorType"
        ]
        return max((len(one) for one in sizes if one is not None), default=0)

    def _nodes(self) -> Iterator[Any]:
        blocks = [self.script.inlined_graph]
        while blocks:
            for node in blocks.pop().nodes():
                yield node
                blocks += list(node.blocks())

    def generate(self, inputs: Any, *, steps: int) -> Any:
        raise NotImplementedError("a trace of one forward pass can't decode")


def code_facts_of(recipe: Recipe) -> CodeFacts:
    """Return the facts of a recipe's tiny model. Raises `ModelError` if it can't be built any more."""
    model, inputs = filled_model(recipe), _inputs(recipe)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice to users, and warnings of tracing about constants
        on_host = _on_host(model, inputs)  # first, before the model caches results of other passes
        facts = CodeFacts(
            model_type=recipe.model_type,
            task=recipe.task,
            recipe=recipe.digest,
            padding_error=_padding(model, recipe, inputs) if recipe.mask_input else None,
            host_functions=on_host,
        )
        if recipe.generate != "none":
            error, why = _cache(model, inputs)
            facts = replace(facts, cache_error=error, cache_fails=why)
        facts = _forward_trace(facts, model, recipe, inputs)
        if recipe.generate != "none":
            facts = replace(facts, step_fails=_step_trace(model, inputs))
    return with_onnx(facts, recipe)


def with_onnx(facts: CodeFacts, recipe: Recipe) -> CodeFacts:
    """Return facts with the type's present ONNX exports, for each shape of its suite. Raises `ModelError` as above,
    and `ImportError` without the exporter's packages."""
    model = filled_model(recipe)
    model_input = ModelInput(
        model=model, task=recipe.task, identity=identity_of(model), masked_by=recipe.masked_by, generates="none"
    )
    try:
        operators = {one for inputs in _draws(recipe) for one in onnx_operators(model_input, inputs)}
    except Unsupported as error:
        return replace(facts, onnx_operators=(), onnx_fails=_without_folders(error))
    return replace(facts, onnx_operators=tuple(sorted(operators)), onnx_fails="")


def _draws(recipe: Recipe) -> Iterator[dict[str, Array]]:
    yield _inputs(recipe)
    draws = other_draws(recipe.recorded["lengths"])
    for seed, lengths in draws if recipe.mask_input else draws[:-1]:
        yield make_inputs(recipe.inputs, seed, lengths or recipe.recorded["lengths"])


def _inputs(recipe: Recipe) -> dict[str, Array]:
    return make_inputs(recipe.inputs, recipe.recorded["seed"], recipe.recorded["lengths"])


def _padding(model: Any, recipe: Recipe, inputs: Mapping[str, Array]) -> float:
    exact = float64_outputs(as_reference(copy_over(model)), inputs)
    moved = measurements.padding_effect(model, inputs, recipe.inputs, exact, recipe.masked_by, recipe.mask_input)
    return _rounded(moved)


def _cache(model: Any, inputs: Mapping[str, Array]) -> tuple[float | None, str]:
    """Return the difference of logits between decoding with and without a cache, both in float64; `None` with the
    reason if decoding fails."""
    exact = as_reference(copy_over(model))
    try:
        want = float64_generation(exact, inputs, steps=STEPS)
        got = float64_generation(exact, inputs, steps=STEPS, use_cache=True)
    except Exception as error:  # every target gets the same error of decoding
        return None, _without_folders(error)
    if not np.array_equal(got.tokens, want.tokens):
        return 1.0, ""  # other tokens: from there on the logits belong to other texts
    return _rounded(compare({"logits": got.logits}, {"logits": want.logits}).max_rel_error), ""


def _on_host(model: Any, inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the work that a forward pass leaves to the host."""
    import torch

    tensors = to_tensors(inputs, "cpu", torch.float32)

    def work() -> None:
        with torch.no_grad():
            forward(model, tensors)

    return host_functions(model, tensors.values(), work)


def _forward_trace(facts: CodeFacts, model: Any, recipe: Recipe, inputs: Mapping[str, Array]) -> CodeFacts:
    """Return the facts with what a trace of the forward pass holds for, why not for more, and its operators."""
    model_input = ModelInput(model=model, task=recipe.task, identity="", masked_by=recipe.masked_by)
    proof = Proof.of(model_input, inputs, "torch's interpreter of traces", decodes=False)
    for held in (None, held_inputs(inputs)):
        made = Exported(folder=Path(), method="traced", static=held is not None)
        try:
            tensors, positions, compute = bare_forward(model, inputs)
            with traceable(model):
                trace = _Trace(model, *holding(compute, {**tensors, **positions}, held))
            facts = replace(facts, trace_operators=trace.operators(), largest_rank=trace.largest_rank())
            proof.of_forward(trace, made)
            if held is None and proof.other is not None:
                proof.of_other_shapes(trace, made)
        except Exception as error:  # the library or torch's tracer may raise anything
            facts = replace(facts, trace_fails=facts.trace_fails or _without_folders(error))
            continue
        return replace(facts, traced=ANY_LENGTH if held is None else OWN_SIZES)
    return replace(facts, traced=NOT_TRACED)


def _step_trace(model: Any, inputs: Mapping[str, Array]) -> str:
    """Return why the decoding step can't be traced; empty if it can."""
    import torch

    try:
        with contextlib.closing(decoding_graphs(model, inputs)) as graphs, torch.no_grad():
            for graph in graphs:
                module = by_position(graph.part, graph.compute, list(graph.given))
                torch.jit.trace(module, tuple(graph.given.values()), strict=False)
    except Exception as error:  # the library or torch's tracer may raise anything
        return _without_folders(error)
    return ""


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")


def _without_folders(error: Exception) -> str:
    """Return an error's text without local folders, because it is stored and may be shipped."""
    return _FOLDERS.sub("", f"{type(error).__name__}: {line_of(error)}")


def onnx_operators(model_input: ModelInput, inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the operators of a model's verified export for these inputs, in alphabetical order.

    `onnx.Reshape` means that there is one; `onnx.Reshape[6]` that it has a tensor of six axes (from five on),
    `onnx.Add(int64)` that its output isn't floating-point, `onnx.Einsum(ij,jk->ik)` its equation. Raises
    `Unsupported` if no export is correct, and `ImportError` without the packages of the extra `onnx`.
    """
    if missing := missing_packages():
        raise ImportError(missing)
    if held_inputs(inputs):  # as qnn does in the end
        with contextlib.suppress(Unsupported):
            return operators_in(export_onnx(model_input, inputs, hold=True).folder / ONNX)
    return operators_in(export_onnx(model_input, inputs).folder / ONNX)


def operators_in(file: Path) -> tuple[str, ...]:
    """Return the operators of a file in the same form."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(str(file))).graph
    types = {one.name: one.type.tensor_type for one in (*graph.input, *graph.output, *graph.value_info)}
    return tuple(sorted({name_of for node in _nodes(graph) for name_of in _names_of(node, types)}))


def _nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _names_of(node: Any, types: Mapping[str, Any]) -> Iterator[str]:
    from onnx import TensorProto

    name = f"onnx.{node.op_type}"
    yield name
    axes = max((len(types[one].shape.dim) for one in (*node.input, *node.output) if one in types), default=0)
    if axes >= _MANY_AXES:
        yield f"{name}[{axes}]"
    kind = types[node.output[0]].elem_type if node.output and node.output[0] in types else 0
    if kind not in (0, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
        yield f"{name}({TensorProto.DataType.Name(kind).lower()})"
    for attribute in node.attribute:
        if attribute.name == "equation":
            yield f"{name}({attribute.s.decode().replace(' ', '')})"


def host_functions(model: Any, inputs: Iterable[Any], work: Callable[[], object]) -> tuple[str, ...]:
    """Return the torch functions in `work` that take or make host tensors while `model` and `inputs` are on a device,
    in alphabetical order. Tensors without dimensions don't count.

    The model should be fresh, because cached results of an earlier pass would count as the host's. Raise what `work`
    raises.
    """
    from torch.overrides import TorchFunctionMode

    places = _Places()
    moved = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept = [tensor for module in model.modules() for tensor in _tensors(list(vars(module).values()))]
    places.put([tensor for tensor in kept if id(tensor) not in moved], there=False)
    places.put(inputs)

    class Watch(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return places.call(func, args, kwargs or {})

    with Watch():
        work()
    return tuple(sorted(places.functions))


class _Places:
    """The place of each tensor. Device tensors report `cpu:0`, host tensors `cpu`: code that creates tensors with
    `device=` of either puts them in the same place."""

    def __init__(self) -> None:
        import torch

        self.here = torch.device("cpu", 0)
        self.asks_device = torch.Tensor.device
        self.known: dict[int, tuple[Any, bool]] = {}
        self.functions: set[str] = set()

    def put(self, values: Iterable[Any], *, there: bool = True) -> None:
        for value in values:
            self.known[id(value)] = (value, there)  # the tensor too, or another could get its id

    def is_there(self, tensor: Any) -> bool:
        """Return whether a tensor is on the device: weights, and tensors of unknown origin, as inside `vmap`, are."""
        known = self.known.get(id(tensor))
        return known is None or known[1]

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        name = str(getattr(func, "__name__", func))
        given = list(_tensors((args, kwargs)))
        if getattr(func, "__self__", None) is self.asks_device:
            return self.here if self.is_there(args[0]) else result
        made = list(_tensors(result))
        if name in _READING and not made:
            return result
        there = self._goes_there(name, args, kwargs, given)
        if args and name.endswith("_") and not name.endswith("__"):
            there = self.is_there(args[0])  # in place
        touches_host = self._touches_host(name, given)
        moved = name in _MOVING  # on the CPU the same tensor may be returned
        self.put([one for one in made if moved or all(one is not other for other in given)], there=there)
        if touches_host or any(one.dim() and not self.is_there(one) for one in made):
            self.functions.add(name)
        return result

    def _goes_there(self, name: str, args: Any, kwargs: Any, given: list[Any]) -> bool:
        import torch

        if name in _TO_HOST:
            return False
        texts = [kwargs.get("device"), *(args[1:2] if name == "to" else ())]
        wished = [torch.device(one) for one in texts if isinstance(one, str)]
        wished += [one for one in (*args, *kwargs.values()) if isinstance(one, torch.device)]
        if wished:
            return bool(wished[0] == self.here)
        if name in _MOVING and len(given) > 1:
            return self.is_there(given[1])
        return any(map(self.is_there, given))

    def _touches_host(self, name: str, given: list[Any]) -> bool:
        return any(name in _TO_HOST or not self.is_there(one) for one in given if one.dim())


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
