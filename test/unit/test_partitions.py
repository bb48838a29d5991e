"""Compacted evidence by month: lines, names and numbers stay, whoever is killed loses none, and none counts twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from made_runs import BERT, GPT2, a_run, write

from generators.compatibility import verdict_cache
from hardware.errors import BrokenInput
from hardware.evidence import compacted, parquet
from hardware.evidence import evidence_table as evidence_table
from hardware.evidence.compacted import compact
from hardware.evidence.evidence_table import EvidenceTable
from hardware.evidence.latest import read_latest
from hardware.evidence.parquet import compacted_files, owned_lines, partition_of
from hardware.evidence.record import EndLine, RunLine, to_dict
from hardware.evidence.seals import digests
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


def test_lines_lie_by_month_and_are_what_they_were(tmp_path):
    fill(tmp_path)
    write(tmp_path, a_run("by-hand", 9, BERT))
    before, wanted = lines_of(tmp_path), read_latest(tmp_path)
    done = compact(tmp_path)
    assert (done.files, done.left) == (10, ())
    assert parts(tmp_path) == ["month=2026-01", "month=2026-02", "month=unknown"]
    assert not list(tmp_path.glob("*.jsonl"))
    assert lines_of(tmp_path) == before
    assert read_latest(tmp_path) == wanted


def test_seals_hold_of_what_was_unpacked_again(tmp_path):
    fill(tmp_path, JANUARY[:1])
    name = f"{JANUARY[0]}-1.jsonl"
    end = EndLine(
        run_id=JANUARY[0], ended_at="2026-01-05", reason="done", counts={}, files=digests(tmp_path, JANUARY)
    )
    (tmp_path / name).write_text(
        (tmp_path / name).read_text().splitlines()[0] + "\n" + json.dumps(to_dict(end)) + "\n", encoding="utf-8"
    )
    sealed = {key: hashlib.sha256(data).hexdigest() for key, data in lines_of(tmp_path).items() if key != name}
    compact(tmp_path)
    assert {
        key: hashlib.sha256(data).hexdigest() for key, data in lines_of(tmp_path).items() if key != name
    } == sealed
    assert {key: one for key, one in end.files.items() if key != name} == sealed


def test_compacting_again_adds_and_joins_what_is_small(tmp_path):
    wanted: dict[str, bytes] = {}
    for run_id in JANUARY:
        fill(tmp_path, (run_id,))
        wanted |= lines_of(tmp_path)
        compact(tmp_path)
        assert parts(tmp_path) == ["month=2026-01"]
    assert lines_of(tmp_path) == wanted
    assert compact(tmp_path) == compacted.Compacted()


def test_what_is_large_is_joined_with_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(compacted, "SMALL", 10)
    for run_id in JANUARY:
        fill(tmp_path, (run_id,))
        compact(tmp_path)
    assert len(parts(tmp_path)) == 3


def test_a_part_holds_no_more_than_a_batch_and_each_run_as_a_whole(tmp_path, monkeypatch):
    fill(tmp_path)
    monkeypatch.setattr(compacted, "SMALL", 10)
    size = sum(path.stat().st_size for path in tmp_path.glob(f"{JANUARY[0]}-*"))
    paths = sorted(tmp_path.glob("*.jsonl"))
    some = [[path.name.rpartition("-")[0] for path in one] for one in compacted.batches(paths, size * 2)]
    assert some == [[JANUARY[0]] * 2 + [JANUARY[1]] * 2, [JANUARY[2]] * 2, [FEBRUARY[0]] * 2]
    assert len(list(compacted.batches(paths, 1))) == 4


def test_a_run_is_read_from_its_month_alone(tmp_path, monkeypatch):
    fill(tmp_path)
    wanted, other = read_run(tmp_path, FEBRUARY[0]), read_run(tmp_path, JANUARY[1])
    compact(tmp_path)
    assert read_run(tmp_path, JANUARY[1]) == other  # and nothing of its month's others
    for path in (tmp_path / "month=2026-01").iterdir():
        path.write_bytes(b"PAR1 no, not really PAR1")
    assert read_run(tmp_path, FEBRUARY[0]) == wanted
    with pytest.raises(BrokenInput, match="month=2026-01"):
        read_folder(tmp_path)


def test_one_file_as_it_was_compacted_before_is_read_beside_the_months(tmp_path):
    fill(tmp_path)
    before = lines_of(tmp_path)
    compact(tmp_path)
    (path,) = (tmp_path / "month=2026-01").iterdir()
    path.rename(tmp_path / "compacted-0123456789abcdef.parquet")
    assert lines_of(tmp_path) == before
    fill(tmp_path, ("20260305T000000Z-00000e",))
    before |= lines_of(tmp_path)
    compact(tmp_path)
    assert lines_of(tmp_path) == before
    assert (tmp_path / "compacted-0123456789abcdef.parquet").exists()


@pytest.mark.parametrize(
    ("name", "month"),
    [
        ("20261105T000000Z-00000a-1.jsonl", "month=2026-11"),
        ("20261305T000000Z-00000a-1.jsonl", "month=unknown"),
        ("20260005T000000Z-00000a-1.jsonl", "month=unknown"),
        ("../../20261105T-1.jsonl", "month=unknown"),
        ("", "month=unknown"),
        ("month=2026-01", "month=unknown"),
    ],
)
def test_a_name_says_its_month_or_none(name, month):
    assert partition_of(name) == month


def test_folders_of_other_names_and_links_are_not_looked_into(tmp_path):
    fill(tmp_path, JANUARY)
    compact(tmp_path)
    (source,) = compacted_files(tmp_path)
    for name in ("month=2026-13", "month=..", "kind=check", "month=2026-1", "MONTH=2026-01", "month=2026-02 "):
        (tmp_path / name).mkdir()
        (tmp_path / name / source.name).write_bytes(source.read_bytes())
    (tmp_path / "month=2026-03").symlink_to(tmp_path / "kind=check")
    assert compacted_files(tmp_path) == [source]
    assert len(read_folder(tmp_path).runs) == 3


def test_a_folder_on_the_way_is_no_column(tmp_path):
    folder = tmp_path / "kind=check" / "run_id=other" / "line=x"
    folder.parent.mkdir(parents=True)
    fill(folder)
    before, wanted = lines_of(folder), read_latest(folder)
    compact(folder)
    assert lines_of(folder) == before
    assert read_latest(folder) == wanted


def test_nothing_is_written_through_a_link(tmp_path):
    fill(tmp_path / "own", JANUARY)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own" / "month=2026-01").symlink_to(tmp_path / "elsewhere")
    before = lines_of(tmp_path / "own")
    with pytest.raises(Exception, match="is a link to another folder"):
        compact(tmp_path / "own")
    assert not list((tmp_path / "elsewhere").iterdir())
    assert lines_of(tmp_path / "own") == before


def test_a_part_in_the_wrong_month_is_refused_by_name(tmp_path):
    fill(tmp_path, FEBRUARY)
    compact(tmp_path)
    (path,) = compacted_files(tmp_path)
    (tmp_path / "month=2026-01").mkdir()
    path.rename(tmp_path / "month=2026-01" / path.name)
    for read in (read_folder, read_latest):
        with pytest.raises(BrokenInput, match="lies in the wrong folder"):
            read(tmp_path)


def test_of_two_copies_of_a_file_the_longer_one_counts(tmp_path):
    """A file that grew after it was compacted, and was compacted again."""
    fill(tmp_path, JANUARY[:1])
    before = lines_of(tmp_path)
    for number in range(4):  # whatever the names of the parts are
        folder = tmp_path / f"again{number}"
        folder.mkdir()
        name = f"{JANUARY[0]}-2.jsonl"
        for key, data in before.items():
            (folder / key).write_bytes(data)
        compact(folder)
        more = before[name].splitlines(keepends=True)[number]
        (folder / name).write_bytes(before[name] + more)
        joined = lines_of(folder)
        compact(folder)
        assert lines_of(folder) == joined
        assert not list(folder.glob("*.jsonl"))


def test_copies_that_differ_are_not_mixed(tmp_path):
    fill(tmp_path, JANUARY[:1])
    (tmp_path / "other").mkdir()
    name = f"{JANUARY[0]}-2.jsonl"
    for key, data in lines_of(tmp_path).items():
        (tmp_path / "other" / key).write_bytes(data.replace(b'"passed"', b'"skipped"'))
    compact(tmp_path)
    before = lines_of(tmp_path)
    compact(tmp_path / "other")
    (part,) = compacted_files(tmp_path / "other")
    part.rename(tmp_path / "month=2026-01" / "part-zzz.parquet")
    assert len(lines_of(tmp_path)[name].splitlines()) == 8
    compact(tmp_path)
    assert len(parts(tmp_path)) == 2
    assert lines_of(tmp_path) == before


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


def _dying(folder: Path, step: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _DIES, str(folder), str(step)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _before_the_end(folder: Path) -> None:
    """A small part of the month that has to be joined, and new files of two months."""
    fill(folder, JANUARY[:1])
    compact(folder)
    fill(folder, (*JANUARY[1:], *FEBRUARY))


@pytest.mark.extended
def test_whoever_is_killed_at_any_step_loses_no_line_and_doubles_none(tmp_path):
    _before_the_end(tmp_path / "whole")
    wanted, counted = lines_of(tmp_path / "whole"), read_latest(tmp_path / "whole")
    done = _dying(tmp_path / "whole", 1000)
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps >= 11  # three parts are renamed into place, six files and two parts are removed
    for step in range(1, steps + 1):
        folder = tmp_path / str(step)
        _before_the_end(folder)
        assert _dying(folder, step).returncode == 77
        assert lines_of(folder) == wanted, step
        read = read_folder(folder)
        assert (len(read.runs), len(read.checks), read.broken) == (4, 32, ()), step
        assert read_latest(folder) == counted, step
        compact(folder)
        assert (lines_of(folder), read_latest(folder)) == (wanted, counted), step
        assert parts(folder) == ["month=2026-01", "month=2026-02"], step
        assert not [path for path in folder.rglob("*") if path.suffix in (".jsonl", ".part")], step


def test_what_was_written_wrong_replaces_nothing(tmp_path, monkeypatch):
    fill(tmp_path)
    before = lines_of(tmp_path)
    written = duckdb.DuckDBPyConnection.execute

    def short(self: duckdb.DuckDBPyConnection, query: str, *more: object) -> object:
        return written(self, query.replace(" ORDER BY file, number)", " ORDER BY file, number LIMIT 3)"), *more)

    monkeypatch.setattr(compacted, "_write_verified", _through(short))
    with pytest.raises(Exception, match="what was written isn't what was read"):
        compact(tmp_path)
    assert lines_of(tmp_path) == before
    assert not compacted_files(tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def _through(execute: Callable[..., object]) -> Callable[..., object]:
    """`_write_verified` over a connection whose statements go through `execute`."""
    whole = compacted._write_verified

    class Connection:
        def __init__(self, own: duckdb.DuckDBPyConnection) -> None:
            self.own = own

        def execute(self, query: str, *more: object) -> object:
            return execute(self.own, query, *more)

    return lambda connection, *more: whole(Connection(connection), *more)


def test_verdicts_are_of_all_parts(tmp_path, monkeypatch):
    """What is kept answers for the bytes of every month."""
    fill(tmp_path)
    compact(tmp_path)
    from hardware.detection import detect

    inventory = detect()
    before = verdict_cache._place(tmp_path, inventory)
    path = compacted_files(tmp_path)[0]
    path.write_bytes(path.read_bytes() + b" ")
    assert verdict_cache._place(tmp_path, inventory) != before


def test_bytes_that_were_looked_at_are_not_looked_at_again_and_others_are(tmp_path, monkeypatch):
    fill(tmp_path)
    compact(tmp_path)
    parquet._checked.clear()
    monkeypatch.setattr(parquet, "_wrong_with", lambda connection, path: f"looked at {Path(path).parent.name}")
    assert len(read_folder(tmp_path).runs) == 4
    parquet._checked.clear()
    monkeypatch.setattr(parquet, "LARGEST_TEXT", 1)  # other limits are another question
    with pytest.raises(BrokenInput, match="looked at month=2026-01"):
        read_folder(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_runs_that_plan_the_same_share_their_plan(tmp_path, packed):
    """Of a thousand runs of a thousand cells memory holds one plan."""
    fill(tmp_path)
    write(tmp_path, a_run("20260301T000000Z-00000e", 9, BERT))
    wanted = read_folder(tmp_path).runs
    if packed:
        compact(tmp_path)
    with EvidenceTable(tmp_path) as table:
        found = [line for _, line in sorted(table.run_lines().items())]
    assert tuple(found) == wanted
    assert len({id(run.plan) for run in found if isinstance(run, RunLine)}) == 2


def test_runs_share_their_plan_whatever_lies_between_them(tmp_path):
    fill(tmp_path)
    write(tmp_path, a_run("20260301T000000Z-00000e", 9, BERT))
    lines = read_folder(tmp_path).runs
    before: dict[tuple[str, str], list[object]] = {}
    mixed = [evidence_table._shared(line, before) for line in (lines[0], lines[-1], lines[1])]
    assert mixed == [lines[0], lines[-1], lines[1]]
    assert mixed[0].plan is mixed[2].plan is not mixed[1].plan
