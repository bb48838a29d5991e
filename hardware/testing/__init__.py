"""What a suite needs where it runs. Importing it imports no torch and no transformers, and NumPy only when used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import checkpoint_folder, load_checkpoint
    from .graph_files import GraphTest, graph_file
    from .model_test import ModelTest
    from .own_module import OwnModuleTest, use_working_directory

__all__ = [
    "GraphTest",
    "ModelTest",
    "OwnModuleTest",
    "checkpoint_folder",
    "graph_file",
    "load_checkpoint",
    "use_working_directory",
]

_WHERE = {
    "GraphTest": "graph_files",
    "ModelTest": "model_test",
    "OwnModuleTest": "own_module",
    "checkpoint_folder": "checkpoints",
    "graph_file": "graph_files",
    "load_checkpoint": "checkpoints",
    "use_working_directory": "own_module",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
