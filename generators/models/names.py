"""What a model's name tells, used only where nothing better is known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def _tokens(text: str) -> list[str]:
    return [token for token in re.split(r"[^a-z0-9]+", text.lower()) if token]


def type_in_name(name: str, model_types: Iterable[str], aliases: Mapping[str, str]) -> str | None:
    """The longest model type (or alias) that stands between token boundaries of `name`.

    Signs don't count, so that `blip2-opt` holds `blip-2`. The part after the slash is read first; a version
    that is glued to a word (`Llama2`) is dropped only where nothing else matches.
    """
    known = {"".join(_tokens(t)): t for t in sorted(model_types)}
    known |= {"".join(_tokens(alias)): t for alias, t in aliases.items() if t in known.values()}
    parts = [_tokens(part) for part in reversed(name.split("/"))]
    stripped = [[re.sub(r"(?<=[a-z])[0-9]+$", "", token) for token in part] for part in parts]
    for tokens in parts + stripped:
        spans = {
            "".join(tokens[start:stop]) for start in range(len(tokens)) for stop in range(start + 1, len(tokens) + 1)
        }
        found = spans & set(known)
        if found:
            return known[max(sorted(found), key=len)]
    return None


def last_resort(name: str, words: Mapping[str, str]) -> str | None:
    """The value of the longest of `words` that `name` contains as a token, by itself or before a version."""
    found = type_in_name(name[:300], words, {})
    return words[found] if found else None
