"""Greedy decoding with transformers' own loop, on any torch device, with a cache or without."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from .calls import to_arrays
from .model_types import Generation
from .positions import steps_within

if TYPE_CHECKING:
    import torch

_SEEN = ("encoder_embeddings", "perceiver_embeddings")
"""How the inputs end that hold what an encoder made of an image in an earlier pass."""
_OF_A_TEXT = ("input_ids", "attention_mask")
"""How the inputs end that hold a text and its mask: that of the decoder, and of others beside it."""


def greedy(model: Any, tensors: Mapping[str, torch.Tensor], *, steps: int, use_cache: bool) -> Generation:
    """Decode `steps` tokens with the library's own loop and keep the logits of each step.

    Works for whatever has transformers' `GenerationMixin`, on any device. A model whose main input isn't given (RAG
    decodes from documents, without the question) starts in its own way, and knows the whole length only. One whose
    forward takes no cache (BLIP) decodes with a part of it, in its own way too; one without a way of its own (Evolla)
    decodes without a cache. One that lets the model inside it decode (Kosmos-2) does so. Without a cache, what is
    told of each token is told of the new one as of the last. Where a model has positions for fewer tokens, it decodes
    as many as it has positions for.
    """
    import torch
    from transformers import GenerationMixin

    prompt = {
        name: tensor.clone()  # some models write into their prompt
        for name, tensor in tensors.items()
        if name != "position_ids" and not name.startswith("decoder_")
    }
    complete = not prompt.keys().isdisjoint({getattr(model, "main_input_name", "input_ids"), "inputs_embeds"})
    cached = takes_cache(model)
    generate = (
        GenerationMixin.generate if complete and cached and not _lets_text_decode(model) else type(model).generate
    )
    steps = steps_within(model, tensors, steps)
    use_cache = use_cache and (cached or generate is not GenerationMixin.generate)
    limit = {"max_new_tokens": steps} if complete else {"max_length": steps + 1}
    with torch.no_grad(), nullcontext() if use_cache else _whole_passes(model, prompt), _widths(model) as widths:
        result = generate(
            model,
            **prompt,
            **limit,
            min_new_tokens=steps,
            do_sample=False,
            num_beams=1,
            use_cache=use_cache,
            output_logits=True,
            return_dict_in_generate=True,
        )
    logits = to_arrays({"logits": torch.stack(list(result.logits), dim=1)})["logits"]
    sequences = result.sequences.detach().to("cpu").numpy()
    tokens = sequences[:, -steps:]
    # Without a cache every pass is one token wider than the one before.
    used = any(len(each) > 1 and each[-1] <= each[0] for each in widths)
    return Generation(tokens=tokens, logits=logits, start=sequences[:, :-steps], used_cache=used)


@contextmanager
def _widths(model: Any) -> Iterator[list[list[int]]]:
    """How many tokens each pass is given, by the part of the model that decodes: the loop asks it for its inputs.

    A runtime's own class may get the whole text, and cuts off what the cache that it is given holds by itself.
    """
    is_module = hasattr(model, "modules")
    parts = list(model.modules()) if is_module else [model]
    parts = [part for part in parts if hasattr(part, "prepare_inputs_for_generation")]
    found: list[list[int]] = [[] for _ in parts]

    def noting(prepare: Any, each: list[int]) -> Any:
        @functools.wraps(prepare)  # the loop looks at its signature
        def prepared(*args: Any, **kwargs: Any) -> Any:
            made = prepare(*args, **kwargs)
            given = [made.get(name) for name in ("decoder_input_ids", "input_ids", "inputs_embeds")]
            cut_inside = not is_module and made.get("past_key_values") is not None
            each.extend([1 if cut_inside else one.shape[1] for one in given if one is not None][:1])
            return made

        return prepared

    for part, each in zip(parts, found, strict=True):
        part.prepare_inputs_for_generation = noting(part.prepare_inputs_for_generation, each)
    try:
        yield found
    finally:
        for part in parts:
            del part.prepare_inputs_for_generation


def _lets_text_decode(model: torch.nn.Module) -> bool:
    """Whether a model sees, and decodes by handing what it saw to the model inside it: the library's loop would want
    the image at every step."""
    own = vars(type(model))
    sees = "pixel_values" in inspect.signature(model.forward).parameters
    return sees and "generate" in own and "prepare_inputs_for_generation" not in own


def takes_cache(model: torch.nn.Module) -> bool:
    """Whether a forward pass can go on from the keys and values, or the state, of an earlier one. One that is asked
    whether to keep some takes them, be it among other arguments that it hands on."""
    return bool({"past_key_values", "cache_params", "use_cache"} & set(inspect.signature(model.forward).parameters))


@contextmanager
def _whole_passes(model: Any, prompt: Mapping[str, Any]) -> Iterator[None]:
    """Without a cache every pass starts anew, and gets all that the first one had.

    The library hands a sound to the first pass alone, whose cache holds it; and some decoders write into what the
    encoder gave, so that every pass gets a copy of that. Idefics gets what it saw in the first pass.
    """
    sensed = {name: tensor for name, tensor in prompt.items() if tensor.is_floating_point()}

    def complete(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        given = {name: copy.deepcopy(one) if name == "encoder_outputs" else one for name, one in kwargs.items()}
        seen = any(one is not None for name, one in given.items() if name.endswith(("encoder_outputs", *_SEEN)))
        if not seen:
            given |= {name: tensor.clone() for name, tensor in sensed.items() if given.get(name) is None}
        return args, given

    handle = model.register_forward_pre_hook(complete, with_kwargs=True)
    try:
        with _told_of_each_token(model):
            yield
    finally:
        handle.remove()


def told_of_each_token(name: str, shape: tuple[int, ...], of_text: tuple[int, ...]) -> bool:
    """Whether an input of whole numbers tells something of each token of a text of this shape, (batch, length): its
    type, or which images it sees. It grows with the text."""
    if name.endswith("position_ids") or shape[:2] != of_text:
        return False
    return len(shape) > 2 or not name.endswith(_OF_A_TEXT)


@contextmanager
def _told_of_each_token(model: Any) -> Iterator[None]:
    """Inputs (batch, length, ...) of whole numbers grow with the text while a model decodes without a cache.

    Some of the library's models let them grow only with one, where nothing but the new token's place is read.
    """
    import torch

    update = model._update_model_kwargs_for_generation

    def updated(outputs: Any, known: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        mask = known.get("attention_mask")
        told = {
            name: value
            for name, value in known.items()
            if mask is not None and isinstance(value, torch.Tensor) and value.dtype == torch.int64
            if told_of_each_token(name, tuple(value.shape), tuple(mask.shape))
        }
        grown: dict[str, Any] = update(outputs, known, *args, **kwargs)
        for name, before in told.items():
            if isinstance(after := grown.get(name), torch.Tensor) and after.shape == before.shape:
                grown[name] = torch.cat([after, after[:, -1:]], dim=1)
        return grown

    model._update_model_kwargs_for_generation = updated
    try:
        yield
    finally:
        del model._update_model_kwargs_for_generation
