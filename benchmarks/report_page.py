"""Measure reports of a large folder and their page in Chromium: `python -m benchmarks.report_page`.

`--evidence` is a folder of `python -m benchmarks.evidence_made_up DIR`: a million synthetic lines that prove nothing.
`--node-modules` is a folder with the npm packages playwright-core and axe-core. Prints docs/measured/report-page.md;
with `--pictures-of DIR`, a folder of real evidence, its pictures are made too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.matrix_images import BROWSERS, IMAGES, ROOT

CELL = "bert/fill-mask/cpu/float32"
_FORMATS = {"markdown": "md", "json": "json", "html": "html"}
_CHILD = """
import json, resource, sys
from hwcompat.cli.earlier_scripts import reporter_main
code = reporter_main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]), file=sys.stderr)
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """One report made by a new process: wall-clock and processor time in s, peak memory in MiB, and the file with
    its size in MB, since a later report may replace it."""

    wall_s: float
    cpu_s: float
    memory_mib: float
    path: Path
    size_mb: float


def make(evidence: Path, format: str, folder: Path, *more: str) -> Made:
    """Make the report of a folder in one format. Raises `RuntimeError` if that fails."""
    words = ["--collect-all", *more, "--format", format, "--evidence", str(evidence), "--output-dir", str(folder)]
    before = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *words], cwd=ROOT, check=True, capture_output=True, text=True
    )
    wall = time.perf_counter() - before
    code, cpu, memory = json.loads(done.stderr.splitlines()[-1])
    if code not in (0, 1):
        raise RuntimeError(done.stderr)
    path = folder / f"hardware_compatibility_report.{_FORMATS[format]}"
    return Made(wall_s=wall, cpu_s=cpu, memory_mib=memory, path=path, size_mb=path.stat().st_size / 1e6)


def browsed(page: Path, modules: Path, browser: str, *pictures: str) -> dict[str, Any]:
    """Return the measurements of report_page.js for a page."""
    command = ["node", str(Path(__file__).with_suffix(".js")), str(page), CELL, browser, *pictures]
    environment = {**os.environ, "NODE_PATH": str(modules.resolve())}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def told(
    made: Sequence[tuple[str, Made]], rows: int, cells: int, measured: dict[str, Any], note: str = ""
) -> Iterator[str]:
    """Yield the lines of docs/measured/report-page.md; `note` describes circumstances of the measurement."""
    html = next(one for name, one in made if name == "html")
    yield "# Report page"
    yield ""
    yield f"A report of {rows:,} check lines takes {html.wall_s:.1f} s as HTML."
    yield ""
    yield "Made by `python -m benchmarks.report_page`. The evidence is synthetic and proves nothing"
    yield f"(`python -m benchmarks.evidence_made_up`): {rows:,} lines of checks, in {cells:,} cells."
    yield ""
    yield "| report | wall-clock time | processor time | peak memory | size |"
    yield "|---|---|---|---|---|"
    for name, one in made:
        taken = f"{one.wall_s:.1f} s | {one.cpu_s:.1f} s | {one.memory_mib:,.0f} MiB"
        yield f"| {name} | {taken} | {one.size_mb:.2f} MB |"
    yield ""
    if note:
        yield from (note, "")
    yield f"The last report in Chromium {measured['version']}, medians of 5, with axe-core {measured['axe']} and one"
    yield "cell open. axe checks only the first 20 rows of the matrix, because all rows are alike."
    yield ""
    yield "| window | first paint | ready | wider than the window | axe violations |"
    yield "|---|---|---|---|---|"
    for one in measured["views"]:
        width, _, scheme = one["view"]
        times = f"{one['paint_ms']:.0f} ms | {one['ready_ms']:.0f} ms" if "paint_ms" in one else "– | –"
        yield f"| {width} px, {scheme} | {times} | {one['overflow']} px | {', '.join(one['axe']) or 'none'} |"
    yield ""
    yield f"- errors, warnings and requests on the console: {len(measured['said'])}"
    reached = "yes" if measured["keyboard"] else "no"
    yield f"- Tab reaches a cell's button, Enter opens the cell in place, Enter closes it: {reached}"
    yield ""
    for name, text in (
        ("light", "Findings with what to do, light"),
        ("dark", "Charts, dark"),
        ("narrow", "The page in 400 px"),
    ):
        yield f"![{text}](../images/report-{name}.webp)"


def main() -> int:
    """Make the reports, measure and print the page; return 1 if there is no browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evidence", type=Path, required=True)
    parser.add_argument("--node-modules", type=Path, required=True)
    parser.add_argument("--pictures-of", type=Path)
    parser.add_argument("--note", default="", metavar="TEXT", help="What was special about the measurement.")
    options = parser.parse_args()
    evidence = options.evidence.resolve() / "evidence"  # the other command's default
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"no browser was found; looked for {', '.join(BROWSERS)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as kept:
        folder, real = Path(kept) / "large", Path(kept) / "real"
        made = [(name, make(evidence, name, folder)) for name in _FORMATS]
        data = json.loads((folder / "hardware_compatibility_report.json").read_text(encoding="utf-8"))
        made.append(("html, with the matrix", make(evidence, "html", folder, "--matrix")))
        pictures = []
        if options.pictures_of:
            page = make(options.pictures_of.resolve(), "html", real).path
            pictures = [str(IMAGES), str(page)]
        measured = browsed(made[-1][1].path, options.node_modules, browser, *pictures)
        for line in told(made, _rows(evidence), len(data["verdicts"]), measured, options.note):
            print(line)
    for text in measured["said"]:
        print(text, file=sys.stderr)
    return 0


def _rows(folder: Path) -> int:
    """Return the number of check lines in a folder."""
    from hardware.evidence.evidence_table import EvidenceTable

    with EvidenceTable(folder) as table:
        (number,) = table.connection.execute("SELECT count(*) FROM checks").fetchone() or (0,)
        return int(number)


if __name__ == "__main__":
    sys.exit(main())
