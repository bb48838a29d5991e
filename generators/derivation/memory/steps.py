"""What is run to see how much memory it takes: the same on tensors with data and without."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hardware.model.calls import in_dtype, without_cache
from hardware.model.outputs import floating_outputs, nested

if TYPE_CHECKING:
    import torch

_LANGUAGE = ("ForCausalLM", "ForMaskedLM", "LMHeadModel", "ForConditionalGeneration")
"""How classes end that take the text itself as labels."""
Mark = Callable[[Iterable[Any], str], None]


def dtype_of(precision: str) -> torch.dtype:
    """torch's name of a precision."""
    import torch

    found: torch.dtype = getattr(torch, precision)
    return found


def prepared(model: torch.nn.Module, mode: str, precision: str) -> torch.nn.Module:
    """`model` in a precision and in the state in which a mode runs it."""
    return in_dtype(model, dtype_of(precision)).train(mode == "training")


def run(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], mode: str, mark: Mark) -> Any:
    """Run `model` once; `mark` is told which tensors are gradients, the optimiser's and the cache's.

    `inference` is one forward pass without a cache. `generation` reads the whole text into a cache, with results for
    its last place alone where the model can leave out the others, and decodes one token. `training` is the second
    step of AdamW, since its state is there from the first one on.
    """
    import torch

    if mode == "training":
        return _train(model, tensors, mark)
    with torch.no_grad():
        if mode == "inference":
            return model(**nested(tensors), **without_cache(model))
        return _decode(model, tensors, mark)


def _decode(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], mark: Mark) -> Any:
    import torch

    takes = inspect.signature(model.forward).parameters
    given = dict(nested(tensors))
    given |= {"use_cache": True} | ({"logits_to_keep": 1} if "logits_to_keep" in takes else {})
    output = model(**given)
    cache = output.past_key_values
    if cache is None:
        raise ValueError("the model gives no cache")
    mark(_cached(cache), "cache")
    name = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
    text = given[name]
    following: dict[str, Any] = {name: text[:, -1:], "past_key_values": cache, "use_cache": True}
    if name == "input_ids" and "attention_mask" in given:
        mask = given["attention_mask"]
        following["attention_mask"] = torch.cat([mask, mask[:, -1:]], dim=1)
    if "encoder_last_hidden_state" in output:
        following["encoder_outputs"] = (output.encoder_last_hidden_state,)
    output = model(**following)
    mark(_cached(output.past_key_values), "cache")
    return output


def _cached(cache: Any) -> Iterable[torch.Tensor]:
    """The tensors of a cache, whatever class it is of."""
    import torch
    from torch.utils._pytree import tree_leaves

    seen: set[int] = set()
    left = [cache]
    while left:
        one = left.pop()
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple | dict):
            left += tree_leaves(one)
        elif hasattr(one, "__dict__") and id(one) not in seen and not isinstance(one, type):
            seen.add(id(one))
            left += vars(one).values()


def _train(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], mark: Mark) -> Any:
    import torch
    from torch.utils._pytree import tree_leaves

    trained = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-5)
    for _ in range(2):
        optimiser.zero_grad(set_to_none=True)
        loss = _loss(model, tensors)
        loss.backward()
        mark((one.grad for one in trained if one.grad is not None), "gradients")
        optimiser.step()
        mark(
            (one for one in tree_leaves(optimiser.state_dict()["state"]) if isinstance(one, torch.Tensor)),
            "optimiser",
        )
    return loss


def _loss(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The model's own loss for language, else the mean square of all that it gives."""
    labels = tensors.get("decoder_input_ids", tensors.get("input_ids"))
    takes = inspect.signature(model.forward).parameters
    if labels is not None and "labels" in takes and type(model).__name__.endswith(_LANGUAGE):
        return model(**nested(tensors), labels=labels, **without_cache(model)).loss
    outputs = floating_outputs(model(**nested(tensors), **without_cache(model)))
    return sum(one.float().square().mean() for one in outputs.values() if one.requires_grad)
