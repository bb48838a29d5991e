"""Lists that name layers of a network, and what is left of them where a tiny model has fewer layers."""

from __future__ import annotations

import itertools
from typing import Any

from .scopes import numbers, role_of


def layers_needed(config: Any) -> int:
    """How many layers it takes to give as many outputs as are named."""
    return max(len(_outputs_of_layers(config)), *map(len, _lists(config, "layers_used").values()), 0)


def telling_layers(config: Any) -> set[int]:
    """Places of the first layer of a kind apart and of the first of the others, for each list that names such."""
    lists = _lists(config, "layers_apart").values() if not role_of(config, "depths") else ()
    plain = {next(place for place in range(len(apart) + 1) if place not in apart) for apart in lists}
    return plain | {min(apart) for apart in lists}


def kept_lists(config: Any, places: list[int]) -> dict[str, Any]:
    """The lists of layers that a constructor takes, where the layers at these places are kept: the new places of
    those of a kind apart, and of those that are used the last ones, as many as before. Where some layers at the back
    do more, all but one are those."""
    staged, layers = _lists(config, "depths"), len(places)
    kept: dict[str, Any] = {
        name: _last_of_stages(apart, next(iter(staged.values())))
        if staged
        else [new for new, place in enumerate(places) if place in apart]
        for name, apart in _lists(config, "layers_apart").items()
    }
    most = max(numbers(role_of(config, "layers")), default=0)
    kept |= {name: layers - 1 for name, last in role_of(config, "layers_last").items() if 1 < last < most}
    for name, used in _lists(config, "layers_used").items():
        kept[name] = list(range(layers - len(used), layers))
    return kept


def kept_outputs(config: Any, default: Any, layers: int) -> dict[str, Any]:
    """`out_indices` of a backbone in a network, for so many layers; empty where it gives what it does by default.

    Stages are numbered from 1; the stem is 0.
    """
    if _outputs(config) == _outputs(default):
        return {}
    count = len(_outputs_of_layers(config))
    return {"out_indices": list(range(layers + 1 - count, layers + 1)) if count else _outputs(config)}


def _last_of_stages(layers: list[int], depths: list[int]) -> list[int]:
    """The second layers of the stages that these layers are in, where every stage keeps two."""
    ends = list(itertools.accumulate(depths))
    return sorted({1 + 2 * next(stage for stage, end in enumerate(ends) if layer < end) for layer in layers})


def _lists(config: Any, role: str) -> dict[str, list[int]]:
    return {k: list(v) for k, v in role_of(config, role).items() if isinstance(v, list | tuple) and v}


def _outputs(config: Any) -> list[int]:
    """The stages that a backbone gives; empty for what isn't one."""
    names = getattr(config, "stage_names", None) or []
    return [one % len(names) for one in getattr(config, "out_indices", None) or []] if names else []


def _outputs_of_layers(config: Any) -> list[int]:
    """The same where every layer is a stage, as in a ViT."""
    names = getattr(config, "stage_names", None) or []
    return _outputs(config) if len(names) - 1 in numbers(role_of(config, "layers")) else []
