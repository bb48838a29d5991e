"""Find the failures in a pasted log: tracebacks, output of pytest, lines of evidence, and stray lines."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hwcompat.hardware.errors import BrokenInput
from hwcompat.hardware.evidence.record import CheckLine, RunLine, from_dict
from hwcompat.hardware.plain_text import ends_of

from .error_patterns import failure_signs

MOST_FAILURES = 200
"""Maximum of each kind: a log with more repeats itself."""

_MOST_STRAY = 500
"""Maximum number of stray lines from the beginning, and from the end."""
_LONGEST_LINE = 4_000
_LONGEST_MESSAGE = 20
_START = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_RAISED = re.compile(r"(?:[A-Za-z_]\w{0,80}\.){0,10}[A-Za-z_]\w{0,80}(?:: |:$|$)")
_PYTEST = re.compile(r"E {1,12}(?P<said>\S.*)")
_SUMMARY = re.compile(r"(?:FAILED|ERROR) [^ ]{1,500}(?: - (?P<said>.+))?$")
_ENDS = re.compile(
    r"=====|-----|_____|FAILED |ERROR |\$ |>>> |Traceback|\[\w{1,20}\]|\d{4}-\d\d-\d\d|(?:INFO|WARNING|DEBUG)\b"
)


@dataclass(frozen=True, kw_only=True)
class TextFailure:
    """A failure in its own words: `said` (its first line is on line `line` of the text) and the `log` before it.

    `sure` if something was certainly raised; a stray line may not be a failure.
    """

    said: str
    line: int
    log: str = ""
    sure: bool = True

    @property
    def quoted(self) -> str:
        """The line that it rests on."""
        return self.said.partition("\n")[0]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The failures in a text in order, and its lines of evidence."""

    failures: tuple[TextFailure, ...] = ()
    checks: tuple[CheckLine, ...] = ()
    runs: tuple[RunLine, ...] = ()
    lines: int = 0


def failures_in(text: str) -> Found:
    """Return all failures of a text. Pure and bounded: long lines are shortened in the middle, and of equal failures
    the first counts."""
    reader = _Reader(lines=[_line(one) for one in text.splitlines()])
    reader.read()
    sure = reader.raised[:MOST_FAILURES]
    said = {one.quoted for one in sure}
    # A line of pytest's summary, which pytest cuts, is the beginning of an earlier message.
    summaries = [
        one for one in reader.summaries if not any(other.startswith(one.quoted.removesuffix("...")) for other in said)
    ]
    stray = [one for one in reader.stray if one.quoted not in said]
    failures = sorted([*sure, *summaries[:MOST_FAILURES], *stray], key=lambda one: one.line)
    return Found(
        failures=tuple(failures), checks=tuple(reader.checks), runs=tuple(reader.runs), lines=len(reader.lines)
    )


def _line(text: str) -> str:
    """Return a line without colors; of a long one, unless it is a line of evidence, the beginning and the end."""
    if text.startswith("{"):
        return text.rstrip()
    return _ESCAPES.sub("", ends_of(text, _LONGEST_LINE)).rstrip()


@dataclass(kw_only=True)
class _Reader:
    """Reads the lines once, with the state of the current position."""

    lines: Sequence[str]
    raised: list[TextFailure] = field(default_factory=list)
    summaries: list[TextFailure] = field(default_factory=list)
    checks: list[CheckLine] = field(default_factory=list)
    runs: list[RunLine] = field(default_factory=list)
    _early: list[TextFailure] = field(default_factory=list)
    _late: deque[TextFailure] = field(default_factory=lambda: deque(maxlen=_MOST_STRAY))
    _before: str = ""

    def read(self) -> None:
        place = 0
        while place < len(self.lines):
            line = self.lines[place]
            if _START in line:
                place = self._traceback(place)
            elif _PYTEST.match(line):
                place = self._pytest(place)
            else:
                self._single(line, place)
                place += 1

    def _single(self, line: str, place: int) -> None:
        stripped = line.strip()
        if stripped.startswith(_CHAINED):
            self._chain()
        elif stripped.startswith("{") and self._own(stripped):
            pass
        elif found := _SUMMARY.match(stripped):
            if found["said"]:
                self.summaries.append(TextFailure(said=found["said"], line=place + 1))
        elif stripped and any(sign in stripped.lower() for sign in failure_signs()):
            kept = self._early if len(self._early) < _MOST_STRAY else self._late
            kept.append(TextFailure(said=stripped, line=place + 1, sure=False))

    @property
    def stray(self) -> list[TextFailure]:
        """Yield lines outside of tracebacks that may name a failure."""
        return [*self._early, *self._late]

    def _chain(self) -> None:
        """Read chained tracebacks: the last exception counts."""
        if self.raised:
            last = self.raised.pop()
            self._before = f"{last.log}\n{last.said}"[-_LONGEST_LINE:]

    def _keep(self, said: str, log: str, place: int) -> None:
        self.raised.append(
            TextFailure(said=said, line=place + 1, log=f"{self._before}\n{log}" if self._before else log)
        )
        self._before = ""

    def _traceback(self, start: int) -> int:
        """Read one traceback and return the index behind its message. A prefix of all lines is removed."""
        prefix = self.lines[start].partition(_START)[0]
        place = start + 1
        while place < len(self.lines):
            line = self._without(prefix, place)
            if line.strip() and line[0] not in " \t|+" and _START not in line:
                break
            place += 1
        said = self._message(prefix, place)
        if said:
            self._keep("\n".join(said), "\n".join(self.lines[start:place]), place)
        return place + max(len(said), 0)

    def _without(self, prefix: str, place: int) -> str:
        line = self.lines[place]
        return line.removeprefix(prefix) if line.startswith(prefix.rstrip()) else line

    def _message(self, prefix: str, place: int) -> list[str]:
        if place >= len(self.lines) or not _RAISED.match(self._without(prefix, place)):
            return []
        said = [self._without(prefix, place)]
        while len(said) < _LONGEST_MESSAGE and place + len(said) < len(self.lines):
            line = self._without(prefix, place + len(said))
            if not line.strip() or _ENDS.match(line) or line.startswith(_CHAINED):
                break
            said.append(line)
        return said

    def _pytest(self, start: int) -> int:
        said = []
        place = start
        while place < len(self.lines) and (found := _PYTEST.match(self.lines[place])):
            said.append(found["said"])
            place += 1
        self._keep("\n".join(said[:_LONGEST_MESSAGE]), "", start)
        return place

    def _own(self, line: str) -> bool:
        """Take a line of evidence; return whether it was one."""
        try:
            data = json.loads(line)
            kept = from_dict(data) if isinstance(data, dict) and data.get("kind") in ("check", "run", "end") else None
        except (ValueError, RecursionError, BrokenInput):
            return False
        if isinstance(kept, CheckLine):
            self.checks.append(kept)
        elif isinstance(kept, RunLine):
            self.runs.append(kept)
        return kept is not None
