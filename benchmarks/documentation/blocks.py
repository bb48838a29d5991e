"""Code of a page: fenced blocks of `console` and `python`, and the comments that configure them.

A block of `console` has commands (`$ …`) and their output. A comment `<!-- … -->` on the line before may contain
`exit 1` (the expected code), `show 12` (the number of shown lines before `…`), or `not run: REASON`, separated by
commas. A line `…` matches any lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

MORE = "…"
_FENCE = re.compile(
    r"(?:^<!-- (?P<said>[^\n]*?) -->\n)?^```(?P<language>console|python)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command of a block and its expected output; of `python` the whole script."""

    command: str
    printed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block: the position of its body in the page, its steps, and its settings."""

    start: int
    end: int
    line: int
    language: str
    steps: tuple[Step, ...]
    exit_code: int = 0
    show: int | None = None
    not_run: str = ""

    def text(self) -> str:
        """Return the body as in the page."""
        if self.language == "python":
            return self.steps[0].command
        return "".join("".join(f"{line}\n" for line in (f"$ {step.command}", *step.printed)) for step in self.steps)

    def shown(self, printed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the lines of output that the page shows."""
        if self.show is None or len(printed) <= self.show:
            return printed
        return (*printed[: self.show], MORE)


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page. Raises `ValueError` for an unknown setting, and for output without a command."""
    for match in _FENCE.finditer(page):
        line = page.count("\n", 0, match.start("body")) + 1
        body, language = match["body"], match["language"]
        steps = tuple(_steps(body, line)) if language == "console" else (Step(command=body),)
        block = Block(start=match.start("body"), end=match.end("body"), line=line, language=language, steps=steps)
        yield _told(block, match["said"] or "")


def _steps(body: str, line: int) -> Iterator[Step]:
    command, printed = "", list[str]()
    for text in body.splitlines():
        if text.startswith("$ "):
            if command:
                yield Step(command=command, printed=tuple(printed))
            command, printed = text[2:], []
        elif command:
            printed.append(text)
        else:
            raise ValueError(f"line {line}: output without a command")
    if not command:
        raise ValueError(f"line {line}: a block without a command")
    yield Step(command=command, printed=tuple(printed))


def _told(block: Block, said: str) -> Block:
    if said.startswith("not run: "):
        return replace(block, not_run=said.removeprefix("not run: "))
    for part in filter(None, said.split(", ")):
        word, _, number = part.partition(" ")
        if word not in ("exit", "show") or not number.isdecimal():
            raise ValueError(f"line {block.line}: {part!r} says nothing of a block")
        block = replace(block, exit_code=int(number)) if word == "exit" else replace(block, show=int(number))
    return block


_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_RUN = re.compile(r"\b\d{8}T\d{6}Z-[0-9a-f]{6}(?:-\d+)?\b")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b")


def alike(line: str) -> str:
    """Return a line without numbers, run ids, hashes and column widths, which differ from run to run."""
    text = _HASH.sub("#", _RUN.sub("#", line))
    return re.sub(r"-{2,}", "--", re.sub(r"\s+", " ", _NUMBER.sub("#", text))).strip()


def difference(wanted: tuple[str, ...], got: tuple[str, ...]) -> str:
    """Return the difference between output and page, or an empty string. `…` matches any lines."""
    expected, found = [alike(line) for line in wanted], [alike(line) for line in got]
    if _fits(expected, found):
        return ""
    for number, line in enumerate(expected):
        if line != MORE and line not in found:
            return f"the page says {wanted[number]!r}, which isn't printed"
    extra = next((one for one, text in zip(got, found, strict=True) if text not in expected), "")
    return f"it prints {extra!r}, which the page doesn't say" if extra else "the lines come in another order"


def _fits(expected: list[str], found: list[str]) -> bool:
    if not expected:
        return not found
    if expected[0] == MORE:
        return any(_fits(expected[1:], found[start:]) for start in range(len(found) + 1))
    return bool(found) and expected[0] == found[0] and _fits(expected[1:], found[1:])
