"""The modules that a suite needs at run time. Importing this package imports neither torch nor transformers."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import checkpoint_folder as checkpoint_folder
    from .checkpoints import load_checkpoint as load_checkpoint
    from .graph_files import GraphTest as GraphTest
    from .graph_files import graph_file as graph_file
    from .model_test import ModelTest as ModelTest
    from .own_module_test import OwnModuleTest as OwnModuleTest
    from .own_module_test import use_working_directory as use_working_directory
    from .variants import with_changes as with_changes

_WHERE = {
    "GraphTest": "graph_files",
    "ModelTest": "model_test",
    "OwnModuleTest": "own_module_test",
    "checkpoint_folder": "checkpoints",
    "graph_file": "graph_files",
    "load_checkpoint": "checkpoints",
    "use_working_directory": "own_module_test",
    "with_changes": "variants",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
