"""The command line: one module for each group of commands."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

OWN_PROGRAM = (sys.executable, str(Path(__file__).parents[1]))
"""The words that start this program in a process of its own."""


def start(module: str, name: str = "main") -> int:
    """Run a function of a module of this package, and return its exit code; 1 if click isn't installed."""
    if missing := [one for one in ("click", "rich_click") if find_spec(one) is None]:
        from hwcompat.hardware.command_names import as_runnable, interpreter

        command = as_runnable(f"{interpreter()} -m pip install -r requirements.txt")
        print(f"error: missing in this environment: {', '.join(missing)}. Install them: {command}", file=sys.stderr)
        return 1
    code: int = getattr(import_module(f".{module}", __name__), name)()
    return code
