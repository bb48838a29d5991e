"""The page of what came of the bench: kinds of fault, how many, what was lost and what was gone on with."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from importlib import metadata

from tabulate import tabulate

from .deaths import deaths
from .result import Kept

_HEAD = """# Crashes

Made by `{command}` on {dates} with Python {python} and {versions}.

## What is promised

- A line of evidence is kept once the writer's call returned: from then on every process sees it whole, whatever becomes
  of the one that wrote it. Nothing is promised of a machine that loses its power.
- No half file is taken for a whole one. Evidence is appended, a line by one call; a line that was cut off is named
  (`broken_evidence`) and counts for nothing. Everything else that is kept appears by one rename.
- Every planned check has a line, or its run has no end: then the report says so (`interrupted`), what is missing shows as
  `not_run`, and `--resume` runs it. No level stands above what some run passed whole.
- A check that ends its process, hangs, or runs out of memory is `crashed`, `timeout` or `out_of_memory`. One that nothing
  could be written for is `not_run` (`disk_full`): that says nothing of the model, and `--resume` runs it again.

Each is looked at by a reader of its own over the raw files (`benchmarks/crashes/checking.py`, plain JSON, shown able to
fail by `test/unit/test_crash_checks.py`), and then by the product's reader and reporter, which have to agree. What was
acknowledged is noted at the writer's return, outside of the product's files.
"""
_KILLS = """## Kills by SIGKILL

Runs of bert, gpt2 and vit on cpu, two suites at a time, into empty folders with an empty cache: {count} kills drawn by
seed, {random} at random moments spread over the run and {aimed} aimed at its writing (before a call, in the middle of a
line, after the call, after it returned). After each: what was acknowledged is there byte for byte, every file is whole,
nobody is left alive; then `--resume`, and all of it again.
"""
_DISKS = """## Disks

A full disk is a tmpfs of {sizes} kB under one folder of the run; read-only is the folder's mode, for a process without
root's right to ignore it. Then there is room again, and `--resume`.
"""
_TOGETHER = """## Two at once

Two processes that share all folders and the cache.
"""
_DEATHS = """## Deaths

One run with a suite for each, beside a good one ({runs}). The first check was done before, the third comes after.
"""
_WRITERS = """## Writers killed

Whoever writes what is kept is killed while it writes over and over; each file has to be the old or the new one, byte for
byte. What is merged or compacted is gone on with afterwards, and has to be complete.
"""
_EXPORTS = """## Exports killed

bert on openvino into an empty cache, killed at moments spread over the run, then resumed.
"""


def page_text(found: Sequence[Kept], *, command: str) -> str:
    """Markdown."""
    dates = sorted({one.date for one in found}) or ["no day"]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "pytest"))
    head = _HEAD.format(
        command=command,
        dates=" to ".join(dict.fromkeys((dates[0], dates[-1]))),
        python=platform.python_version(),
        versions=versions,
    )
    by_part: dict[str, list[Kept]] = {}
    for one in found:
        by_part.setdefault(one.part, []).append(one)
    parts = [head, _summary(by_part)]
    for name, make in _PARTS.items():
        if name in by_part:
            parts.append(make(by_part[name]))
    return "\n".join([*parts, _what_was_wrong(found)]).rstrip("\n") + "\n"


def _summary(by_part: dict[str, list[Kept]]) -> str:
    rows = [(name, len(own), _landed(own), _wrong(own)) for name, own in by_part.items()]
    return _table(rows, ("part", "cases", "came about", "something didn't hold"))


def _kills(found: Sequence[Kept]) -> str:
    landed = [one for one in found if one.facts.get("landed")]
    random = [one for one in landed if "random" in one.kind]
    text = _KILLS.format(count=len(landed), random=len(random), aimed=len(landed) - len(random))
    rows = []
    for kind in sorted({one.kind for one in found}):
        own = [one for one in landed if one.kind == kind]
        went_on = Counter(one.facts["resumed"] for one in own)
        rows.append(
            (
                kind,
                len(own),
                sum(one.facts["acknowledged"] for one in own),
                _lost(own),
                sum(one.facts["half lines"] for one in own),
                ", ".join(f"{count} {said}" for said, count in went_on.most_common()),
                sum(one.facts["exit"] == 0 for one in own),
                sum(one.facts["exit"] != 0 for one in own),
                _wrong(own),
            )
        )
    total = ("all", len(landed), *(sum(row[column] for row in rows) for column in (2, 3, 4)), "")
    rows.append((*total, *(sum(row[column] for row in rows) for column in (6, 7, 8))))
    heads = ("killed", "kills", "lines acknowledged", "lost", "half lines, named", "`--resume` said", "ended green")
    heads = (*heads, "kept a crash as a result", "something didn't hold")
    left = sum(one.facts.get("left at once", 0) for one in landed)
    said = f"\nKilled processes left {left} temporary folders or parts of files behind, which nobody reads.\n"
    return f"{text}\n{_table(rows, heads)}{said}"


def _disks(found: Sequence[Kept]) -> str:
    from .disks import SIZES_K

    rows = []
    for kind in dict.fromkeys(one.kind for one in found):
        own = [one for one in found if one.kind == kind]
        came = [one for one in own if one.facts.get("landed")]
        exits = Counter(one.facts["exit"] for one in came)
        told = ", ".join(f"{count} x {code}" for code, count in sorted(exits.items()))
        resumed = sum(one.facts["resumed"] == 0 for one in came)
        rows.append((kind, len(own), len(came), told, resumed, _wrong(own)))
    sizes = [size for some in SIZES_K.values() for size in some]
    heads = ("fault", "cases", "came about", "exit codes", "`--resume` ended green", "something didn't hold")
    return f"{_DISKS.format(sizes=f'{min(sizes)} to {max(sizes)}')}\n{_table(rows, heads)}"


def _together(found: Sequence[Kept]) -> str:
    rows = []
    for kind in dict.fromkeys(one.kind for one in found):
        own = [one for one in found if one.kind == kind]
        counted = [sum(one.facts.get(name, 0) for one in own) for name in ("passed", "not_run")]
        rows.append((kind, len(own), *counted, _wrong(own)))
    heads = ("two of", "times", "lines passed", "not_run, with the reason", "something didn't hold")
    return f"{_TOGETHER}\n{_table(rows, heads)}"


def _deaths(found: Sequence[Kept]) -> str:
    rows = []
    for death in deaths():
        told = [one.facts["deaths"].get(death.name) for one in found]
        said = "not tried" if None in told else "as it has to be" if all(told) else "WRONG"
        rows.append((death.title, death.outcome, death.after, said))
    runs = " and ".join(one.kind for one in found)
    heads = ("what the second check does", "its outcome", "the third", "told")
    return f"{_DEATHS.format(runs=runs)}\n{_table(rows, heads)}"


def _writers(found: Sequence[Kept]) -> str:
    rows = [(one.kind, one.facts["kills"], one.facts["parts left"], _wrong([one])) for one in found]
    heads = ("what was written", "kills", "parts left behind", "something didn't hold")
    return f"{_WRITERS}\n{_table(rows, heads)}"


def _exports(found: Sequence[Kept]) -> str:
    green = sum(one.facts.get("exit") == 0 for one in found)
    rows = [("bert on openvino", len(found), _landed(found), green, _wrong(found))]
    heads = ("run", "cases", "kills", "`--resume` ended green", "something didn't hold")
    return f"{_EXPORTS}\n{_table(rows, heads)}"


_PARTS = {
    "kills": _kills,
    "deaths": _deaths,
    "disks": _disks,
    "together": _together,
    "writers": _writers,
    "exports": _exports,
}


def _what_was_wrong(found: Sequence[Kept]) -> str:
    wrong = [f"- `{one.id}` ({one.kind}): {text[:300]}" for one in found for text in one.wrong]
    return "\n## What didn't hold\n\n" + ("\n".join(wrong) if wrong else "Nothing.") + "\n"


def _landed(found: Sequence[Kept]) -> int:
    return sum(bool(one.facts.get("landed", True)) for one in found)


def _wrong(found: Sequence[Kept]) -> int:
    return sum(bool(one.wrong) for one in found)


def _lost(found: Sequence[Kept]) -> int:
    return sum("acknowledged and is gone" in text for one in found for text in one.wrong)


def _table(rows: Sequence[Sequence[object]], heads: Sequence[str]) -> str:
    return tabulate(rows, headers=heads, tablefmt="github") + "\n"
