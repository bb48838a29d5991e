"""Compare an SQL query of a folder of evidence with sqlite3 and pandas on the same lines.

The query counts checks by target and outcome. The evidence is synthetic and proves nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.evidence_made_up import write_rows

from .processes import ROOT, in_turns
from .result import Comparison, Curve, Result

_ROWS = (10_000, 50_000, 200_000)
_SQL = "SELECT requested_target, outcome, count(*) FROM lines WHERE kind = 'check' GROUP BY ALL ORDER BY ALL"
_ASKERS: Mapping[str, str] = {
    "ours (DuckDB over JSON lines)": f"""
from pathlib import Path
from hwcompat.hardware.evidence.store import query
rows = query(Path(folder), "{_SQL}")
""",
    "sqlite3": """
import glob, json, sqlite3
connection = sqlite3.connect(":memory:")
connection.execute("CREATE TABLE lines (kind, requested_target, outcome)")
for name in sorted(glob.glob(folder + "/*.jsonl")):
    with open(name) as file:
        connection.executemany("INSERT INTO lines VALUES (?, ?, ?)", (
            (one["kind"], one.get("requested_target"), one.get("outcome")) for one in map(json.loads, file)))
rows = connection.execute("SELECT requested_target, outcome, count(*) FROM lines WHERE kind = 'check' "
    "GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
""",
    "pandas": """
import glob, pandas
parts = [pandas.read_json(name, lines=True) for name in sorted(glob.glob(folder + "/*.jsonl"))]
frame = pandas.concat([part[part["kind"] == "check"] for part in parts])
counts = frame.groupby(["requested_target", "outcome"]).size()
rows = [(*key, int(number)) for key, number in sorted(counts.items())]
""",
}
_AROUND = """
import hashlib, json, pathlib, re, sys, time
folder = sys.argv[1]
started = time.perf_counter()
{body}
taken = time.perf_counter() - started
said = hashlib.sha256(json.dumps([list(row) for row in rows]).encode()).hexdigest()
# Not ru_maxrss: a child begins with that of the process that started it.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())
print(json.dumps([taken, int(peak[1]) / 1024, said]))
"""


def measure(runs: int) -> Result:
    """Measure each in new processes on folders of several sizes; the answers must agree."""
    comparisons: list[Comparison] = []
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in _ASKERS}
    memory: dict[str, list[tuple[float, float]]] = {name: [] for name in _ASKERS}
    for rows in _ROWS:
        with tempfile.TemporaryDirectory() as name:
            count = write_rows(Path(name) / "evidence", rows)
            times, mebibytes = _asked(Path(name) / "evidence", max(1, runs // 2))
        ours, *rivals = _ASKERS
        for asker in _ASKERS:
            seconds[asker].append((count, statistics.median(times[asker])))
            memory[asker].append((count, statistics.median(mebibytes[asker])))
        for rival in rivals:
            for unit, found in (("s", times), ("MiB", mebibytes)):
                comparisons.append(
                    Comparison(
                        what=f"one question to {count:,} lines",
                        ours=ours,
                        rival=rival,
                        unit=unit,
                        ours_values=found[ours],
                        rival_values=found[rival],
                    )
                )
    curves = tuple(
        Curve(title=f"One question to evidence: {y}", x="lines", y=y, points=own, runs=max(1, runs // 2))
        for y, own in (("seconds", seconds), ("MiB", memory))
    )
    return Result(title="Asking evidence", comparisons=tuple(comparisons), curves=curves)


def _asked(folder: Path, runs: int) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[float, ...]]]:
    mebibytes: dict[str, list[float]] = {name: [] for name in _ASKERS}
    hashes: set[str] = set()

    def ask(name: str) -> float:
        script = _AROUND.format(body=_ASKERS[name])
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True
        )
        taken, used, answer = json.loads(done.stdout.splitlines()[-1])
        mebibytes[name].append(float(used))
        hashes.add(answer)
        return float(taken)

    times = in_turns({name: lambda n=name: ask(n) for name in _ASKERS}, runs)
    if len(hashes) != 1:
        raise RuntimeError("the askers don't agree in their answers")
    return times, {name: tuple(own[1:]) for name, own in mebibytes.items()}
