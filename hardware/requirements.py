"""Says which of a requirements file's packages an environment lacks, and installs nothing.

For `make run PYTHON=...`. Uses the standard library only, since anything else may be what is missing.
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
    }
)
"""Without one of these the main job can't run at all; without others a target or a format is missing."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def missing(requirements: str) -> list[str]:
    """Names of the packages in the text of a requirements file that aren't installed, whatever their version."""
    names = [match[0] for line in requirements.splitlines() if (match := _NAME.match(line.strip()))]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    """Print what is missing on standard error; 4 where the main job can't run without it."""
    lacking = missing(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not lacking:
        return 0
    essential = [name for name in lacking if name in ESSENTIAL]
    plain = [name for name in lacking if name != "torch"]
    print(f"missing in this environment: {', '.join(lacking)}", file=sys.stderr)
    if plain:
        print(f"  {sys.executable} -m pip install {' '.join(plain)}", file=sys.stderr)
    if "torch" in lacking:
        print("  torch: install the build for your accelerator, as its vendor says", file=sys.stderr)
    return 4 if essential else 0


if __name__ == "__main__":
    sys.exit(main())
