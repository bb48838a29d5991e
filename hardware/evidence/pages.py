"""Seals of web pages that run a cell's checks in a browser on another machine.

A page is named by the hash of its seal. Its results are checked against the seal, which stays in the folder of
evidence (`page_lines.py`), so that plan, prediction, limits and model can't be changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BrokenInput, echo
from ..files import write_whole, writing
from ..safe_read import parsed_json, read_bytes, reason_of
from ..values import data_file

SEAL_VERSION = 2
SEALS = "pages"
"""The folder of seals in a folder of evidence."""

BUILDS = "builds"
"""The check that runs nothing: it opens the files."""

_SCHEMA = Path(__file__).with_name("schemas") / "seal.json"
_LARGEST = 64 * 1024 * 1024
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def seal_text(sealed: Mapping[str, Any]) -> str:
    """Return the text of a seal: ASCII, without characters that could end an HTML element."""
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    for sign, escaped in _UNSAFE.items():
        text = text.replace(sign, escaped)
    return text


def keep_seal(folder: Path, text: str) -> Path:
    """Write a seal into a folder of evidence. Raises `OutputError`."""
    path = folder / SEALS / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    with writing(f"the page's seal cannot be written to {folder}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return path


def read_seal(folder: Path, page_id: str) -> Mapping[str, Any]:
    """Return the seal of a page. Raises `BrokenInput` if it is missing in `folder`, was changed or isn't valid."""
    path = folder / SEALS / f"{page_id}.json"
    if not (len(page_id) == 64 and set(page_id) <= set("0123456789abcdef")):
        raise BrokenInput("the evidence has no valid page id", why="a page id has 64 hexadecimal digits")
    try:
        data = read_bytes(path, longest=_LARGEST)
    except OSError as error:
        raise BrokenInput(
            f"the seal of page {page_id[:12]} was not found",
            why="evidence of a page is checked against the seal that was stored when the page was made",
            fix=f"Merge it on the machine that made the page, or copy {SEALS}/{page_id[:12]}….json of its evidence "
            f"folder into {folder / SEALS}.",
        ) from error
    if hashlib.sha256(data).hexdigest() != page_id:
        raise BrokenInput(f"the seal of page {page_id[:12]} was changed", why="its hash differs from its name")
    try:
        found: Mapping[str, Any] = parsed_json(data)
    except ValueError as error:
        raise BrokenInput(f"the seal of page {page_id[:12]} is not valid JSON", why=reason_of(error)) from error
    if isinstance(found, Mapping) and found.get("schema_version") != SEAL_VERSION:
        raise BrokenInput(
            f"the seal of page {page_id[:12]} has another version", why=f"this hwcompat reads version {SEAL_VERSION}"
        )
    if why := _wrong_in(found):
        raise BrokenInput(f"the seal of page {page_id[:12]} is invalid", why=why)
    return found


def shape_error(schema: Mapping[str, Any], value: Any, whole: str) -> str:
    """Return which part of a value violates a JSON schema and how, or an empty text; `whole` names the value."""
    import jsonschema

    error = next(jsonschema.Draft202012Validator(schema).iter_errors(value), None)
    if error is None:
        return ""
    return f"{'.'.join(map(str, error.absolute_path)) or whole}: {error.message[:160]}"


def _wrong_in(seal: Mapping[str, Any]) -> str:
    """Return how a seal breaks its schema or names what isn't in it, or an empty text."""
    if why := shape_error(data_file(_SCHEMA), seal, "the seal"):
        return why
    for name, steps in seal["steps"].items():
        for step in steps:
            if step.get("pass", 0) >= len(seal["passes"]) or step.get("want", 0) >= max(len(seal["wanted"]), 1):
                return f"a step of {echo(name)} names a pass or a reference that doesn't exist"
    if any(one["file"] >= len(seal["files"]) for one in seal["passes"]):
        return "a pass names a file that doesn't exist"
    return ""
