"""Hostile and broken content in one place: texts, values, changed JSON and bytes, names of files, traps in folders.

An input is a seed: the same one gives the same input again.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

MARK = "hwcevil"
"""Stands in what would be markup, a link or a command of the input: checks of outputs look for it."""

DATA = json.loads(Path(__file__).with_name("hostile_texts.json").read_text(encoding="utf-8"))
"""Texts by what they attack. In `code`, `{sentinel}` is the file that would be made if anything ran it."""

LONG = (
    *("\n" * 50, "a" * 10_000, "a." * 4_000, "\u0301" * 500, "é" * 3_000, "9" * 400, "9" * 5_000, "[!a]*?" * 40),
    f"{'w ' * 60}::error::{MARK} {'w' * 70}::error::{MARK}",
    f"{'x' * 40}::warning::{MARK}" * 4,
)
PATHS = (*DATA["paths"], "a" * 300)
NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**30, 10**300, 0.0, -0.0, 1e-320, 1e308, -1e308, 0.1)


def texts(sentinel: Path | str = "/nowhere") -> list[str]:
    """Every hostile text, code that makes `sentinel` among them."""
    code = [text.replace("{sentinel}", str(sentinel)) for text in DATA["code"]]
    kinds = ("markup", "commands", "formulas", "terminal", "odd")
    return [*code, *(text for kind in kinds for text in DATA[kind]), *LONG, *PATHS]


class Hostile(random.Random):
    """Draws hostile things from a seed; code in them would make the file `sentinel`."""

    def __new__(cls, *_: object) -> Hostile:
        return super().__new__(cls)

    def __init__(self, seed: int | str, sentinel: Path | str = "/nowhere") -> None:
        super().__init__(seed)
        self._texts = texts(sentinel)

    def text(self) -> str:
        """A hostile text, two of them, or one inside of a harmless word."""
        one, other = self.choice(self._texts), self.choice(self._texts)
        kind = self.randrange(5)
        if kind == 0:
            return f"{one}{other}"
        if kind == 1:
            return f"bert {one} x"
        if kind == 2:
            return "".join(chr(self.choice((self.randrange(0x250), self.randrange(0x11000))))
                           for _ in range(self.randrange(12)))  # fmt: skip
        return one

    def name(self) -> str:
        """A hostile name of a file."""
        return self.choice([*PATHS, self.text()])

    def value(self, depth: int = 0) -> Any:
        """A value of JSON that nobody expects."""
        kind = self.randrange(9 if depth < 3 else 6)
        if kind < 2:
            return self.text()
        if kind < 4:
            return self.choice((*NUMBERS, float("nan"), float("inf"), -float("inf")))
        if kind < 6:
            return self.choice((None, True, False, [], {}, ""))
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.randrange(4))]
        if kind == 7:
            return {self.text(): self.value(depth + 1) for _ in range(self.randrange(3))}
        return nested(self.choice((5, 90, 300)))

    def changed(self, value: Any, *, most: int = 4) -> Any:
        """A copy of a value of JSON with some of its parts replaced, left out, doubled or added to."""
        copy = json.loads(json.dumps(value))
        for _ in range(self.randint(1, most)):
            copy = self._changed_once(copy)
        return copy

    def _changed_once(self, value: Any) -> Any:
        places = list(_places(value))
        if not places:
            return self.value()
        holder, key = self.choice(places)
        kind = self.randrange(8)
        if kind < 4:
            holder[key] = self.text() if kind < 2 or isinstance(holder[key], str) else self.value()
        elif kind == 4:
            holder[key] = self.value()
        elif kind == 5:
            del holder[key]
        elif kind == 6 and isinstance(holder, dict):
            holder[self.text()] = self.value()
        elif isinstance(holder, list):
            holder.append(holder[key])
        return value

    def retold(self, value: Any, *, keep: Collection[str] = (), share: float = 0.4) -> Any:
        """The same value with hostile texts: each text of it may become another, and tables may get another entry
        with a hostile name; what stands under the names in `keep` stays."""
        if isinstance(value, str):
            return self.text() if self.random() < share else value
        if isinstance(value, dict):
            told = {
                key: one if key in keep else self.retold(one, keep=keep, share=share) for key, one in value.items()
            }
            kinds = {type(one) for one in value.values()}
            if len(kinds) == 1 and kinds <= {str, int} and self.random() < share:
                told[self.text()] = self.text() if kinds == {str} else 3
            return told
        if isinstance(value, list):
            return [self.retold(one, keep=keep, share=share) for one in value]
        return value

    def json(self, value: Any) -> bytes:
        """JSON of a value, at times in ways that some readers take otherwise than others."""
        text = json.dumps(value, ensure_ascii=self.random() < 0.5)
        kind = self.randrange(14)
        if kind == 0:
            text = text.replace(": ", ": " + "9" * 5000 + ', "x": ', 1)
        elif kind == 1 and text.startswith("{"):
            text = '{"kind": "check", ' + text[1:]
        elif kind == 2:
            text = text.replace("1", "1e999", 1)
        elif kind == 3:
            text = text[:-1] + "," + '"deep": ' + "[" * 100_000 + "]" * 100_000 + "}"
        data = text.encode(errors="surrogatepass")
        if kind == 4:
            data = b"\xef\xbb\xbf" + data
        elif kind == 5:
            data = text.encode("utf-16", errors="surrogatepass")
        elif kind == 6:
            data = self.bytes(data)
        return data

    def line(self, value: Any) -> bytes:
        """JSON of a value as anybody writes it, and now and then as nobody should."""
        return self.json(value) if self.random() < 0.01 else json.dumps(value).encode()

    def bytes(self, data: bytes) -> bytes:
        """Some bytes changed, cut off, doubled or put in."""
        changed = bytearray(data)
        for _ in range(self.randint(1, 4)):
            place = self.randrange(len(changed) + 1)
            kind = self.randrange(6)
            if kind == 0 and changed:
                changed[place % len(changed)] ^= 1 << self.randrange(8)
            elif kind == 1:
                del changed[place:]
            elif kind == 2:
                changed[place:place] = self.choice((b"\0", b"\xff", b"\x1b[2J", b"\n", b"]" * 9, b"9" * 99))
            elif kind == 3:
                end = place + self.randrange(40)
                changed[place:place] = changed[place:end]
            elif kind == 4:
                changed[place : place + self.randrange(40)] = b""
            else:
                changed[place : place + 8] = self.randbytes(8)
        return bytes(changed)

    def trap(self, path: Path, outside: Path) -> str:
        """Put something in the place of a file that is no plain file of the folder; says what it is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            clear(path)
        kind = self.choice(sorted(TRAPS))
        TRAPS[kind](path, outside)
        return kind


def clear(path: Path) -> None:
    """Remove what a trap put there."""
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def _places(value: Any) -> Any:
    """All keys and places inside of a value, with what holds them."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _sparse(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "pipe": lambda path, outside: os.mkfifo(path),
    "endless": lambda path, outside: path.symlink_to("/dev/zero"),
    "link to nowhere": lambda path, outside: path.symlink_to(outside / "nothing"),
    "link in a circle": lambda path, outside: path.symlink_to(path.name),
    "link outside": lambda path, outside: path.symlink_to(outside),
    "folder": lambda path, outside: path.mkdir(),
    "a terabyte of holes": _sparse,
    "empty": lambda path, outside: path.write_bytes(b""),
}
