"""The same model on every target that is here, side by side: `python examples/compare_backends.py --model bert`."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tabulate import tabulate

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.generators.recipes.build_model import build
from hwcompat.hardware.backends.base import ModelInput
from hwcompat.hardware.backends.factory import get_backend, known_targets
from hwcompat.hardware.compare import compare
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.testing import reference
from hwcompat.hardware.testing.seeded_weights import fill


def _model(recipe: Recipe) -> Any:
    return fill(
        build(recipe.config_class, recipe.model_class, recipe.config),
        gain=recipe.gain or 1.0,
        zero_centered=recipe.zero_centered,
    )


_STAND_INS = {"emulator", "stands_in"}
"""Conditions of a run in which something else computes for the device."""


def row(name: str, recipe: Recipe, *, passes: int) -> tuple[object, ...]:
    """Target, error relative to float64, operators on it and beside it, milliseconds of a pass."""
    backend = get_backend(name)
    if reason := backend.unavailable():
        return name, None, None, None, None, reason
    model, inputs = _model(recipe), make_inputs(recipe.inputs, 0)
    subject = ModelInput(model=model, task=recipe.task, identity=reference.identity_of(model))
    runnable = backend.load(subject, inputs, "float32")
    try:
        want = reference.float64_outputs(reference.as_reference(_model(recipe)), inputs)
        main = {output: want[output] for output in recipe.outputs}
        error = compare(runnable(**inputs), main, masks=masks_of(recipe.masked_by, inputs), required=main)
        proof = runnable.execution()
        times = []
        for _ in range(passes):
            started = time.perf_counter()
            runnable(**inputs)
            times.append(1000 * (time.perf_counter() - started))
        taken = f"{statistics.median(times):.1f}"
        if backend.SIMULATED or _STAND_INS & set(runnable.conditions):
            taken = "-"  # what stands in for a device has that device's numbers, and not its speed
        native, beside = sum(proof.native.values()), sum(proof.offloaded.values())
        return name, f"{error.max_rel_error:.1e}", native, beside, taken, ""
    finally:
        runnable.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bert")
    parser.add_argument("--passes", type=int, default=10)
    options = parser.parse_args()
    recipe = load_recipe(options.model)
    # A device that is made in Python has to be registered before torch's first backward pass; so it comes first.
    names = sorted(known_targets(), key=lambda name: name != "simulated")
    rows = [row(name, recipe, passes=options.passes) for name in names]
    print(
        tabulate(
            rows,
            headers=["target", "error", "operators there", "on the host", "ms", "why not"],
            disable_numparse=True,
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
