"""The packages of a requirements file that an environment lacks.

For `make run PYTHON=...`. Uses only the standard library, because anything else may be missing.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

ESSENTIAL = frozenset(
    {
        "torch",
        "transformers",
        "safetensors",
        "numpy",
        "jinja2",
        "pytest",
        "tabulate",
        "click",
        "packaging",
        "platformdirs",
        "psutil",
        "rich-click",
    }
)
"""Packages without which the main job can't run; without others a target or a format is missing."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def missing(requirements: str) -> list[str]:
    """Return the lines (`name==version`) of a requirements file whose package isn't installed in any version."""
    lines = [line.strip() for line in requirements.splitlines() if _NAME.match(line.strip())]
    return [line for line in lines if not _is_installed(name_of(line))]


def name_of(requirement: str) -> str:
    """Return the name of the package in a line of a requirements file."""
    match = _NAME.match(requirement)
    return match[0] if match else requirement


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    """Print the missing packages on standard error; return 4 if the main job can't run without them."""
    lacking = missing(Path(sys.argv[1]).read_text(encoding="utf-8"))
    needed = [line for line in lacking if name_of(line) in ESSENTIAL]
    optional = [line for line in lacking if name_of(line) not in ESSENTIAL]
    if needed:
        print(f"missing in this environment: {', '.join(map(name_of, needed))}", file=sys.stderr)
        plain = [line for line in needed if name_of(line) != "torch"]
        if plain:
            print(f"  tested with: {sys.executable} -m pip install {' '.join(plain)}", file=sys.stderr)
        if len(plain) < len(needed):
            print("  torch: install the build that your accelerator's vendor recommends", file=sys.stderr)
    if optional:
        names = ", ".join(map(name_of, optional))
        print(f"not installed (only needed for some targets or reports): {names}", file=sys.stderr)
    return 4 if needed else 0


if __name__ == "__main__":
    sys.exit(main())
