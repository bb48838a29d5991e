"""Run models in other environments: a process of another Python reads model.onnx and inputs.npz, and writes
outputs.npz and execution.json."""

from .environments import Browser, Environment, environment_of, environment_versions, web_folder, without_browser
from .worker import Worker, WorkerDied, WorkerError, WorkerTimeout

__all__ = [
    "Browser",
    "Environment",
    "Worker",
    "WorkerDied",
    "WorkerError",
    "WorkerTimeout",
    "environment_of",
    "environment_versions",
    "web_folder",
    "without_browser",
]
