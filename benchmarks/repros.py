"""Make repro folders for failing cells of stored evidence, and a page of their results (docs/measured/repros.md).

    python -m benchmarks.repros --evidence DIR --cells CELL… --work DIR --page docs/measured/repros.md

Each cell uses a child process. Repros in the work folder aren't made again, and the page contains all of them.
`--failing` only prints the failing cells.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections import Counter
from importlib import metadata
from pathlib import Path

from hardware.evidence.store import read_folder
from hardware.plain_text import one_line
from hwcompat.plugins.triage.repro_command import failing_checks
from reports.text import code, markdown, markdown_table

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
_PACKAGES = ("torch", "transformers", "openvino", "optimum-intel", "onnx", "onnxruntime", "safetensors", "numpy")


def failing_cells(evidence: Path) -> list[str]:
    """Return the ids of all cells of a folder whose latest run failed, in order."""
    lines = read_folder(evidence).checks
    cells = sorted({line.cell_id for line in lines})
    return [cell for cell in cells if failing_checks([line for line in lines if line.cell_id == cell])]


def make_one(cell: str, evidence: Path, work: Path, limit: float) -> None:
    """Make one folder in a child process and store its output as JSON."""
    kept = work / f"{cell.replace('/', '+').replace(':', '-')}.json"
    if kept.is_file():
        return
    command = [sys.executable, "hardware_compatibility_reporter.py", "--evidence", str(evidence)]
    command += ["--output-dir", str(work / "folders"), "--repro", cell]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
        exit_code, printed, said = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        exit_code, printed, said = -1, "", f"error: no answer in {limit:g} s"
    lines = printed.splitlines()
    errors = [line for line in said.splitlines() if line.startswith("error")]
    facts = {
        "cell": cell,
        "exit": exit_code,
        "check": lines[0].partition(", ")[2].partition(":")[0] if lines else "",
        "why": lines[1].strip() if len(lines) > 1 else " ".join(errors)[:400],
        "seconds": round(time.monotonic() - started, 1),
        "on": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    kept.write_text(json.dumps(facts), encoding="utf-8")


def page_of(work: Path) -> str:
    """Return the page of all repros in the work folder."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(work.glob("*.json"))]
    states = {0: "yes", 1: "no", 4: "refused"}
    table = [
        [
            code(row["cell"]),
            markdown(row["check"]),
            states.get(row["exit"], "not made"),
            markdown(one_line(row["why"].removeprefix("error: "), longest=260)),
        ]
        for row in rows
    ]
    counts = Counter(row[2] for row in table)
    versions = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    dates = sorted({row["on"] for row in rows})
    counted = ", ".join(f"{counts[state]} {state}" for state in ("yes", "no", "refused", "not made") if counts[state])
    head = (
        f"{len(rows)} cells: {counted}. Made {' to '.join(dict.fromkeys((dates[0], dates[-1])))} with {versions}.\n\n"
    )
    made = "\n\nMade by `python -m benchmarks.repros`.\n"
    return (
        _HEAD.format(yes=counts["yes"], count=len(rows))
        + head
        + markdown_table(("Cell", "Check", "Same way", "What was compared, or why not"), table)
        + made
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--evidence", type=Path)
    parser.add_argument("--cells", nargs="*", default=[])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--failing", action="store_true", help="print the failing cells of --evidence")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS", help="for one cell")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.failing and options.evidence:
        print("\n".join(failing_cells(options.evidence)))
        return
    for cell in options.cells:
        make_one(cell, options.evidence, options.work, options.limit)
        print(f"{cell}: made", file=sys.stderr)
    if options.page:
        options.page.write_text(page_of(options.work), encoding="utf-8")


if __name__ == "__main__":
    main()
