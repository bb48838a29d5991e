"""Records of the PyTorch benchmark database, version 3: whether each measured cell works, its error and latency.

Fields: https://github.com/pytorch/pytorch/wiki/PyTorch-OSS-benchmark-infra, "Benchmark results format".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from hwcompat.generators.compatibility.verdict import Basis, Level
from hwcompat.hardware.cell import parsed
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.plain_text import json_text

from ..cell_report import CellReport
from ..report import Report
from ..speed_text import speed_of
from . import Format

_TIMED = "matches_reference"


def benchmark_records(report: Report) -> str:
    """Return a list of records. Cells that are unknown have none, since nothing about them was measured."""
    versions = {name: version for run in report.runs for name, version in run.versions.items() if version}
    dependencies = {name: {"extra_info": {"version": version}} for name, version in sorted(versions.items())}
    found = [record for cell in report.cells for record in _records(cell, dependencies)]
    return json_text(found) + "\n"


def _records(cell: CellReport, dependencies: dict[str, Any]) -> Iterator[dict[str, Any]]:
    of, level = parsed(cell.id), cell.verdict.level
    if of is None or level is Level.UNKNOWN or cell.verdict.basis is not Basis.MEASURED:
        return
    right = [line for line in cell.lines if line.check_name == _TIMED and line.outcome is Outcome.PASSED]
    timed = [line.latency_ms for line in right if line.latency_ms is not None]
    errors = [one for line in cell.lines if (one := line.max_rel_error) is not None and math.isfinite(one)]
    metrics: dict[str, tuple[list[float], str]] = {
        "works": ([float(level in (Level.HIGH, Level.MEDIUM))], ""),
        "max_rel_error": ([max(errors)] if errors else [], "of the output's scale"),
        "latency": (timed, "ms"),
    }
    if (measured := speed_of(cell.lines)) and measured.is_meaningful:  # the median, as one call is too little
        metrics |= {f"{name} latency": ([one.median_ms], "ms") for name, one in measured.series.items()}
    for name, (values, unit) in metrics.items():
        if values:
            yield {
                "benchmark": {
                    "name": "hwcompat",
                    "mode": "inference",
                    "dtype": of.precision,
                    "extra_info": {"task": of.task, "level": str(level), "cell": cell.id},
                },
                "model": {"name": of.model, "type": cell.subjects, "backend": str(of.target)},
                "metric": {"name": name, "benchmark_values": values, "extra_info": {"unit": unit}},
                "runners": [{"name": cell.device or cell.actual, "type": str(of.target)}],
                "dependencies": dependencies,
            }


FORMAT = Format(suffix="benchmark.json", render=benchmark_records)
