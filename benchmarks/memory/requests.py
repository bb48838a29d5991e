"""Requests to measure: models of every type with widths, batches and lengths that take a few hundred MB."""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from generators.models.catalog import load_catalog
from generators.models.inputs import placeholders
from generators.models.recipe import Recipe
from generators.recipes import tiny
from generators.recipes.build_model import build
from generators.recipes.config_division import Division
from generators.recipes.memory.memory_estimate import built
from hardware.errors import ModelError

LEAST = 200_000_000
"""The smallest peak that counts, in bytes."""
TARGETS = (210_000_000, 300_000_000)
"""The range of peaks in bytes for which the batch of a narrow model is chosen."""
MOST_ROWS = 8192
MOST_PARAMETERS = 125_000_000
_WISHED_PARAMETERS = 108_000_000
"""The number of parameters that take more than `LEAST` in half precision."""
_LENGTHS, _FEW = (16, 32, 64, 120, 250, 900), (4, 8, 16, 32, 64)
"""Text lengths in tokens for narrow models, and for wide ones, whose memory is mostly weights."""
_MOST_WORDS, _MOST_LAYERS = 3_000_000, 40
_POSITIONS, _WORDS = 2048, 16384
_SELDOM = 0.3
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "depth", "n_layers")
_PLACES = ("max_position_embeddings", "n_positions", "max_target_positions")
Request = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request. `batch` is None if it is chosen for a peak of `target` bytes."""

    mode: str
    precision: str
    length: int
    target: int
    batch: int | None


def random_of(*words: object) -> random.Random:
    """Return a random generator that is the same on every machine."""
    return random.Random(hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest())


def asked_of(recipe: Recipe, wide: bool, chance: random.Random) -> list[Asked]:
    """Return the requests of one model, float32 first, because each precision is converted from the one before.

    Half precision is measured with wide models, because its kernels are slow on CPUs without support: many weights
    and
    few tokens take much memory in little time.
    """
    fixed = placeholders(recipe.inputs) > 0 or not any(s["kind"] == "tokens" for s in recipe.inputs.values())
    own = recipe.recorded["lengths"][0]
    generation = ["generation"] if recipe.generate != "none" else []
    if wide:
        found = [("float32", mode) for mode in ["inference", *generation]]
        found += [("bfloat16", mode) for mode in ["inference", *generation, "inference"]]
        found += [("float16", mode) for mode in ["inference", *generation]]
        found += [(chance.choice(("bfloat16", "float32")), "training")] if chance.random() < _SELDOM else []
    else:
        found = [("float32", mode) for mode in ["inference", "training", *generation] * 2]
        found += [("bfloat16", "training")] if chance.random() < _SELDOM else []
    return [
        Asked(
            mode=mode,
            precision=precision,
            length=own if fixed else chance.choice(_FEW if wide else _LENGTHS),
            target=chance.randint(*TARGETS),
            batch=chance.choice((1, 1, 2, 4)) if wide else None,
        )
        for precision, mode in found
    ]


def configs(recipe: Recipe, chance: random.Random) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield configurations of a type and whether they are wide: the recipe's with more positions, and wider ones."""
    own = copy.deepcopy(dict(recipe.config))
    _set(own, dict.fromkeys(_PLACES, (tiny.POSITIONS, _POSITIONS)))
    if chance.random() > _SELDOM:
        _set(own, {"vocab_size": (tiny.VOCABULARY, _WORDS)})
    yield False, own
    if recipe.library != "transformers":
        return
    factors = [1, 2, 4, 8]
    for factor in factors[chance.randint(0, 2) :]:
        try:
            made = tiny.tiny_configs(
                recipe.model_type, load_catalog(), recipe.task, divisions=lambda _, by=factor: [Division(factor=by)]
            )
            config = copy.deepcopy(next(made, None))
            if config is not None and (grown := _enlarged(recipe, config)) is not None:
                yield True, grown
        except (ModelError, ValueError, TypeError, KeyError, ZeroDivisionError, RuntimeError, AttributeError):
            continue


def _set(config: dict[str, Any], wanted: Mapping[str, tuple[int, int]]) -> None:
    """Replace the value of attributes at any depth of a configuration."""
    for name, value in config.items():
        if isinstance(value, dict):
            _set(value, wanted)
        elif name in wanted and value == wanted[name][0]:
            config[name] = wanted[name][1]


def parameters_of(recipe: Recipe, config: Mapping[str, Any]) -> int:
    """Return the number of parameters of a model without allocating them."""
    import torch

    with torch.device("meta"):
        model = built(lambda: build(recipe.config_class, recipe.model_class, config))
    return sum(one.numel() for one in model.parameters())


def _enlarged(recipe: Recipe, config: dict[str, Any]) -> dict[str, Any] | None:
    """Return a configuration with about the wanted number of parameters, by more words or else more layers, or
    None."""
    start = parameters_of(recipe, config)
    if start > MOST_PARAMETERS:
        return None
    for names, before, step, most in (
        (("vocab_size",), tiny.VOCABULARY, 512, _MOST_WORDS),
        (_LAYERS, tiny.LAYERS, 1, _MOST_LAYERS),
    ):
        more = copy.deepcopy(config)
        _set(more, dict.fromkeys(names, (before, before + step)))
        try:
            each = parameters_of(recipe, more) - start
        except (ModelError, RuntimeError):
            continue
        if each > 0:
            count = min(before + step * max((_WISHED_PARAMETERS - start) // each, 0), most)
            _set(config, dict.fromkeys(names, (before, count)))
            return config
    return config
