"""Draws the mutants by seed, and finds the site of one again when the file around it has changed."""

from __future__ import annotations

import json
import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .operators import OPERATORS, Edit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FROZEN = HERE / "frozen.jsonl"
SEED = 10


@dataclass(frozen=True, kw_only=True)
class CodeMutant:
    """One fault: `old` becomes `new` in function (or table) `where` of `file`, at the `nth` place like it (from 0).

    `side` is whose fault it is: that of a suite, a backend, a report...
    """

    name: str
    area: str
    side: str
    operator: str
    file: str
    where: str
    nth: int
    old: str
    new: str

    def line(self, text: str) -> int | None:
        """The number, from 1, of the line that it changes in `text`; None where its site is gone."""
        edit = self._edit(text)
        return None if edit is None else text.count("\n", 0, edit.start) + 1

    def made(self, text: str) -> str | None:
        """`text` with the fault; None where its site is gone."""
        edit = self._edit(text)
        return None if edit is None else text[: edit.start] + edit.text + text[edit.end :]

    def _edit(self, text: str) -> Edit | None:
        alike = [
            edit
            for edit in OPERATORS[self.operator].sites(text)
            if (edit.where, text[edit.start : edit.end], edit.text) == (self.where, self.old, self.new)
        ]
        return alike[self.nth] if self.nth < len(alike) else None


def draw(root: Path = ROOT) -> list[CodeMutant]:
    """The mutants of every area: operators in turn, each at one of its sites that wasn't drawn yet."""
    with (HERE / "areas.toml").open("rb") as file:
        areas = tomllib.load(file)["area"]
    return [
        mutant for area in areas for mutant in _drawn(area["name"], area["side"], area["files"], area["count"], root)
    ]


def _drawn(area: str, side: str, patterns: Sequence[str], count: int, root: Path) -> Iterator[CodeMutant]:
    files = sorted({path for pattern in patterns for path in root.glob(pattern) if path.suffix in (".py", ".toml")})
    sites: dict[str, list[tuple[str, Edit, str, int]]] = defaultdict(list)
    for path in files:
        text = path.read_text(encoding="utf-8")
        for operator in OPERATORS.values():
            if operator.suffix == path.suffix:
                seen: Counter[tuple[str, str, str]] = Counter()
                for edit in operator.sites(text):
                    key = (edit.where, text[edit.start : edit.end], edit.text)
                    sites[operator.name].append((path.relative_to(root).as_posix(), edit, key[1], seen[key]))
                    seen[key] += 1
    chance = random.Random(f"{SEED}/{area}")
    for found in sites.values():
        chance.shuffle(found)
    names = [name for name in OPERATORS if name in sites]
    number = 0
    while number < count and any(sites.values()):
        for name in names:
            if sites[name] and number < count:
                file, edit, old, nth = sites[name].pop()
                number += 1
                yield CodeMutant(
                    name=f"{area}-{number:02d}",
                    area=area,
                    side=side,
                    operator=name,
                    file=file,
                    where=edit.where,
                    nth=nth,
                    old=old,
                    new=edit.text,
                )


def freeze(mutants: Sequence[CodeMutant]) -> None:
    """Write the list. It is written once: what a later draw would give is another list."""
    FROZEN.write_text(
        "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in mutants), encoding="utf-8"
    )


def frozen() -> list[CodeMutant]:
    """The mutants as they were drawn."""
    return [CodeMutant(**json.loads(line)) for line in FROZEN.read_text(encoding="utf-8").splitlines()]
