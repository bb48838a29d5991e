"""Settings of a configuration with which no suite of its model type runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hwcompat.generators.models.catalog import load_catalog
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.hardware.testing.variants import with_changes

from .build_model import class_of
from .real_dims import start

_NOT_COMPUTED = re.compile(
    r".*(_token_id|_token_index|dropout|drop|dropout_prob|drop_rate|_coef|_version)$"
    r"|initializer_|output_|return_dict|use_cache|architectures|dtype|torch_dtype|_name_or_path"
    r"|id2label|label2id|problem_type|is_encoder_decoder|chunk_size_feed|tie_word_embeddings"
)
"""Names of settings that don't change what a pass computes in evaluation mode."""


def settings_apart(folder: str, task: str | None = None) -> list[str]:
    """Return the settings of a folder's config.json, as `name=value`, with which neither the recipe of its type nor
    one of its variants runs: switches, kinds, and whether something is set. How large it is doesn't matter.

    Raises `ModelError` or `BrokenInput` if there is no configuration, or if it isn't valid. Imports transformers.
    """
    what, chosen, config, _ = start(folder, task)
    recipe = load_recipe(what.model_type, chosen.task)
    if recipe is None:
        return []
    make = class_of(load_catalog().config_class(what.model_type))
    variants = [one["changes"] for one in recipe.calls.get("variants", {}).get("configs", ())]
    ran = [_kinds(make(**with_changes(recipe.config, changes)).to_dict()) for changes in ({}, *variants)]
    wanted = _kinds(config.to_dict())
    return [f"{name}={value}" for name, value in wanted.items() if all(one.get(name) != value for one in ran)]


def _kinds(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return switches and words of a configuration as they are, numbers and lists as whether they are set, and how
    heads share keys; those of its parts by path."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if _NOT_COMPUTED.match(name):
            continue
        if isinstance(value, Mapping):
            found |= _kinds(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            words = sorted({one for one in value if isinstance(one, str)})
            found[prefix + name] = ",".join(words) or _set(bool(value))
        else:
            found[prefix + name] = value if isinstance(value, bool | str) else _set(bool(value))
    heads, groups = (values.get(name) for name in ("num_attention_heads", "num_key_value_heads"))
    if isinstance(heads, int) and isinstance(groups, int):
        found[f"{prefix}num_key_value_heads"] = "one" if groups == 1 else "grouped" if groups < heads else "all"
    return found


def _set(is_set: bool) -> str:
    return "set" if is_set else "none"
