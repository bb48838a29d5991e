"""The inputs of one pass over a whole text that was decoded step by step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..backends.base import Generation
from ..compare import Array
from ..model.decoding import told_of_each_token


def replay_inputs(given: Mapping[str, Array], generated: Generation, generates: str) -> dict[str, Array]:
    """The inputs of a pass over the prompt and what was decoded from it; `generates` is `seq2seq` or `causal`.

    What is told of each token, as its type, is told of new ones as of the last.
    """
    tokens = generated.tokens
    if generates == "seq2seq":
        decoder = np.concatenate([generated.start, tokens[:, :-1]], axis=1)
        kept = {name: value for name, value in given.items() if not name.startswith("decoder_")}
        return {**kept, "decoder_input_ids": decoder}
    inputs: dict[str, Array] = dict(given)
    inputs["input_ids"] = np.concatenate([generated.start, tokens], axis=1)
    if "attention_mask" in inputs:
        mask = inputs["attention_mask"][:, : generated.start.shape[1]]  # BLIP leaves the prompt's last token out
        inputs["attention_mask"] = np.concatenate([mask, np.ones_like(tokens)], axis=1)
    for name in _by_token(given):
        behind = [(0, 0), (0, tokens.shape[1]), *[(0, 0)] * (inputs[name].ndim - 2)]
        inputs[name] = np.pad(inputs[name], behind, mode="edge")
    if "position_ids" in inputs:
        first = int(inputs["position_ids"].min())  # some count from behind the padding token
        inputs["position_ids"] = np.maximum(inputs["attention_mask"].cumsum(axis=1) - 1, 0) + first
    return inputs


def _by_token(given: Mapping[str, Array]) -> list[str]:
    """The inputs that tell something of each token of the text, (batch, length, ...)."""
    text = given["input_ids"].shape
    whole = [name for name, value in given.items() if value.dtype.kind == "i"]
    return [name for name in whole if told_of_each_token(name, given[name].shape, text)]
