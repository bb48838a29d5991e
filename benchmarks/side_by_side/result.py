"""Results of benchmarks: comparisons with other tools in the same run, and curves, stored as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Our figures and those of another tool, measured in turns. `unit` is that of both; less is better.

    `missing` is the reason if the other tool has none. `note` states differences between the two.
    """

    what: str
    ours: str
    rival: str
    unit: str
    ours_values: Sequence[float]
    rival_values: Sequence[float] = ()
    note: str = ""
    missing: str = ""

    @property
    def ratio(self) -> float | None:
        """The ratio of our median and the other's, or None."""
        if not self.rival_values:
            return None
        return statistics.median(self.ours_values) / statistics.median(self.rival_values)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A growth curve: points (x, y) by name, each a median of `runs`."""

    title: str
    x: str
    y: str
    points: Mapping[str, Sequence[Sequence[float]]]
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one benchmark; `remarks` are sentences. The command adds date, machine and versions."""

    title: str
    comparisons: Sequence[Comparison] = ()
    curves: Sequence[Curve] = ()
    remarks: Sequence[str] = ()
    bench: str = ""
    date: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)


def read_results(path: Path) -> dict[str, Result]:
    """Read the newest result of each benchmark from a file of JSON lines, which may be missing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = (_result(json.loads(line)) for line in lines)
    return {one.bench: one for one in found}


def keep_results(path: Path, results: Sequence[Result]) -> None:
    """Write results to a file, replacing earlier ones of the same benchmarks."""
    kept = {**read_results(path), **{one.bench: one for one in results}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{kept[name].to_json()}\n" for name in sorted(kept)), encoding="utf-8")


def _result(plain: Mapping[str, Any]) -> Result:
    comparisons = [Comparison(**one) for one in plain["comparisons"]]
    return Result(**{**plain, "comparisons": comparisons, "curves": [Curve(**one) for one in plain["curves"]]})
