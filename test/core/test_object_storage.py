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
from fsspec.implementations.memory import MemoryFileSystem
from made_runs import BERT, GPT2, a_run, lines_of, write

from hardware.errors import BrokenInput, OutputError, UsageError
from hardware.evidence import parquet
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


def test_what_was_published_is_known_and_what_grew_is_put_again(folder, bucket, tmp_path):
    publish(folder, PLACE)
    assert keys(bucket) == {path.name for path in folder.iterdir()}
    mirror(PLACE)
    merge_evidence(PLACE.copy, tmp_path / "home")
    assert same(read_folder(tmp_path / "home"), read_folder(folder))
    assert {one.state for one in publish(folder, PLACE)} == {"known"}
    name = f"{FIRST}-2.jsonl"
    whole = (folder / name).read_bytes()
    put(bucket, name, whole[: whole.index(b"\n") + 1])
    assert {one.name: one.state for one in publish(folder, PLACE) if one.state != "known"} == {name: "longer"}
    assert bucket.cat_file(f"/lab/hwcompat/{name}") == whole


def test_what_lies_there_already_is_not_replaced_by_something_else(folder, bucket, monkeypatch):
    name, theirs = f"{SECOND}-2.jsonl", f"/lab/hwcompat/{FIRST}-1.jsonl"
    put(bucket, name, b'{"other": 1}\n')
    with pytest.raises(BrokenInput, match=f"{name}' already exists in memory://lab/hwcompat"):
        publish(folder, PLACE)
    assert keys(bucket) == {name}  # and nothing else was put
    bucket.store.clear()
    listing, listings = ObjectStore.listing, []

    def listed(self: ObjectStore) -> Any:
        listings.append(found := listing(self))
        if len(listings) == 2:  # after the last look, before the first object is put
            bucket.pipe_file(theirs, b"theirs")
        return found

    monkeypatch.setattr(ObjectStore, "listing", listed)
    with pytest.raises(OutputError, match="an object already exists there"):
        publish(folder, PLACE)
    assert bucket.cat_file(theirs) == b"theirs"


def test_a_run_that_goes_on_and_lines_that_are_none_are_not_published(folder, bucket):
    write(folder, a_run("20260210T000000Z-00000d", 8), ended=False)
    left = {one.name: one.why for one in publish(folder, PLACE) if one.state == "left"}
    assert (set(left.values()), len(left)) == ({"its run has not ended"}, 2)
    bucket.store.clear()
    parent = folder / f"{FIRST}-1.jsonl"
    whole = parent.read_text()
    parent.write_text(json.dumps(to_dict(a_run(FIRST, 5, GPT2))) + "\n" + whole.splitlines()[1] + "\n")
    with pytest.raises(BrokenInput, match="not a planned check"):
        publish(folder, PLACE)
    parent.write_text(whole)
    (folder / f"{FIRST}-2.jsonl").write_text('{"kind": "check"}\n', encoding="utf-8")
    with pytest.raises(BrokenInput, match="doesn't match the evidence schema"):
        publish(folder, PLACE)
    assert not bucket.store


def test_compacted_evidence_is_taken_home_as_it_was_and_refused_if_it_was_changed(folder, tmp_path, bucket):
    """What was sealed line by line is held against it, also after it lay in Parquet."""
    own = tmp_path / "sealed"
    writer, run = EvidenceWriter(own, FIRST), a_run(FIRST, 5, BERT)
    for line in (run, *lines_of(run, broken=["backward"])):
        writer.write(line)
    writer.end("finished", {})
    writer.close()
    before, wanted = read_folder(own), read_latest(own)
    compact(own)
    publish(own, PLACE)
    assert {key.partition("/")[0] for key in keys(bucket)} == {"month=2026-01"}
    mirror(PLACE)
    assert read_latest(PLACE.copy) == wanted
    assert merge_evidence(PLACE.copy, tmp_path / "home")[0].state == "taken"
    assert same(read_folder(tmp_path / "home"), before)
    (path,) = own.rglob("*.parquet")
    with duckdb.connect() as connection:
        columns = "* REPLACE (replace(line, '\"failed\"', '\"passed\"') AS line)"
        connection.execute(f"COPY (SELECT {columns} FROM '{path}') TO '{tmp_path}/other.parquet' (FORMAT parquet)")
    put(bucket, path.relative_to(own).as_posix(), (tmp_path / "other.parquet").read_bytes())
    mirror(PLACE)
    with pytest.raises(BrokenInput, match="changed after its run ended"):
        merge_evidence(PLACE.copy, tmp_path / "home")


def test_only_what_changed_is_copied_and_what_is_gone_is_gone(folder, bucket):
    publish(folder, PLACE)
    assert [mirror(PLACE).copied for _ in range(2)] == [4, 0]
    path = PLACE.copy / f"{SECOND}-2.jsonl"
    path.write_bytes(path.read_bytes().replace(b"failed", b"passed"))  # somebody touched the copy
    assert mirror(PLACE).copied == 1
    assert same(read_folder(PLACE.copy), read_folder(folder))
    put(bucket, f"{FIRST}-2.jsonl", (folder / f"{FIRST}-2.jsonl").read_bytes()[:-1] + b" \n")
    assert mirror(PLACE).copied == 1
    for number in (1, 2):
        bucket.rm_file(f"/lab/hwcompat/{SECOND}-{number}.jsonl")
        (folder / f"{SECOND}-{number}.jsonl").unlink()
    assert mirror(PLACE).objects == 2
    assert same(read_folder(PLACE.copy), read_folder(folder))


HOSTILE = [
    "../../etc/x-1.jsonl", "..jsonl", "a/../../x-1.jsonl", "month=2026-13/part-a.parquet", "month=../part-a.parquet",
    "line=1/part-a.parquet", "x-1.jsonl.gz", ".copied.jsonl", "copied.json", ".lock", "a b-1.jsonl", "x-1.jsonl\n",
    "month=2026-01/x-1.jsonl", "month=2026-01/deep/part-a.parquet", "[x]-1.parquet", "x" * 300 + ".jsonl", "",
]  # fmt: skip


def test_objects_with_other_names_are_left_out(folder, bucket):
    assert [name for name in HOSTILE if is_name(name)] == []
    publish(folder, PLACE)
    for name in HOSTILE:
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


def test_more_than_is_allowed_or_fits_is_refused_before_it_is_copied(folder, bucket, monkeypatch):
    publish(folder, PLACE)
    for path in PLACE.copy.glob("*.jsonl"):
        path.unlink()
    for name, value, error, message in (
        ("object_store.LARGEST_OBJECT", 100, BrokenInput, "larger than"),
        ("object_store.MOST_OBJECTS", 3, BrokenInput, "more than 3 objects"),
        ("bucket._FREE", 1 << 60, OutputError, "free"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"hardware.evidence.{name}", value)
            with pytest.raises(error, match=message):
                mirror(PLACE)
        assert not list(PLACE.copy.glob("*.jsonl"))


def test_a_parquet_bomb_from_there_is_refused_before_it_is_read(tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(parquet, "LARGEST_TEXT", 20 << 20)
    path = tmp_path / "part-bomb.parquet"
    with duckdb.connect() as connection:
        rows = "'x-1.jsonl' AS file, i AS number, 'run' AS kind, repeat('a', 1000000) AS line FROM range(30) t(i)"
        connection.execute(f"COPY (SELECT {rows}) TO '{path}' (FORMAT parquet)")
    put(bucket, "month=unknown/part-bomb.parquet", path.read_bytes())
    mirror(PLACE)
    with pytest.raises(BrokenInput, match="its text has"):
        read_latest(PLACE.copy)


def test_a_store_that_is_no_object_storage_gets_whole_files(folder, tmp_path):
    """What is put on a disk is renamed when it is whole, and never over something else."""
    store = ObjectStore(parse_address(f"local://{tmp_path}/there"))
    (tmp_path / "there").mkdir()
    store.put("x-1.jsonl", b"whole", None)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["x-1.jsonl"]
    with pytest.raises(OutputError, match="an object already exists there"):
        store.put("x-1.jsonl", b"other", None)
    assert (tmp_path / "there" / "x-1.jsonl").read_bytes() == b"whole"


def test_what_is_not_installed_is_named_with_what_installs_it(monkeypatch):
    def missing(address: str) -> None:
        raise (ValueError if address.startswith("s4") else ImportError)(f"no {address}")

    monkeypatch.setattr(fsspec, "url_to_fs", missing)
    for text, fix in (("s3://bucket/x", "make setup-object-storage"), ("gs://bucket/x", "gcsfs"), ("s4://b/x", "s4")):
        with pytest.raises(UsageError, match=fix):
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
    with pytest.raises(BrokenInput, match=r"no evidence in .*: it has 1 other object\(s\), for example 'readme.txt'"):
        mirror(PLACE)
