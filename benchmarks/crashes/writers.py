"""Kill processes while they write stored files: each file must be complete, old or new."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..product import ROOT
from .checking import wrong_safetensors, wrong_zip
from .result import Case, Result
from .running import Place
from .writing import KINDS, make_evidence, visible

KILLS = 12
"""The number of kills of each kind."""

_LONGEST_S = {"merge": 0.8, "compact": 0.5}
_USUALLY_S = 0.1


def writer_cases(seed: int) -> Iterator[Case]:
    """Return the cases of each kind of file."""
    for kind in (*KINDS, "merge", "compact"):
        yield Case(part="writers", id=f"writers-{kind}-{seed}", kind=kind, run=_Killed(kind, seed))


class _Killed:
    """Run one case."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.chance = random.Random(f"{seed} {kind}")

    def __call__(self, folder: Path, _undisturbed: Any) -> Result:
        """Start the writer and kill it repeatedly."""
        wrong: list[str] = []
        counts: Counter[str] = Counter()
        for number in range(KILLS):
            own = folder / str(number)
            own.mkdir()
            if self.kind in ("merge", "compact"):
                make_evidence(own / ("source" if self.kind == "merge" else "written"))
            share = (number + self.chance.random()) / KILLS
            landed = self._kill(own, share * _LONGEST_S.get(self.kind, _USUALLY_S))
            counts["landed"] += landed
            counts["parts left"] += len([*(own / "written").rglob("*.part")])
            if self.kind in ("merge", "compact"):
                wrong += _wrong_folder(self.kind, own)
                self._run(own)  # The next writer completes interrupted work.
                wrong += _wrong_folder(self.kind, own, done=True)
            else:
                wrong += wrong_files(own)
        return Result(facts={"landed": counts["landed"] > 0, "kills": counts["landed"], **counts}, wrong=wrong)

    def _start(self, folder: Path) -> subprocess.Popen[str]:
        environment = {**Place(folder=folder).environment({}), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "benchmarks.crashes.writing", self.kind, str(folder)]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def _kill(self, folder: Path, after_s: float) -> bool:
        with self._start(folder) as process:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{self.kind}: the writer did not begin")
            time.sleep(after_s)
            process.kill()
        return process.returncode < 0

    def _run(self, folder: Path) -> None:
        with self._start(folder) as process:
            process.communicate(timeout=120)
        if process.returncode != 0:
            raise RuntimeError(f"{self.kind}: it ended with {process.returncode} after a kill")


def wrong_files(folder: Path) -> list[str]:
    """Return files in `written` that equal none in `known`, and files that are missing."""
    written, known = folder / "written", folder / "known"
    versions: dict[Path, set[bytes]] = {}
    for version in sorted(known.iterdir()):
        for path in visible(version):
            versions.setdefault(path.relative_to(version), set()).add(_content(path))
    there = {path.relative_to(written): _content(path) for path in visible(written)}
    found = [f"{name} is gone" for name in versions if name not in there]
    for name, data in there.items():
        if data not in versions.get(name, ()):
            found.append(f"{name} is neither the old nor the new one")
        if name.suffix == ".safetensors" and (why := wrong_safetensors(str(name), (written / name).read_bytes())):
            found.append(why)
        if name.suffix == ".zip" and (why := wrong_zip(written / name)):
            found.append(why)
    return found


def _content(path: Path) -> bytes:
    """Return the content of a file; of tensors without the header, whose order varies."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :] if path.suffix == ".safetensors" else data


def _wrong_folder(kind: str, folder: Path, *, done: bool = False) -> list[str]:
    return wrong_merge(folder, done=done) if kind == "merge" else wrong_compaction(folder, done=done)


def wrong_merge(folder: Path, *, done: bool) -> list[str]:
    """Return merged files that differ from their sources and, when it is `done`, missing files."""
    source = {path.name: path.read_bytes() for path in (folder / "source").glob("*.jsonl")}
    there = {path.name: path.read_bytes() for path in (folder / "written").glob("*.jsonl")}
    found = [f"{name} is not what was merged" for name, data in there.items() if source.get(name) != data]
    return [*found, *(f"{name} lacks" for name in source if done and name not in there)]


def wrong_compaction(folder: Path, *, done: bool) -> list[str]:
    """Return lines of finished runs that are neither in raw files nor in Parquet and, when it is `done`, files that
    are left. The product's reader is compared with that too."""
    import duckdb

    from hardware.evidence.store import read_folder

    own = folder / "written"
    raw = [line for path in own.glob("*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()]
    packed: list[str] = []
    for path in own.rglob("*.parquet"):
        with duckdb.connect() as connection:
            rows = connection.execute("SELECT line FROM read_parquet(?)", [str(path)]).fetchall()
            packed += [row[0] for row in rows]
    there = {*raw, *packed}
    reference = folder / "reference"
    if not reference.exists():
        make_evidence(reference)
    wanted = {text for path in reference.glob("*.jsonl") for text in path.read_text(encoding="utf-8").splitlines()}
    found = [f"{len(wanted - there)} lines are lost"] if wanted - there else []
    evidence = read_folder(own)
    lines = len(evidence.runs) + len(evidence.checks) + len(evidence.ends)
    if lines != len(wanted) or evidence.broken:
        found.append(f"the reader finds {lines} lines of {len(wanted)}, {len(evidence.broken)} broken")
    return [*found, *(["files are left"] if done and raw else [])]
