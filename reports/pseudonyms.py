"""`--anonymise-models`: pseudonyms instead of the names of models that aren't public types.

A report quotes a name in many places: cells, files of suites, commands, messages, tracebacks and folders. So all
texts of a report are searched, and a name is found however its words are joined.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from hwcompat.generators.model_profile import checkpoint_slug
from hwcompat.generators.models.model_libraries import known_types
from hwcompat.generators.models.recipe import SHIPPED
from hwcompat.hardware.backends.factory import built_in_targets
from hwcompat.hardware.cell import PRECISIONS, Cell
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.file_formats import graph_suffixes
from hwcompat.hardware.values import data_file

KEY_VARIABLE = "HWCOMPAT_PSEUDONYM_KEY"
"""A secret text: without it, a known name could be tested for its pseudonym."""

_T = TypeVar("_T")
_DIGITS = 4
_SHORTEST_PART = 3
_MIN_FREE_LENGTH = 8
_WORD = re.compile(r"[^\W_]+")
_PATH = re.compile(r"(?<![\w.:/\\~*-])(?:~|[A-Za-z]:)?[/\\][^\s'\":,;()<>|`]+")
_KNOWN_PATH = re.compile(r"(?:site-packages|dist-packages|lib[/\\]python[\d.]+|hardware|generators|reports)[/\\].*")
_SYSTEM_PATHS = ("/dev/", "/proc/", "/sys/", "/usr/", "/etc/", "/opt/", "/lib")
_FOLDER_OPTIONS = frozenset(
    {"--config", "--output-dir", "--evidence", "--report-dir", "--template-dir", "--bundle", "--upstream", "--suites"}
)
_FOLDER_COMMANDS = frozenset({"bundle", "check", "update", "upstream", "verify", "web-page"})
"""Commands whose argument is a folder or a file."""

_UNCHANGED_FIELDS = frozenset(data_file(Path(__file__).with_suffix(".toml"))["unchanged_fields"])
"""Fields with words of the product: a model may have the same name."""

_COMMON = frozenset(
    {
        *("test", "tests", "model", "models", "main", "data", "checkpoint", "checkpoints", "tiny", "config", "any"),
        *("the", "and", "for", "make", "python", "hardware", "generators", "reports", "home", "user", "users"),
        *(*built_in_targets(), "builds"),
    }
)
"""Parts of names that identify no model."""


class Pseudonyms:
    """Stable pseudonyms: a name has the same one in every report, such as `model-3f2a`."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names` are slugs of cells and words of command lines; public model types among them are kept."""
        public = public_types()
        given = [name for name in dict.fromkeys(names) if name and name not in public]
        slugs = {_slug(name) for name in given}
        self._of: dict[str, str] = {}
        spelt: dict[str, str] = {}
        for name in given:
            slug = last if (last := Path(name).name) in slugs else _slug(name)
            for part in (name, slug, _file_name(slug), *(one for one in _parts(name) if one not in public)):
                if plain := _plain(part):
                    self._of.setdefault(plain, slug)
                    spelt.setdefault(plain, part)
        self._names = _distinct(sorted(set(self._of.values())))
        self._spelt = spelt
        self._expressions: dict[tuple[str, ...], re.Pattern[str]] = {}
        self._cells: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return a text without the names, and without folders of the user's machine."""
        if text.count("/") == 3 and (cell := self._cell(text)):
            return cell
        shown = _PATH.sub(_shortened, text)
        # Most texts have no name: a search for each spelling is far cheaper than the regular expression.
        plain = _plain(shown)
        if hits := tuple(name for name in self._spelt if name in plain):
            if hits not in self._expressions:
                self._expressions[hits] = _expression(self._spelt[name] for name in hits)
            shown = self._expressions[hits].sub(lambda match: self._names[self._of[_plain(match[0])]], shown)
        return self._without_cut_names(shown) if "…" in shown else shown

    def value(self, value: _T) -> _T:
        """Replace names in all texts of a JSON value or a dataclass."""
        replaced: _T = self._value(value)
        return replaced

    def _value(self, value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Enum):
            return self.text(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        if isinstance(value, Mapping):
            return {self._value(name): self._named(name, item) for name, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return type(value)(self._value(item) for item in value)
        return value

    def _dataclass(self, value: Any) -> Any:
        fields = [one.name for one in dataclasses.fields(value) if one.init]
        changed = {name: self._named(name, getattr(value, name)) for name in fields}
        if isinstance(value, CheckLine) and changed["model"] != value.model:
            changed |= {"model_revision": None, "config_hash": None}  # a hash identifies public weights
        return dataclasses.replace(value, **changed)

    def _named(self, name: object, value: Any) -> Any:
        several = value if isinstance(value, list | tuple) else [value]
        if name in _UNCHANGED_FIELDS and all(isinstance(one, str) for one in several):
            return value
        if name == "command" and isinstance(value, str):
            return self.text(_without_folders(value))
        if name == "traceback" and isinstance(value, str):
            return self._without_cut_start(self.text(value))
        return self._value(value)

    def _cell(self, text: str) -> str:
        """Return a cell with its model's pseudonym: a model may have the name of a target, and targets are kept."""
        if text not in self._cells:
            model, _, rest = text.partition("/")
            try:
                Cell.parse(text)
            except HwCompatError:
                return ""
            plain = _plain(model)
            self._cells[text] = f"{self._names[self._of[plain]] if plain in self._of else model}/{rest}"
        return self._cells[text]

    def _without_cut_start(self, text: str) -> str:
        """Remove the beginning of a traceback that was cut off within a name."""
        for name in self._spelt.values():
            text = _cut_end(text[::-1], name[::-1])[::-1]
        return text

    def _without_cut_names(self, text: str) -> str:
        """Remove names that were cut at the beginning or end of a text."""
        first, *rest = text.split("…")
        pieces = [first, *map(self._without_cut_start, rest)]
        for name in self._spelt.values():
            pieces[:-1] = [_cut_end(piece, name) for piece in pieces[:-1]]
        return "…".join(pieces)


def public_types() -> frozenset[str]:
    """Return the public model types: those of the installed libraries, and those whose recipes ship."""
    shipped = {path.stem for path in SHIPPED.glob("*/*.json")}
    try:
        return frozenset(shipped.union(known_types()))
    except HwCompatError:  # without transformers there is no catalog
        return frozenset(shipped)


def names_in_command(command: str) -> tuple[str, ...]:
    """Return the models that a recorded command names."""
    try:
        words = shlex.split(command)
    except ValueError:  # an unclosed quote
        words = command.split()
    named = [after for word, after in itertools.pairwise(words) if word in ("--model", "--check-model")]
    joined = [word.partition("=")[2] for word in words if word.startswith(("--model=", "--check-model="))]
    return tuple(one for one in (*named, *joined) if one != "-")


def _without_folders(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    hidden = []
    if words[:1] == [PROGRAM] and words[1:2] and words[1] in _FOLDER_COMMANDS:
        words[2:3] = [word if word.startswith("-") else "FOLDER" for word in words[2:3]]
    for before, word in itertools.pairwise(["", *words]):
        option, sign, _ = word.partition("=")
        shown = f"{option}=FOLDER" if sign and option in _FOLDER_OPTIONS else word
        hidden.append("FOLDER" if before in _FOLDER_OPTIONS else shown)
    return shlex.join(hidden)


def _slug(name: str) -> str:
    try:
        return checkpoint_slug(name)
    except HwCompatError:
        return name


def _parts(name: str) -> list[str]:
    """Return the parts that identify a model: owner and name of a Hub id, modules of a factory, a graph's name."""
    parts = re.split(r"[/\\:]|--", name)
    if name.lower().endswith(graph_suffixes()):
        parts.append(Path(name).stem)
    if ":" in name:
        parts += name.partition(":")[0].split(".")
    return [
        one
        for one in parts
        if len(_plain(one)) >= _SHORTEST_PART and one.lower() not in _COMMON and one not in PRECISIONS
    ]


def _plain(text: str) -> str:
    return "".join(_WORD.findall(text)).lower()


def _file_name(slug: str) -> str:
    """Return the model's part of a suite's file name, which may contain a hash of the name."""
    try:
        return Cell.parse(f"{slug}/x/cpu/float32").slug.removesuffix("_x_cpu_float32")
    except HwCompatError:
        return slug


def _expression(names: Iterable[str]) -> re.Pattern[str]:
    """Return an expression that finds the names, longest first, however joined; a short name only as a word."""
    alternatives = []
    for name in sorted(names, key=lambda one: (-len(_plain(one)), one)):
        spaced = r"[\W_]{0,3}".join(re.escape(word) for word in _WORD.findall(name))
        alternatives.append(spaced if len(_plain(name)) >= _MIN_FREE_LENGTH else rf"(?<![^\W_]){spaced}(?![^\W_])")
    return re.compile("|".join(alternatives), re.IGNORECASE)


def _distinct(slugs: list[str]) -> dict[str, str]:
    """Return pseudonyms of slugs, with as many digits as make them distinct."""
    key = os.environ.get(KEY_VARIABLE, "").encode(errors="surrogateescape")
    digests = {
        slug: hmac.new(key, slug.lower().encode(errors="replace"), hashlib.sha256).hexdigest() for slug in slugs
    }
    digits = _DIGITS
    while len({digest[:digits] for digest in digests.values()}) < len(set(digests.values())):
        digits += 1
    return {slug: f"model-{digest[:digits]}" for slug, digest in digests.items()}


def _shortened(match: re.Match[str]) -> str:
    """Return a path relative to the product or a library; of another only the last name."""
    path = match[0]
    if kept := _KNOWN_PATH.search(path):
        return f".../{kept[0]}"
    if path.startswith(_SYSTEM_PATHS) or len(path) < 2:
        return path
    return ".../" + (re.split(r"[/\\]", path.rstrip("/\\"))[-1])


def _cut_end(text: str, name: str) -> str:
    """Remove a beginning of the name from the end of the text."""
    end, lowered = text[-len(name) :].lower(), name.lower()
    if lowered[:_SHORTEST_PART] not in end:
        return text
    for length in range(len(name) - 1, _SHORTEST_PART - 1, -1):
        if end.endswith(lowered[:length]):
            return text[:-length]
    return text
