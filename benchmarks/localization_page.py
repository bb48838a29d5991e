"""The page of `benchmarks/localization.py`: the share of right places, and every fault."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PLANNED = 60
_TEXT = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault: its place, the place that was named, and the place with the largest error in the run."""

    where: str
    model: str
    fault: str
    broken: str
    named: str
    right: bool
    module_right: bool
    baseline: bool | None
    unheard: int
    finding: str


def page(rows: list[Row], stamp: str) -> str:
    """Return the page: the share of right places, compared with the place of largest error, and every fault."""
    versions = ", ".join(
        f"{one} {metadata.version(one)}" for one in ("torch", "transformers", "openvino", "onnxruntime")
    )
    groups = sorted({row.where for row in rows})
    lines = ["| where | faults | right place | right module | baseline |", "|---|---|---|---|---|"]
    for group in [*groups, ""]:
        own = [row for row in rows if group in ("", row.where)]
        based = [row for row in own if row.baseline is not None]
        baseline = f"{sum(bool(row.baseline) for row in based)} of {len(based)}" if based else "-"
        right, module = sum(row.right for row in own), sum(row.module_right for row in own)
        lines.append(f"| {group or 'all'} | {len(own)} | {right} | {module} | {baseline} |")
    lines += ["", "| where | model | fault | broken | named | right |", "|---|---|---|---|---|---|"]
    for row in rows:
        verdict = "yes" if row.right else "module" if row.module_right else "**no**"
        named = "the same" if row.right else f"`{row.named}` ({row.finding})"
        lines.append(f"| {row.where} | {row.model} | {row.fault} | `{row.broken}` | {named} | {verdict} |")
    return _TEXT.format(
        right=sum(row.right for row in rows),
        count=len(rows),
        partly=f"{len(rows)} of the {PLANNED} faults are measured. " * (len(rows) < PLANNED),
        date=stamp[:10],
        versions=versions,
        unheard=sum(row.unheard for row in rows),
        tables="\n".join(lines),
    )
