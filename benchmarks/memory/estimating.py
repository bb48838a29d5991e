"""Estimate measured requests, and compare with `accelerate estimate-memory`."""

from __future__ import annotations

import functools
import gzip
import json
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from generators.compatibility.memory_fit import MemoryRequest
from generators.recipes.build_model import build
from generators.recipes.memory.kernel_workspace import on_processor
from generators.recipes.memory.memory_estimate import Skeleton, built
from hardware.evidence.versions import versions_of

_OF_MODEL = ("config_class", "model_class", "config")
Point = dict[str, Any]


def read_points(path: Path) -> list[Point]:
    """Read the lines of a file, packed or not."""
    packed = path.read_bytes()
    text = gzip.decompress(packed) if path.suffix == ".gz" else packed
    return [json.loads(line) for line in text.splitlines()]


def write_points(points: list[Point], path: Path) -> None:
    """Write packed lines: the same bytes for the same points."""
    text = "".join(json.dumps(point, sort_keys=True) + "\n" for point in points)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


@functools.lru_cache(maxsize=1)
def _skeleton(model: str) -> Skeleton:
    return Skeleton(lambda: build(*json.loads(model)))


@functools.lru_cache(maxsize=1)
def _bytes_in_float32(model: str) -> int:
    """Return accelerate's size of a model in bytes: `calculate_maximum_sizes` on the meta device."""
    from accelerate.utils.modeling import calculate_maximum_sizes

    with torch.device("meta"):
        found = built(lambda: build(*json.loads(model)))
    return int(calculate_maximum_sizes(found)[0])


def _rival(model: str, point: Point) -> int:
    """Return the bytes that `accelerate estimate-memory` prints for a model, computed as in its `gather_data`: the
    size, half of it in half precision (bfloat16 as float16), or the largest of a training step with Adam."""
    from accelerate.commands.estimate import estimate_training_usage

    size = _bytes_in_float32(model)
    if point["mode"] == "training":
        return int(max(estimate_training_usage(size, point["precision"]).values()))
    return size if point["precision"] == "float32" else size // 2


def with_estimates(points: list[Point]) -> Iterator[Point]:
    """Yield the measured points with `parts` of an estimate and accelerate's `rival`, or with the reason in `unknown`
    if there is no estimate."""
    versions = _versions()
    for point in points:
        if "left_out" in point:
            continue
        model = json.dumps([point[name] for name in _OF_MODEL])
        request = MemoryRequest(
            mode=point["mode"], precision=point["precision"], batch=point["batch"], context=point["length"]
        )
        estimate: Point = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                lengths = [point["length"]] * point["batch"]
                with on_processor(point["cpu"]):
                    estimate["parts"] = _skeleton(model).estimate(request, point["inputs"], lengths).parts
            except Exception as error:  # Modeling code may raise any exception, which is the reason.
                estimate["unknown"] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            estimate["rival"] = _rival(model, point)
        kept = {name: value for name, value in point.items() if name not in ("parts", "unknown")}
        yield {**kept, **estimate, **versions}


def _versions() -> dict[str, Any]:
    from hardware.detection import detect

    found = versions_of(detect())
    names = ("torch", "transformers", "diffusers")
    kept = {name: found[name] for name in names if name in found}
    return {"versions": kept, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
