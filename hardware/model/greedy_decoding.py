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

_ENCODED = ("encoder_embeddings", "perceiver_embeddings")
"""Suffixes of inputs that hold an encoder's result for an image of an earlier pass."""
_TEXT = ("input_ids", "attention_mask")
"""Suffixes of inputs that hold a text and its mask: the decoder's, and others."""


def greedy(
    model: Any, tensors: Mapping[str, torch.Tensor], *, steps: int, use_cache: bool, cache: str = ""
) -> Generation:
    """Decode `steps` tokens with the library's own loop and keep the logits of each step. `cache` is the library's
    name of a kind of cache (`static`); empty for the model's default.

    Works for every class with transformers' `GenerationMixin`, on any device. A model without its main input (RAG
    decodes from documents) starts in its own way, and only takes the total length. One whose forward takes no cache
    (BLIP) decodes with its own `generate`, or without a cache (Evolla). One that lets an inner model decode
    (Kosmos-2) does so. Without a cache, inputs of each token are repeated for the new one. A model with fewer
    positions decodes as many tokens as it has positions for.
    """
    import torch

    prompt = {
        name: tensor.clone()  # some models write into their prompt
        for name, tensor in tensors.items()
        if name != "position_ids" and not name.startswith("decoder_")
    }
    complete = _is_complete(model, prompt)
    generate, is_own = loop_of(model, prompt)
    steps = steps_within(model, tensors, steps)
    use_cache = use_cache and (takes_cache(model) or is_own)
    limit = {"max_new_tokens": steps} if complete else {"max_length": steps + 1}
    with torch.no_grad(), nullcontext() if use_cache else _uncached(model, prompt), _widths(model) as widths:
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
            **({"cache_implementation": cache} if cache else {}),
        )
    logits = to_arrays({"logits": torch.stack(list(result.logits), dim=1)})["logits"]
    sequences = result.sequences.detach().to("cpu").numpy()
    tokens = sequences[:, -steps:]
    # Without a cache every pass is one token wider than the one before.
    used = any(len(each) > 1 and each[-1] <= each[0] for each in widths)
    return Generation(tokens=tokens, logits=logits, start=sequences[:, :-steps], used_cache=used)


def _is_complete(model: Any, prompt: Mapping[str, Any]) -> bool:
    return not prompt.keys().isdisjoint({getattr(model, "main_input_name", "input_ids"), "inputs_embeds"})


def loop_of(model: Any, prompt: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return the function that decodes from a prompt: the library's loop, or else, with True, the model's own."""
    from transformers import GenerationMixin

    is_usual = _is_complete(model, prompt) and takes_cache(model) and not _inner_model_decodes(model)
    own = type(model).generate
    return (GenerationMixin.generate, False) if is_usual else (own, own is not GenerationMixin.generate)


@contextmanager
def _widths(model: Any) -> Iterator[list[list[int]]]:
    """Yield the number of tokens of each pass, by part of the model that decodes: the loop asks it for its inputs.

    A runtime's own class may get the whole text, and itself cuts off what its cache holds.
    """
    is_module = hasattr(model, "modules")
    parts = list(model.modules()) if is_module else [model]
    parts = [part for part in parts if hasattr(part, "prepare_inputs_for_generation")]
    found: list[list[int]] = [[] for _ in parts]

    def recording(prepare: Any, each: list[int]) -> Any:
        @functools.wraps(prepare)  # the loop inspects its signature
        def prepared(*args: Any, **kwargs: Any) -> Any:
            made = prepare(*args, **kwargs)
            given = [made.get(name) for name in ("decoder_input_ids", "input_ids", "inputs_embeds")]
            cut_inside = not is_module and made.get("past_key_values") is not None
            each.extend([1 if cut_inside else one.shape[1] for one in given if one is not None][:1])
            return made

        return prepared

    for part, each in zip(parts, found, strict=True):
        part.prepare_inputs_for_generation = recording(part.prepare_inputs_for_generation, each)
    try:
        yield found
    finally:
        for part in parts:
            del part.prepare_inputs_for_generation


def _inner_model_decodes(model: torch.nn.Module) -> bool:
    """Return whether a model processes an image and lets an inner model decode: the library's loop would need the
    image at every step."""
    own = vars(type(model))
    sees = "pixel_values" in inspect.signature(model.forward).parameters
    return sees and "generate" in own and "prepare_inputs_for_generation" not in own


def takes_cache(model: torch.nn.Module) -> bool:
    """Return whether a forward pass can continue from cached keys and values, or a cached state. A model with a
    `use_cache` argument takes them, perhaps among other arguments that it passes on."""
    return bool({"past_key_values", "cache_params", "use_cache"} & set(inspect.signature(model.forward).parameters))


@contextmanager
def _uncached(model: Any, prompt: Mapping[str, Any]) -> Iterator[None]:
    """Decode without a cache: every pass starts anew, and gets all inputs of the first one.

    The library passes a sound to the first pass only, whose cache holds it; some decoders write into the encoder's
    result, so that every pass gets a copy. Idefics gets what it saw in the first pass.
    """
    features = {name: tensor for name, tensor in prompt.items() if tensor.is_floating_point()}

    def complete(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        given = {name: copy.deepcopy(one) if name == "encoder_outputs" else one for name, one in kwargs.items()}
        seen = any(one is not None for name, one in given.items() if name.endswith(("encoder_outputs", *_ENCODED)))
        if not seen:
            given |= {name: tensor.clone() for name, tensor in features.items() if given.get(name) is None}
        return args, given

    handle = model.register_forward_pre_hook(complete, with_kwargs=True)
    try:
        with _grow_token_inputs(model):
            yield
    finally:
        handle.remove()


def told_of_each_token(name: str, shape: tuple[int, ...], of_text: tuple[int, ...]) -> bool:
    """Return whether an integer input has an entry for each token of a text of the shape (batch, length), such as its
    type, or the images that it sees. Such an input grows with the text."""
    if name.endswith("position_ids") or shape[:2] != of_text:
        return False
    return len(shape) > 2 or not name.endswith(_TEXT)


@contextmanager
def _grow_token_inputs(model: Any) -> Iterator[None]:
    """Let integer inputs (batch, length, ...) grow with the text while a model decodes without a cache.

    Some models of the library let them grow only with a cache, where only the new token's entry is read.
    """
    import torch

    update = model._update_model_kwargs_for_generation

    def updated(outputs: Any, known: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        mask = known.get("attention_mask")
        of_tokens = {
            name: value
            for name, value in known.items()
            if mask is not None and isinstance(value, torch.Tensor) and value.dtype == torch.int64
            if told_of_each_token(name, tuple(value.shape), tuple(mask.shape))
        }
        grown: dict[str, Any] = update(outputs, known, *args, **kwargs)
        for name, before in of_tokens.items():
            if isinstance(after := grown.get(name), torch.Tensor) and after.shape == before.shape:
                grown[name] = torch.cat([after, after[:, -1:]], dim=1)
        return grown

    model._update_model_kwargs_for_generation = updated
    try:
        yield
    finally:
        del model._update_model_kwargs_for_generation
