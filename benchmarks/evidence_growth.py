"""Measure commands on growing evidence: `python -m benchmarks.evidence_growth --folder DIR --out FILE.json`.

Synthetic evidence of a million lines and more (`benchmarks.evidence_made_up`) is made once and compacted. Each
command runs in a new process, first without a cache and then with it. `--out` has every figure as soon as it was
measured; `--page FILE` writes docs/measured/evidence-at-scale.md from it. With `--server`, a moto_server started
here, evidence is also published to a bucket and read from there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.evidence_made_up import beginning, write_rows
from benchmarks.s3_server import s3_server
from hardware.files import CACHE_VARIABLE, write_whole

ROOT = Path(__file__).parents[1]
CELL = "bert/fill-mask/cpu/float32"
MILLION = 1_000_000

_CHILD = """
import json, resource, sys, time
words = sys.argv[2:]
before = time.perf_counter()
exec(sys.argv[1])
used = resource.getrusage(resource.RUSAGE_SELF)
took = time.perf_counter() - before
print(json.dumps([took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, told]), file=sys.stderr)
"""

_REPORTER = "from hwcompat.cli.earlier_scripts import reporter_main\ntold = reporter_main(words)"
_MATRIX = "from hwcompat.cli.earlier_scripts import generation_main\ntold = generation_main(words)"
_LINES = (
    "from pathlib import Path\nfrom hwcompat.hardware.evidence.runs import RunEvidence\n"
    "with RunEvidence(Path(words[0])) as evidence:\n    told = len(evidence.checks(cells={words[1]}))"
)
_COLUMNS = (
    "import duckdb\nfrom pathlib import Path\nfrom hwcompat.hardware.evidence.parquet import compacted_files\n"
    "paths = [str(path) for path in compacted_files(Path(words[0]))]\n"
    "told = len(duckdb.connect().execute('SELECT run_id, check_name, outcome FROM read_parquet(?) WHERE cell_id = ?',"
    " [paths, words[1]]).fetchall())"
)
_STORED = (
    "import duckdb, fsspec\nfiles, root = fsspec.url_to_fs(words[0])\nconnection = duckdb.connect()\n"
    "connection.register_filesystem(files)\n"
    "told = len(connection.execute('SELECT run_id, check_name, outcome FROM read_parquet(?) WHERE cell_id = ?',"
    " [['s3://' + one for one in files.find(root)], words[1]]).fetchall())"
)
_STORED_SIZES = _STORED.replace(
    "SELECT run_id, check_name, outcome FROM read_parquet(?) WHERE cell_id = ?",
    "SELECT max(strlen(line)), sum(strlen(line)) FROM read_parquet(?) WHERE cell_id <> ?",
)
_MIRROR = (
    "from hwcompat.hardware.evidence.address import parse_address\n"
    "from hwcompat.hardware.evidence.bucket import mirror\n"
    "done = mirror(parse_address(words[0]))\ntold = [done.objects, done.copied, done.size]"
)

_TEXT = Path(__file__).with_suffix(".md")
"""The text of the page that contains no figures: how evidence is stored in buckets and by month."""


_NAMES = Path(__file__).with_suffix(".toml")
"""What the page calls each measurement."""

Figures = dict[str, dict[str, Any]]


def measured(code: str, *words: object, cache: Path) -> dict[str, Any]:
    """Return wall-clock and processor time in s, peak memory in MiB, and the value of `told` in the code."""
    environment = {**os.environ, CACHE_VARIABLE: str(cache)}
    command = [sys.executable, "-c", _CHILD, code, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    try:
        wall, cpu, memory, told = json.loads(done.stderr.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise RuntimeError(done.stderr[-2000:]) from error
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "memory_mib": round(memory), "told": told}


def measure_all(folder: Path, rows: int, raw: int, bucket: str, note: Callable[[str, dict[str, Any]], None]) -> None:
    """Measure every command at one size in rows; JSON lines are read uncompacted up to `raw` rows."""
    own, cache, out = folder / f"{rows}", folder / f"cache-{rows}", folder / "out"
    whole, packed = own / "raw", own / "packed"
    if rows <= raw:
        note("report, raw", measured(_REPORTER, *_report(whole, out), cache=cache))
        note("lines of a cell, raw", measured(_LINES, whole, CELL, cache=cache))
    if not list(packed.glob("month=*")):
        note("compaction", measured(_REPORTER, "--compact", "--evidence", packed, cache=cache))
    size = sum(path.stat().st_size for path in packed.rglob("*.parquet"))
    note("bytes", {"raw": sum(path.stat().st_size for path in whole.glob("*.jsonl")), "compacted": size})
    note("report, first", measured(_REPORTER, *_report(packed, out), cache=cache))
    note("report, again", measured(_REPORTER, *_report(packed, out), cache=cache))
    matrix = ("--hardware-compatibility", "--format", "json", "--evidence", packed)
    shutil.rmtree(cache / "conclusions", ignore_errors=True)
    note("matrix, first", measured(_MATRIX, *matrix, cache=cache))
    note("matrix, again", measured(_MATRIX, *matrix, cache=cache))
    note("lines of a cell", measured(_LINES, packed, CELL, cache=cache))
    note("columns of a cell", measured(_COLUMNS, packed, CELL, cache=cache))
    if bucket:
        place = f"{bucket}/{rows}"
        note("publish", measured(_REPORTER, "--evidence", packed, "--publish", place, cache=cache))
        shutil.rmtree(cache / "object-storage", ignore_errors=True)
        note("copy from the store, first", measured(_MIRROR, place, cache=cache))
        note("copy from the store, again", measured(_MIRROR, place, cache=cache))
        note("columns of a cell, from the store", measured(_STORED, place, CELL, cache=cache))
        note("lengths of all lines, from the store", measured(_STORED_SIZES, place, CELL, cache=cache))
        note("report from the store, again", measured(_REPORTER, *_report(place, out), cache=cache))


def _report(evidence: object, out: Path) -> Sequence[object]:
    return ("--collect-all", "--evidence", evidence, "--output-dir", out)


def main() -> int:
    """Make evidence, measure at each size, keep figures and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="Where evidence is made, or was; 13 GB for all.")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--raw", type=int, default=1, metavar="N", help="Read JSON lines up to so many million.")
    parser.add_argument("--server", type=Path, metavar="PROGRAM", help="moto_server, of .venv-s3.")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--note", default="", metavar="TEXT", help="What was special about the machine.")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {"sizes": {}}
    found["with"] = _with(options.note or found.get("with", {}).get("note", ""))
    with ExitStack() as stack:
        bucket = _bucket(stack, options.server, options.folder) if options.server else ""
        _measure(options, found, bucket)
    if options.page:
        write_whole(options.page, page(found))
    return 0


def _bucket(stack: ExitStack, server: Path, folder: Path) -> str:
    """Make a bucket on a server that runs until the stack is closed."""
    import fsspec

    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(stack.enter_context(s3_server(folder / "server.log", server)))
    fsspec.filesystem("s3").mkdir("growth")
    return "s3://growth/evidence"


def _measure(options: argparse.Namespace, found: dict[str, Any], bucket: str) -> None:
    all_rows = max(options.millions) * MILLION
    whole = options.folder.resolve() / "all"
    if not whole.exists():
        write_rows(whole, all_rows)
    for rows in (one * MILLION for one in options.millions):
        own = options.folder.resolve() / f"{rows}"
        for kind in ("raw", "packed"):
            if not (own / kind).exists():
                beginning(whole, own / kind, rows, all_rows)
        figures: Figures = found["sizes"].setdefault(str(rows), {})

        def note(name: str, one: dict[str, Any], rows: int = rows, figures: Figures = figures) -> None:
            figures[name] = one
            write_whole(options.out, json.dumps(found, indent=1) + "\n")
            print(f"{rows:>10,} {name:<38} {one}", flush=True)

        measure_all(options.folder.resolve(), rows, options.raw * MILLION, bucket, note)


def _with(note: str) -> Mapping[str, str]:
    names = ("duckdb", "fsspec", "s3fs", "hwcompat")
    known = {}
    for name in names:
        try:
            known[name] = version(name)
        except ImportError:  # The product may run from a checkout.
            continue
    return {
        **known,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "cores": str(os.cpu_count()),
        "note": note,
    }


def page(found: Mapping[str, Any]) -> str:
    """Return the page as Markdown, with dashes for figures that are missing."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    sizes: Mapping[str, Mapping[str, Any]] = found["sizes"]
    order = sorted(sizes, key=int)
    yield _TEXT.read_text(encoding="utf-8").rstrip("\n").replace("{result}", _result(sizes[order[-1]], order[-1]))
    facts = found["with"]
    versions = ", ".join(f"{name} {facts[name]}" for name in ("duckdb", "fsspec", "s3fs", "python") if name in facts)
    yield ""
    yield "## Growth"
    yield f"{facts['date']}, {versions}, {facts['cores']} cores. {facts['note']}".rstrip()
    yield ""
    yield "The evidence is synthetic (`benchmarks/evidence_made_up.py`) and proves nothing. Each figure is one new"
    yield "process: processor time, wall-clock time in brackets, and peak memory, of which 131 to 161 MiB are the"
    yield "measuring process itself. The runs are similar to each other; real evidence compresses less."
    yield ""
    yield f"| | {' | '.join(f'{int(rows) // 1_000_000} million lines' for rows in order)} |"
    yield f"|---|{'---|' * len(order)}"
    for kind in ("raw", "compacted"):
        cells = [
            f"{one['bytes'][kind] / 1e6:,.0f} MB" if (one := sizes[rows]).get("bytes") else "–" for rows in order
        ]
        yield f"| bytes, {kind} | {' | '.join(cells)} |"
    for name, shown in tomllib.loads(_NAMES.read_text(encoding="utf-8")).items():
        cells = [_cell(sizes[rows].get(name)) for rows in order]
        if set(cells) != {"–"}:
            yield f"| {shown} | {' | '.join(cells)} |"
    yield ""
    yield "[Other tools](benchmarks.md#asking-evidence) has the same queries with sqlite3 and pandas."


def _result(largest: Mapping[str, Any], rows: str) -> str:
    packed, raw = (largest["bytes"][kind] / 1e6 for kind in ("compacted", "raw"))
    return (
        f"{int(rows) // 1_000_000} million lines of evidence take {packed:,.0f} MB when compacted, {raw:,.0f} MB raw."
    )


def _cell(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "–"
    return f"{one['cpu_s']:,.1f} s ({one['wall_s']:,.1f}), {one['memory_mib']:,} MiB"


if __name__ == "__main__":
    sys.exit(main())
