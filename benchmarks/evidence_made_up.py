"""Millions of lines of evidence in minutes, made up for `benchmarks.evidence_growth`: they prove nothing.

Every model type on every target with the checks that the cell has to have, run after run, as `benchmarks.matrix`
makes them; numbers that a real run measures anew each time (durations, errors) differ from line to line, so that
compression finds as little in them as in real ones.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from benchmarks.matrix import _ACCELERATOR, _FIRST, _MOMENT, _RUN, MACHINES, _line, _run, _suites, _templates
from generators.compatibility.vocabulary import vocabulary
from hardware.detection import detect
from hardware.evidence.record import EndLine
from hardware.evidence.versions import versions_of

BETWEEN = timedelta(hours=3)
"""From one run to the next: ten million lines are 860 runs in four months."""

_MEASURED = ('"duration_s": 0.05', '"max_abs_error": 1e-07', '"max_rel_error": 1e-06', '"latency_ms": 3.5')


def write_rows(folder: Path, rows: int) -> int:
    """Write whole runs, a file each, until there are `rows` lines of checks; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    versions = versions_of(detect())
    names = vocabulary().hardware_types
    suites = [list(_suites(names[place :: len(MACHINES)])) for place in range(len(MACHINES))]
    texts = [[_open(text) for suite in own for text in _templates(suite)] for own in suites]
    written = number = 0
    while written < rows:
        place = number % len(MACHINES)
        start = _FIRST + BETWEEN * number
        run_id = f"{start:%Y%m%dT%H%M%SZ}-{number:06x}"
        with (folder / f"{run_id}-1.jsonl").open("w", encoding="utf-8") as file:
            file.write(_line(_run(run_id, start, MACHINES[place], versions, suites[place])))
            file.writelines(_checks(texts[place], run_id, f"{start:%Y-%m-%dT%H}", MACHINES[place], draw))
            file.write(_line(EndLine(run_id=run_id, ended_at=start.isoformat(), reason="done", counts={})))
        written += len(texts[place])
        number += 1
    return written


def _open(text: str) -> str:
    """A line as a text with places for what differs."""
    text = text.replace("%", "%%")
    for mark in (_RUN, _MOMENT, _ACCELERATOR):
        text = text.replace(mark, f"%({mark})s")
    for mark in _MEASURED:
        name, _, _ = mark.partition(": ")
        text = text.replace(mark, f"{name}: %({name.strip(chr(34))}).6g")
    return text


def _checks(texts: list[str], run_id: str, hour: str, machine: str, draw: random.Random) -> Iterator[str]:
    for place, text in enumerate(texts):
        seconds, micros = divmod(place * 50_000, 1_000_000)
        minute, second = divmod(seconds, 60)
        yield text % {
            _RUN: run_id,
            _MOMENT: f"{hour}:{minute:02}:{second:02}.{micros:06}+00:00",
            _ACCELERATOR: f"accelerator of {machine}",
            "duration_s": draw.uniform(0.01, 0.2),
            "max_abs_error": draw.uniform(1e-8, 1e-6),
            "max_rel_error": draw.uniform(1e-7, 1e-5),
            "latency_ms": draw.uniform(1, 9),
        }


def beginning(whole: Path, folder: Path, rows: int, rows_of_all: int) -> Path:
    """The first runs of a folder that has `rows_of_all` lines, about `rows`, as a folder of hard links."""
    folder.mkdir(parents=True)
    paths = sorted(whole.glob("*.jsonl"))
    for path in paths[: max(1, round(len(paths) * rows / rows_of_all))]:
        os.link(path, folder / path.name)
    return folder
