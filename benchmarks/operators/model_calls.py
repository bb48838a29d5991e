"""Records how the tiny model of every recipe calls torch's operators: one forked child a model type."""

from __future__ import annotations

import gc
import gzip
import importlib
import json
import multiprocessing
import os
import resource
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any

import click

from generators.compatibility.operators.calls import FILE
from generators.derivation.operator_calls import Call
from generators.models.recipe import Recipe
from generators.models.store import stored_recipes
from hardware.whole_file import write_whole

MOST_EXAMPLES = 4
TIMEOUT_S = 120.0
MEMORY_BYTES = 6 * 2**30
_NEEDED = ("torch", "torch._dynamo", "transformers.modeling_utils", "generators.derivation.real_operators")


def record_all() -> None:
    """Write the file anew."""
    write_examples(calls_of_all(stored_recipes()))


def calls_of_all(recipes: Iterable[Recipe]) -> Iterator[tuple[str, list[Call]]]:
    """The calls of each model type; a type whose model can't be run is said and left out."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in _NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for recipe in recipes:
        answer = _in_child(recipe)
        if isinstance(answer, str):
            click.echo(f"{recipe.model_type}: {answer}", err=True)
        else:
            yield recipe.model_type, answer


def _in_child(recipe: Recipe) -> list[Call] | str:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(recipe, theirs), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent do nothing that a child needs
        process.start()
    theirs.close()
    try:
        answer: list[Call] | str = ours.recv() if ours.poll(TIMEOUT_S) else f"no answer in {TIMEOUT_S:g} seconds"
    except EOFError:
        answer = "it ended without a word"
    process.kill()
    process.join()
    return answer


def _answer(recipe: Recipe, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    from generators.derivation.real_operators import tiny_calls

    try:
        pipe.send(list(tiny_calls(recipe)))
    except Exception as error:  # whatever modelling code raises is the reason why this type has no calls
        pipe.send(f"{type(error).__name__}: {error}"[:300])


def write_examples(found: Iterable[tuple[str, list[Call]]]) -> None:
    """Keep, for each operator, the ways of calling it that most model types share. The same calls, the same bytes."""
    types: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    first: dict[tuple[Any, ...], Call] = {}
    everybody = set()
    for model_type, calls in sorted(found, key=lambda one: one[0]):
        everybody.add(model_type)
        for call in calls:
            types[call.kind].add(model_type)
            first.setdefault(call.kind, call)
    kept: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for kind in sorted(first, key=lambda one: (one[0], -len(types[one]), str(one))):
        if len(kept[kind[0]]) < MOST_EXAMPLES:
            kept[kind[0]].append(_kept(first[kind], len(types[kind])))
    plain = {
        "made_by": "python -m benchmarks.operators calls",
        "versions": {name: version(name).partition("+")[0] for name in ("torch", "transformers", "diffusers")},
        "types": len(everybody),
        "operators": dict(sorted(kept.items())),
    }
    write_whole(FILE, gzip.compress(json.dumps(plain, sort_keys=True).encode(), mtime=0))
    click.echo(f"{len(kept)} operators of {len(everybody)} types; {Counter(map(len, kept.values()))} examples")


def _kept(call: Call, types: int) -> Mapping[str, Any]:
    return {
        "overload": call.overload,
        "types": types,
        "arguments": call.arguments,
        "named": call.named,
        "tensors": call.tensors,
    }
