"""Evidence on disk: whole lines survive whatever happens to the rest of a file, a folder or a disk."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardware.errors import BrokenInput, OutputError, UsageError
from hardware.evidence.columns import every_column
from hardware.evidence.latest import read_latest
from hardware.evidence.record import SCHEMA_VERSION, CheckLine, EndLine, Outcome, RunLine, to_dict
from hardware.evidence.store import query, read_file, read_folder, read_run
from hardware.evidence.writer import EvidenceWriter, new_run_id, now

ROOT = Path(__file__).parents[2]


def check(name: str = "builds", run_id: str = "r", **changes: Any) -> CheckLine:
    line = CheckLine(
        run_id=run_id,
        cell_id="bert/fill-mask/cpu/float32",
        check_name=name,
        outcome=Outcome.PASSED,
        subject="tiny",
        requested_target="cpu",
        actual_target="cpu",
        precision="float32",
        model="bert",
        task="fill-mask",
        suite_hash="0",
        started_at=now(),
        duration_s=0.5,
    )
    return replace(line, **changes)


def written(folder: Path, *lines: Any, run_id: str = "r") -> Path:
    writer = EvidenceWriter(folder, run_id)
    for line in lines:
        writer.write(line)
    writer.close()
    return writer.path


def end(run_id: str = "r") -> EndLine:
    return EndLine(run_id=run_id, ended_at=now(), reason="done", counts={})


def run(run_id: str = "r") -> RunLine:
    return RunLine(run_id=run_id, started_at=now(), command="", machine="", inventory={}, versions={}, plan=())


def test_what_was_written_is_read_back(tmp_path):
    lines = (run(), check(), check("backward", max_rel_error=float("inf")), end())
    written(tmp_path, *lines)
    found = read_folder(tmp_path)
    assert (found.runs, found.checks, found.ends, found.broken) == ((lines[0],), lines[1:3], (lines[3],), ())
    assert found.run("r") == lines[0]
    assert found.run("other") is None
    assert read_latest(found, details=True).unfinished == ()


def test_each_line_is_on_the_disk_before_the_next_begins(tmp_path):
    writer = EvidenceWriter(tmp_path, "r")
    for count in range(1, 4):
        writer.write(check(f"c{count}"))
        assert len(read_folder(tmp_path).checks) == count
    writer.close()
    writer.close()


def test_a_run_without_an_end_is_unfinished(tmp_path):
    written(tmp_path, run("a"), end("a"), run("b"))
    assert read_latest(tmp_path, details=True).unfinished == ("b",)


def test_a_half_written_last_line_is_kept_as_broken_and_the_rest_is_read(tmp_path):
    path = written(tmp_path, check("a"), check("b"))
    path.write_bytes(path.read_bytes()[:-40])
    lines, broken = read_file(path)
    assert [line.check_name for line in lines] == ["a"]
    assert [(b.file, b.number) for b in broken] == [(path.name, 2)]
    assert broken[0].reason


def test_a_line_after_a_broken_one_is_read(tmp_path):
    path = written(tmp_path, check("a"))
    with path.open("ab") as file:
        file.write(b'{"kind": "che\n')
    written(tmp_path, check("b"))
    found = read_folder(tmp_path)
    assert [line.check_name for line in found.checks] == ["a", "b"]
    assert [one.number for one in found.broken] == [2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\xff\xfe\x80garbage", ""),
        (b"[" * 100_000, ""),
        (b'{"a":' * 100_000, ""),
        (b'{"schema_version": 1, "kind": "end", "n": ' + b"9" * 5000 + b"}", ""),
        (b"[1, 2]", "not an object"),
        (b"null", "not an object"),
        (json.dumps(to_dict(check()) | {"schema_version": SCHEMA_VERSION + 1}).encode(), "schema version"),
        (json.dumps(to_dict(check()) | {"outcome": "splendid"}).encode(), "broken"),
        (b'"' + b"x" * (16 * 2**20) + b'"', "16 MiB"),
    ],
    ids=["binary", "deep-list", "deep-object", "huge-number", "list", "null", "version", "outcome", "long"],
)
def test_a_line_that_cannot_be_used_is_reported_and_hides_nothing_else(tmp_path, data, reason):
    path = written(tmp_path, check("before"))
    with path.open("ab") as file:
        file.write(data + b"\n" + json.dumps(to_dict(check("after"))).encode() + b"\n")
    found = read_folder(tmp_path)
    assert [line.check_name for line in found.checks] == ["before", "after"]
    assert [one.number for one in found.broken] == [2]
    assert reason in found.broken[0].reason
    assert len(found.broken[0].reason) <= 200


def test_empty_files_and_blank_lines_are_nothing(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b"\n  \n\r\n")
    found = read_folder(tmp_path)
    assert (found.checks, found.broken) == ((), ())


def test_files_of_other_kinds_are_not_looked_at(tmp_path):
    written(tmp_path, check())
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "x.json").write_text("{")
    assert len(read_folder(tmp_path).checks) == 1
    assert read_folder(tmp_path).broken == ()


def test_a_folder_that_is_not_there_is_an_error_with_the_next_step(tmp_path):
    with pytest.raises(BrokenInput, match="--run"):
        read_folder(tmp_path / "none")
    assert read_folder(tmp_path).checks == ()


def test_a_folder_that_holds_packed_evidence_alone_is_not_an_empty_one(tmp_path):
    (tmp_path / "cpu.jsonl.gz").write_bytes(b"")
    with pytest.raises(BrokenInput, match="is packed") as refused:
        read_folder(tmp_path)
    assert "gunzip" in refused.value.fix
    (tmp_path / "own.jsonl").touch()
    assert read_folder(tmp_path).checks == ()


def test_two_folders_are_read_as_one(tmp_path):
    written(tmp_path / "a", check("a"))
    written(tmp_path / "b", check("b"))
    assert {line.check_name for line in read_folder(tmp_path / "a", tmp_path / "b").checks} == {"a", "b"}


def test_two_writers_of_one_file_never_mix_their_lines(tmp_path):
    def write(name: str) -> None:
        writer = EvidenceWriter(tmp_path, "r")
        for number in range(50):
            writer.write(check(f"{name}{number}", error_message=name * 3000))
        writer.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_folder(tmp_path)
    assert found.broken == ()
    assert {line.check_name for line in found.checks} == {f"{name}{n}" for name in "xy" for n in range(50)}


def test_two_processes_write_two_files_of_one_run(tmp_path):
    written(tmp_path, check("parent"))
    code = f"""
        from pathlib import Path
        from hardware.evidence.record import EndLine
        from hardware.evidence.writer import EvidenceWriter
        writer = EvidenceWriter(Path({str(tmp_path)!r}), "r")
        writer.write(EndLine(run_id="r", ended_at="now", reason="done", counts={{}}))
    """
    _python(code)
    assert len(list(tmp_path.glob("r-*.jsonl"))) == 2
    assert len(read_run(tmp_path, "r").checks) == len(read_run(tmp_path, "r").ends) == 1


def test_reading_one_run_leaves_out_other_runs_files(tmp_path):
    written(tmp_path, check("a"))
    written(tmp_path, check("b", run_id="other"), run_id="other")
    (tmp_path / "broken-1.jsonl").write_text("{")
    found = read_run(tmp_path, "r")
    assert [line.check_name for line in found.checks] == ["a"]
    assert found.broken == ()


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def test_a_full_disk_is_an_output_error_and_earlier_lines_stay_whole(tmp_path):
    code = f"""
        import resource, signal
        from pathlib import Path
        from hardware.errors import OutputError
        from hardware.evidence.record import EndLine
        from hardware.evidence.writer import EvidenceWriter
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        writer = EvidenceWriter(Path({str(tmp_path)!r}), "r")
        line = EndLine(run_id="r", ended_at="now", reason="x" * 600, counts={{}})
        writer.write(line)
        for _ in range(2):
            try:
                writer.write(line)
            except OutputError as error:
                print(error)
    """
    said = _python(code).splitlines()
    assert len(said) == 2
    assert "evidence" in said[0]
    found = read_folder(tmp_path)
    assert len(found.ends) == 1
    assert found.broken == ()


def test_a_line_after_one_that_was_cut_short_stands_alone(tmp_path):
    """The disk has room again: what is written then is kept, and the half line is gone."""
    code = f"""
        import resource
        from pathlib import Path
        from hardware.errors import OutputError
        from hardware.evidence.record import EndLine
        from hardware.evidence.writer import EvidenceWriter
        writer = EvidenceWriter(Path({str(tmp_path)!r}), "r")
        line = lambda reason: EndLine(run_id="r", ended_at="now", reason=reason, counts={{}})
        writer.write(line("first"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))
        try:
            writer.write(line("x" * 600))
        except OutputError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        writer.write(line("last"))
        writer.close()
    """
    assert "cut short" in _python(code)
    found = read_folder(tmp_path)
    assert [end.reason for end in found.ends] == ["first", "last"]
    assert found.broken == ()


def test_a_line_after_another_process_was_killed_in_its_own_stands_alone(tmp_path):
    """Process numbers come again: the file of an earlier child may be gone on with."""
    path = written(tmp_path, check("a"), check("b"))
    path.write_bytes(path.read_bytes()[:-40])
    written(tmp_path, check("c"))
    found = read_folder(tmp_path)
    assert [line.check_name for line in found.checks] == ["a", "c"]
    assert [one.number for one in found.broken] == [2]


def test_a_disk_that_fails_when_a_file_is_closed_is_an_output_error(tmp_path, monkeypatch):
    writer = EvidenceWriter(tmp_path, "r")
    writer.write(check())

    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OutputError, match="Input/output error"):
        writer.close()
    writer.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into a read-only folder")
def test_a_read_only_folder_is_an_output_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="--evidence"):
        EvidenceWriter(tmp_path / "evidence", "r")


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--evidence"):
        EvidenceWriter(tmp_path / "file" / "evidence", "r")


def test_a_file_system_that_refuses_is_an_output_error():
    with pytest.raises(OutputError, match="--evidence"):
        EvidenceWriter(Path("/proc/hwcompat-evidence"), "r")


def test_a_writer_that_was_closed_says_so_instead_of_losing_the_line(tmp_path):
    writer = EvidenceWriter(tmp_path, "r")
    writer.close()
    with pytest.raises(OutputError):
        writer.write(check())


def test_run_ids_are_unique_and_sort_by_time():
    ids = [new_run_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert [one[:16] for one in ids] == sorted(one[:16] for one in ids)


def test_what_is_written_is_redacted(tmp_path):
    path = written(tmp_path, check(error_message="token=abcdefgh12345", conditions={"a@example.org": "x"}))
    text = path.read_text()
    assert "abcdefgh12345" not in text
    assert "example.org" not in text


def test_sql_sees_every_whole_line(tmp_path):
    path = written(tmp_path, run(), check("a"), check("b", outcome=Outcome.FAILED), end())
    with path.open("ab") as file:
        file.write(b'{"kind": "che')
    rows = query(tmp_path, "SELECT check_name FROM lines WHERE kind = 'check' AND outcome = ?", ["failed"])
    assert rows == [("b",)]
    assert query(tmp_path / "none", "SELECT 1") == []


def test_sql_reaches_nothing_beyond_the_evidence(tmp_path):
    import duckdb

    written(tmp_path / "evidence", check())
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(duckdb.Error):
        query(tmp_path / "evidence", f"SELECT * FROM read_csv('{tmp_path}/secret.csv')")


@pytest.mark.parametrize(
    "statement",
    ["COPY (SELECT 1) TO '{path}'", "DROP VIEW lines", "SELECT 1; COPY (SELECT 1) TO '{path}'", "ATTACH 'x'"],
)
def test_sql_changes_nothing(tmp_path, statement):
    """The files may be read, so DuckDB would write them too."""
    path = written(tmp_path, check())
    before = path.read_bytes()
    with pytest.raises(UsageError, match="asked, and never changed"):
        query(tmp_path, statement.format(path=path))
    assert path.read_bytes() == before


def test_sql_knows_every_field_whatever_the_folder_holds(tmp_path):
    folder = tmp_path / "it's here"
    written(folder, check(conditions={"attention": "sdpa"}, max_abs_error=1e-6))
    ((attention, error, batch, plan),) = query(
        folder, "SELECT conditions['attention'], max_abs_error, batch, plan FROM lines WHERE kind = 'check'"
    )
    assert (attention, error, batch, plan) == ("sdpa", 1e-6, None, None)
    names = {one.name for kind in (RunLine, CheckLine, EndLine) for one in dataclasses.fields(kind)}
    assert set(every_column()) == names
