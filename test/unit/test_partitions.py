"""Compacted evidence by month: lines, names and numbers stay, a killed process loses none, and none counts twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from made_runs import BERT, GPT2, a_run, write

from generators.compatibility import verdict_cache
from hardware.detection import detect
from hardware.errors import BrokenInput
from hardware.evidence import compacted
from hardware.evidence.compacted import Compacted, compact
from hardware.evidence.evidence_table import EvidenceTable
from hardware.evidence.latest import read_latest
from hardware.evidence.parquet import compacted_files, owned_lines, partition_of
from hardware.evidence.record import RunLine
from hardware.evidence.store import read_folder, read_run

ROOT = Path(__file__).parents[2]
JANUARY = ("20260105T000000Z-00000a", "20260106T000000Z-00000b", "20260107T000000Z-00000c")
FEBRUARY = ("20260205T000000Z-00000d",)


def fill(folder: Path, runs: tuple[str, ...] = (*JANUARY, *FEBRUARY)) -> None:
    for day, run_id in enumerate(runs, start=1):
        write(folder, a_run(run_id, day, BERT, GPT2), broken=["backward"] if day % 2 else [])


def lines_of(folder: Path) -> dict[str, bytes]:
    """All lines of a folder by file, letter for letter, each file from where it is read."""
    found = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    packed: dict[str, bytes] = {}
    for name, line in owned_lines(folder):
        packed[name] = packed.get(name, b"") + line + b"\n"
    return {**packed, **found}


def parts(folder: Path) -> list[str]:
    return [path.relative_to(folder).parent.as_posix() for path in compacted_files(folder)]


def test_lines_are_kept_by_month_and_what_is_added_is_joined(tmp_path, monkeypatch):
    folder = tmp_path / "kind=check" / "run_id=other" / "line=x"  # a folder on the way is no column
    folder.parent.mkdir(parents=True)
    fill(folder)
    write(folder, a_run("by-hand", 9, BERT))
    before, wanted = lines_of(folder), read_latest(folder)
    done = compact(folder)
    assert (done.files, done.left) == (10, ())
    assert parts(folder) == ["month=2026-01", "month=2026-02", "month=unknown"]
    assert not list(folder.glob("*.jsonl"))
    assert lines_of(folder) == before
    assert read_latest(folder) == wanted
    inventory = detect()
    kept = verdict_cache._place(folder, inventory)
    (part, *_) = compacted_files(folder)
    part.write_bytes(part.read_bytes() + b" ")
    assert verdict_cache._place(folder, inventory) != kept, "cached verdicts are of all parts"
    for large in (False, True):
        monkeypatch.setattr(compacted, "SMALL", 10 if large else compacted.SMALL)
        folder, wanted = tmp_path / str(large), {}
        for run_id in JANUARY:
            fill(folder, (run_id,))
            wanted |= lines_of(folder)
            compact(folder)
        assert parts(folder) == ["month=2026-01"] * (3 if large else 1), "only small parts are joined"
        assert lines_of(folder) == wanted
        assert compact(folder) == Compacted()


def test_a_part_holds_no_more_than_a_batch_and_each_run_as_a_whole(tmp_path):
    fill(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob(f"{JANUARY[0]}-*"))
    paths = sorted(tmp_path.glob("*.jsonl"))
    some = [[path.name.rpartition("-")[0] for path in one] for one in compacted.batches(paths, size * 2)]
    assert some == [[JANUARY[0]] * 2 + [JANUARY[1]] * 2, [JANUARY[2]] * 2, [FEBRUARY[0]] * 2]
    assert len(list(compacted.batches(paths, 1))) == 4
    months = {
        "20261105T000000Z-00000a-1.jsonl": "month=2026-11",
        "20261305T000000Z-00000a-1.jsonl": "month=unknown",
        "20260005T000000Z-00000a-1.jsonl": "month=unknown",
        "../../20261105T-1.jsonl": "month=unknown",
        "": "month=unknown",
        "month=2026-01": "month=unknown",
    }
    assert {name: partition_of(name) for name in months} == months


def test_a_run_is_read_from_its_month_and_a_part_in_a_wrong_one_is_refused(tmp_path):
    fill(tmp_path)
    wanted, other = read_run(tmp_path, FEBRUARY[0]), read_run(tmp_path, JANUARY[1])
    compact(tmp_path)
    assert read_run(tmp_path, JANUARY[1]) == other  # and nothing of its month's others
    (january,), (february,) = ((tmp_path / f"month=2026-{month}").iterdir() for month in ("01", "02"))
    right = january.read_bytes()
    january.write_bytes(b"PAR1 no, not really PAR1")
    assert read_run(tmp_path, FEBRUARY[0]) == wanted
    with pytest.raises(BrokenInput, match="month=2026-01"):
        read_folder(tmp_path)
    january.write_bytes(right)
    february.rename(january.with_name(february.name))
    for read in (read_folder, read_latest):
        with pytest.raises(BrokenInput, match="is in the wrong folder"):
            read(tmp_path)


def test_a_file_without_a_month_is_read_beside_the_months(tmp_path):
    fill(tmp_path)
    before = lines_of(tmp_path)
    compact(tmp_path)
    (path,) = (tmp_path / "month=2026-01").iterdir()
    path.rename(tmp_path / "compacted-0123456789abcdef.parquet")  # as it was compacted before
    assert lines_of(tmp_path) == before
    fill(tmp_path, ("20260305T000000Z-00000e",))
    before |= lines_of(tmp_path)
    compact(tmp_path)
    assert lines_of(tmp_path) == before
    assert (tmp_path / "compacted-0123456789abcdef.parquet").exists()


def test_folders_of_other_names_are_not_read_and_links_are_not_written_through(tmp_path):
    folder = tmp_path / "own"
    fill(folder, JANUARY)
    compact(folder)
    (source,) = compacted_files(folder)
    for name in ("month=2026-13", "month=..", "kind=check", "month=2026-1", "MONTH=2026-01", "month=2026-02 "):
        (folder / name).mkdir()
        (folder / name / source.name).write_bytes(source.read_bytes())
    (folder / "month=2026-03").symlink_to(folder / "kind=check")
    assert compacted_files(folder) == [source]
    assert len(read_folder(folder).runs) == 3
    (tmp_path / "elsewhere").mkdir()
    (folder / "month=2026-02").symlink_to(tmp_path / "elsewhere")
    fill(folder, FEBRUARY)
    before = lines_of(folder)
    with pytest.raises(Exception, match="is a symbolic link"):
        compact(folder)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert lines_of(folder) == before


def test_of_two_copies_of_a_file_the_longer_counts_and_copies_that_differ_are_not_mixed(tmp_path):
    """A file that grew after it was compacted, and was compacted again."""
    fill(tmp_path / "first", JANUARY[:1])
    before, name = lines_of(tmp_path / "first"), f"{JANUARY[0]}-2.jsonl"
    for number in range(2):  # whatever the names of the parts are
        folder = tmp_path / f"again{number}"
        folder.mkdir()
        for key, data in before.items():
            (folder / key).write_bytes(data)
        compact(folder)
        (folder / name).write_bytes(before[name] + before[name].splitlines(keepends=True)[number])
        joined = lines_of(folder)
        compact(folder)
        assert lines_of(folder) == joined
        assert not list(folder.glob("*.jsonl"))
    (tmp_path / "other").mkdir()
    for key, data in before.items():
        (tmp_path / "other" / key).write_bytes(data.replace(b'"passed"', b'"skipped"'))
    for folder in (tmp_path / "first", tmp_path / "other"):
        compact(folder)
    (part,) = compacted_files(tmp_path / "other")
    part.rename(tmp_path / "first" / "month=2026-01" / "part-zzz.parquet")
    assert len(lines_of(tmp_path / "first")[name].splitlines()) == 8
    compact(tmp_path / "first")
    assert len(parts(tmp_path / "first")) == 2
    assert lines_of(tmp_path / "first") == before


_DIES = """
import os, sys
from pathlib import Path
from hardware.evidence.compacted import compact
left = int(sys.argv[2])
def watch(event, arguments):
    global left
    if event in ("os.rename", "os.remove") and str(sys.argv[1]) in str(arguments[0]):
        left -= 1
        if left == 0:
            os._exit(77)
sys.addaudithook(watch)
compact(Path(sys.argv[1]))
print(int(sys.argv[2]) - left)
"""


def _before_the_end(folder: Path) -> Path:
    """A folder with a small part of a month that has to be joined, and new files of two months."""
    fill(folder, JANUARY[:1])
    compact(folder)
    fill(folder, (*JANUARY[1:], *FEBRUARY))
    return folder


def _dying(folder: Path, step: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _DIES, str(folder), str(step)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.extended
def test_a_process_killed_at_any_step_loses_no_line_and_doubles_none(tmp_path):
    whole = _before_the_end(tmp_path / "whole")
    wanted, counted = lines_of(whole), read_latest(whole)
    done = _dying(whole, 1000)
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps >= 11  # three parts are renamed into place, six files and two parts are removed
    for step in range(1, steps + 1):
        folder = _before_the_end(tmp_path / str(step))
        assert _dying(folder, step).returncode == 77
        assert lines_of(folder) == wanted, step
        read = read_folder(folder)
        assert (len(read.runs), len(read.checks), read.broken) == (4, 32, ()), step
        assert read_latest(folder) == counted, step
        compact(folder)
        assert (lines_of(folder), read_latest(folder)) == (wanted, counted), step
        assert parts(folder) == ["month=2026-01", "month=2026-02"], step
        assert not [path for path in folder.rglob("*") if path.suffix in (".jsonl", ".part")], step


def test_a_part_that_was_written_wrong_replaces_nothing(tmp_path, monkeypatch):
    fill(tmp_path, FEBRUARY)
    before, whole = lines_of(tmp_path), compacted._write_verified

    class Short:
        """A connection that writes three lines only."""

        def __init__(self, own: duckdb.DuckDBPyConnection) -> None:
            self.own = own

        def execute(self, query: str, *more: object) -> object:
            return self.own.execute(
                query.replace(" ORDER BY file, number)", " ORDER BY file, number LIMIT 3)"), *more
            )

    monkeypatch.setattr(compacted, "_write_verified", lambda connection, *more: whole(Short(connection), *more))
    with pytest.raises(Exception, match="the written file differs from its source"):
        compact(tmp_path)
    assert lines_of(tmp_path) == before
    assert not compacted_files(tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_runs_that_plan_the_same_share_their_plan_in_memory(tmp_path):
    fill(tmp_path)
    write(tmp_path, a_run("20260110T000000Z-00000e", 9, BERT))
    wanted = read_folder(tmp_path).runs
    for packed in (False, True):
        if packed:
            compact(tmp_path)
        with EvidenceTable(tmp_path) as table:
            found = [line for _, line in sorted(table.run_lines().items())]
        assert tuple(found) == wanted
        assert len({id(run.plan) for run in found if isinstance(run, RunLine)}) == 2
