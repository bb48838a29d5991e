"""Evidence in object storage: an address says a place and no secret, what is copied is what lies there, and nothing
that lies there already is ever replaced by anything but its own continuation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pytest
from front_doors import reporter
from fsspec.implementations.memory import MemoryFileSystem
from made_runs import BERT, GPT2, a_run, lines_of, write

import run_test_generation
from hardware.command_line import open_door
from hardware.errors import BrokenInput, OutputError, UsageError
from hardware.evidence import object_store, parquet
from hardware.evidence.address import parse_address
from hardware.evidence.bucket import mirror, publish
from hardware.evidence.compacted import compact
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.object_store import ObjectStore, is_name
from hardware.evidence.record import to_dict
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.writer import EvidenceWriter

PLACE = parse_address("memory://lab/hwcompat")
FIRST, SECOND = "20260105T000000Z-00000a", "20260205T000000Z-00000b"


@pytest.fixture(autouse=True)
def bucket() -> Iterator[MemoryFileSystem]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "own"
    write(own, a_run(FIRST, 5, BERT))
    write(own, a_run(SECOND, 6, GPT2), broken=["backward"])
    return own


def keys(bucket: MemoryFileSystem) -> set[str]:
    return {key.removeprefix("/lab/hwcompat/") for key in bucket.store}


def put(bucket: MemoryFileSystem, name: str, data: bytes) -> None:
    bucket.pipe_file(f"/lab/hwcompat/{name}", data)


def same(one: Evidence, other: Evidence) -> bool:
    return sorted(map(repr, (*one.runs, *one.checks))) == sorted(map(repr, (*other.runs, *other.checks)))


def door(*words: object) -> int:
    return int(reporter.main([str(word) for word in words]))


def test_what_was_published_is_read_from_there_and_taken_home(folder, tmp_path, bucket, capsys):
    assert door("--evidence", folder, "--publish", PLACE) == 0
    assert keys(bucket) == {path.name for path in folder.iterdir()}
    capsys.readouterr()
    assert door("--collect-all", "--evidence", PLACE, "--format", "json") == 1
    out, err = capsys.readouterr()
    assert {one["cell"] for one in json.loads(out)["verdicts"]} == {BERT, GPT2}
    assert "memory://lab/hwcompat: 4 object(s), 4 of them copied now" in err
    assert door("--merge", PLACE, "--evidence", tmp_path / "home") == 0
    assert same(read_folder(tmp_path / "home"), read_folder(folder))


def test_the_matrix_and_the_calibration_read_from_there_too(folder, capsys):
    publish(folder, PLACE)
    for job in ("--hardware-compatibility", "--coverage-report"):
        words = [job, "--evidence", str(PLACE), "--format", "json"]
        open_door(run_test_generation.main, words, program="x")
        out, err = capsys.readouterr()
        assert "4 object(s)" in err
        assert "bert" in out


def test_two_places_are_compared(folder, tmp_path, capsys):
    publish(folder, PLACE)
    other = tmp_path / "other"
    write(other, a_run("20260301T000000Z-00000c", 7, GPT2))
    publish(other, parse_address("memory://lab/other"))
    assert door("--compare", PLACE, "memory://lab/other", "--format", "json") in (0, 1)
    assert GPT2 in capsys.readouterr().out


def test_what_is_known_is_not_put_again_and_what_grew_is(folder, bucket):
    publish(folder, PLACE)
    assert {one.state for one in publish(folder, PLACE)} == {"known"}
    name = f"{FIRST}-2.jsonl"
    whole = (folder / name).read_bytes()
    put(bucket, name, whole[: whole.index(b"\n") + 1])
    assert {one.name: one.state for one in publish(folder, PLACE) if one.state != "known"} == {name: "longer"}
    assert bucket.cat_file(f"/lab/hwcompat/{name}") == whole


def test_what_lies_there_already_is_not_replaced_by_something_else(folder, bucket):
    name = f"{SECOND}-2.jsonl"
    put(bucket, name, b'{"other": 1}\n')
    with pytest.raises(BrokenInput, match=f"{name}' is in memory://lab/hwcompat already"):
        publish(folder, PLACE)
    assert keys(bucket) == {name}  # and nothing else was put


def test_somebody_who_puts_it_there_meanwhile_is_not_overwritten(folder, bucket, monkeypatch):
    listing = ObjectStore.listing
    told = []

    def listed(self: ObjectStore) -> Any:
        found = listing(self)
        told.append(found)
        if len(told) == 2:  # after the last look, before the first object is put
            put(bucket, f"{FIRST}-1.jsonl", b"theirs")
        return found

    monkeypatch.setattr(ObjectStore, "listing", listed)
    with pytest.raises(OutputError, match="something lies there already"):
        publish(folder, PLACE)
    assert bucket.cat_file(f"/lab/hwcompat/{FIRST}-1.jsonl") == b"theirs"


def test_a_run_that_goes_on_and_lines_that_are_none_are_not_published(folder, bucket):
    write(folder, a_run("20260210T000000Z-00000d", 8), ended=False)
    left = {one.name: one.why for one in publish(folder, PLACE) if one.state == "left"}
    assert set(left.values()) == {"its run has no end"}
    assert len(left) == 2
    (folder / f"{FIRST}-2.jsonl").write_text('{"kind": "check"}\n', encoding="utf-8")
    bucket.store.clear()
    with pytest.raises(BrokenInput, match="doesn't fit the schema"):
        publish(folder, PLACE)
    assert not bucket.store


def test_compacted_evidence_is_published_read_and_taken_home(folder, tmp_path, bucket):
    before, wanted = read_folder(folder), read_latest(folder)
    compact(folder)
    publish(folder, PLACE)
    assert {key.partition("/")[0] for key in keys(bucket)} == {"month=2026-01", "month=2026-02"}
    mirror(PLACE)
    assert read_latest(PLACE.copy) == wanted
    merge_evidence(PLACE.copy, tmp_path / "home")
    assert same(read_folder(tmp_path / "home"), before)


def test_compacted_lines_that_were_changed_there_are_not_taken_home(tmp_path, bucket):
    """What was sealed line by line is held against it, also after it lay in Parquet."""
    own = tmp_path / "own"
    writer = EvidenceWriter(own, FIRST)
    run = a_run(FIRST, 5, BERT)
    for line in (run, *lines_of(run, broken=["backward"])):
        writer.write(line)
    writer.end("finished", {})
    writer.close()
    compact(own)
    (path,) = own.rglob("*.parquet")
    with duckdb.connect() as connection:
        columns = "* REPLACE (replace(line, '\"failed\"', '\"passed\"') AS line)"
        connection.execute(f"COPY (SELECT {columns} FROM '{path}') TO '{tmp_path}/other.parquet' (FORMAT parquet)")
    publish(own, PLACE)
    for changed in (False, True):
        if changed:
            put(bucket, path.relative_to(own).as_posix(), (tmp_path / "other.parquet").read_bytes())
        mirror(PLACE)
        if not changed:
            assert merge_evidence(PLACE.copy, tmp_path / "home")[0].state == "taken"
    with pytest.raises(BrokenInput, match="changed after its run had ended"):
        merge_evidence(PLACE.copy, tmp_path / "home")


def test_only_what_changed_is_copied_and_what_is_gone_is_gone(folder, bucket):
    publish(folder, PLACE)
    assert [mirror(PLACE).copied for _ in range(2)] == [4, 0]
    put(bucket, f"{FIRST}-2.jsonl", (folder / f"{FIRST}-2.jsonl").read_bytes()[:-1] + b" \n")
    assert mirror(PLACE).copied == 1
    bucket.rm_file(f"/lab/hwcompat/{SECOND}-1.jsonl")
    bucket.rm_file(f"/lab/hwcompat/{SECOND}-2.jsonl")
    assert mirror(PLACE).objects == 2
    assert same(read_folder(PLACE.copy), _only(folder, FIRST))


def _only(folder: Path, run_id: str) -> Evidence:
    for path in folder.glob("*.jsonl"):
        if not path.name.startswith(run_id):
            path.unlink()
    (folder / f"{run_id}-2.jsonl").touch()
    return read_folder(folder)


def test_a_copy_that_somebody_touched_is_copied_again(folder):
    publish(folder, PLACE)
    mirror(PLACE)
    path = PLACE.copy / f"{SECOND}-2.jsonl"
    path.write_bytes(path.read_bytes().replace(b"failed", b"passed"))
    assert mirror(PLACE).copied == 1
    assert same(read_folder(PLACE.copy), read_folder(folder))


def test_lines_that_were_changed_there_do_not_count(folder, bucket):
    from hardware.evidence.seals import digests

    sealed = {"kind": "end", "run_id": SECOND, "ended_at": "2026-02-05", "reason": "finished", "counts": {}}
    first = (folder / f"{SECOND}-1.jsonl").read_text().splitlines()[0]
    files = {f"{SECOND}-2.jsonl": digests(folder, [SECOND])[f"{SECOND}-2.jsonl"]}
    text = f"{first}\n{json.dumps({**sealed, 'files': files, 'schema_version': 1})}\n"
    (folder / f"{SECOND}-1.jsonl").write_text(text)
    publish(folder, PLACE)
    name = f"/lab/hwcompat/{SECOND}-2.jsonl"
    bucket.pipe_file(name, bucket.cat_file(name).replace(b'"failed"', b'"passed"'))
    mirror(PLACE)
    found = read_folder(PLACE.copy)
    assert {line.cell_id for line in found.checks} == {BERT}
    assert "changed after its run had ended" in found.broken[0].reason


HOSTILE = [
    "../../etc/x-1.jsonl", "..jsonl", "a/../../x-1.jsonl", "month=2026-13/part-a.parquet", "month=../part-a.parquet",
    "line=1/part-a.parquet", "x-1.jsonl.gz", ".copied.jsonl", "copied.json", ".lock", "a b-1.jsonl", "x-1.jsonl\n",
    "month=2026-01/x-1.jsonl", "month=2026-01/deep/part-a.parquet", "[x]-1.parquet", "x" * 300 + ".jsonl", "",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_an_object_with_another_name_is_left_out(folder, bucket, name, tmp_path):
    assert not is_name(name)
    publish(folder, PLACE)
    bucket.store[f"/lab/hwcompat/{name}"] = bucket.store[f"/lab/hwcompat/{FIRST}-1.jsonl"]
    mirror(PLACE)
    left = {path.relative_to(PLACE.copy).as_posix() for path in PLACE.copy.rglob("*")}
    assert left == {path.name for path in folder.iterdir()} | {".lock", "copied.json"}


def test_an_object_that_changes_while_it_is_read_is_read_again_and_then_refused(folder, bucket, monkeypatch):
    publish(folder, PLACE)
    for path in PLACE.copy.glob("*.jsonl"):
        path.unlink()
    name, times = f"{FIRST}-1.jsonl", []
    data = bucket.cat_file(f"/lab/hwcompat/{name}")
    opened = MemoryFileSystem.open

    def changing(self: MemoryFileSystem, path: str, *words: Any, **more: Any) -> Any:
        found = opened(self, path, *words, **more)
        if path.endswith(name) and words[:1] == ("rb",) and len(times) < most:
            times.append(path)
            put(bucket, name, other)
        return found

    monkeypatch.setattr(MemoryFileSystem, "open", changing)
    most, other = 1, data[:-1] + b" "  # as long as it was
    put(bucket, name, data)
    assert mirror(PLACE).objects == 4
    assert (PLACE.copy / name).read_bytes() == other
    times.clear()
    most, other = 99, data
    put(bucket, name, data)
    with pytest.raises(BrokenInput, match=f"{name} in memory://lab/hwcompat changed while it was read"):
        mirror(PLACE)
    assert (PLACE.copy / name).read_bytes() == data[:-1] + b" "  # nothing half


def test_an_object_that_is_too_large_is_refused_before_it_is_copied(folder, bucket, monkeypatch):
    publish(folder, PLACE)
    monkeypatch.setattr(object_store, "LARGEST_OBJECT", 100)
    with pytest.raises(BrokenInput, match="larger than"):
        mirror(PLACE)
    monkeypatch.setattr(object_store, "LARGEST_OBJECT", 1 << 30)
    monkeypatch.setattr(object_store, "MOST_OBJECTS", 3)
    with pytest.raises(BrokenInput, match="more than 3 objects"):
        mirror(PLACE)


def test_more_than_the_disk_holds_is_not_begun(folder, monkeypatch):
    publish(folder, PLACE)
    for path in PLACE.copy.glob("*.jsonl"):
        path.unlink()
    monkeypatch.setattr("hardware.evidence.bucket._FREE", 1 << 60)
    with pytest.raises(OutputError, match="free"):
        mirror(PLACE)
    assert not list(PLACE.copy.glob("*.jsonl"))


def test_a_parquet_bomb_from_there_is_refused_before_it_is_read(tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(parquet, "LARGEST_TEXT", 200 << 20)
    path = tmp_path / "part-bomb.parquet"
    with duckdb.connect() as connection:
        rows = "'x-1.jsonl' AS file, i AS number, 'run' AS kind, repeat('a', 1000000) AS line FROM range(300) t(i)"
        connection.execute(f"COPY (SELECT {rows}) TO '{path}' (FORMAT parquet)")
    put(bucket, "month=unknown/part-bomb.parquet", path.read_bytes())
    mirror(PLACE)
    with pytest.raises(BrokenInput, match="its text comes to"):
        read_latest(PLACE.copy)


@pytest.mark.parametrize("word", ["--compact", "--merge"])
def test_what_lies_there_is_not_changed_in_place(word, tmp_path, capsys):
    more = [tmp_path] if word == "--merge" else []
    assert door(word, *more, "--evidence", PLACE) == 4
    assert "nothing is done to the evidence in memory://lab/hwcompat" in capsys.readouterr().err


def test_publishing_into_a_folder_is_refused(folder, tmp_path, capsys):
    for place in (tmp_path, f"file://{tmp_path}"):
        assert door("--evidence", folder, "--publish", place) == 4
        assert "--merge HERE" in capsys.readouterr().err


def test_a_files_address_is_the_folder_itself(folder, capsys):
    assert door("--collect-all", "--evidence", f"file://{folder}", "--format", "json") == 1
    assert "object(s)" not in capsys.readouterr().err


def test_a_store_that_is_no_object_storage_gets_whole_files(folder, tmp_path):
    """What is put on a disk is renamed when it is whole, and never over something else."""
    store = ObjectStore(parse_address(f"local://{tmp_path}/there"))
    (tmp_path / "there").mkdir()
    store.put("x-1.jsonl", b"whole", None)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["x-1.jsonl"]
    with pytest.raises(OutputError, match="something lies there already"):
        store.put("x-1.jsonl", b"other", None)
    assert (tmp_path / "there" / "x-1.jsonl").read_bytes() == b"whole"


@pytest.mark.parametrize(
    ("text", "said"), [("s3://bucket/x", object_store.REQUIREMENTS), ("gs://bucket/x", "gcsfs"), ("s4://b/x", "s4")]
)
def test_what_is_not_installed_is_said_with_what_installs_it(text, said, monkeypatch):
    def missing(address: str) -> None:
        raise (ValueError if address.startswith("s4") else ImportError)(f"no {address}")

    monkeypatch.setattr(fsspec, "url_to_fs", missing)
    with pytest.raises(UsageError, match=said):
        ObjectStore(parse_address(text))


def test_what_a_stores_library_says_is_told_without_secrets(folder, monkeypatch, fresh_redaction):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-very-secret-key")

    def fails(*words: Any, **more: Any) -> None:
        raise RuntimeError("NoCredentials: signed with a-very-secret-key at https://me:pass@host/")

    monkeypatch.setattr(MemoryFileSystem, "find", fails)
    with pytest.raises(BrokenInput) as error:
        mirror(PLACE)
    assert "a-very-secret-key" not in str(error.value)
    assert "me:pass" not in str(error.value)
    assert "AWS_PROFILE" in str(error.value)


def test_an_empty_place_is_no_evidence(bucket):
    put(bucket, "readme.txt", b"x")
    with pytest.raises(BrokenInput, match=r"holds no evidence: 1 other object\(s\) lie there, 'readme.txt'"):
        mirror(PLACE)


def test_a_run_line_is_what_publishing_holds_checks_against(folder, bucket):
    """A line of no planned check isn't put."""
    run = a_run(FIRST, 5, GPT2)
    end = (folder / f"{FIRST}-1.jsonl").read_text().splitlines()[1]
    (folder / f"{FIRST}-1.jsonl").write_text(json.dumps(to_dict(run)) + "\n" + end + "\n")
    with pytest.raises(BrokenInput, match="of no planned check"):
        publish(folder, PLACE)
    assert not bucket.store
