"""What workers do alike that run ONNX files in ONNX Runtime: open a session once, and run it on arrays in files.

Imports nothing of ours: it runs with the Python of another environment.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_sessions: dict[str, Any] = {}


def runtime() -> Any:
    """The environment's ONNX Runtime."""
    return importlib.import_module("onnxruntime")


def options_of(optimisation: str, config: Mapping[str, str]) -> Any:
    """Options of a session, with the name of its level of optimisation and its entries."""
    options = runtime().SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(runtime().GraphOptimizationLevel, optimisation)
    for name, value in config.items():
        options.add_session_config_entry(name, value)
    return options


def session_of(model: str, settings: Mapping[str, Any], options: Callable[[], Any], **providers: Any) -> Any:
    """The session of a file with such settings, opened when first asked for."""
    key = json.dumps([model, settings], sort_keys=True)
    if key not in _sessions:
        # Without this a session whose provider fails is made again on the CPU, with a line on standard output.
        _sessions[key] = runtime().InferenceSession(model, options(), enable_fallback=0, **providers)
    return _sessions[key]


def run_pass(
    session: Any, *, inputs: str, outputs: str, execution: str, told: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """One pass: arrays from the file `inputs`, arrays to the file `outputs`, and to `execution` what is `told` of it
    afterwards with its seconds."""
    np = importlib.import_module("numpy")
    with np.load(inputs) as file:
        given = {one.name: file[one.name] for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    started = time.perf_counter()
    results = session.run(names, given)
    seconds = time.perf_counter() - started
    np.savez(outputs, **dict(zip(names, results)))  # noqa: B905 - also runs on Python 3.9
    proof = {**told(), "seconds": seconds}
    Path(execution).write_text(json.dumps(proof), encoding="utf-8")
    return proof
