"""Compare frozen answers with new ones, and tell accepted differences from others."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .parts import Entry, Part

WORDS: Mapping[str, str] = {"none": "unsupported", "declared": "assumed"}
"""Words of the first edition and their replacements, as values and within texts."""

NORMALIZED = ("level", "basis", "reasons", "conditions", "changes", "text", "checks")
"""Fields in which words are replaced, on both sides."""

ONE_WAY = ("names", "help")
"""Parts in which a new entry is not a difference."""

_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b")
_LONGEST = 160


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One changed field; `key` is `part key field`."""

    key: str
    was: Any
    now: Any

    def __str__(self) -> str:
        was, now = shortened(self.was, self.now)
        return f"{self.key}: {was} -> {now}"


@dataclass(kw_only=True)
class Accepted:
    """A pattern of intended differences, its reason, and how many it matched."""

    key: str
    reason: str
    was: Any = None
    now: Any = None
    met: int = field(default=0, init=False)

    def covers(self, found: Difference) -> bool:
        """Return whether the pattern matches a difference."""
        pairs = ((self.was, found.was), (self.now, found.now))
        return fnmatchcase(found.key, self.key) and all(wanted in (None, value) for wanted, value in pairs)


@dataclass(frozen=True, kw_only=True)
class Intended:
    """The content of accepted.toml: differences, modules that moved, and phrases that were reworded."""

    accepted: Sequence[Accepted]
    moved: Mapping[str, str]
    reworded: Mapping[str, str]


def read_intended(path: Path) -> Intended:
    """Read accepted.toml. An accepted difference without a reason raises `ValueError`."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    found = [Accepted(**one) for one in document.get("accepted", [])]
    if any(not one.reason.strip() for one in found):
        raise ValueError(f"{path.name}: each accepted difference needs a reason")
    return Intended(accepted=found, moved=document.get("moved", {}), reworded=document.get("reworded", {}))


def normalized(name: str, value: Any, reworded: Mapping[str, str]) -> Any:
    """Return a field's value in the words of the second edition."""
    if name not in NORMALIZED:
        return value
    if isinstance(value, list):
        return [normalized(name, one, reworded) for one in value]
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    for old, new in reworded.items():
        value = value.replace(old, new)
    return _WORD.sub(lambda match: WORDS[match[0]], value)


def complete(entry: Entry, reworded: Mapping[str, str]) -> Entry:
    """Return an entry in those words; `moves` holds the levels and rule ids of `changes` without their wording."""
    found = {name: normalized(name, value, reworded) for name, value in entry.items()}
    if "changes" in found:
        found["moves"] = [" ".join([*one.split()[:1], *re.findall(r"\[([\w.]+)\]", one)]) for one in found["changes"]]
    return found


def compare(name: str, frozen: Part, answered: Part, reworded: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the differences of a part, in the order of keys."""
    keys = frozen.keys() if name in ONE_WAY else frozen.keys() | answered.keys()
    for key in sorted(keys):
        if key not in frozen or key not in answered:
            was, now = ("there" if key in side else "missing" for side in (frozen, answered))
            yield Difference(key=f"{name} {key} entry", was=was, now=now)
            continue
        before, after = complete(frozen[key], reworded), complete(answered[key], reworded)
        for one in sorted(before.keys() | after.keys()):
            if before.get(one) != after.get(one):
                yield Difference(key=f"{name} {key} {one}", was=before.get(one), now=after.get(one))


def sort_out(found: Iterable[Difference], accepted: Sequence[Accepted]) -> list[Difference]:
    """Return the differences that are not accepted, and count the accepted ones in their entries."""
    left = []
    for one in found:
        cover = next((entry for entry in accepted if entry.covers(one)), None)
        if cover is None:
            left.append(one)
        else:
            cover.met += 1
    return left


def representatives(frozen: Part, each: int = 3) -> list[str]:
    """Return the first cells of each kind: the same target, level, basis, chain and changes."""
    seen: dict[tuple[str, ...], int] = {}
    chosen = []
    for cell, entry in sorted(frozen.items()):
        full = complete(entry, {})
        parts = (full.get("level"), full.get("basis"), full.get("chain"), full.get("moves"), full.get("code"))
        kind = (cell.split("/")[2], *map(str, parts))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= each:
            chosen.append(cell)
    return chosen


def shortened(was: Any, now: Any) -> tuple[str, str]:
    """Return two values on one line each: of lists only what differs, of long texts the part that differs first."""
    if isinstance(was, list) and isinstance(now, list):
        gone, come = [one for one in was if one not in now], [one for one in now if one not in was]
        if gone or come:
            was, now = gone, come
    texts = [" ".join(repr(value).split()) for value in (was, now)]
    same = next((place for place, (one, other) in enumerate(zip(*texts, strict=False)) if one != other), 0)
    if max(map(len, texts)) > _LONGEST and same > _LONGEST // 2:
        texts = [f"…{text[same - _LONGEST // 4 :]}" for text in texts]
    old, new = (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in texts)
    return old, new
