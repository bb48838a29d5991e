"""The modules that a suite needs at run time. Importing this package imports neither torch nor transformers."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import checkpoint_folder as checkpoint_folder
    from .checkpoints import load_checkpoint as load_checkpoint
    from .drawn_inputs import page as page
    from .drawn_inputs import tones as tones
    from .factory_module import FactoryModule as FactoryModule
    from .factory_module import from_factory as from_factory
    from .graph_files import GraphTest as GraphTest
    from .graph_files import graph_file as graph_file
    from .model_test import ModelTest as ModelTest
    from .own_module_test import OwnModuleTest as OwnModuleTest
    from .own_module_test import use_working_directory as use_working_directory
    from .piece_test import PieceTest as PieceTest
    from .user_inputs import given_inputs as given_inputs
    from .variants import with_changes as with_changes

_WHERE = {
    "FactoryModule": "factory_module",
    "GraphTest": "graph_files",
    "ModelTest": "model_test",
    "OwnModuleTest": "own_module_test",
    "PieceTest": "piece_test",
    "checkpoint_folder": "checkpoints",
    "from_factory": "factory_module",
    "given_inputs": "user_inputs",
    "graph_file": "graph_files",
    "load_checkpoint": "checkpoints",
    "page": "drawn_inputs",
    "tones": "drawn_inputs",
    "use_working_directory": "own_module_test",
    "with_changes": "variants",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
