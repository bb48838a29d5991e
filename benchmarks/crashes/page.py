"""The page of results: kinds of fault, their number, lost lines and resumed runs."""

from __future__ import annotations

import functools
import platform
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tabulate import tabulate

from .deaths import deaths
from .result import Kept


def page_text(found: Sequence[Kept], *, command: str) -> str:
    """Return the page as Markdown."""
    dates = sorted({one.date for one in found}) or ["no day"]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "pytest"))
    wrong = sum(bool(one.wrong) for one in found)
    head = _text("head").format(
        result=f"In {len(found) - wrong} of {len(found)} crashes and disturbances, no promise below was broken.",
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
    return "\n".join([*parts, _what_was_wrong(found), _text("not_tried")]).rstrip("\n") + "\n"


def _summary(by_part: dict[str, list[Kept]]) -> str:
    rows = [(name, len(own), _landed(own), _wrong(own)) for name, own in by_part.items()]
    return _table(rows, ("part", "cases", "took effect", "a promise was broken"))


def _kills(found: Sequence[Kept]) -> str:
    landed = [one for one in found if one.facts.get("landed")]
    random = [one for one in landed if "random" in one.kind]
    text = _text("kills").format(count=len(landed), random=len(random), aimed=len(landed) - len(random))
    rows = []
    for kind in sorted({one.kind for one in found}):
        own = [one for one in landed if one.kind == kind]
        rows.append(
            (
                kind,
                len(own),
                sum(one.facts["acknowledged"] for one in own),
                _lost(own),
                sum(one.facts["half lines"] for one in own),
                sum(one.facts["taken over"] for one in own),
                sum(one.facts["exit"] == 0 for one in own),
                sum(one.facts["exit"] != 0 for one in own),
                _wrong(own),
            )
        )
    rows.append(("all", *(sum(row[column] for row in rows) for column in range(1, 9))))
    heads = ("killed", "kills", "lines acknowledged", "lost", "cut-off lines, reported", "cells kept by `--resume`")
    heads = (*heads, "passed after `--resume`", "kept a crash as a result", "a promise was broken")
    left = sum(one.facts.get("left at once", 0) for one in landed)
    said = f"\nKilled processes left {left} temporary folders or parts of files behind, which are never read.\n"
    return f"{text}\n{_table(rows, heads)}{said}"


def _disks(found: Sequence[Kept]) -> str:
    from .disks import SIZES_K

    rows = []
    for kind in dict.fromkeys(one.kind for one in found):
        own = [one for one in found if one.kind == kind]
        came = [one for one in own if one.facts.get("landed")]
        exits = Counter(one.facts["exit"] for one in came)
        codes = ", ".join(f"{count} x {code}" for code, count in sorted(exits.items()))
        resumed = sum(one.facts["resumed"] == 0 for one in came)
        rows.append((kind, len(own), len(came), codes, resumed, _wrong(own)))
    sizes = [size for some in SIZES_K.values() for size in some]
    heads = ("fault", "cases", "took effect", "exit codes", "passed after `--resume`", "a promise was broken")
    return f"{_text('disks').format(sizes=f'{min(sizes)} to {max(sizes)}')}\n{_table(rows, heads)}"


def _together(found: Sequence[Kept]) -> str:
    rows = []
    for kind in dict.fromkeys(one.kind for one in found):
        own = [one for one in found if one.kind == kind]
        counted = [sum(one.facts.get(name, 0) for one in own) for name in ("passed", "not_run")]
        rows.append((kind, len(own), *counted, _wrong(own)))
    heads = ("two of", "times", "lines passed", "not_run, with the reason", "a promise was broken")
    return f"{_text('together')}\n{_table(rows, heads)}"


def _deaths(found: Sequence[Kept]) -> str:
    rows = []
    for death in deaths():
        results = [one.facts["deaths"].get(death.name) for one in found]
        text = "not tried" if None in results else "as promised" if all(results) else "WRONG"
        rows.append((death.title, death.outcome, death.after, text))
    runs = " and ".join(one.kind for one in found)
    heads = ("what the second check does", "its outcome", "the third", "results")
    return f"{_text('deaths').format(runs=runs)}\n{_table(rows, heads)}"


def _writers(found: Sequence[Kept]) -> str:
    rows = [(one.kind, one.facts["kills"], one.facts["parts left"], _wrong([one])) for one in found]
    heads = ("what was written", "kills", "parts left behind", "a promise was broken")
    return f"{_text('writers')}\n{_table(rows, heads)}"


def _exports(found: Sequence[Kept]) -> str:
    green = sum(one.facts.get("exit") == 0 for one in found)
    rows = [("bert on openvino", len(found), _landed(found), green, _wrong(found))]
    heads = ("run", "cases", "kills", "passed after `--resume`", "a promise was broken")
    return f"{_text('exports')}\n{_table(rows, heads)}"


def _sabotage(found: Sequence[Kept]) -> str:
    rows = [(one.kind, "found" if one.facts["found"] else "NOT FOUND", one.facts["said"]) for one in found]
    return f"{_text('sabotage')}\n{_table(rows, ('what was made worse', '', 'message'))}"


_PARTS = {
    "kills": _kills,
    "deaths": _deaths,
    "disks": _disks,
    "together": _together,
    "writers": _writers,
    "exports": _exports,
    "sabotage": _sabotage,
}


def _what_was_wrong(found: Sequence[Kept]) -> str:
    wrong = [f"- `{one.id}` ({one.kind}): {text[:300]}" for one in found for text in one.wrong]
    return "\n## Broken promises\n\n" + ("\n".join(wrong) if wrong else "Nothing.") + "\n"


def _landed(found: Sequence[Kept]) -> int:
    return sum(bool(one.facts.get("landed", True)) for one in found)


def _wrong(found: Sequence[Kept]) -> int:
    return sum(bool(one.wrong) for one in found)


def _lost(found: Sequence[Kept]) -> int:
    return sum("acknowledged and is gone" in text for one in found for text in one.wrong)


def _table(rows: Sequence[Sequence[object]], heads: Sequence[str]) -> str:
    return tabulate(rows, headers=heads, tablefmt="github") + "\n"


@functools.cache
def _texts() -> dict[str, str]:
    return tomllib.loads(Path(__file__).with_name("page.toml").read_text(encoding="utf-8"))


def _text(name: str) -> str:
    return _texts()[name]
