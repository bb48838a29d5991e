"""What a suite needs where it runs. Importing it imports no torch and no transformers, and NumPy only when used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import checkpoint_folder
    from .model_test import ModelTest

__all__ = ["ModelTest", "checkpoint_folder"]


def __getattr__(name: str) -> Any:
    if name == "ModelTest":
        from .model_test import ModelTest

        return ModelTest
    if name == "checkpoint_folder":
        from .checkpoints import checkpoint_folder

        return checkpoint_folder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
