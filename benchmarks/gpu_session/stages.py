"""The stages of a GPU session and their time limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.fallbacks.__main__ import plants
from benchmarks.mutants.__main__ import KINDS
from generators.models.priority import types_of_priority
from generators.models.recipe_store import stored_recipes

ROOT = Path(__file__).parents[2]
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
_OTHERS_IN = ("float32", "bfloat16")
"""Precisions for types without high priority, tested after everything else."""
_REAL_WIDTHS = {"llama": 8, "whisper": 4, "bert": 4, "gpt2": 4, "vit": 4}
"""Types, and cores for the reference, which takes most of the time because it computes in float64 on the CPU."""
_PYTEST = ("-m", "pytest", "test/gpu", "-q", "-rfE", "-p", "no:cacheprovider")
_PLANT_SHARES = 3


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A command. Commands with the same `turn` run concurrently; `cost` orders them, the longest first.

    `prints` is a file for the output of the command, in addition to its log.
    """

    name: str
    words: Sequence[str]
    turn: int
    cost: int = 1
    prints: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def stages(
    backend: str, folder: Path, *, forks: bool, shares: int, memory_gb: float, models: Sequence[str] = ()
) -> Iterator[Stage]:
    """Return all stages for a target below a folder. `shares` is the number of processes for each precision;
    `models` are the only types that are tested, if any are given."""
    from hardware.backends.factory import backend_class

    product = ("run_test_generation.py",) if forks else ("-m", "benchmarks.gpu_session.unforked")
    known = backend_class(backend).PRECISIONS
    others = [] if models else _others()
    for name, words in {
        "devices": ("run_test_generation.py", "--list-devices", "--format", "json"),
        "inventory": ("-m", "hardware", "list", "--format", "json"),
        "capabilities": ("-m", "hardware", "capabilities", "--format", "json"),
        "packages": ("-m", "pip", "list", "--format", "json"),
    }.items():
        yield Stage(name=name, words=(sys.executable, *words), turn=0, prints=f"{name}.json")
    if backend == "cuda":
        yield Stage(name="nvidia-smi", words=("nvidia-smi", "-q"), turn=0, prints="nvidia-smi.txt")
    told: tuple[str, ...]
    for precision in (one for one in PRECISIONS if one in known):
        for share in range(1, shares + 1):
            name = f"parity-{precision}-{share}"
            chosen = tuple(_named(models)) or ("--priority", "high")
            told = (*chosen, "--precision", precision, "--shard", f"{share}/{shares}")
            yield _run(name, product, backend, folder, *told, cost=9)
    for place, precision in enumerate(_OTHERS_IN):
        for share in range(1, 4 * shares + 1):
            if not others:
                continue
            told = (*_named(others[share - 1 :: 4 * shares]), "--precision", precision)
            yield _run(f"others-{precision}-{share}", product, backend, folder, *told, cost=-place)
    for model, cores in _REAL_WIDTHS.items():
        if models and model not in models:
            continue
        told = ("--model", model, "--dims", "real")
        threads = {"OMP_NUM_THREADS": str(max(1, min(cores, (os.cpu_count() or 1) // 2)))}
        yield replace(_run(f"real-{model}", product, backend, folder, *told, cost=10 + cores), environment=threads)
    told = ("--most-gb", f"{memory_gb:g}", "--most-tokens", "64" if backend == "cpu" else "65536")
    told += tuple(word for name in models for word in ("--only", name))
    words = _own("memory", "measure", folder / "memory.jsonl", "--device", backend, *told)
    yield Stage(name="memory", words=words, turn=1, cost=10)
    for kind in [one for one in KINDS if not models or one in models]:
        told = ("--model", kind, "--device", backend, "--clean", "1", "--json", str(folder / f"mutants-{kind}.json"))
        yield Stage(
            name=f"mutants-{kind}",
            words=(sys.executable, "-m", "benchmarks.mutants", *told),
            turn=1,
            cost=3,
            prints=f"mutants-{kind}.txt",
        )
    planted_on = "simulated" if backend == "cpu" else backend  # The CPU can't fall back to itself.
    planted = [plant.name for plant in plants() if plant.target == "simulated"]
    for number in range(_PLANT_SHARES):
        chosen = [word for name in planted[number::_PLANT_SHARES] for word in ("--plant", name)]
        yield Stage(
            name=f"fallbacks-{number + 1}",
            words=(
                *(sys.executable, "-m", "benchmarks.fallbacks", *chosen, "--on", planted_on),
                *("--json", str(folder / f"fallbacks-{number + 1}.json")),
            ),
            turn=1,
            cost=7,
            prints=f"fallbacks-{number + 1}.md",
        )
    words = _own("operators", folder / "operators.jsonl", "--device", backend)
    yield Stage(name="operators", words=words, turn=1, cost=7)
    words = (sys.executable, *_PYTEST, "--backend", backend)
    yield Stage(name="tests", words=words, turn=1, cost=6)
    loaded = "cpu" if backend == "cpu" else f"{backend}:0"
    told = ("--duration", "20", "--warmup", "5", "--format", "json")
    yield Stage(
        name="stress",
        words=(sys.executable, "-m", "hardware", "stress", loaded, *told),
        turn=2,
        prints="stress.json",
    )
    yield Stage(
        name="report",
        words=(
            sys.executable,
            *("hardware_compatibility_reporter.py", "--collect-all", "--format", "json"),
            *("--evidence", str(folder / "evidence"), "--output-dir", str(folder / "reports")),
        ),
        turn=3,
    )


def _others() -> list[str]:
    """Return types without high priority that have a recipe; others take minutes to derive."""
    there = {recipe.model_type for recipe in stored_recipes()}
    high = set(types_of_priority("high"))
    return [name for name in types_of_priority("all") if name in there and name not in high]


def _named(models: Sequence[str]) -> Iterator[str]:
    for model in models:
        yield from ("--model", model)


def _own(name: str, *words: object) -> tuple[str, ...]:
    return (sys.executable, "-m", f"benchmarks.gpu_session.{name}", *map(str, words))


def _run(name: str, product: Sequence[str], backend: str, folder: Path, *told: str, cost: int = 5) -> Stage:
    places = {"--output-dir": "suites", "--evidence": "runs", "--report-dir": "reports"}
    named = [word for option, place in places.items() for word in (option, str(folder / place / name))]
    words = (sys.executable, *product, *told, "--device", backend, "--run", *named)
    return Stage(name=name, words=words, turn=1, cost=cost, prints=f"{name}.txt")
