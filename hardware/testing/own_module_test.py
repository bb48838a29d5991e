"""`OwnModuleTest`, the base of suites of users' own modules."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cached_property
from pathlib import Path

from .model_test import ModelTest


class OwnModuleTest(ModelTest):
    """A `ModelTest` of a user's own module with the same calls.

    A reference is kept for the state of all code imported from the working directory: the module may use functions of
    any of its files.
    """

    @cached_property
    def _identity(self) -> str:
        here = Path.cwd()
        digest = hashlib.sha256(super()._identity.encode())
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        for file in sorted(Path(name) for name in files if name):
            if file.is_relative_to(here) and "site-packages" not in file.parts and file.is_file():
                digest.update(file.read_bytes())
        return digest.hexdigest()


def use_working_directory() -> None:
    """Allow imports from the working directory, after all that is installed."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
