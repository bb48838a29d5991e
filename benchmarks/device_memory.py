"""Print generators/compatibility/device_memory.toml: what a GPU takes beside a model, from a GPU session.

`python -m benchmarks.device_memory > generators/compatibility/device_memory.toml`
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

SESSION = Path("docs/evidence/cuda-session.json")
_MODES = ("inference", "generation", "training")
_LARGE = 2**30
"""Below this peak, blocks of the allocator are larger than what a model needs."""


def _ends(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.95)]


def _mebibytes(values: list[int]) -> list[int]:
    return [round(one / 2**20) for one in _ends([float(one) for one in values])]


def text(session: dict[str, Any]) -> str:
    """Return the file for a session's points, without those that lack an estimate or the process's memory."""
    points = [one for one in session["memory"] if one.get("process") and "estimate" in one]
    ratios = {
        mode: [(one["measured"] - one["workspace"]) / one["estimate"] for one in points if one["mode"] == mode]
        for mode in _MODES
    }
    blocks = _ends([one["reserved"] / one["measured"] for one in points if one["measured"] > _LARGE])
    versions = session["versions"]
    lines = [
        "# What torch takes on a GPU beside a model: the range of 90 % of measured requests.",
        "# Made by `python -m benchmarks.device_memory`.",
        "[cuda]",
        f"context_mib = {_mebibytes([one['process'] - one['reserved'] for one in points])}"
        "  # the process's memory without what torch's allocator reserves",
        f"workspace_mib = {_mebibytes([one['workspace'] for one in points])}"
        "  # what stays after a request, such as cuBLAS's workspace",
        f"reserved_over_peak = [{', '.join(f'{one:.2f}' for one in blocks)}]"
        "  # in blocks of torch's allocator, for peaks above 1 GiB",
        f"points = {len(points)}",
        f'device = "{session["device"]}"',
        f'torch = "{versions["torch"][0]}"',
        'source = "docs/measured/cuda.md"',
        "[cuda.measured_over_estimate]  # the peak without the workspace, divided by the estimate",
        *(f"{mode} = [{', '.join(f'{one:.2f}' for one in _ends(found))}]" for mode, found in ratios.items()),
    ]
    return "\n".join(lines) + "\n"


@click.command()
def main() -> None:
    """Print the file."""
    click.echo(text(json.loads(SESSION.read_text(encoding="utf-8"))), nl=False)


if __name__ == "__main__":
    main()
