"""Graphs that decode with a cache, for models whose exporter keeps none: one for the prompt, one for each token.

Their inputs and outputs are recorded from the library's own decoding: a forward call's tensors become inputs, and the
tensors of the returned cache become outputs, which are inputs of the next token's graph. The library's decoding loop
calls them: the torch module prepares the arguments, and the graphs replace its `forward`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from ..evidence.record import Stage
from ..model.model_types import Generation, ModelInput, Unsupported
from .convert_model import Compute, Tensors, convert, traceable
from .exported import ENCODER, PROMPT, STEP, Exported
from .traceable import growing_caches
from .verify_export import follows_length

if TYPE_CHECKING:
    import torch

    from ..model.model_types import Array, Inputs

PAST, PRESENT = "past", "present"
"""Prefixes of a cache's tensors among a graph's inputs, and among its outputs."""


def tensors_in(value: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Return the tensors with at least one axis in dictionaries, lists and caches, by their dotted names."""
    import torch
    from transformers.cache_utils import Cache

    if isinstance(value, Cache) and not name.startswith(PAST + "."):  # the outermost cache; it may hold others
        name = PAST
    found: dict[str, torch.Tensor] = {}
    for key, entry in _entries(value):
        inner = f"{name}.{key}" if name else str(key)
        if not isinstance(entry, torch.Tensor):
            found |= tensors_in(entry, inner)
        elif entry.dim() > 0:  # a number that a layer keeps is no state
            found[inner] = entry
    return found


def present(name: str) -> str:
    """Return the output with the state of the input `name`."""
    return PRESENT + name.removeprefix(PAST)


def past(name: str) -> str:
    """Return the input for the output `name` of the previous token."""
    return PAST + name.removeprefix(PRESENT)


def _entries(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    return list(vars(value).items()) if type(value).__module__ == "transformers.cache_utils" else []


def write_decoding(model_input: ModelInput, example: Inputs, folder: Path, forward: Exported) -> None:
    """Write the graphs beside the forward pass.

    If that is static, the prompt keeps the shapes of the example too, and held inputs are constants here as well.
    Raises the errors of the library or the converter.
    """
    with contextlib.closing(decoding_graphs(model_input.model, example)) as graphs:
        for graph in graphs:
            fixed = forward.static and graph.file != STEP  # a cache grows with every token
            axes = {name: 0 if fixed else _free_axes(name, tensor, example) for name, tensor in graph.given.items()}
            held = frozenset(forward.held.split(", ")) if forward.held and fixed else None
            convert(graph.part, graph.compute, graph.given, axes, folder / graph.file, held=held)


@dataclass(frozen=True, kw_only=True)
class DecodingGraph:
    """A call of the library while it decodes: the part, its tensors, and the function that computes it.

    `growing` are the axes of its inputs that are longer for the next token, if two tokens were recorded.
    """

    part: Any
    file: str
    given: dict[str, torch.Tensor]
    growing: Mapping[str, tuple[int, ...]]
    compute: Compute


def decoding_graphs(model: Any, example: Inputs, *, tokens: int = 1) -> Generator[DecodingGraph, None, None]:
    """Yield the calls of decoding: the encoder, if there is one, the prompt, one token. Until it is closed, the model
    computes in a traceable way, so close it even after an error. Several `tokens` show which axes grow."""
    import torch

    from ..model.calls import to_tensors

    with growing_caches():
        encoded, seen = recorded_calls(model, to_tensors(example, "cpu", torch.float32), steps=1 + tokens)
    with traceable(model):
        for part, file, call in [*encoded, (decoder_of(model), PROMPT, seen[0]), (decoder_of(model), STEP, seen[1])]:
            given = tensors_in(call)
            growing = grown_axes(given, seen[2]) if file == STEP and tokens > 1 else {}
            compute = functools.partial(compute_call, part, call)
            yield DecodingGraph(part=part, file=file, given=given, growing=growing, compute=compute)


def grown_axes(now: Tensors, later: Any) -> dict[str, tuple[int, ...]]:
    """Return, by tensor of a call, the axes with another size in a later call: those of a cache, and of masks."""
    then = tensors_in(later)
    both = {name: zip(tensor.shape, then[name].shape, strict=True) for name, tensor in now.items() if name in then}
    axes = {name: tuple(axis for axis, (a, b) in enumerate(pairs) if a != b) for name, pairs in both.items()}
    return {name: found for name, found in axes.items() if found}


def _free_axes(name: str, tensor: torch.Tensor, example: Inputs) -> int:
    """Return the number of leading axes of any size: all, except for images and features, which have one size."""
    return 1 if name in example and not follows_length(example[name]) else tensor.dim()


def compute_call(part: Any, call: Mapping[str, Any], values: Tensors) -> dict[str, torch.Tensor]:
    """Compute a recorded call with other tensors: return its outputs and the changed parts of its cache."""
    from transformers.cache_utils import Cache

    from ..model.outputs import floating_outputs, results

    given = {name: tensor.clone() for name, tensor in values.items()}  # some models overwrite a state in place
    arguments = copy.deepcopy(dict(call), {id(tensor): given[name] for name, tensor in tensors_in(call).items()})
    before = {id(tensor): tensor._version for tensor in given.values()}
    output = part(**arguments)
    caches = [entry for entry in dict(output).values() if isinstance(entry, Cache)]
    # Unchanged tensors, such as keys of the encoder's output after the prompt, are no state.
    states = {
        present(name): tensor
        for cache in caches
        for name, tensor in tensors_in(cache).items()
        if before.get(id(tensor)) != tensor._version
    }
    named = results(output)
    # A decoder returns what it saw as well, and an encoder a mask; other integers of a decoder aren't read.
    main = floating_outputs(output) if "logits" in named else named
    return {**main, **states}


def recorded_calls(model: Any, tensors: Tensors, *, steps: int) -> tuple[list[tuple[Any, str, Any]], list[Any]]:
    """Return the arguments of the library's call of each encoder, and of its decoder for each of `steps` tokens.

    Raises `Unsupported` as not applicable if the calls can't be distinguished.
    """
    from ..model.greedy_decoding import greedy

    seen: list[Any] = []
    encoded: list[tuple[Any, list[Any]]] = [(encoder, []) for encoder in encoders_of(model)]
    decoder = decoder_of(model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_recorded(decoder, seen.append))
        for encoder, calls in encoded:
            stack.enter_context(_recorded(encoder, calls.append))
        greedy(model, tensors, steps=steps, use_cache=True)
    prepared = [(encoder, ENCODER, call) for encoder, calls in encoded for call in calls]
    if len(seen) < steps or len(prepared) > 1:
        raise Unsupported(
            f"{type(model).__name__} uses a custom decoding loop, whose calls can't be assigned to graphs",
            error_type="not_applicable",
            stage=Stage.EXPORT,
        )
    return prepared, seen


def decoder_of(model: Any) -> Any:
    """Return the module that is called for each token: the model, or a part if its own forward takes no cache."""
    from transformers import GenerationMixin

    if {"past_key_values", "cache_params"} & set(inspect.signature(model.forward).parameters):
        return model
    parts = (part for part in model.modules() if part is not model and isinstance(part, GenerationMixin))
    return next(parts, model)


def encoders_of(model: Any) -> list[Any]:
    """Return the encoders that the library may run before it decodes; none for a decoder alone."""
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
    """Return the decoder that an encoder-decoder model names, or an empty module."""
    import torch

    found = model.get_decoder() if hasattr(model, "get_decoder") else None
    return found if isinstance(found, torch.nn.Module) and found is not model else torch.nn.Module()


@contextlib.contextmanager
def _recorded(module: Any, keep: Callable[[Any], None]) -> Iterator[None]:
    compute = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        keep(copy.deepcopy(kwargs))
        return compute(*args, **kwargs)

    with replaced_forward(module, forward):
        yield


def replaced_forward(module: Any, forward: Any) -> AbstractContextManager[Any]:
    """Temporarily replace a module's `forward`; the signature stays the module's."""

    @functools.wraps(module.forward)
    def instead(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    return mock.patch.object(module, "forward", instead)


Graph = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Function from arrays by name to arrays by name; a state is `past.…` as input and `present.…` as output."""


def decode(model: Any, graphs: Mapping[str, Graph], inputs: Inputs, *, steps: int) -> Generation:
    """Decode `steps` tokens with the graphs `PROMPT`, `STEP` and, if there is an encoder, `ENCODER`."""
    import torch

    from ..model.calls import to_tensors
    from ..model.greedy_decoding import greedy

    decoder = decoder_of(model)
    encoders = encoders_of(model) if ENCODER in graphs else []

    def encode(**arguments: Any) -> Any:
        from transformers.utils import ModelOutput

        result = graphs[ENCODER](arrays_of(arguments))
        return ModelOutput(**{name: torch.as_tensor(array) for name, array in result.items()})

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced_forward(decoder, _Decoding(decoder, graphs)))
        for encoder in encoders:
            stack.enter_context(replaced_forward(encoder, encode))
        stack.enter_context(without_torch_modules(model, decoder, *encoders))
        return greedy(model, to_tensors(inputs, "cpu", torch.float32), steps=steps, use_cache=True)


@contextlib.contextmanager
def without_torch_modules(model: Any, *replaced: Any) -> Iterator[None]:
    """Refuse any call of a part of the model that would compute on the host while the graphs should."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    parts = {id(part): name for name, part in model.named_modules()}
    allowed = {id(model), *map(id, replaced)}

    def refuse(module: Any, _: Any) -> None:
        if id(module) in parts and id(module) not in allowed:
            reason = f"{parts[id(module)]} would run in torch during decoding"
            raise Unsupported(reason, error_type="silent_offload", stage=Stage.RUN)

    hook = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


class _Decoding:
    """A model's forward pass while it decodes: the prompt's graph first, then a token's, passing on the states."""

    def __init__(self, model: Any, graphs: Mapping[str, Graph]) -> None:
        self.graphs = graphs
        takes = inspect.signature(model.forward).parameters
        self.cache_name = "cache_params" if "cache_params" in takes else "past_key_values"
        self.states: dict[str, Any] = {}
        self.length = 0

    def __call__(self, **arguments: Any) -> Any:
        import torch
        from transformers.utils import ModelOutput

        graph = self.graphs[STEP if self.states else PROMPT]
        result = graph({**arrays_of(arguments), **self.states})
        self.states |= {past(name): array for name, array in result.items() if name.startswith(PRESENT)}
        given = {name: torch.as_tensor(one) for name, one in result.items() if not name.startswith(PRESENT)}
        tokens = "decoder_input_ids" if "decoder_input_ids" in arguments else "input_ids"
        self.length += arguments[tokens].shape[1]
        return ModelOutput(**given, **{self.cache_name: _cache_of_length(self.length)})


def _cache_of_length(length: int) -> Any:
    """Return a cache for the library's loop that only knows its length; the states are kept elsewhere."""
    from transformers.cache_utils import DynamicCache

    class Cached(DynamicCache):  # type: ignore[misc] # transformers is Any to mypy
        def get_seq_length(self, layer_idx: int = 0) -> int:
            return length

    return Cached()


def arrays_of(arguments: Mapping[str, Any]) -> dict[str, Array]:
    """Return the tensors of a recorded call as arrays by name; bfloat16, which NumPy lacks, as float32."""
    tensors = tensors_in(dict(arguments))
    half = {name for name, one in tensors.items() if str(one.dtype) == "torch.bfloat16"}
    return {name: (one.float() if name in half else one).numpy() for name, one in tensors.items()}
