"""What a suite needs where it runs. Importing it imports neither torch nor transformers."""

from .model_test import ModelTest

__all__ = ["ModelTest"]
