"""The plant of a library fault: one module of transformers is compiled from changed text."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

VARIABLE = "HWCOMPAT_LIBRARY_FAULT"


def changed(text: str, fault: Mapping[str, Any]) -> str:
    """Return the text of a file with the fault in it. Raises `ValueError` if its place isn't there."""
    parts, nth = text.split(fault["old"]), fault.get("nth", 0)
    if len(parts) < nth + 2 or ("nth" not in fault and len(parts) > 2):
        raise ValueError(f"{fault['name']}: its place is {len(parts) - 1} times in {fault['file']}")
    return fault["old"].join(parts[: nth + 1]) + fault["new"] + fault["old"].join(parts[nth + 1 :])


class Finder:
    """Finds the module of a fault, with a loader that compiles the changed text."""

    def __init__(self, fault: Mapping[str, Any]) -> None:
        self._fault = fault
        self._module = "transformers." + fault["file"].removesuffix(".py").replace("/", ".")
        if self._module in sys.modules:
            raise RuntimeError(f"{self._module} is imported already")

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the spec of the module, or None for all others."""
        spec: Any = PathFinder.find_spec(name, path) if name == self._module else None
        if spec is not None:
            text = changed(Path(spec.origin).read_text(encoding="utf-8"), self._fault)
            spec.loader.get_code = lambda _: compile(text, spec.origin, "exec", dont_inherit=True)
        return spec


def library_fault() -> None:
    """Make the fault in the variable."""
    sys.meta_path.insert(0, Finder(json.loads(os.environ[VARIABLE])))
