"""Seals of pages that run a cell's checks in a browser elsewhere, and where the folder of evidence keeps them.

A page is named by the hash of its seal. What a page saved is held against the seal that stayed here
(`page_lines.py`), so that nothing of plan, prediction, limits or model can be another one when it comes back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BrokenInput, OutputError
from ..whole_file import write_whole

SEAL_VERSION = 1
SEALS = "pages"
"""The folder of seals in a folder of evidence."""

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def seal_text(sealed: Mapping[str, Any]) -> str:
    """The one text of a seal: ASCII, and with no sign that could end an element of a page."""
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    for sign, escaped in _UNSAFE.items():
        text = text.replace(sign, escaped)
    return text


def keep_seal(folder: Path, text: str) -> Path:
    """Put a seal into a folder of evidence. Raises `OutputError`."""
    path = folder / SEALS / f"{_id_of(text)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise OutputError(f"the page's seal cannot be kept in {folder}", why=error.strerror or str(error)) from error
    return path


def read_seal(folder: Path, page_id: str) -> Mapping[str, Any]:
    """The seal of that page. Raises `BrokenInput` where it isn't kept in `folder`, or was changed."""
    path = folder / SEALS / f"{page_id}.json"
    if not (len(page_id) == 64 and set(page_id) <= set("0123456789abcdef")):
        raise BrokenInput("a page's evidence names no page", why="a page's name has 64 hexadecimal digits")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BrokenInput(
            f"the seal of page {page_id[:12]} isn't known here",
            why="evidence of a page is held against the seal that was kept when the page was made",
            fix=f"Merge it where the page was made, or bring {SEALS}/{page_id[:12]}….json of its evidence folder "
            f"into {folder / SEALS}.",
        ) from error
    if _id_of(text) != page_id:
        raise BrokenInput(f"the seal of page {page_id[:12]} was changed", why="its hash isn't its name any more")
    found: Mapping[str, Any] = json.loads(text)
    if found.get("schema_version") != SEAL_VERSION:
        raise BrokenInput(
            f"the seal of page {page_id[:12]} is of another version", why=f"this one reads {SEAL_VERSION}"
        )
    return found


def _id_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
