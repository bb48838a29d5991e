"""Answers of a lab machine, validated: of the right types and within limits, or refused.

They come from another machine and are untrusted. Text in them is escaped, and file names must be those of evidence.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from hwcompat.hardware.errors import BrokenInput, UsageError
from hwcompat.hardware.evidence.seals import is_evidence_name
from hwcompat.hardware.plain_text import one_line, size_text

from .lab_line import Answer

OLDEST_PYTHON = (3, 11)
NEEDED_PACKAGES = ("torch", "transformers", "pytest", "numpy", "safetensors")
ROOM_BYTES = 256 * 1024 * 1024
"""The package takes 2 MB and a run's evidence 10; references and exports of suites need the rest."""

_TEXT, _FLAG, _COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
_TEXTS = {"type": "array", "items": _TEXT}


def _table(*needed: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(needed), "properties": properties}


_STATE = {
    "state": {"enum": ["none", "running", "ended", "gone", "busy"]},
    "code": {"type": "integer"},
    "collected": _FLAG,
    "command": _TEXT,
    "since": _TEXT,
}
"""The state of a run: `ended` with its `code` (negative: the signal that killed it), `gone` without one, or `busy`
with another run, which `command` and `since` describe. `collected`: all of an ended run was fetched."""

_CODE_OF_END = {"if": _table("state", state={"const": "ended"}), "then": {"required": ["code", "collected"]}}
_GREETING = _CODE_OF_END | _table(
    *("python", "executable", "system", "folder", "writable", "free_bytes", "packages", "missing", "no_folders"),
    "state",
    **dict.fromkeys(("python", "executable", "system", "folder"), _TEXT),
    writable=_FLAG,
    free_bytes=_COUNT,
    packages={"type": "object"},
    missing=_TEXTS,
    no_folders=_TEXTS,
    **_STATE,
)
_LOOK = _CODE_OF_END | _table(
    *("state", "parts", "whole"),
    parts={"type": "array", "items": _table("name", "at", "data", name=_TEXT, at=_COUNT, data=_TEXT)},
    whole=_FLAG,
    log=_TEXT,
    result=_table(runs={"type": "object", "additionalProperties": _TEXT}, interrupted=_FLAG),
    **_STATE,
)


def is_dead(state: Answer) -> bool:
    """Whether a run was killed before its end."""
    return bool(state["state"] == "gone" or (state["state"] == "ended" and state["code"] < 0))


def read_greeting(name: str, answer: Answer) -> Answer:
    """Read a host's description of itself, as `lab_remote.py` sends it. Raises `BrokenInput`."""
    return _checked(name, answer, _GREETING)


def refuse_unready(name: str, there: Answer, *, runs: bool) -> None:
    """Raise `UsageError` with everything that is missing on a machine, before anything is copied. `runs`: suites will
    run there, which need packages; an inventory needs none."""
    lacking = []
    shown = {key: one_line(there[key], longest=200) for key in ("python", "executable", "system", "folder")}
    if shown["system"] not in ("Linux", "Darwin"):
        lacking.append(f"it runs {shown['system']}, and suites need Linux or macOS to be isolated from each other")
    if _version(shown["python"]) < OLDEST_PYTHON:
        lacking.append(
            f"{shown['executable']} is Python {shown['python']}, and suites need 3.11 (choose one with --host-python)"
        )
    missing = [one for one in NEEDED_PACKAGES if not there["packages"].get(one)]
    if missing and runs:
        lacking.append(
            f"{', '.join(missing)} isn't installed in {shown['executable']} (install it for that machine's hardware, "
            "or choose a Python that has it: --host-python PATH)"
        )
    if not there["writable"]:
        lacking.append(f"{shown['folder']} can't be written (choose another: --host {name}:FOLDER)")
    if there["free_bytes"] < ROOM_BYTES:
        free, needed = size_text(there["free_bytes"]), size_text(ROOM_BYTES)
        lacking.append(f"{free} are free for {shown['folder']}, and {needed} are needed")
    lacking += [f"folder {one_line(one)} of --host-checkpoint doesn't exist" for one in there["no_folders"][:20]]
    if lacking:
        raise UsageError(f"{name} isn't ready, and nothing was copied", why="; ".join(lacking))


def read_look(name: str, answer: Answer) -> Answer:
    """Read the state of a run and its new evidence: `parts` are bytes of files as name, offset, data. `whole`: with
    these no file refers to missing lines of another one. Raises `BrokenInput`."""
    values = _checked(name, answer, _LOOK)
    parts = []
    for one in values["parts"]:
        if not is_evidence_name(one["name"]):
            raise _broken(name, f"{one_line(one['name'], longest=80)} isn't a file name of evidence")
        try:
            parts.append((one["name"], int(one["at"]), base64.b64decode(one["data"], validate=True)))
        except ValueError as error:
            raise _broken(name, "its data isn't base64 of the requested bytes") from error
    return {**values, "parts": parts}


def last_words(log: str) -> str:
    """Return the end of a run's output, in one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return one_line(lines[-1], longest=300) if lines else "it printed nothing"


def _checked(host: str, answer: Answer, schema: Mapping[str, Any]) -> Answer:
    import jsonschema

    error = next(jsonschema.Draft202012Validator(schema).iter_errors(answer), None)
    if error is not None:
        missing = [key for key in schema["required"] if key not in answer]
        raise _broken(host, f"its {[*error.path, *missing, 'answer'][0]} is missing or of the wrong type")
    return answer


def _broken(host: str, why: str) -> BrokenInput:
    return BrokenInput(f"the answer of {host} is invalid", why=why)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
