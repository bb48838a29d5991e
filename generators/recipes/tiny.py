"""Tiny configurations of model types: the library's defaults, divided, and the arguments for the head of a task.

Each width of the whole configuration tree is divided by one factor, so that equal widths, sums and products stay so;
names are understood by the roles in roles.toml, exceptions are data in overrides/*.toml.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hwcompat.generators.models.catalog import Catalog, TaskClass
from hwcompat.generators.models.classification import Classification
from hwcompat.hardware.errors import ModelError

from .config_division import (
    Division,
    divided,
    divisions_of,
    first_of_each_kind,
    image_sizes,
    kept_lists,
    kept_outputs,
    layers_needed,
    rotary_sections,
)
from .config_scopes import (
    arguments_of,
    children,
    declared_parts,
    default_of,
    numbers,
    overridden,
    overrides,
    readable,
    role_of,
    roles,
    text_config,
    token_ids,
    tree,
    unset_places,
    whole_numbers,
)
from .input_specs import first_special

VOCABULARY = 512
POSITIONS = 128
LAYERS = 2
LABELS = 10
"""Differs from the batch, so that an output's axes aren't ambiguous."""

_WINDOW = 8
_LATENTS = 8
_STATE = 16
_EPSILON = 0.01
_IMAGE_TOKENS = 4
_PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
_REPLACEMENTS = {"timm_backbone": "resnet"}
"""Part of a default configuration -> the library's replacement, if the default needs another library."""
_EXPERTS = 4
_QUERIES = 100
_FRAMES = 4
"""Two steps in time if two images make one."""
_CODEBOOKS = 4
_OF_ANY_TYPE = ("AutoConfig", "PreTrainedConfig", "PretrainedConfig")
"""Classes of parts of any model type, which must then be named."""
_OUTPUTS = ("out_features", "out_indices", "_out_features", "_out_indices")
"""Names of a backbone's outputs; one is enough, and those in use have no underscore."""


def _layers(config: Any, division: Division) -> list[int]:
    """Return the indices of kept layers: two, four in a deeper model, or as many as it takes to include each kind.

    If the constructor takes no list of kinds, but computes one, all up to the last new kind are kept.
    """
    taken = arguments_of(config)
    named = {name: getattr(config, name, None) for name in roles()["config"]["layer_kinds"]}
    kinds = {name: list(kind) for name, kind in named.items() if isinstance(kind, list | tuple) and kind}
    chosen = [kind for name, kind in kinds.items() if name in taken]
    firsts = sorted({kind.index(one) for kind in kinds.values() for one in kind} | first_of_each_kind(config))
    if any(kind not in chosen for kind in kinds.values()):
        firsts = list(range(max(firsts) + 1))
    wanted = max(2 * LAYERS if division.deeper else LAYERS, layers_needed(config))
    others = [place for place in range(wanted) if place not in firsts]
    return sorted(firsts + others[: max(0, wanted - len(firsts))])


def _limits(config: Any, division: Division) -> dict[str, int]:
    """Return the upper limits of a role's attributes, chosen so that each still has an effect in a tiny model.

    No layer takes keys and values from earlier ones, which the library's code does with a cache only. A window is
    shorter than the shorter row, as is the chunk of a state. There are `_EXPERTS` experts in each group, and one of
    two groups is used; dense layers leave one layer for the experts.
    """
    groups = 2 if max(whole_numbers(role_of(config, "expert_groups")).values(), default=1) > 1 else 1
    layers = len(_layers(config, division))
    return {
        "layers": layers,
        "layer_multiplier": 1,
        "layers_sharing_keys": 0,
        "dense_layers_first": layers - 1,
        "vocabulary": VOCABULARY,
        "codebooks": _CODEBOOKS,
        "positions": POSITIONS,
        "latents": _LATENTS,
        "window": _WINDOW,
        "written": _WINDOW,
        "frames": _FRAMES,
        "queries": _QUERIES,
        "chunk": _WINDOW,
        "state": _STATE,
        "expert_groups": groups,
        "expert_groups_used": 1,
        "experts": _EXPERTS * groups,
        "experts_used": _EXPERTS // 2,
        "experts_shared": 1,
        "image_tokens": _IMAGE_TOKENS,
    }


def _shrunk(config: Any, division: Division, tokens: Mapping[int | str, int]) -> dict[str, Any]:
    """Return the constructor arguments of one scope that differ from `config`."""
    changed = divided(config, division)
    for role, limit in _limits(config, division).items():
        values = {name: one for name, one in role_of(config, role).items() if isinstance(one, int | float)}
        changed |= {name: type(value)(min(value, limit)) for name, value in values.items()}
    changed |= dict.fromkeys(role_of(config, "foreign_kernels"), False)
    changed |= _norms_after_mixers(config) | _unset_experts(config, division) | _per_layer(config, changed, division)
    changed |= _needed(config) | image_sizes(config, division)
    changed |= kept_lists(config, _layers(config, division)) | rotary_sections(config, changed)
    changed |= {name: tokens[name] for name in unset_places(config)}
    return changed | {name: tokens[value] for name, value in token_ids(config).items()}


def _needed(config: Any) -> dict[str, Any]:
    """Return the values of roles.toml for attributes without a default."""
    return {
        name: value
        for name, value in roles()["needed"].items()
        if name in arguments_of(config) and getattr(config, name, None) in (None, 0, [0])
    }


def _norms_after_mixers(config: Any) -> dict[str, float]:
    """Return what normalizations after the state of a mixer add to a variance: the query's result may be close to
    zero, and normalizing it would amplify float32 noise."""
    values = role_of(config, "norm_epsilon") if role_of(config, "mixer_heads") else {}
    return {name: max(value, _EPSILON) for name, value in values.items()}


def _unset_experts(config: Any, division: Division) -> dict[str, int]:
    """Return the number of experts if a configuration has their width and leaves the number unset."""
    if not whole_numbers(role_of(config, "expert_width")):
        return {}
    limits, known = _limits(config, division), roles()["config"]
    names = {name for name in arguments_of(config) if getattr(config, name, None) is None}
    return {
        name: limits[role]
        for role in ("experts", "experts_used", "experts_shared")
        for name in names & {*known[role]}
    }


def _per_layer(config: Any, changed: Mapping[str, Any], division: Division) -> dict[str, list[Any]]:
    """Return lists with an entry for each layer, reduced to the kept layers; those of stages stay whole."""
    places = _layers(config, division)
    counts = () if role_of(config, "depths") else whole_numbers(role_of(config, "layers")).values()
    values = {name: changed.get(name, getattr(config, name, None)) for name in arguments_of(config)}
    lists = {name: list(value) for name, value in values.items() if isinstance(value, list | tuple)}
    kinds = roles()["config"]["layer_kinds"]
    return {
        name: [value[place] for place in places if place < len(value)]
        for name, value in lists.items()
        if name in kinds or (len(value) in counts and len(value) > len(places))
    }


def _layers_apart(config: Any, division: Division, tokens: Mapping[int | str, int]) -> dict[str, Any]:
    """Return attributes of single layers that differ from the others, as transformers 5.2x states them layer by
    layer: by the new index of each, shrunk like all others."""
    if not getattr(config, "is_heterogeneous", False):
        return {}
    differing = {}
    for new, place in enumerate(_layers(config, division)):
        layer = config.per_layer_config[place]
        other = [name for name in arguments_of(config) if getattr(layer, name, None) != getattr(config, name, None)]
        shrunk = _shrunk(layer, division, tokens) if other else {}
        differing[str(new)] = {name: shrunk.get(name, getattr(layer, name)) for name in other}
    return {"per_layer_config": {new: values for new, values in differing.items() if values}}


def _arguments(config: Any, default: Any, division: Division, tokens: Mapping[int | str, int]) -> dict[str, Any]:
    """Return the constructor arguments that make `config`, shrunk: what differs from `default`, of the same class."""
    parts = children(config)
    known = [name for name in arguments_of(config) if name not in (*parts, *_OUTPUTS)]
    kept = {name: getattr(config, name, None) for name in known}
    plain = {name: value for name, value in kept.items() if isinstance(value, _PLAIN)}
    wanted = plain | _shrunk(config, division, tokens)
    found = {name: value for name, value in wanted.items() if value != getattr(default, name, None)}
    found |= kept_outputs(config, default, len(_layers(config, division)))
    found |= _layers_apart(config, division, tokens)
    for name, child in parts.items():
        found[name] = _arguments(child, default_of(child), division, tokens)
        declared = declared_parts(type(config)).get(name)
        if declared is None or declared.__name__ in _OF_ANY_TYPE:
            own = overrides(child.model_type).get("config", {})
            found[name] = {"model_type": child.model_type, **overridden(found[name], own, child)}
    for name, child in parts.items():
        found[name] |= dict.fromkeys(role_of(child, "text_width"), _text_width(parts, found))
    return {name: value for name, value in found.items() if value != {}}


def _text_width(parts: Mapping[str, Any], found: Mapping[str, Any]) -> int | None:
    """Return the width of the stream that text and images share, if a part of the configuration is for text."""
    text = next((name for name in parts if name.startswith("text")), "")
    widths = [found[text].get(name, value) for name, value in role_of(parts[text], "hidden").items()] if text else []
    return next(iter(widths), None)


def tiny_configs(
    model_type: str,
    catalog: Catalog,
    task: str = "",
    *,
    divisions: Callable[[Any], Sequence[Division]] = divisions_of,
    given: Any = None,
) -> Iterator[dict[str, Any]]:
    """Yield constructor arguments of small configurations of `model_type`, the smallest first; `task` selects its
    entry in overrides, `divisions` the divisions of a whole configuration. `given` is a configuration to make small
    instead of the type's defaults: its settings stay.

    Arguments are JSON values that differ from the defaults; nested dicts are sub-configurations. The same follow with
    the padding token, if a table of positions can count from it; only the constructor shows which models need that.
    Imports transformers. Raises `ModelError` with the reason if the type is unknown, its defaults can't be built, or
    no divisor fits.
    """
    entry = next(filter(None, (overrides(name, task) for name in catalog.names_of(model_type))), {})
    changes, parts = (entry.get(key, {}) for key in ("config", "parts"))
    if parts:
        of_parts = (tiny_configs(part, catalog, divisions=divisions) for part in parts.values())
        for made in zip(*of_parts, strict=False):
            composed = {
                name: {"model_type": part, **arguments}
                for (name, part), arguments in zip(parts.items(), made, strict=True)
            }
            yield overridden(composed, changes, None)
        return
    config = _defaults(model_type, catalog) if given is None else given
    default = config if given is None else default_of(given)
    known: list[int | str] = sorted({value for scope in tree(config) for value in token_ids(scope).values()})
    known += sorted({name for scope in tree(config) for name in unset_places(scope)})
    top = min([VOCABULARY, *(size for scope in tree(config) for size in numbers(role_of(scope, "vocabulary")))])
    high = {value: top - 1 - place for place, value in enumerate(known)}
    low = _padding_tokens(config)
    seen: list[dict[str, Any]] = []
    for tokens in [high, high | low] if low else [high]:
        for division in divisions(config):
            arguments = overridden(_arguments(config, default, division, tokens), changes, config)
            if arguments not in seen:
                seen.append(arguments)
                yield dict(json.loads(json.dumps(arguments)))


def _padding_tokens(config: Any) -> dict[int | str, int]:
    """Return the default padding tokens of scopes that number positions from the padding token upward, as RoBERTa
    does: the id must lie below the end of the table."""
    return {
        scope.pad_token_id: scope.pad_token_id
        for scope in tree(config)
        if "pad_token_id" in token_ids(scope) and role_of(scope, "positions") and scope.pad_token_id < POSITIONS // 2
    }


def _defaults(model_type: str, catalog: Catalog) -> Any:
    """Return the library's default configuration of a type. Raises `ModelError` with the constructor's reason."""
    import transformers

    name = catalog.config_class(model_type)
    make = getattr(transformers, name)
    try:
        config = readable(make())
        replacements = {
            part: {"model_type": _REPLACEMENTS[child.model_type]}
            for part, child in children(config).items()
            if child.model_type in _REPLACEMENTS
        }
        return readable(make(**replacements)) if replacements else config
    except Exception as error:  # any error of a constructor means that there are no defaults
        raise ModelError(
            f"no tiny {model_type} can be made", why=f"{name}() fails with {type(error).__name__}: {error}"
        ) from error


def head_arguments(
    config: Mapping[str, Any], config_class: Any, chosen: TaskClass, what: Classification
) -> dict[str, Any]:
    """Return the constructor arguments of tasks.toml as changes to `config`. `config_class` None: diffusers, whose
    classes take none."""
    changed: dict[str, Any] = {}
    if chosen.entry.labels:
        own = overrides(what.model_type, chosen.task).get("config", {})
        changed["num_labels"] = own.get("num_labels", LABELS)
    if config_class is None:
        return changed
    changed |= copy.deepcopy(dict(chosen.entry.config))
    if decodes_beside_its_primary_task(what, chosen, config_class):
        changed["is_decoder"] = True
    if chosen.entry.reads_end:
        changed |= _padding_token(config_class(**copy.deepcopy(dict(config))))
    return changed


def decodes_beside_its_primary_task(what: Classification, chosen: TaskClass, config_class: Any) -> bool:
    """Return whether an encoder is used as a decoder, as BERT may be: its configuration must say so, else it
    attends to later tokens and has no cache."""
    if what.architecture != "encoder-only" or chosen.entry.generate != "causal":
        return False
    return "is_decoder" in inspect.signature(config_class.__init__).parameters


def _padding_token(made: Any) -> dict[str, int]:
    """Return a padding token that isn't in any text, if a configuration with a vocabulary has none."""
    if text_config(made) is not made or getattr(made, "pad_token_id", None) is not None:
        return {}
    return {"pad_token_id": first_special(made) - 1} if getattr(made, "vocab_size", None) else {}
