"""Measure requests in one forked child per model type, one at a time, with limits of memory and time."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import resource
import signal
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from generators.models.inputs import make_inputs
from generators.models.recipe import Recipe
from generators.recipes.build_model import build
from generators.recipes.memory.memory_estimate import built, dtype_of, run
from hardware.model.calls import in_dtype, to_tensors

from .allocator import peak_while, storage_bytes
from .requests import LEAST, MOST_PARAMETERS, MOST_ROWS, Asked, Request, asked_of, configs, parameters_of, random_of

MEMORY_LIMIT = 6 * 2**30
_PER_TYPE_S, _PER_POINT_S = 6, 3
"""Processor seconds for a configuration of a type, and for a point."""


class _Quick:
    """Fast random numbers: a few values repeated, because the values don't matter here."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._normal = self._rng.standard_normal(1021).astype(np.float32)

    def standard_normal(self, shape: Any) -> Any:
        return np.resize(self._normal, shape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)


class _TooSlow(Exception):
    pass


def measured(model: torch.nn.Module, request: Request) -> tuple[int, list[str]]:
    """Return the peak bytes of one request with weights and inputs, and the operators at the peak."""
    model = in_dtype(model, dtype_of(request["precision"])).train(request["mode"] == "training")
    model.zero_grad(set_to_none=True)
    arrays = make_inputs(request["inputs"], 0, [request["length"]] * request["batch"], _Quick())
    tensors = to_tensors(arrays, "cpu", dtype_of(request["precision"]))
    del arrays
    there = storage_bytes([*model.parameters(), *model.buffers(), *tensors.values()])
    peak, where = peak_while(lambda: run(model, tensors, request["mode"], lambda *_: None))
    return there + peak, where


def _batch(model: Any, request: Request, asked: Asked, rows: dict[Any, tuple[float, float]]) -> int:
    """Return the batch size for the wanted peak, extrapolated from 8 and 32 rows; 0 if one row takes too much."""
    if asked.batch is not None:
        return asked.batch
    key = (asked.mode, asked.length, asked.precision)
    if key not in rows:
        few, more = (measured(model, {**request, "batch": batch})[0] for batch in (8, 32))
        a_row = max((more - few) / 24, 1.0)
        rows[key] = (a_row, few - 8 * a_row)
    a_row, fixed = rows[key]
    batch = int((asked.target - fixed) / a_row)
    if batch < 1:
        return 1 if fixed + a_row < 3 * asked.target else 0
    return min(batch, MOST_ROWS)


def _real(recipe: Recipe, config: Mapping[str, Any]) -> torch.nn.Module | None:
    """Return the model with weights, or None if it is too large."""
    if parameters_of(recipe, config) > MOST_PARAMETERS:
        return None
    model = built(lambda: build(recipe.config_class, recipe.model_class, config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.05, 0.05)
    return model


def warm(recipe: Recipe) -> None:
    """Import what every child needs. One thread computes, because a fork would lose others."""
    torch.set_num_threads(1)
    with contextlib.suppress(Exception):
        model = _real(recipe, recipe.config)
        request = {"inputs": recipe.inputs, "length": 16, "batch": 2, "precision": "float32", "mode": "training"}
        measured(model, request)


def measure_type(recipe: Recipe, turn: int, out: Path) -> None:
    """Measure the requests of one type in a child, one line each; others get a reason."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    torch.set_num_threads(1)

    def stop(*_: Any) -> None:
        raise _TooSlow("too slow to be measured here")

    signal.signal(signal.SIGPROF, stop)
    chance = random_of(recipe.model_type, turn)
    done: set[bool] = set()
    for wide, config in configs(recipe, chance):
        if wide in done:
            continue
        try:
            model = _real(recipe, config)
        except Exception as error:  # The next configuration may work.
            _append(
                out, {"model_type": recipe.model_type, "config": config, "wide": wide, "left_out": _reason(error)}
            )
            continue
        if model is not None:
            done.add(wide)
            _measure_model(recipe, model, wide, config, chance, out, time.process_time() + _PER_TYPE_S)


def _measure_model(
    recipe: Recipe, model: Any, wide: bool, config: Any, chance: random.Random, out: Path, ends: float
) -> None:
    rows: dict[Any, tuple[float, float]] = {}
    slow = 0
    for asked in asked_of(recipe, wide, chance):
        if time.process_time() > ends or slow > 1:
            break
        request = {
            "model_type": recipe.model_type,
            "family": recipe.family,
            "config_class": recipe.config_class,
            "model_class": recipe.model_class,
            "config": config,
            "inputs": {name: dict(spec) for name, spec in recipe.inputs.items()},
            "wide": wide,
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "length": asked.length,
            "precision": asked.precision,
            "mode": asked.mode,
        }
        line = _one(model, request, asked, rows)
        slow += line.get("left_out", "").startswith("too slow")
        _append(out, line)
        gc.collect()


def _append(out: Path, line: Mapping[str, Any]) -> None:
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _one(model: Any, request: Request, asked: Asked, rows: dict[Any, tuple[float, float]]) -> Request:
    signal.setitimer(signal.ITIMER_PROF, _PER_POINT_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batch = _batch(model, request, asked, rows)
            if not batch:
                return {**request, "left_out": "one example takes too much"}
            request = {**request, "batch": batch}
            peak, where = measured(model, request)
        found = {**request, "measured": peak, "where": where}
        return found if peak >= LEAST else {**found, "left_out": "below the least size"}
    except _TooSlow as error:
        return {**request, "left_out": str(error)}
    except Exception as error:  # Modeling code may raise any exception, which is the reason.
        return {**request, "left_out": _reason(error)}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def in_child(recipe: Recipe, turn: int, out: Path) -> None:
    """Measure one type in a forked child and wait for it; a child that hangs is killed."""
    child = os.fork()
    if child == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            measure_type(recipe, turn, out)
        finally:
            os._exit(0)
    ends = time.monotonic() + 20 * _PER_TYPE_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.05)
