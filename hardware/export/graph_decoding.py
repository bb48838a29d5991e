"""Greedy decoding by graphs for a prompt and for each token, inside the library's own loop over tokens.

The torch module only prepares what each call is given; what its `forward` would compute, the graphs compute.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..evidence.record import Stage
from ..model.types import Generation, Unsupported
from .decoding import PRESENT, decoder_of, encoders_of, past, replaced_forward, slots
from .exported import ENCODER, PROMPT, STEP

if TYPE_CHECKING:
    from ..model.types import Array, Inputs

Graph = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Arrays by name to arrays by name; a state is `past.…` where it is taken and `present.…` where it is given."""


def decode(model: Any, graphs: Mapping[str, Graph], inputs: Inputs, *, steps: int) -> Generation:
    """Decode `steps` tokens with the graphs `PROMPT`, `STEP` and, where there is an encoder, `ENCODER`."""
    import torch

    from ..model.decoding import greedy
    from ..model.tensors import to_tensors

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
        stack.enter_context(none_of_it_in_torch(model, decoder, *encoders))
        return greedy(model, to_tensors(inputs, "cpu", torch.float32), steps=steps, use_cache=True)


@contextlib.contextmanager
def none_of_it_in_torch(model: Any, *replaced: Any) -> Iterator[None]:
    """Refuse, at its call, any part of the model that would compute on the host while the graphs should."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    parts = {id(part): name for name, part in model.named_modules()}
    allowed = {id(model), *map(id, replaced)}

    def refuse(module: Any, _: Any) -> None:
        if id(module) in parts and id(module) not in allowed:
            reason = f"{parts[id(module)]} would run in torch while the graphs decode"
            raise Unsupported(reason, error_type="silent_offload", stage=Stage.RUN)

    hook = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


class _Decoding:
    """A model's forward pass while it decodes: the prompt's graph first, then a token's, the states in between."""

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
    """What stands for a cache in the library's loop: it knows its length, and the states lie elsewhere."""
    from transformers.cache_utils import DynamicCache

    class Cached(DynamicCache):  # type: ignore[misc] # transformers is Any to mypy
        def get_seq_length(self, layer_idx: int = 0) -> int:
            return length

    return Cached()


def arrays_of(arguments: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors of a call of the recorded kind, as arrays by name; bfloat16, which NumPy hasn't, as float32."""
    tensors = {slot.name: slot.tensor for slot in slots(dict(arguments))}
    half = {name for name, one in tensors.items() if str(one.dtype) == "torch.bfloat16"}
    return {name: (one.float() if name in half else one).numpy() for name, one in tensors.items()}
