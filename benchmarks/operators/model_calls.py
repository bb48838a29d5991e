"""Record how the tiny model of each recipe calls torch's operators, in one forked child per model type."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import click

from generators.compatibility.operators.operator_names import FILE
from generators.models.inputs import make_inputs
from generators.models.recipe import Recipe
from generators.models.recipe_store import stored_recipes
from generators.recipes.derive_many import in_children
from generators.recipes.operator_calls import OperatorCall
from hardware.files import write_whole

MOST_EXAMPLES = 4
TIMEOUT_S = 120.0
_SEED = 0


def record_all() -> None:
    """Write the file."""
    write_examples(calls_of_all(stored_recipes()))


def calls_of_all(recipes: Iterable[Recipe]) -> Iterator[tuple[str, list[OperatorCall]]]:
    """Return the calls of each model type; types that can't run are reported and omitted."""
    for recipe, answer, lost in in_children(recipes, _calls, jobs=1, timeout_s=TIMEOUT_S):
        if answer is None or "failure" in answer:
            click.echo(f"{recipe.model_type}: {lost or (answer or {})['failure']}", err=True)
        else:
            yield recipe.model_type, [OperatorCall.from_dict(one) for one in answer["calls"]]


def _calls(recipe: Recipe) -> dict[str, Any]:
    """Return the operator calls of one forward pass of the tiny model, or the reason why it can't run."""
    import torch

    from generators.recipes.build_model import build
    from generators.recipes.measurements import forward_pass
    from generators.recipes.operator_calls import call_recorder

    torch.set_num_threads(1)
    torch.manual_seed(_SEED)
    try:
        model = build(recipe.config_class, recipe.model_class, recipe.config)
        inputs = make_inputs(recipe.inputs, _SEED, recipe.recorded["lengths"])
        with call_recorder() as recorder:
            forward_pass(model, inputs)
    except Exception as error:  # Modeling code may raise any exception, which is the reason.
        return {"failure": f"{type(error).__name__}: {error}"[:300]}
    return {"calls": [call.to_dict() for call in recorder.calls]}


def write_examples(found: Iterable[tuple[str, list[OperatorCall]]]) -> None:
    """Write the most common calls of each operator over model types, and which types make those and others. The
    same calls give the same bytes."""
    types: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    first: dict[tuple[Any, ...], OperatorCall] = {}
    everybody = set()
    for model_type, calls in sorted(found, key=lambda one: one[0]):
        everybody.add(model_type)
        for call in calls:
            types[call.kind].add(model_type)
            first.setdefault(call.kind, call)
    kept: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    others: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for kind in sorted(first, key=lambda one: (one[0], -len(types[one]), str(one))):
        if len(kept[kind[0]]) < MOST_EXAMPLES:
            kept[kind[0]].append(_kept(first[kind], types[kind]))
        else:
            others[kind[0]].append(_others(first[kind], types[kind]))
    plain = {
        "made_by": "python -m benchmarks.operators calls",
        "versions": {name: version(name).partition("+")[0] for name in ("torch", "transformers", "diffusers")},
        "types": len(everybody),
        "operators": dict(sorted(kept.items())),
        "others": dict(sorted(others.items())),
    }
    write_whole(FILE, gzip.compress(json.dumps(plain, sort_keys=True).encode(), mtime=0))
    click.echo(f"{len(kept)} operators of {len(everybody)} types; {Counter(map(len, kept.values()))} examples")


def _kept(call: OperatorCall, types: set[str]) -> Mapping[str, Any]:
    return {"types": len(types), "arguments": call.arguments, "named": call.named, **_others(call, types)}


def _others(call: OperatorCall, types: set[str]) -> Mapping[str, Any]:
    return {"overload": call.overload, "model_types": sorted(types), "tensors": call.tensors}
