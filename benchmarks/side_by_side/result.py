"""What one bench gives: comparisons with rivals in the same run, and curves; JSON that pages are made from."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Ours and a rival's figures of one run, in turns. `unit` is that of both; less is better.

    `missing` says why the rival has none. `note` says what the two do differently: a ratio of unlike things misleads.
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
        """The median of ours over the rival's; None where the rival has none."""
        if not self.rival_values:
            return None
        return statistics.median(self.ours_values) / statistics.median(self.rival_values)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How something grows: points (x, y) by the name of who was measured, each a median of `runs`."""

    title: str
    x: str
    y: str
    points: Mapping[str, Sequence[Sequence[float]]]
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one bench; `remarks` are sentences. When, on what and with which versions it ran is added by the
    command that runs it."""

    title: str
    comparisons: Sequence[Comparison] = ()
    curves: Sequence[Curve] = ()
    remarks: Sequence[str] = ()
    bench: str = ""
    date: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), sort_keys=True)


def read_results(path: Path) -> dict[str, Result]:
    """The newest result of each bench in a file of JSON lines; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = (_result(json.loads(line)) for line in lines)
    return {one.bench: one for one in found}


def keep_results(path: Path, results: Sequence[Result]) -> None:
    """Put results into a file, in the place of earlier ones of the same benches."""
    kept = {**read_results(path), **{one.bench: one for one in results}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{kept[name].to_json()}\n" for name in sorted(kept)), encoding="utf-8")


def _result(plain: Mapping[str, Any]) -> Result:
    comparisons = [Comparison(**one) for one in plain["comparisons"]]
    return Result(**{**plain, "comparisons": comparisons, "curves": [Curve(**one) for one in plain["curves"]]})
