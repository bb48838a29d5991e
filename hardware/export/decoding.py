"""Two graphs that decode with a cache, for models whose exporter keeps none: one for the prompt, one for each token.

What they compute with is recorded from the library's own decoding: a forward call's tensors become a graph's
inputs, and the tensors of the cache it returns become outputs, which are inputs of the next token's graph.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evidence.record import Stage
from ..model.types import ModelSubject, Unsupported
from .caches import growing_caches
from .exported import ENCODER, PROMPT, STEP, Exported
from .tracing import convert, traceable
from .verification import follows_length

if TYPE_CHECKING:
    import torch

    from ..model.types import Inputs

PAST, PRESENT = "past", "present"
"""What the names of a cache's tensors begin with among a graph's inputs, and among its outputs."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place inside a call's arguments that holds a tensor, and its dotted name."""

    name: str
    owner: Any
    key: Any
    tensor: torch.Tensor

    def put(self, tensor: torch.Tensor) -> None:
        """Put another tensor in this place."""
        if isinstance(self.owner, dict | list):
            self.owner[self.key] = tensor
        else:
            setattr(self.owner, self.key, tensor)


def slots(value: Any, name: str = "") -> Iterator[Slot]:
    """Every place inside dictionaries, lists and caches that holds a tensor with at least one axis."""
    import torch
    from transformers.cache_utils import Cache

    if isinstance(value, Cache) and not name.startswith(PAST + "."):  # an outer one; it may hold others
        name = PAST
    for key, entry in _entries(value):
        inner = f"{name}.{key}" if name else str(key)
        if isinstance(entry, torch.Tensor):
            if entry.dim() > 0:  # a number that a layer keeps is no state
                yield Slot(name=inner, owner=value, key=key, tensor=entry)
        else:
            yield from slots(entry, inner)


def present(name: str) -> str:
    """The output that gives the state which the input `name` takes."""
    return PRESENT + name.removeprefix(PAST)


def past(name: str) -> str:
    """The input that takes the output `name` of the token before."""
    return PAST + name.removeprefix(PRESENT)


def _entries(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    return list(vars(value).items()) if type(value).__module__ == "transformers.cache_utils" else []


def write_decoding(subject: ModelSubject, example: Inputs, folder: Path, forward: Exported) -> None:
    """Write the graphs beside the forward pass.

    Where that is static the prompt keeps the shapes of the example too; inputs that it holds are constants here as
    well. Raises what the library or the converter raises.
    """
    with contextlib.closing(decoding_graphs(subject.model, example)) as graphs:
        _convert_all(graphs, example, folder, forward)


def _convert_all(graphs: Iterator[DecodingGraph], example: Inputs, folder: Path, forward: Exported) -> None:
    for graph in graphs:
        fixed = forward.static and graph.file != STEP  # a cache grows with every token
        axes = {name: 0 if fixed else _free_axes(name, tensor, example) for name, tensor in graph.given.items()}
        held = frozenset(forward.held.split(", ")) if forward.held and fixed else None
        convert(graph.part, graph.compute, graph.given, axes, folder / graph.file, held=held)


@dataclass(frozen=True, kw_only=True)
class DecodingGraph:
    """One call that the library makes while it decodes: of which part, with which tensors, and what it computes."""

    part: Any
    file: str
    given: dict[str, torch.Tensor]
    compute: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]


def decoding_graphs(model: Any, example: Inputs) -> Generator[DecodingGraph, None, None]:
    """What decodes, call by call: the encoder where there is one, the prompt, one token. While one is handed out, the
    model computes in a way that can be traced: close it, lest it stays so where the caller raises."""
    import torch

    from ..model.tensors import to_tensors

    with growing_caches():
        calls = _recorded(model, to_tensors(example, "cpu", torch.float32))
    with traceable(model):
        for part, file, call in calls:
            given = {slot.name: slot.tensor for slot in slots(call)}
            compute = functools.partial(_compute, part, call)
            yield DecodingGraph(part=part, file=file, given=given, compute=compute)


def _free_axes(name: str, tensor: torch.Tensor, example: Inputs) -> int:
    """How many leading axes may have another size: all, but for pictures and features, which have one size."""
    return 1 if name in example and not follows_length(example[name]) else tensor.dim()


def _compute(part: Any, call: Mapping[str, Any], values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """One recorded call with other tensors: its outputs and what it changed of its cache."""
    from transformers.cache_utils import Cache

    from ..model.outputs import floating_outputs, results

    arguments = copy.deepcopy(dict(call))
    given = {name: tensor.clone() for name, tensor in values.items()}  # some models write over a state in place
    for slot in list(slots(arguments)):
        slot.put(given[slot.name])
    before = {id(tensor): tensor._version for tensor in given.values()}
    output = part(**arguments)
    caches = [entry for entry in dict(output).values() if isinstance(entry, Cache)]
    found = [slot for cache in caches for slot in slots(cache)]
    # What is as it was, as keys of the encoder's output from the prompt on, is no state.
    changed = [slot for slot in found if before.get(id(slot.tensor)) != slot.tensor._version]
    states = {present(slot.name): slot.tensor for slot in changed}
    named = results(output)
    # A decoder gives what it saw as well, and an encoder a mask; what else a decoder counts, nobody reads.
    main = floating_outputs(output) if "logits" in named else named
    return {**main, **states}


def _recorded(model: Any, tensors: Mapping[str, torch.Tensor]) -> list[tuple[Any, str, Any]]:
    """The calls that the library makes while it decodes: of the encoder, for the prompt, and for one token."""
    encoded, seen = recorded_calls(model, tensors, steps=2)
    return [*encoded, (decoder_of(model), PROMPT, seen[0]), (decoder_of(model), STEP, seen[1])]


def recorded_calls(
    model: Any, tensors: Mapping[str, torch.Tensor], *, steps: int
) -> tuple[list[tuple[Any, str, Any]], list[Any]]:
    """What the library calls its encoder with, where there is one, and its decoder for each of `steps` tokens.

    Raises `Unsupported` as not applicable where the calls can't be told apart.
    """
    from ..model.decoding import greedy

    seen: list[Any] = []
    encoded: list[tuple[Any, list[Any]]] = [(encoder, []) for encoder in encoders_of(model)]
    decoder = decoder_of(model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_watched(decoder, seen.append))
        for encoder, calls in encoded:
            stack.enter_context(_watched(encoder, calls.append))
        greedy(model, tensors, steps=steps, use_cache=True)
    prepared = [(encoder, ENCODER, call) for encoder, calls in encoded for call in calls]
    if len(seen) < steps or len(prepared) > 1:
        raise Unsupported(
            f"{type(model).__name__} decodes in a way of its own, whose calls can't be told apart",
            error_type="not_applicable",
            stage=Stage.EXPORT,
        )
    return prepared, seen


def decoder_of(model: Any) -> Any:
    """The module that is called for each token: the model, or a part of it where its own forward takes no cache."""
    from transformers import GenerationMixin

    if {"past_key_values", "cache_params"} & set(inspect.signature(model.forward).parameters):
        return model
    parts = (part for part in model.modules() if part is not model and isinstance(part, GenerationMixin))
    return next(parts, model)


def encoders_of(model: Any) -> list[Any]:
    """The encoders that the library may run on their own before it decodes; none for a decoder alone."""
    decoder = decoder_of(model)
    if decoder is not model:
        return [part for part in model.children() if part is not decoder]
    if not getattr(model.config, "is_encoder_decoder", False):
        return []
    decodes = {id(part) for part in _inner_decoder(model).modules()}
    owners = [  # several in RAG, which has two
        part for part in model.modules() if hasattr(part, "get_encoder") and id(part) not in decodes
    ]
    found = {id(encoder): encoder for part in owners if (encoder := part.get_encoder()) is not part}
    inner = {id(part) for encoder in found.values() for part in encoder.modules() if part is not encoder}
    return [encoder for key, encoder in found.items() if key not in inner]


def _inner_decoder(model: Any) -> Any:
    """What a model of an encoder and a decoder names as the latter; an empty module where it names none."""
    import torch

    found = model.get_decoder() if hasattr(model, "get_decoder") else None
    return found if isinstance(found, torch.nn.Module) and found is not model else torch.nn.Module()


@contextlib.contextmanager
def _watched(module: Any, keep: Callable[[Any], None]) -> Iterator[None]:
    compute = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        keep(copy.deepcopy(kwargs))
        return compute(*args, **kwargs)

    with replaced_forward(module, forward):
        yield


@contextlib.contextmanager
def replaced_forward(module: Any, forward: Any) -> Iterator[None]:
    """Let `forward` compute in a module's place for a while; its signature stays the module's."""

    @functools.wraps(module.forward)
    def instead(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    before = module.__dict__.get("forward")
    module.forward = instead
    try:
        yield
    finally:
        if before is None:
            del module.forward  # the class's own shows again
        else:
            module.forward = before
