"""Print docs/measured/optimizers.md: the ten reference models at levels O0 to O3 on a target, compared in one run.

`python -m benchmarks.optimizers > docs/measured/optimizers.md`; `--keep FOLDER` resumes an interrupted run. Each
level gets its own model; calls of all levels are timed in turns, so that other load affects all equally, and each is
compared with O0 of the same round.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import torch

from generators.models.catalog import load_catalog
from generators.models.classifier import classify_type
from generators.models.inputs import make_inputs
from generators.models.recipe_store import load_recipe
from generators.recipes.build_model import build
from generators.recipes.config_division import Division
from generators.recipes.config_scopes import numbers, role_of, tree
from generators.recipes.derive import task_class
from generators.recipes.input_specs import input_specs
from generators.recipes.tiny import tiny_configs
from hardware.backends.base import BaseBackend
from hardware.backends.factory import get_backend
from hardware.compare import Array, compare
from hardware.errors import HwCompatError, ModelError
from hardware.inventory.system.processor import read_cpu
from hardware.model.calls import to_tensors
from hardware.optimization import OptimizationLevel, OptimizationResult, attempts
from hardware.optimization.batch_norms import outputs_of
from hardware.testing.reference import as_reference, float64_outputs
from hardware.testing.seeded_weights import fill

WARM_UPS, ROUNDS, CALLS = 1, 9, 2
LONG = 1.0
"""In seconds: calls that take longer are timed once."""
MOST_OVER = 0.05
"""The largest allowed slowdown of O2 compared with O0."""

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


REFERENCE_MODELS = ("bert", "gpt2", "llama", "t5", "vit", "clip", "whisper", "resnet", "mixtral", "mamba")
"""One for each kind of model: encoder, decoders with learned and with rotary positions, encoder-decoder, vision,
vision and text, speech, convolutions, mixture of experts, state space."""

LEAST_WIDTH = 256
LENGTH = 96
_FACTORS = (64, 32, 16, 8, 4, 2)


def larger(model_type: str) -> tuple[Any, dict[str, Array], str]:
    """Return a float32 model with seeded test weights, inputs of one row of `LENGTH` tokens (or its number of
    positions), and its description.

    Its widths are the type's defaults divided by the largest power of two that leaves `LEAST_WIDTH`; it has four
    layers, or one in each stage. Raises `ModelError` if it can't be built.
    """
    what, chosen, recipe = classify_type(model_type), task_class(model_type, None), load_recipe(model_type)
    if recipe is None or recipe.gain is None:
        raise ModelError(f"no recipe ships for {model_type}")
    config = next(tiny_configs(model_type, load_catalog(), chosen.task, divisions=_divisions))
    model = fill(
        build(recipe.config_class, recipe.model_class, config), gain=recipe.gain, zero_centered=recipe.zero_centered
    )
    side = next((spec["side"] for spec in recipe.inputs.values() if spec["kind"] == "mask"), "right")
    places = [count for scope in tree(model.config) for count in numbers(role_of(scope, "positions"))]
    length = min([LENGTH, *places])
    specs = input_specs(model, chosen.entry, what.architecture, side, length)
    count = sum(parameter.numel() for parameter in model.parameters())
    widths = sorted({width for scope in tree(model.config) for width in numbers(role_of(scope, "hidden"))})
    shown = f"{count / 1e6:.1f} M parameters, width {' and '.join(map(str, widths))}"
    return model, make_inputs(specs, 0, (length,)), shown if length == LENGTH else f"{shown}, {length} tokens"


def _divisions(config: Any) -> list[Division]:
    widths = [width for scope in tree(config) for width in numbers(role_of(scope, "hidden"))]
    fitting = [one for one in _FACTORS if min(widths) % one == 0 and min(widths) // one >= LEAST_WIDTH]
    return [Division(factor=fitting[0] if fitting else 1, deeper=True)]


@dataclass(frozen=True, kw_only=True)
class Level:
    """One model at one level: applied optimizations and measurements."""

    applied: Sequence[str]
    warnings: Sequence[str]
    allowed: float
    prepared: float
    milliseconds: float
    ratio: float
    error: float
    error_float64: float


def measured(name: str, target: str) -> tuple[str, dict[str, Level]]:
    """Return the model's description and its levels. Raises `HwCompatError` if model or target isn't available."""
    backend = get_backend(target)
    made = {level: _prepared(name, level, backend) for level in OptimizationLevel}
    sample = next(iter(made.values()))[2]
    want = outputs_of(made[OptimizationLevel.O0][0], sample)
    model, arrays, description = larger(name)
    exact = float64_outputs(as_reference(model), arrays)
    del model
    times = _in_turns([(one, sample) for one, _, _, _ in made.values()], backend)
    first = times[0]
    levels = {
        level.value: Level(
            applied=result.optimizations_applied,
            warnings=result.warnings,
            allowed=result.metrics.get("allowed_rel_error", 0.0),
            prepared=seconds,
            milliseconds=statistics.median(taken) * 1e3,
            ratio=statistics.median(one / zero for one, zero in zip(taken, first, strict=True)),
            error=compare(outputs_of(module, sample), want).max_rel_error,
            error_float64=compare(outputs_of(module, sample), exact).max_rel_error,
        )
        for (level, (module, result, _, seconds)), taken in zip(made.items(), times, strict=True)
    }
    return description, levels


def _prepared(
    name: str, level: OptimizationLevel, backend: BaseBackend
) -> tuple[Any, OptimizationResult, Mapping[str, Any], float]:
    model, arrays, _ = larger(name)
    sample = to_tensors(arrays, backend.device, torch.float32)
    started = time.perf_counter()
    model = backend.prepare_model(model, level, sample)
    seconds = time.perf_counter() - started
    assert backend.optimized is not None
    return model, backend.optimized, sample, seconds


def _in_turns(calls: Sequence[tuple[Any, Mapping[str, Any]]], backend: BaseBackend) -> list[list[float]]:
    """Return the shortest time in s of some calls of each module in each round; the order rotates."""
    times: list[list[float]] = [[] for _ in calls]
    with torch.no_grad():
        for turn in range(WARM_UPS + ROUNDS):
            order = list(range(len(calls)))
            for place in order[turn % len(calls) :] + order[: turn % len(calls)]:
                times[place].append(_shortest(*calls[place], backend))
    return [taken[WARM_UPS:] for taken in times]


def _shortest(model: Any, sample: Mapping[str, Any], backend: BaseBackend) -> float:
    """Return the shortest time of some calls in s; a long call is made once."""
    clock = attempts.clock_of(backend.device)
    taken: list[float] = []
    while len(taken) < CALLS and (not taken or taken[0] < LONG):
        started = clock()
        model(**sample)
        backend.synchronize()
        taken.append(clock() - started)
    return min(taken)


def page(found: Mapping[str, tuple[str, Mapping[str, Level]]], head: Mapping[str, Any]) -> str:
    """Return the page as Markdown."""
    return "\n".join(
        [_HEAD.format(**head, count=len(found), result=_summary(found)), *_table(found), *_reverted(found)]
    )


def _summary(found: Mapping[str, tuple[str, Mapping[str, Level]]]) -> str:
    ratios = {name: levels["O2"].ratio for name, (_, levels) in found.items()}
    over = [name for name, (_, levels) in found.items() if _breaks(levels)]
    kept = [name for name, (_, levels) in found.items() if levels["O2"].applied]
    return (
        f"O2 takes {_range(ratios[name] for name in kept)} of the time of O0 for {len(kept)} of {len(found)} models, "
        f"and leaves the others unchanged. More than {MOST_OVER:.0%} slower than O0 with a step applied: "
        f"{', '.join(over) or 'none'}. Beyond its tolerance: {', '.join(_beyond(found)) or 'none'}."
    )


def _breaks(levels: Mapping[str, Level]) -> bool:
    return levels["O2"].ratio > 1 + MOST_OVER and bool(levels["O2"].applied)


def _range(ratios: Iterator[float]) -> str:
    listed = sorted(ratios)
    return f"{listed[0]:.2f} to {listed[-1]:.2f}" if listed else "none"


def _beyond(found: Mapping[str, tuple[str, Mapping[str, Level]]]) -> list[str]:
    return [
        f"{name} at {level}"
        for name, (_, levels) in found.items()
        for level, one in levels.items()
        if not one.error <= one.allowed
    ]


def _table(found: Mapping[str, tuple[str, Mapping[str, Level]]]) -> Iterator[str]:
    yield "| model | level | ms | of O0 | error to O0 (allowed) | to float64 | prepared | applied |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, (description, levels) in found.items():
        for level, one in levels.items():
            applied = ", ".join(one.applied) or ("placement" if level == "O0" else "left alone")
            model = f"{name} ({description})" if level == "O0" else ""
            yield (
                f"| {model} | {level} | {one.milliseconds:.1f} | {one.ratio:.2f} | "
                f"{one.error:.1e} ({one.allowed:g}) | {one.error_float64:.1e} | {one.prepared:.1f} s | {applied} |"
            )


def _reverted(found: Mapping[str, tuple[str, Mapping[str, Level]]]) -> Iterator[str]:
    """Yield optimizations that were skipped or reverted, with the reason, at the first level where it occurs."""
    yield "\n## What was tried, and why it isn't in force\n"
    yield "| model | level | step | why |\n|---|---|---|---|"
    for name, (_, levels) in found.items():
        for level, one in levels.items():
            for warning in one.warnings:
                step, _, why = warning.partition(": ")
                yield f"| {name} | {level} | {step} | {' '.join(why.split()).replace('|', '/')} |"


def _head(target: str, threads: int, command: str) -> dict[str, Any]:
    import transformers

    return {
        "command": command,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": read_cpu().model,
        "threads": threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "target": target,
        "length": LENGTH,
        "rounds": ROUNDS,
        "calls": CALLS,
        "faster": attempts.FASTER,
        "tries": attempts.ROUNDS,
    }


@click.command()
@click.argument("models", nargs=-1)
@click.option("--target", default="cpu", show_default=True)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1), help="Of torch, on the host.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Where each model's figures are kept.")
def main(models: tuple[str, ...], target: str, threads: int, keep: Path | None) -> None:
    """Print the page."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:  # without cached compilations
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        found = _all(models or REFERENCE_MODELS, target, keep or Path(folder))
    elsewhere = [] if target == "cpu" else [f"--target {target}"]
    command = " ".join(["python -m benchmarks.optimizers", *models, *elsewhere])
    click.echo(page(found, _head(target, threads, command)))


def _all(models: Sequence[str], target: str, keep: Path) -> dict[str, tuple[str, dict[str, Level]]]:
    """Measure the models without stored results, so that an interrupted run resumes."""
    keep.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in models:
        file = keep / f"{name}-{target.replace(':', '_')}.json"
        if not file.is_file():
            started = time.perf_counter()
            try:
                description, levels = measured(name, target)
            except HwCompatError as error:
                raise click.ClickException(str(error)) from error
            torch._dynamo.reset()
            gc.collect()
            plain = {level: asdict(one) for level, one in levels.items()}
            file.write_text(json.dumps({"model": description, "levels": plain}), encoding="utf-8")
            click.echo(f"{name}: {time.perf_counter() - started:.0f} s", err=True)
        read = json.loads(file.read_text(encoding="utf-8"))
        found[name] = read["model"], {level: Level(**one) for level, one in read["levels"].items()}
    return found


if __name__ == "__main__":
    main()
