"""Derive a model type from a name, used only if nothing better is known; the facts are in names.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

# A size with a point (`2.8b`) stays one word, or `mamba-2.8b` would hold `mamba2`.
_WORD = re.compile(r"a?\d+[._]\d+[bmk](?![a-z0-9])|[a-z0-9]+")
_EXPERTS = re.compile(r"moe|a\d+(?:[._]\d+)?[bm]")


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of words in a name: a model type, or the empty string and the `reason`."""

    model_type: str
    reason: str


@functools.cache
def known_words() -> Mapping[str, Meaning]:
    """Return the words of names.toml and their meanings."""
    with (Path(__file__).parent / "names.toml").open("rb") as file:
        data = tomllib.load(file)
    return {
        word: Meaning(model_type=line.get("model_type", ""), reason=line["reason"])
        for line in data["known"]
        for word in line["words"]
    }


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def type_in_name(name: str, model_types: Iterable[str], words: Mapping[str, Meaning]) -> Meaning | None:
    """Return the meaning of the first known words of a Hub id or a name, the longest of several.

    Only whole words count, and separators are ignored: `blip2-opt` contains `blip-2`, and `talbert` contains nothing.
    The first words name the model, later ones its parts (`detr-resnet-50`). A version glued to a word (`Llama2`) is
    dropped only if nothing else begins there. The organization before the slash is ignored unless `words` names it.
    If the name marks experts (`moe`, `A3B`), the type's sibling with experts is meant.
    """
    types = {"".join(_words(t)): t for t in sorted(model_types)}
    whole = [word for word in words if "/" in word and fnmatchcase(name.lower(), word)]
    if whole:
        return words[max(whole, key=len)]
    tokens = _words(name.rsplit("/", 1)[-1])
    for start in range(len(tokens)):
        meaning = _at(tokens[start:], types, words)
        if meaning is not None:
            sibling = types.get("".join(_words(meaning.model_type)) + "moe")
            if sibling and any(_EXPERTS.fullmatch(token) for token in tokens):
                return Meaning(model_type=sibling, reason="its name contains a number of experts")
            return meaning
    return None


def _at(tokens: list[str], types: Mapping[str, str], words: Mapping[str, Meaning]) -> Meaning | None:
    """Return the meaning of the longest known words at the beginning of `tokens`."""
    plain = {"".join(_words(word)): meaning for word, meaning in words.items() if not set("*/") & set(word)}
    patterns = {word: meaning for word, meaning in words.items() if "*" in word and "/" not in word}
    for glued in (False, True):
        for stop in range(len(tokens), 0, -1):
            span = tokens[:stop]
            if glued:
                span[-1] = re.sub(r"(?<=[a-z])\d+$", "", span[-1])
            joined = "".join(span)
            if joined in plain:  # first, because a type's name can mean another type in names
                return plain[joined]
            if joined in types:
                return Meaning(model_type=types[joined], reason="a model type's name")
            for pattern, meaning in patterns.items():
                if fnmatchcase("-".join(span), pattern):
                    return meaning
    return None


def last_resort(name: str, words: Mapping[str, str]) -> str | None:
    """Return the value of the first of `words` that `name` contains as a word, alone or before a version."""
    found = type_in_name(name[:300], words, {})
    return words[found.model_type] if found else None
