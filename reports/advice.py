"""What to do about a finding: from `recommendations/<error_type>.toml` and the diagnostic command of its target."""

from __future__ import annotations

import functools
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardware.evidence.error_types import current_name
from hardware.own_commands import as_runnable

from .identifying import Diagnosis, KnownIssue
from .remedy import Remedy

# A file of advice: what helps for a `cause`, `first` anywhere, for a `target`, in `general`. An entry is a text, or
# a table: what to `do`, its `cost`, and `unless` for targets where it is none. `device_in_question` adds what
# shows the device's state, `alternatives` lets the reporter name other hardware and models.
_FOLDER = Path(__file__).with_name("recommendations")
_DIAGNOSTICS = Path(__file__).with_name("diagnostics.toml")
_FALLBACK = "unknown"
_COMMAND = "{command}"

EXAMPLE = "python run_test_generation.py --model bert --device auto --run"


@functools.cache
def _advice(error_type: str) -> Mapping[str, Any]:
    path = _FOLDER / f"{error_type}.toml"
    if error_type not in advised_error_types():
        path = _FOLDER / f"{_FALLBACK}.toml"
    return tomllib.loads(as_runnable(path.read_text(encoding="utf-8")))


@functools.cache
def advised_error_types() -> tuple[str, ...]:
    """The error types that have a file of recommendations."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@functools.cache
def diagnostics() -> Mapping[str, Mapping[str, str]]:
    """For each target: the vendor's `command` that shows its state, or where to `look`, and `minimum` versions."""
    return tomllib.loads(as_runnable(_DIAGNOSTICS.read_text(encoding="utf-8")))


def remedies(
    error_type: str, target: str, *, cause: str = "", command: str = "", issues: Iterable[KnownIssue] = ()
) -> tuple[Remedy, ...]:
    """What to do, the likeliest to help first: what is known of this fault, for this cause, what helps anywhere most
    often, for this target, then in general.

    Where the device itself is in question, the target's minimum versions and its vendor's command follow. An
    unknown error type gets the advice for `unknown`; `target` may carry a variant, which plays no part. `command`
    is what runs the cell in question; where none is known, an example stands in its place.
    """
    data = _advice(current_name(error_type))
    name = target.partition(":")[0]
    listed = [
        *(f"A known fault may explain it: {one.what} ({one.url}). What helps: {one.fixed}." for one in issues),
        *data.get("cause", {}).get(cause.lower(), ()),
        *data.get("first", ()),
        *data.get("target", {}).get(name, ()),
        *data.get("general", ()),
    ]
    facts = diagnostics().get(name, {})
    if data.get("device_in_question"):
        if "minimum" in facts:
            listed.append(f"Check the versions: {facts['minimum']}")
        if "command" in facts:
            listed.append(f"See what the device says: `{facts['command']}`")
        if "look" in facts:
            listed.append(f"See what the device says: {facts['look']}")
    found = (_remedy(entry, command or as_runnable(EXAMPLE)) for entry in listed if name not in _unless(entry))
    return tuple({one.text: one for one in found}.values())


def _unless(entry: str | Mapping[str, Any]) -> Sequence[str]:
    """The targets for which an entry is no advice."""
    return () if isinstance(entry, str) else entry.get("unless", ())


def _remedy(entry: str | Mapping[str, Any], command: str) -> Remedy:
    if isinstance(entry, str):
        return Remedy(do=entry.replace(_COMMAND, command))
    return Remedy(do=entry["do"].replace(_COMMAND, command), cost=entry.get("cost", {}))


def remedies_for(diagnosis: Diagnosis, target: str, *, command: str = "") -> tuple[Remedy, ...]:
    """The same for a diagnosis, with the known faults that may explain it."""
    return remedies(diagnosis.error_type, target, cause=diagnosis.cause, command=command, issues=diagnosis.issues)


def recommend(error_type: str, target: str, *, cause: str = "", command: str = "") -> tuple[str, ...]:
    """The same as texts, each with its cost in words."""
    return tuple(one.text for one in remedies(error_type, target, cause=cause, command=command))


def asks_for_alternatives(error_type: str) -> bool:
    """Whether nothing on this target may help, so that other hardware or another model is worth naming."""
    return bool(_advice(current_name(error_type)).get("alternatives"))


def measuring_command(model: str, device: str, *, task: str = "", precision: str = "", force: bool = False) -> str:
    """The command that measures a cell, safe to paste into a shell. `model` is what a user would name."""
    words = ["--model", model]
    words += ["--task", task] if task else []
    words += ["--device", device]
    words += ["--precision", precision] if precision not in ("", "float32") else []
    options = shlex.join([*words, *(["--force"] if force else []), "--run"])
    return f"{as_runnable('python run_test_generation.py')} {options}"
