"""Moments and victims of kills, drawn by seed before any run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

CHECKS = {
    "bert/fill-mask/cpu/float32": (
        *("builds", "matches_reference", "matches_recorded", "honours_mask"),
        *("save_reload", "backward", "runs_natively"),
    ),
    "gpt2/text-generation/cpu/float32": (
        *("builds", "matches_reference", "matches_recorded", "honours_mask", "generates_like_reference"),
        *("cache_matches", "save_reload", "backward", "runs_natively"),
    ),
    "vit/image-classification/cpu/float32": (
        *("builds", "matches_reference", "matches_recorded", "save_reload", "backward", "runs_natively"),
    ),
}
"""The plan of each run: small models of three architectures on the CPU."""

MODELS = ("bert", "gpt2", "vit")

_LINE_POINTS = ("before", "half", "after", "returned")
_SUITES, _REPORTS = 4, 5
_REFERENCES = 4


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One kill: of `parent`, `child`, `all` (parent and children at once) or `twice` (the run, and the one that
    resumes it).

    `share` is the moment as a share of an undisturbed run's time; `point` is a write operation instead
    (`planting/planted_crash.py`).
    """

    number: int
    victim: str
    share: float = 0.0
    again: float = 0.0
    point: str = ""

    @property
    def kind(self) -> str:
        """The row of the table."""
        return f"{self.victim}, {self.aim}"

    @property
    def aim(self) -> str:
        """A description of the target of the kill."""
        if not self.point:
            return "at a random moment"
        what, which, where = self.point.split(":")
        place = {"before": "before", "half": "in the middle of", "after": "at the end of", "returned": "after"}[where]
        if what == "replace":
            return f"{place} putting a file into its place"
        name = {"run": "the plan", "end": "the run's last line"}.get(which, "a check's line")
        return f"{place} writing {name}"


def parent_points() -> tuple[str, ...]:
    """Return every write operation of a parent: plan, last line, suites and reports."""
    lines = [f"line:{kind}:{where}" for kind in ("run", "end") for where in _LINE_POINTS]
    files = range(1, _SUITES + _REPORTS + 1)
    return (*lines, *(f"replace:parent/{number}:{where}" for number in files for where in ("before", "after")))


def child_points() -> tuple[str, ...]:
    """Return every write operation of children: the line of each check, and the first stored references."""
    lines = [
        f"line:{cell}/{check}:{where}"
        for cell, checks in CHECKS.items()
        for check in checks
        for where in _LINE_POINTS
    ]
    kept = [
        f"replace:child/{number}:{where}" for number in range(1, _REFERENCES + 1) for where in ("before", "after")
    ]
    return (*lines, *kept)


def draw(kills: int, seed: int) -> tuple[Kill, ...]:
    """Draw kills: over half of a parent or a child at moments spread over the run, the others at write operations, of
    all processes at once, and of the resuming run. The same seed gives the same kills."""
    chance = random.Random(seed)
    shares = {"parent": 0.37, "child": 0.23, "parent aimed": 0.125, "child aimed": 0.165, "all": 0.06, "twice": 0.05}
    wanted = {name: max(1, round(kills * share)) for name, share in shares.items()}
    wanted["parent"] += kills - sum(wanted.values())
    drawn: list[dict[str, object]] = []
    for victim in ("parent", "child", "all", "twice"):
        for moment in spread(wanted[victim], chance):
            again = chance.random() if victim == "twice" else 0.0
            drawn.append({"victim": victim, "share": moment, "again": again})
    for victim, points in (("parent", parent_points()), ("child", child_points())):
        drawn += [{"victim": victim, "point": point} for point in _some(points, wanted[f"{victim} aimed"], chance)]
    chance.shuffle(drawn)
    return tuple(Kill(number=number, **one) for number, one in enumerate(drawn))


def spread(count: int, chance: random.Random) -> list[float]:
    """Draw shares between 0 and 1, one in each of `number` equal intervals."""
    return [(number + chance.random()) / count for number in range(count)]


def _some(points: Sequence[str], count: int, chance: random.Random) -> list[str]:
    """Draw items, each once before any is repeated."""
    found: list[str] = []
    while len(found) < count:
        found += chance.sample(points, min(count - len(found), len(points)))
    return found
