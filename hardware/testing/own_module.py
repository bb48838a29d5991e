"""What a suite of a user's own module needs: its folder on the path, and references that know its whole source."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cached_property
from pathlib import Path

from .model_test import ModelTest


def use_working_directory() -> None:
    """Let modules be imported from the working directory, after everything that is installed."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


class OwnModuleTest(ModelTest):
    """A `ModelTest` of a user's own module; the same calls.

    A reference is kept for the state of all code that was imported from the working directory: the module may
    compute with functions of any of its files.
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
