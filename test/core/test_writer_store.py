"""Evidence on disk: whole lines survive whatever happens to the rest of a file, a folder or a disk."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest
from evidence_lines import check_line, run_line

from hardware.errors import BrokenInput, OutputError, UsageError
from hardware.evidence.columns import every_column
from hardware.evidence.record import SCHEMA_VERSION, CheckLine, EndLine, Outcome, RunLine, to_dict
from hardware.evidence.store import query, read_file, read_folder, read_run
from hardware.evidence.writer import EvidenceWriter, make_durable, new_run_id

END = EndLine(run_id="r1", ended_at="2026-01-02", reason="done", counts={})
CUT = b'{"kind": "che'


def written(folder: Path, *lines: Any, run_id: str = "r1") -> Path:
    writer = EvidenceWriter(folder, run_id)
    for line in lines:
        writer.write(line)
    writer.close()
    return writer.path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def found(folder: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """The names of the checks in a folder, and the places of its broken lines."""
    evidence = read_folder(folder)
    return [one.check_name for one in evidence.checks], [(one.file, one.number) for one in evidence.broken]


def test_what_was_written_is_read_back_redacted(tmp_path: Path) -> None:
    secret = check_line("b", error_message="token=abcdefgh12345", conditions={"a@example.org": "x"})
    lines = (run_line(), check_line("a", max_rel_error=float("inf")), END)
    path = written(tmp_path, *lines, secret)
    evidence = read_folder(tmp_path)
    assert (*evidence.runs, evidence.checks[0], *evidence.ends) == lines
    assert evidence.broken == ()
    assert evidence.run("r1") == lines[0]
    assert evidence.run("other") is None
    assert "abcdefgh12345" not in path.read_text()
    assert "example.org" not in path.read_text()


def test_each_line_is_on_the_disk_before_the_next_begins_and_none_after_the_end(tmp_path: Path) -> None:
    writer = EvidenceWriter(tmp_path, "r1")
    for count in range(1, 4):
        writer.write(check_line(f"c{count}"))
        assert len(read_folder(tmp_path).checks) == count
    writer.close()
    writer.close()
    with pytest.raises(OutputError):
        writer.write(check_line())


def test_each_durable_line_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, int]] = []  # which file or folder, and its lines then
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path.name, len(path.read_text().splitlines()) if path.is_file() else 0))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    written(tmp_path, check_line("a"))
    assert [count for _, count in synced] == [1], "without the option only closing waits"
    synced.clear()
    monkeypatch.setenv("HWCOMPAT_DURABLE", "")  # restored after the test
    make_durable()
    writer = EvidenceWriter(tmp_path / "new", "r2")
    assert [name for name, _ in synced][:2] == ["new", tmp_path.name], "the entries of the file and its folder"
    synced.clear()
    for count in range(1, 4):
        writer.write(check_line(f"c{count}"))
        assert synced[-1] == (writer.path.name, count)
    assert len(synced) == 3

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OutputError, match="Input/output error"):
            writer.write(check_line("d"))
    writer.close()


def test_a_half_written_line_is_broken_and_one_that_follows_stands_alone(tmp_path: Path) -> None:
    path = written(tmp_path, check_line("a"), check_line("b"))
    path.write_bytes(path.read_bytes()[:-40])
    lines, broken = read_file(path)
    assert [line.check_name for line in lines] == ["a"]
    assert [(one.file, one.number) for one in broken] == [(path.name, 2)]
    assert broken[0].reason
    written(tmp_path, check_line("c"))  # numbers of processes come again, and their files with them
    append(path, CUT + b"\n")
    written(tmp_path, check_line("d"))
    assert found(tmp_path) == (["a", "c", "d"], [(path.name, 2), (path.name, 4)])


def test_a_line_that_is_cut_short_is_taken_back_or_stands_alone(tmp_path: Path, monkeypatch) -> None:
    writer, write = EvidenceWriter(tmp_path, "r1"), os.write
    writer.write(check_line("a"))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    def short(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[:40])

    for refused, message, others in (
        (full, "No space", {}),
        (short, "writing evidence to", {}),
        (short, "cut", {"ftruncate": full}),
    ):
        with monkeypatch.context() as patch:
            for name, function in {"write": refused, **others}.items():
                patch.setattr(os, name, function)
            with pytest.raises(OutputError, match=message):
                writer.write(check_line("b"))
        assert found(tmp_path) == (["a"], [(writer.path.name, 2)] if others else [])
    writer.write(check_line("c"))
    writer.close()
    assert found(tmp_path) == (["a", "c"], [(writer.path.name, 2)])


def test_a_line_that_cannot_be_used_is_reported_and_hides_nothing_else(tmp_path: Path) -> None:
    unusable = {
        b"\x00\xff\xfe\x80garbage": "",
        b"[" * 100_000: "",
        b'{"a":' * 100_000: "",
        b'{"schema_version": 1, "kind": "end", "n": ' + b"9" * 5000 + b"}": "",
        b"[1, 2]": "not an object",
        b"null": "not an object",
        json.dumps(to_dict(check_line()) | {"schema_version": SCHEMA_VERSION + 1}).encode(): "schema version",
        json.dumps(to_dict(check_line()) | {"schema_version": True}).encode(): "",
        json.dumps(to_dict(check_line()) | {"outcome": "splendid"}).encode(): "broken",
        b'"' + b"x" * (16 * 2**20) + b'"': "16 MiB",
    }
    path = written(tmp_path, check_line("before"))
    append(path, b"".join(data + b"\n  \n" for data in unusable))
    written(tmp_path, check_line("after"))
    evidence = read_folder(tmp_path)
    assert [line.check_name for line in evidence.checks] == ["before", "after"]
    assert [one.number for one in evidence.broken] == [2 * n for n in range(1, len(unusable) + 1)]
    for one, reason in zip(evidence.broken, unusable.values(), strict=True):
        assert reason in one.reason
        assert len(one.reason) <= 200


def test_what_is_no_evidence_is_not_looked_at_and_folders_are_read_as_one(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="hwcompat run"):
        read_folder(tmp_path / "none")
    for name, data in {"a.jsonl": b"", "b.jsonl": b"\n  \n\r\n", "notes.txt": b"hello", "x.json": b"{"}.items():
        (tmp_path / name).write_bytes(data)
    assert found(tmp_path) == ([], [])
    written(tmp_path / "a", check_line("a"))
    written(tmp_path / "b", check_line("b"))
    assert {line.check_name for line in read_folder(tmp_path / "a", tmp_path / "b").checks} == {"a", "b"}


def test_a_folder_that_holds_packed_evidence_alone_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "cpu.jsonl.gz").write_bytes(b"")
    with pytest.raises(BrokenInput, match="is compressed") as refused:
        read_folder(tmp_path)
    assert "gunzip" in refused.value.fix
    (tmp_path / "own.jsonl").touch()
    assert read_folder(tmp_path).checks == ()


def test_two_writers_of_one_file_never_mix_their_lines(tmp_path: Path) -> None:
    def write(name: str) -> None:
        lines = [check_line(f"{name}{number}", error_message=name * 3000) for number in range(50)]
        written(tmp_path, *lines)

    threads = [threading.Thread(target=write, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names, broken = found(tmp_path)
    assert (set(names), broken) == ({f"{name}{n}" for name in "xy" for n in range(50)}, [])


def test_reading_one_run_leaves_out_other_runs_files(tmp_path: Path) -> None:
    written(tmp_path, check_line("a"))
    written(tmp_path, check_line("b", run_id="other"), run_id="other")
    (tmp_path / "broken-1.jsonl").write_text("{")
    evidence = read_run(tmp_path, "r1")
    assert [line.check_name for line in evidence.checks] == ["a"]
    assert evidence.broken == ()


def test_a_disk_that_refuses_is_an_output_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "evidence", Path("/proc/hwcompat-evidence")):
        with pytest.raises(OutputError, match="--evidence"):
            EvidenceWriter(folder, "r1")
    writer = EvidenceWriter(tmp_path, "r1")
    writer.write(check_line())

    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OutputError, match="Input/output error"):
        writer.close()
    writer.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into a read-only folder")
def test_a_read_only_folder_is_an_output_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="--evidence"):
        EvidenceWriter(tmp_path / "evidence", "r1")


def test_run_ids_are_unique_and_sort_by_time() -> None:
    ids = [new_run_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert [one[:16] for one in ids] == sorted(one[:16] for one in ids)


def test_sql_sees_every_whole_line_and_knows_every_field(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    failed = check_line("b", Outcome.FAILED, conditions={"attention": "sdpa"}, max_abs_error=1e-6)
    append(written(folder, run_line(), check_line("a"), failed, END), CUT)
    columns = "check_name, conditions['attention'], max_abs_error, batch, plan"
    rows = query(folder, f"SELECT {columns} FROM lines WHERE kind = 'check' AND outcome = ?", ["failed"])
    assert rows == [("b", "sdpa", 1e-6, None, None)]
    assert query(tmp_path / "none", "SELECT 1") == []
    names = {one.name for kind in (RunLine, CheckLine, EndLine) for one in dataclasses.fields(kind)}
    assert set(every_column()) == names


def test_sql_changes_nothing_and_reaches_nothing_beyond_the_evidence(tmp_path: Path) -> None:
    """The files may be read, so DuckDB would write them too."""
    path = written(tmp_path / "evidence", check_line())
    before = path.read_bytes()
    copy = f"COPY (SELECT 1) TO '{path}'"
    for statement in (copy, "DROP VIEW lines", f"SELECT 1; {copy}", "ATTACH 'x'"):
        with pytest.raises(UsageError, match="only SELECT statements"):
            query(path.parent, statement)
        assert path.read_bytes() == before
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(duckdb.Error):
        query(path.parent, f"SELECT * FROM read_csv('{tmp_path}/secret.csv')")
