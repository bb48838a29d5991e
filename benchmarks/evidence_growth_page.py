"""The page docs/EVIDENCE_AT_SCALE.md, from what `benchmarks.evidence_growth` kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_TEXT = Path(__file__).with_suffix(".md")
"""What doesn't come from figures: how evidence is kept in buckets and by month, and why."""

_NAMES = {
    "compaction": "`--compact`, from JSON lines",
    "report, raw": "report of JSON lines",
    "report, first": "report",
    "report, again": "report, again",
    "matrix, first": "matrix, nothing kept of it",
    "matrix, again": "matrix, again",
    "lines of a cell, raw": "all lines of one cell, of JSON lines",
    "lines of a cell": "all lines of one cell, as objects",
    "columns of a cell": "columns of one cell, DuckDB on the parts",
    "publish": "`--publish` of the parts",
    "copy from the store, first": "copy of the bucket, first",
    "copy from the store, again": "copy of the bucket, nothing new",
    "columns of a cell, from the store": "columns of one cell, DuckDB on the bucket by ranges",
    "lengths of all lines, from the store": "lengths of all lines, DuckDB on the bucket by ranges",
    "report from the store, again": "report of the bucket's copy, kept",
}


def page(found: Mapping[str, Any]) -> str:
    """The page as Markdown. Of what wasn't measured there is a dash."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield _TEXT.read_text(encoding="utf-8").rstrip("\n")
    sizes: Mapping[str, Mapping[str, Any]] = found["sizes"]
    order = sorted(sizes, key=int)
    told = found["with"]
    versions = ", ".join(f"{name} {told[name]}" for name in ("duckdb", "fsspec", "s3fs", "python") if name in told)
    yield ""
    yield "## Growth"
    yield f"{told['date']}, {versions}, {told['cores']} cores. {told['note']}".rstrip()
    yield ""
    yield "The evidence is made up (`benchmarks/evidence_made_up.py`) and proves nothing. Each figure is one process"
    yield "started anew: processor time, by the clock in brackets, and the largest memory; 131 to 161 MiB of that are"
    yield "the measuring process's own. The runs are much alike: real evidence packs less."
    yield ""
    yield f"| | {' | '.join(f'{int(rows) // 1_000_000} million lines' for rows in order)} |"
    yield f"|---|{'---|' * len(order)}"
    for kind in ("raw", "compacted"):
        cells = [
            f"{one['bytes'][kind] / 1e6:,.0f} MB" if (one := sizes[rows]).get("bytes") else "–" for rows in order
        ]
        yield f"| bytes, {kind} | {' | '.join(cells)} |"
    for name, shown in _NAMES.items():
        cells = [_cell(sizes[rows].get(name)) for rows in order]
        if set(cells) != {"–"}:
            yield f"| {shown} | {' | '.join(cells)} |"
    yield ""
    yield "[BENCHMARKS.md](BENCHMARKS.md#asking-evidence) asks the same of sqlite3 and pandas."


def _cell(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "–"
    return f"{one['cpu_s']:,.1f} s ({one['wall_s']:,.1f}), {one['memory_mib']:,} MiB"
