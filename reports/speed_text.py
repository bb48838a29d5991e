"""The speed of cells that `run --measure` recorded: figures with their spread, for tables, JSON and comparisons."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwcompat.hardware.evidence.record import CheckLine, Outcome, WeightsKind
from hwcompat.hardware.plain_text import size_text

from .cell_report import CellReport
from .text import escaped_table, markdown

_TOKENS = ("first token", "per token")
_HEADINGS = (
    *("cell", "weights", "latency, p90", "times as fast as eager", "rows/s by batch", *_TOKENS),
    *("steps", "peak memory"),
)
_ABOUT = (
    "Medians of 30 calls after a warm-up; eager is plain torch in float32 on the CPU, in the same run. Figures of "
    "tiny weights say nothing about a real model."
)
_FEWEST = 3
_FEWEST_CALLS = 30
SMALLEST_RATIO = 1.1
"""How many times as long a slower cell takes at least. Within one run, torch.utils.benchmark trusts a median whose
quartiles are up to 10% of it apart (`_IQR_WARN_THRESHOLD`); two runs don't agree better than that."""

_MEASURED = (Outcome.PASSED, Outcome.SKIPPED)
"""Outcomes of the check after which a cell was measured."""
_BATCH = re.compile(r"batch (\d{1,4})")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The calls of one series: median, and 10th and 90th percentile, in milliseconds."""

    calls: int
    median_ms: float
    p10_ms: float
    p90_ms: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least three calls."""
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        return cls(calls=len(values), median_ms=statistics.median(values), p10_ms=tenths[0], p90_ms=tenths[-1])

    @property
    def three(self) -> tuple[float, float, float]:
        """Median, 10th and 90th percentile."""
        return self.median_ms, self.p10_ms, self.p90_ms


@dataclass(frozen=True, kw_only=True)
class CellSpeed:
    """What was measured of one cell; `series` by name (`hardware/testing/speed_measurement.py`), in milliseconds."""

    cell: str
    weights: str
    series: Mapping[str, Spread]
    steps_ms: Mapping[str, float]
    peak_bytes: Mapping[str, int]
    left_out: Mapping[str, str]

    @property
    def is_meaningful(self) -> bool:
        """Whether the weights have the dimensions of a real model."""
        return self.weights != WeightsKind.TINY

    @property
    def latency(self) -> Spread | None:
        """A forward pass of one row."""
        return self.series.get("batch 1")

    @property
    def batches(self) -> dict[int, Spread]:
        """Forward passes by the number of rows."""
        return {int(found[1]): one for name, one in self.series.items() if (found := _BATCH.fullmatch(name))}

    @property
    def times_eager(self) -> float | None:
        """How many times as fast as plain torch on the CPU in float32, of the medians of one row."""
        eager, own = self.series.get("eager"), self.latency
        return eager.median_ms / own.median_ms if eager and own and own.median_ms else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "cell": self.cell,
            "weights": self.weights,
            "meaningful": self.is_meaningful,
            "series": {name: vars(one) for name, one in self.series.items()},
            "rows_per_s": {f"{rows}": round(_rate(rows, one), 1) for rows, one in self.batches.items()},
            "times_eager": self.times_eager and round(self.times_eager, 3),
            **{name: dict(getattr(self, name)) for name in ("steps_ms", "peak_bytes", "left_out")},
        }


def _rate(rows: int, one: Spread) -> float:
    return 1e3 * rows / max(one.median_ms, 1e-6)


def speed_of(lines: Iterable[CheckLine]) -> CellSpeed | None:
    """Return the speed of the cell with these results; None if none was measured. Values of another shape, since
    evidence may have any source, are left out."""
    line = next((one for one in lines if one.speed and one.outcome in _MEASURED), None)
    if line is None:
        return None
    series = {name: _numbers(values) for name, values in _part(line, "ms").items()}
    return CellSpeed(
        cell=line.cell_id,
        weights=line.subject,
        series={name: Spread.of(values) for name, values in series.items() if len(values) >= _FEWEST},
        steps_ms={name: one for name, value in _part(line, "steps_ms").items() for one in _numbers([value])},
        peak_bytes={name: int(one) for name, value in _part(line, "peak_bytes").items() for one in _numbers([value])},
        left_out={name: str(why) for name, why in _part(line, "left_out").items()},
    )


def _part(line: CheckLine, name: str) -> Mapping[str, Any]:
    found = line.speed.get(name)
    return found if isinstance(found, Mapping) else {}


def _numbers(values: Any) -> list[float]:
    found = values if isinstance(values, list | tuple) else []
    return [float(one) for one in found if type(one) in (int, float) and math.isfinite(one) and one >= 0]


def speeds(cells: Iterable[CellReport]) -> list[CellSpeed]:
    """Return the speed of each cell that was measured."""
    return [found for cell in cells if (found := speed_of(cell.lines))]


def latency_text(lines: Iterable[CheckLine]) -> str:
    """Return the latency of one row for the table of a run; empty if it wasn't measured."""
    found = speed_of(lines)
    if found is None or found.latency is None:
        return ""
    ratio = "" if found.times_eager is None else f", {found.times_eager:.2g}x eager"
    return f"{found.latency.median_ms:.3g} ms{ratio}{'' if found.is_meaningful else ' (tiny)'}"


def speed_markdown(cells: Iterable[CellReport]) -> str:
    """Return the section of measured speeds, a row for each cell; empty if nothing was measured."""
    found = speeds(cells)
    if not found:
        return ""
    left = [f"- {markdown(f'{one.cell}, {name}: {why}')}" for one in found for name, why in one.left_out.items()]
    parts = ["## Speed", _ABOUT, escaped_table(_HEADINGS, [_row(one) for one in found])]
    return "\n\n".join([*parts, *(["Not measured:\n\n" + "\n".join(left)] if left else [])])


def _row(one: CellSpeed) -> tuple[str, ...]:
    steps = (f"{name.replace('_', ' ')} {took / 1e3:.2g} s" for name, took in one.steps_ms.items())
    return (
        one.cell,
        one.weights,
        f"{one.latency.median_ms:.3g} ms, {one.latency.p90_ms:.3g} ms" if one.latency else "",
        "" if one.times_eager is None else f"{one.times_eager:.2f}",
        ", ".join(f"{rows}: {_rate(rows, spread):,.0f}" for rows, spread in one.batches.items()),
        *(f"{one.series[name].median_ms:.3g} ms" if name in one.series else "" for name in _TOKENS),
        ", ".join(steps),
        ", ".join(f"{name} {size_text(size)}" for name, size in one.peak_bytes.items()),
    )


def is_slower(before: CellSpeed, now: CellSpeed) -> bool:
    """Whether one row takes longer beyond the measured spread and `SMALLEST_RATIO`, in series of thirty calls.

    Nine of ten calls must take longer than nine of ten took before. Where both runs timed plain torch too, what it
    got slower meanwhile is the machine's, and is taken off; with it in one run only, that isn't known.
    """
    old, new = before.latency, now.latency
    plain = [one.series["eager"] for one in (before, now) if "eager" in one.series]
    if old is None or new is None or len(plain) == 1 or min(one.calls for one in (old, new, *plain)) < _FEWEST_CALLS:
        return False
    machine = max(1.0, plain[1].median_ms / max(plain[0].median_ms, 1e-6)) if plain else 1.0
    return new.p10_ms > old.p90_ms * machine and new.median_ms >= old.median_ms * machine * SMALLEST_RATIO
