"""Tiny configurations for model types: the library's own defaults, divided, and what the head of a task wants beside.

Every width of the whole configuration tree is divided by one factor, so that what was equal, a sum or a
product stays so; names are understood by the roles in roles.toml, exceptions are data in overrides/*.toml.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from generators.models.catalog import Catalog, TaskClass
from generators.models.classifier import Classification
from hardware.errors import ModelError

from .config_division import (
    Division,
    divided,
    divisions_of,
    image_sizes,
    kept_lists,
    kept_outputs,
    layers_needed,
    rotary_sections,
    telling_layers,
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
_STAND_INS = {"timm_backbone": "resnet"}
"""Part of a default configuration -> the library's own that stands in, where the default needs another library."""
_EXPERTS = 4
_QUERIES = 100
_FRAMES = 4
"""Two steps in time where two images make one."""
_CODEBOOKS = 4
_OF_ANY_TYPE = ("AutoConfig", "PreTrainedConfig", "PretrainedConfig")
"""Classes of parts that may be of any model type, which then must be said."""
_OUTPUTS = ("out_features", "out_indices", "_out_features", "_out_indices")
"""Under which names a backbone is told what to give; one is enough, and those in use have no underscore."""


def _layers(config: Any, division: Division) -> list[int]:
    """Places of the layers that are kept: two, four in a deeper model, or as many as it takes to meet each kind once.

    Where the constructor takes no list of kinds, but makes one by counting, all up to the last new kind are kept.
    """
    taken = arguments_of(config)
    named = {name: getattr(config, name, None) for name in roles()["config"]["layer_kinds"]}
    kinds = {name: list(kind) for name, kind in named.items() if isinstance(kind, list | tuple) and kind}
    chosen = [kind for name, kind in kinds.items() if name in taken]
    firsts = sorted({kind.index(one) for kind in kinds.values() for one in kind} | telling_layers(config))
    if any(kind not in chosen for kind in kinds.values()):
        firsts = list(range(max(firsts) + 1))
    wanted = max(2 * LAYERS if division.deeper else LAYERS, layers_needed(config))
    others = [place for place in range(wanted) if place not in firsts]
    return sorted(firsts + others[: max(0, wanted - len(firsts))])


def _limits(config: Any, division: Division) -> dict[str, int]:
    """The most that attributes of a role are left with, so that each still does something in a tiny model.

    Layers that take keys and values from earlier ones do so with a cache only, in the library's code, so that none
    does. A window is shorter than the shorter row, as is the chunk in which a state is computed. Experts are
    `_EXPERTS` in each group, and one of two groups is used; dense layers leave one layer for the experts.
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
    """The constructor arguments of one scope that are other than in `config`."""
    changed = divided(config, division)
    for role, limit in _limits(config, division).items():
        values = {name: one for name, one in role_of(config, role).items() if isinstance(one, int | float)}
        changed |= {name: type(value)(min(value, limit)) for name, value in values.items()}
    changed |= dict.fromkeys(role_of(config, "foreign_kernels"), False)
    changed |= _audible_norms(config) | _unset_experts(config, division) | _per_layer(config, changed, division)
    changed |= _needed(config) | image_sizes(config, division)
    changed |= kept_lists(config, _layers(config, division)) | rotary_sections(config, changed)
    changed |= {name: tokens[name] for name in unset_places(config)}
    return changed | {name: tokens[value] for name, value in token_ids(config).items()}


def _needed(config: Any) -> dict[str, Any]:
    """What roles.toml gives an attribute whose default is nothing."""
    return {
        name: value
        for name, value in roles()["needed"].items()
        if name in arguments_of(config) and getattr(config, name, None) in (None, 0, [0])
    }


def _audible_norms(config: Any) -> dict[str, float]:
    """What normalisations add to a variance, where they come behind the state of a mixer: the query may find next to
    nothing there, and made as large as anything else, that would be noise of float32."""
    values = role_of(config, "norm_epsilon") if role_of(config, "mixer_heads") else {}
    return {name: max(value, _EPSILON) for name, value in values.items()}


def _unset_experts(config: Any, division: Division) -> dict[str, int]:
    """How many experts there are, where a configuration says their width and leaves that unset."""
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
    """Lists with an entry for each layer: those of the layers that are kept; those of stages stay whole."""
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
    """What single layers have otherwise than the others, where a configuration says that layer by layer, as
    transformers 5.2x does: by the new place of each, shrunk as it is elsewhere."""
    if not getattr(config, "is_heterogeneous", False):
        return {}
    apart = {}
    for new, place in enumerate(_layers(config, division)):
        layer = config.per_layer_config[place]
        other = [name for name in arguments_of(config) if getattr(layer, name, None) != getattr(config, name, None)]
        shrunk = _shrunk(layer, division, tokens) if other else {}
        apart[str(new)] = {name: shrunk.get(name, getattr(layer, name)) for name in other}
    return {"per_layer_config": {new: values for new, values in apart.items() if values}}


def _arguments(config: Any, default: Any, division: Division, tokens: Mapping[int | str, int]) -> dict[str, Any]:
    """The constructor arguments that make `config`, shrunk: what differs from `default`, an object of its class."""
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
    """The width of the stream that text and images share, where a part of the configuration is for the text."""
    text = next((name for name in parts if name.startswith("text")), "")
    widths = [found[text].get(name, value) for name, value in role_of(parts[text], "hidden").items()] if text else []
    return next(iter(widths), None)


def tiny_configs(
    model_type: str,
    catalog: Catalog,
    task: str = "",
    *,
    divisions: Callable[[Any], Sequence[Division]] = divisions_of,
) -> Iterator[dict[str, Any]]:
    """Constructor arguments of small configurations of `model_type`, the smallest first; `task` where its entry in
    overrides may be another, `divisions` by what a whole configuration is divided.

    JSON values, only what differs from the defaults; nested dicts are sub-configurations. Behind those come the same
    with the padding token where a table of positions can count from it; not every model needs that, and none says so
    but by its constructor. Imports transformers.
    Raises `ModelError` with the reason where the type is unknown, its defaults can't be built, or no divisor
    fits.
    """
    told = next(filter(None, (overrides(name, task) for name in catalog.names_of(model_type))), {})
    changes, parts = (told.get(key, {}) for key in ("config", "parts"))
    if parts:
        of_parts = (tiny_configs(part, catalog, divisions=divisions) for part in parts.values())
        for made in zip(*of_parts, strict=False):
            composed = {
                name: {"model_type": part, **arguments}
                for (name, part), arguments in zip(parts.items(), made, strict=True)
            }
            yield overridden(composed, changes, None)
        return
    config = _defaults(model_type, catalog)
    known: list[int | str] = sorted({value for scope in tree(config) for value in token_ids(scope).values()})
    known += sorted({name for scope in tree(config) for name in unset_places(scope)})
    top = min([VOCABULARY, *(size for scope in tree(config) for size in numbers(role_of(scope, "vocabulary")))])
    high = {value: top - 1 - place for place, value in enumerate(known)}
    low = _padding_tokens(config)
    seen: list[dict[str, Any]] = []
    for tokens in [high, high | low] if low else [high]:
        for division in divisions(config):
            arguments = overridden(_arguments(config, config, division, tokens), changes, config)
            if arguments not in seen:
                seen.append(arguments)
                yield dict(json.loads(json.dumps(arguments)))


def _padding_tokens(config: Any) -> dict[int | str, int]:
    """Padding tokens as they are by default, of the scopes that number positions from the padding token upwards if
    they have it from RoBERTa: its id must lie below the end of the table."""
    return {
        scope.pad_token_id: scope.pad_token_id
        for scope in tree(config)
        if "pad_token_id" in token_ids(scope) and role_of(scope, "positions") and scope.pad_token_id < POSITIONS // 2
    }


def _defaults(model_type: str, catalog: Catalog) -> Any:
    """The configuration of a type as the library makes it. Raises `ModelError` with the constructor's reason."""
    import transformers

    name = catalog.config_class(model_type)
    make = getattr(transformers, name)
    try:
        config = readable(make())
        stand_ins = {
            part: {"model_type": _STAND_INS[child.model_type]}
            for part, child in children(config).items()
            if child.model_type in _STAND_INS
        }
        return readable(make(**stand_ins)) if stand_ins else config
    except Exception as error:  # any error of a constructor means the same: no defaults to start from
        raise ModelError(
            f"no tiny {model_type} can be made", why=f"{name}() fails with {type(error).__name__}: {error}"
        ) from error


def head_arguments(
    config: Mapping[str, Any], config_class: Any, chosen: TaskClass, what: Classification
) -> dict[str, Any]:
    """The constructor arguments that tasks.toml asks for, as changes to `config`. `config_class` None: of diffusers,
    whose classes take none."""
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
    """Whether an encoder stands in as a decoder, as BERT may: its configuration has to say so, else it looks ahead
    and keeps no cache."""
    if what.architecture != "encoder-only" or chosen.entry.generate != "causal":
        return False
    return "is_decoder" in inspect.signature(config_class.__init__).parameters


def _padding_token(made: Any) -> dict[str, int]:
    """A padding token that no text holds, where a configuration with a vocabulary has none."""
    if text_config(made) is not made or getattr(made, "pad_token_id", None) is not None:
        return {}
    return {"pad_token_id": first_special(made) - 1} if getattr(made, "vocab_size", None) else {}
