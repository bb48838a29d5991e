"""Measure peak memory on a device for models at their default sizes, to compare with estimates."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.memory.allocator import peak_while, storage_bytes
from generators.compatibility.memory_fit import MemoryRequest
from generators.models.inputs import make_inputs, placeholders
from generators.models.priority import types_of_priority
from generators.recipes.build_model import class_of
from generators.recipes.memory.memory_estimate import built, dtype_of, run
from generators.recipes.memory.memory_request import _estimate
from generators.recipes.memory.memory_request import _Model as ModelFacts
from generators.recipes.memory.memory_request import _model as model_of
from generators.recipes.real_dims import start
from hardware.gc_control import uncollected
from hardware.model.calls import in_dtype, to_tensors

_SEED = 26
_POINTS = 4
"""The number of requests drawn for a type."""
_GIB = 2**30
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_STATES = {"inference": 1, "generation": 1, "training": 4}
"""Copies of the weights by mode: weights, gradients and two moments of AdamW."""


def requests(model_type: str, subject: ModelFacts, most_tokens: int) -> Iterator[dict[str, Any]]:
    """Draw the requests of a type, the same ones on every machine."""
    chance = random.Random(f"{_SEED} {model_type}")
    longest = min(subject.longest or 512, 4096) - 2  # The first two positions of roberta aren't for text.
    modes = ["inference", "training", *(["generation"] if subject.decodes else [])]
    for number in range(_POINTS):
        precision = chance.choice(tuple(_BYTES))
        batch = min(chance.choice((1, 2, 4, 8, 16, 32)), most_tokens // 16)
        length = min(chance.choice((32, 128, 512, 1024, 2048)), longest, most_tokens // batch)
        yield {
            "model_type": model_type,
            "mode": modes[number % len(modes)],
            "precision": precision,
            "batch": batch,
            "length": length if subject.reads else 16,
        }


def measured(model: Any, subject: ModelFacts, request: dict[str, Any], device: str) -> dict[str, Any]:
    """Return the peak bytes of a request with weights and inputs, and the bytes of allocator and process.

    `workspace` are bytes that stay after the request and belong to no model, such as those of cuBLAS.
    """
    model = in_dtype(model, dtype_of(request["precision"])).train(request["mode"] == "training")
    model.zero_grad(set_to_none=True)
    length = max(request["length"] - placeholders(subject.specs), 4)
    arrays = make_inputs(subject.specs, 0, [length] * request["batch"])
    tensors = to_tensors(arrays, device, dtype_of(request["precision"]))
    there = storage_bytes([*model.parameters(), *model.buffers(), *tensors.values()])
    if device == "cpu":
        return {
            "weights_and_inputs": there,
            "measured": there + peak_while(lambda: run(model, tensors, request["mode"], lambda *_: None))[0],
        }
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run(model, tensors, request["mode"], lambda *_: None)
    torch.cuda.synchronize()
    found = {
        "weights_and_inputs": there,
        "measured": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "process": _of_process(),
    }
    model.zero_grad(set_to_none=True)
    gc.collect()
    return {**found, "workspace": torch.cuda.memory_allocated() - there}


def _of_process() -> int | None:
    """Return the bytes that the driver reports for this process, or None."""
    with contextlib.suppress(Exception):  # no NVML, or a container that hides processes
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if one.pid == os.getpid():
                return int(one.usedGpuMemory)
    return None


def _model(model_type: str, subject: ModelFacts, device: str, precision: str) -> Any:
    _, chosen, config, _ = start(model_type, None)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype_of(precision))
    try:
        with torch.device(device):
            model = built(lambda: class_of(chosen.model_class)(config))
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.05, 0.05)
    return model


def points(model_type: str, device: str, most_gb: float, most_tokens: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each request of a type, with the reason if it can't be measured."""
    try:
        with uncollected():
            subject = model_of(model_type, None)
        parameters = subject.stack.anatomy().parameters
    except Exception as error:  # Modeling code may raise any exception.
        yield {"model_type": model_type, "left_out": _line(error)}
        return
    for request in requests(model_type, subject, most_tokens):
        model = None
        needed = parameters * _BYTES[request["precision"]] * _STATES[request["mode"]]
        if needed > most_gb * _GIB:
            yield {**request, "parameters": parameters, "left_out": f"its weights alone need {needed / _GIB:.0f} GiB"}
            continue
        started = time.monotonic()
        try:
            model = _model(model_type, subject, device, request["precision"])
            found = measured(model, subject, request, device)
        except Exception as error:  # Modeling code may raise any exception.
            found = {"left_out": _line(error)}
        del model
        yield {**request, "parameters": parameters, **found, "seconds": round(time.monotonic() - started, 1)}
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@click.group()
def main() -> None:
    """Measure peak memory on a device, and estimate it."""


@main.command()
@click.argument("points", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
def estimate(points: Path, out: Path) -> None:
    """Write measured POINTS to OUT with an `estimate` made without the device, or the reason why there is none."""
    warnings.simplefilter("ignore")
    subjects: dict[str, Any] = {}
    with out.open("w", encoding="utf-8") as file:
        for line in points.read_text(encoding="utf-8").splitlines():
            point = json.loads(line)
            if "measured" in point:
                point |= _estimated(point, subjects)
            file.write(json.dumps(point) + "\n")


def _estimated(point: Mapping[str, Any], subjects: dict[str, Any]) -> dict[str, Any]:
    name = point["model_type"]
    request = MemoryRequest(
        mode=point["mode"], precision=point["precision"], batch=point["batch"], context=point["length"]
    )
    try:
        if name not in subjects:
            subjects.clear()  # One at a time, because they are large.
            with uncollected():
                subjects[name] = model_of(name, None)
        return {"estimate": _estimate(subjects[name], request).total}
    except Exception as error:  # Modeling code may raise any exception, which is the reason.
        return {"unknown": _line(error)}


@main.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--device", default="cuda", show_default=True)
@click.option("--most-gb", type=float, default=60.0, show_default=True, help="GiB of weights and optimizer.")
@click.option("--most-tokens", type=int, default=65536, show_default=True, help="In a batch.")
@click.option("--seconds", type=float, default=330.0, show_default=True)
@click.option("--only", multiple=True, help="Model types; default: those of high priority.")
def measure(out: Path, device: str, most_gb: float, most_tokens: int, seconds: float, only: tuple[str, ...]) -> None:
    """Append a line for each request to OUT."""
    warnings.simplefilter("ignore")
    ends = time.monotonic() + seconds
    left = list(only or types_of_priority("high"))
    while left and time.monotonic() < ends:
        for point in points(left.pop(0), device, most_gb, most_tokens):
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(point) + "\n")
            if "CUDA error" in point.get("left_out", ""):  # The device is lost for this process.
                limits = {"--device": device, "--most-gb": most_gb, "--most-tokens": most_tokens}
                limits["--seconds"] = ends - time.monotonic()
                words = [str(word) for pair in (*limits.items(), *(("--only", one) for one in left)) for word in pair]
                os.execv(
                    sys.executable,
                    [sys.executable, "-m", "benchmarks.gpu_session.memory", "measure", str(out), *words],
                )


if __name__ == "__main__":
    main()
