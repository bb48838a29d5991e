"""What a suite needs where it runs. Importing it imports neither torch nor transformers."""

from .checkpoints import checkpoint_folder
from .model_test import ModelTest

__all__ = ["ModelTest", "checkpoint_folder"]
