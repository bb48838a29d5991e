"""Choose a few other settings of a type's tiny model, so that its suite enters more branches of the modeling code.

Needs coverage.py. Imports torch and transformers.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import logging
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.recipes import measurements
from hwcompat.generators.recipes.build_model import filled_model
from hwcompat.generators.recipes.config_scopes import arguments_of, children, roles
from hwcompat.generators.recipes.probe_calls import case_of, places_of
from hwcompat.hardware.model.calls import to_tensors
from hwcompat.hardware.model.greedy_decoding import greedy
from hwcompat.hardware.testing.argument_checks import drawn_inputs
from hwcompat.hardware.testing.reference import as_reference, float64_outputs
from hwcompat.hardware.testing.variants import with_changes

from .code_branches import Branch, CodeBranches, branches_of, condition_at, names_in, recorded_branches, tree_of

LOG = logging.getLogger(__name__)
"""Told of settings with which a model is wrong: they aren't kept."""
_FILE = Path(__file__).with_name("settings.toml")
_MOST = 6
_TRIES = 60
"""Settings that are tried for a type at most."""
_STEPS = 3
_PUBLISHED = "published"
"""The file of places that stand for a kind of published settings."""
_SIZES = ("hidden", "width", "vocabulary", "norm_epsilon", "positions", "latents")
"""Roles of settings that are sizes alone."""
_OF_OTHER_CALLS = ("dtype", "torch_dtype", "return_dict", "output_attentions", "output_hidden_states", "use_cache")
"""Settings that are arguments of a call too."""
_CROSS, _READ = "add_cross_attention", ("encoder_hidden_states", "encoder_attention_mask")
"""The setting with which a text model reads an encoder's output, and the names of what it reads."""
_READ_LENGTH = 7
_DEPTH = 4
"""Assignments between a setting and a condition that are followed."""
_GUESSES: Mapping[type, tuple[Any, ...]] = {
    int: (0, 1, 2, 3, None),
    float: (0.0, 0.5, 2.0, None),
    type(None): (True, False, 4, 0.5),
    str: (None,),
}
"""Values to try for a setting, by the kind of its own value."""

Settings = dict[str, Any]
Place = tuple[str, Branch]


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """The branches that were missing before and that a model with other settings enters, also if it decodes."""

    changes: Settings
    forward: frozenset[Place]
    decoding: frozenset[Place]

    @property
    def all(self) -> frozenset[Place]:
        return self.forward | self.decoding


@functools.cache
def _published() -> Mapping[str, list[Any]]:
    """Return the values of published configurations by setting."""
    found: dict[str, list[Any]] = {}
    for entry in tomllib.loads(_FILE.read_text(encoding="utf-8"))["setting"]:
        for name in entry["names"]:
            found.setdefault(name, []).extend(entry["values"])
    return found


@functools.cache
def _together() -> tuple[tuple[int, Settings, Settings], ...]:
    """Return settings that published configurations have, each with the number of its kind, and those that come with
    them although a constructor doesn't name them."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["always"]
    return tuple(
        (kind, group, entry.get("undeclared", {}))
        for kind, entry in enumerate(entries)
        for group in entry["settings"]
    )


def with_variants(recipe: Recipe) -> Recipe:
    """Return a recipe with the settings that enter most missing branches, and the branches of the suite with them."""
    calls = {name: one for name, one in recipe.calls.items() if name != "variants"}
    base = branches_of(replace(recipe, calls=calls))
    chosen = _chosen(recipe, base)
    if chosen:
        calls["variants"] = {"configs": chosen}
    found = replace(recipe, calls=calls)
    return replace(found, branches=(branches_of(found) if chosen else base).to_recipe())


def _chosen(recipe: Recipe, base: CodeBranches) -> list[dict[str, Any]]:
    """Return entries that enter all missing branches that any tried setting enters, greedily, and that have each
    setting that published configurations have; several settings go into one model where it still enters them all."""
    missing = {
        (file, branch) for file, functions in base.missing.items() for ways in functions.values() for branch in ways
    }
    attempt = partial(_attempt, recipe, frozenset(missing))
    trials: list[_Trial] = []
    for changes in (*_of_published(recipe), *_candidates(recipe, base)):
        trial = attempt(changes)
        if trial is not None and trial.all:
            trials.append(trial)
    kept: list[tuple[_Trial, dict[str, Any]]] = []
    left = {place for trial in trials for place in trial.all}
    for trial in sorted(trials, key=lambda one: -len(one.all)):
        new = trial.all & left
        if not new:
            continue
        for index, (other, _) in enumerate(kept):
            if other.changes.keys() & trial.changes.keys():
                continue
            both = attempt(other.changes | trial.changes)
            wanted = other.all | new
            if both is not None and both.all >= wanted and (entry := _entry(recipe, both, wanted)):
                kept[index] = (both, entry)
                break
        else:
            if len(kept) >= _MOST or not (entry := _entry(recipe, trial, new)):
                continue
            kept.append((trial, entry))
        left -= new
    return [entry for _, entry in kept]


def _attempt(recipe: Recipe, missing: frozenset[Place], changes: Settings) -> _Trial | None:
    """Return what a model with these settings enters, or None if it can't be built or run."""
    import torch

    files = sorted({file for file, _ in missing if file != _PUBLISHED})

    def entered(found: Any) -> frozenset[Place]:
        data = found.get_data()
        arcs = {(file, _whole(file, arc)) for file in files for arc in data.arcs(file) or ()}
        return frozenset(arcs & missing)

    try:
        with recorded_branches(files) as found:
            model = _built(recipe, changes)
            inputs = _inputs(recipe, _shapes(model, changes))
            measurements.results_of(model, inputs)
        forward = decoding = entered(found)
        if recipe.generate != "none":
            with contextlib.suppress(Exception), recorded_branches(files) as found:
                tensors = to_tensors(inputs, "cpu", torch.float32)
                greedy(model, tensors, steps=_STEPS, use_cache=not recipe.without_cache)
                decoding = entered(found)
    except Exception:  # the type has no such setting
        return None
    wanted = {(_PUBLISHED, (index, 0)) for index, _ in _published_in(changes)}
    return _Trial(changes=changes, forward=forward | wanted, decoding=decoding - forward)


@functools.cache
def _first_lines(file: str) -> Mapping[int, int]:
    """Return the first line of each condition that has several."""
    return {
        line: node.lineno
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.If | ast.While)
        for line in range(node.lineno, (node.test.end_lineno or node.lineno) + 1)
    }


def _whole(file: str, arc: Branch) -> Branch:
    return _first_lines(file).get(arc[0], arc[0]), arc[1]


def _built(recipe: Recipe, changes: Settings) -> Any:
    return filled_model(replace(recipe, config=with_changes(recipe.config, changes)))


def _shapes(model: Any, changes: Settings) -> dict[str, list[int]]:
    """Return the shapes of inputs that a model with these settings needs besides those of its type."""
    if not changes.get(_CROSS):
        return {}
    return dict(zip(_READ, ([_READ_LENGTH, model.config.hidden_size], [_READ_LENGTH]), strict=True))


def _inputs(recipe: Recipe, shapes: Mapping[str, list[int]]) -> dict[str, Any]:
    lengths = recipe.recorded["lengths"]
    return {
        **make_inputs(recipe.inputs, recipe.recorded["seed"], lengths),
        **drawn_inputs(shapes, len(lengths)),
    }


def _entry(recipe: Recipe, trial: _Trial, wanted: frozenset[Place]) -> dict[str, Any] | None:
    """Return the entry of a recipe, or None if the model is wrong with these settings."""
    output = recipe.recorded["output"]
    try:
        model = _built(recipe, trial.changes)
        shapes = _shapes(model, trial.changes)
        inputs = _inputs(recipe, shapes)
        array = float64_outputs(as_reference(model), inputs)[output]
        numbers = places_of(recipe, output, array, inputs)
        recorded = dict(zip(map(tuple, numbers["positions"]), numbers["values"], strict=True))
        with case_of(recipe, filled_model(recipe)) as case:
            # Not asked where the type's own settings fail, which its suite shows.
            attention = "attention_agrees" in recipe.calls and case.attention_error(case.inputs) <= case.tolerance
            case.take_measurement()
            entry = {
                **{"changes": trial.changes, "attention": attention, **numbers},
                "decodes": bool(trial.decoding & wanted),
                **({"shapes": shapes} if shapes else {}),
            }
            error = case.variant_error(
                partial(_built, recipe),
                output,
                changes=trial.changes,
                recorded=recorded,
                scale=numbers["scale"],
                attention=entry["attention"],
                decodes=entry["decodes"],
                shapes=shapes,
            )
            if error <= case.tolerance:
                return entry
            LOG.warning("%s with %s: %s", recipe.model_type, trial.changes, case.measured.comparison)
            return None
    except Exception as error:  # some of its outputs can't be compared
        LOG.warning("%s with %s: %s: %s", recipe.model_type, trial.changes, type(error).__name__, error)
        return None


def _of_published(recipe: Recipe) -> Iterator[Settings]:
    """Yield what published configurations have and a type should be tested with, for each part of the configuration
    that has these settings."""
    for prefix, settings in _scopes(filled_model(recipe).config):
        for _, group, undeclared in _together():
            if group.keys() <= settings.keys():
                yield {f"{prefix}{name}": value for name, value in undeclared.items()} | {
                    f"{prefix}{name}": {**settings[name], **value} if isinstance(value, Mapping) else value
                    for name, value in group.items()
                    if not isinstance(value, Mapping) or "rope_type" in (settings[name] or ())
                }


def _published_in(changes: Settings) -> Iterator[tuple[int, Settings]]:
    """Yield the kinds of published settings that changes have."""
    values = {path.rpartition(".")[2]: value for path, value in changes.items()}
    for kind, group, _ in _together():
        if all(_has(values.get(name), value) for name, value in group.items()):
            yield kind, group


def _has(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and wanted.items() <= value.items()
    return bool(value == wanted)


def _candidates(recipe: Recipe, base: CodeBranches) -> Iterator[Settings]:
    """Yield settings that conditions of missing branches read, each with other values."""
    scopes = list(_scopes(filled_model(recipe).config))
    known = {name for _, settings in scopes for name in settings}
    seen: set[str] = set()
    for file, functions in base.missing.items():
        tree = tree_of(file)
        read, optional = _read_by(tree), _read_optionally(tree)
        for line in sorted({line for ways in functions.values() for line, _ in ways}):
            test = condition_at(tree, line)
            names = {name for name in names_in(test) if name in known}
            names |= {
                origin for name in names_in(test) for origin in read.get(name, ()) if origin in known | optional
            }
            constants = (
                [node.value for node in ast.walk(test or tree) if isinstance(node, ast.Constant)] if test else []
            )
            for name in sorted(names):
                for prefix, settings in scopes:
                    if name not in settings and name in known:
                        continue
                    for value in _values(name, settings.get(name), constants):
                        if len(seen) < _TRIES and (key := f"{prefix}{name}={value!r}") not in seen:
                            seen.add(key)
                            yield {f"{prefix}{name}": value}


def _values(name: str, own: Any, constants: list[Any]) -> list[Any]:
    if name in _OF_OTHER_CALLS or any(name in roles()["config"][role] for role in _SIZES):
        return []
    if isinstance(own, bool):
        return [not own]
    if isinstance(own, Mapping) or name in _published():
        base = own if isinstance(own, Mapping) else {}
        return [{**base, **one} if isinstance(one, Mapping) else one for one in _published().get(name, ())]
    of_kind = [one for one in constants if isinstance(one, type(own)) and not isinstance(one, bool)]
    found = [*of_kind, *(one + 1 for one in of_kind if isinstance(own, int)), *_GUESSES.get(type(own), ())]
    return [one for one in dict.fromkeys(found) if one != own]


def _scopes(config: Any, prefix: str = "") -> Iterator[tuple[str, Settings]]:
    if isinstance(config, Mapping):  # of diffusers
        yield prefix, {name: one for name, one in config.items() if not name.startswith("_")}
        return
    yield prefix, {name: getattr(config, name, None) for name in arguments_of(config)}
    for name, child in children(config).items():
        yield from _scopes(child, f"{prefix}{name}.")


def _read_optionally(tree: ast.Module) -> set[str]:
    """Return the settings that a file reads with `getattr(config, "name", ...)` or asks for with `hasattr`: a
    configuration may have them although its constructor doesn't name them."""
    return {
        node.args[1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")
        if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str)
        if names_in(node.args[0]) in ([], ["config"])
    }


def _read_by(tree: ast.Module) -> Mapping[str, set[str]]:
    """Return the names that each name or attribute of a file is computed from, over several assignments."""
    direct: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                direct.setdefault(name, set()).update(names_in(node.value))
        elif isinstance(node, ast.keyword) and node.arg:
            direct.setdefault(node.arg, set()).update(names_in(node.value))
    found = {name: set(origins) for name, origins in direct.items()}
    for _ in range(_DEPTH):
        for name, origins in found.items():
            found[name] = origins | {far for near in origins for far in direct.get(near, ())}
    return found
