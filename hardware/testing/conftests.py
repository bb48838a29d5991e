"""Which conftest.py files decided, in a plain run of pytest, what the checks of a suite mean."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

NAME = "conftest.py"

GENERATED = frozenset(
    {
        "8ce032cd20b6eb1483d87ea7c7d7f1b23d302e21417ad2233342b7f372bb2ab1",
        "3f3c853a85dcac1c5de7f21d6d38be5d0a9b1337c3d48f18f4081bd5190248f2",
    }
)
"""SHA-256 of each text that `templates/suite_conftest.py.j2` has had, the newest first: folders keep their own."""


def strange_conftests(suite: Path) -> tuple[Path, ...]:
    """The conftest.py files beside the suite at `suite` and above it that pytest has loaded in this process and that
    aren't the generated one, nearest first. None where pytest loads none, as where suites are isolated.

    Pytest forgets the module of one conftest.py when it loads the next; the folder stays on Python's path.
    """
    loaded = {Path(name).resolve() for name in _files_of_modules() if Path(name).name == NAME}
    if not loaded:
        return ()
    folders = {Path(name).resolve() for name in sys.path if name}
    above = (folder / NAME for folder in suite.resolve().parents)
    return tuple(one for one in above if (one in loaded or one.parent in folders) and _is_strange(one))


def _files_of_modules() -> list[str]:
    # Not getattr: some libraries' modules import when they are asked for what they don't have.
    found = (getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values()))
    return [name for name in found if isinstance(name, str)]


def _is_strange(path: Path) -> bool:
    try:
        return path.is_file() and digest_of_text(path.read_text(encoding="utf-8")) not in GENERATED
    except (OSError, UnicodeDecodeError):
        return True


def digest_of_text(text: str) -> str:
    """SHA-256 of a text, as hexadecimal text."""
    return hashlib.sha256(text.encode()).hexdigest()
