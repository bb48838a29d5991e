"""Evidence in buckets over S3's real protocol, against a server on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from made_runs import BERT, GPT2, a_run, write

from benchmarks.s3_server import SECRET, s3_server, why_not

ROOT = Path(__file__).parents[2]
PLACE = "s3://lab/hwcompat"
FIRST, SECOND = "20260105T000000Z-00000a", "20260205T000000Z-00000b"
REPORTER = "hardware_compatibility_reporter.py"

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as variables:
        yield variables


@pytest.fixture
def s3(server: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The server's files, with an empty bucket `lab`, and the variables set."""
    import s3fs

    for name, value in server.items():
        monkeypatch.setenv(name, value)
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    if files.exists("lab"):
        files.rm("lab", recursive=True)
    files.mkdir("lab")
    return files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "own", a_run(FIRST, 5, BERT))
    write(tmp_path / "own", a_run(SECOND, 6, GPT2), broken=["backward"])
    return tmp_path / "own"


Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ask(s3: object) -> Ask:
    def asked(*words: object, script: str = REPORTER, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", script, *map(str, words)]
        environment = {name: value for name, value in {**os.environ, **variables}.items() if value}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return asked


def test_evidence_goes_to_a_bucket_is_reported_from_there_and_comes_home(ask, folder, tmp_path, s3):
    done = ask("--evidence", folder, "--publish", PLACE)
    assert (done.returncode, "4 file(s) put" in done.stderr) == (0, True), done.stderr
    assert {key.rpartition("/")[2] for key in s3.find("lab")} == {path.name for path in folder.iterdir()}
    done = ask("--collect-all", "--evidence", PLACE, "--format", "json")
    assert {one["cell"] for one in json.loads(done.stdout)["verdicts"]} == {BERT, GPT2}
    done = ask("--merge", PLACE, "--evidence", tmp_path / "home")
    assert "0 copied now" in done.stderr
    for path in folder.iterdir():
        assert (tmp_path / "home" / path.name).read_bytes() == path.read_bytes()


def test_two_who_put_the_same_object_at_once_do_not_overwrite_one_another(folder, s3):
    from hardware.errors import OutputError
    from hardware.evidence.address import parse_address
    from hardware.evidence.object_store import ObjectStore

    store = ObjectStore(parse_address(PLACE))
    store.put("x-1.jsonl", b"first\n", None)
    with pytest.raises(OutputError, match="an object already exists there"):
        store.put("x-1.jsonl", b"second\n", None)
    assert s3.cat_file("lab/hwcompat/x-1.jsonl") == b"first\n"


def test_an_object_that_is_replaced_while_it_is_read_is_no_answer(s3, tmp_path):
    from hardware.evidence import object_store
    from hardware.evidence.address import parse_address

    s3.pipe_file("lab/hwcompat/x-1.jsonl", b"a" * (object_store._PIECE + 10))
    store = object_store.ObjectStore(parse_address(PLACE))
    (one,) = store.listing().found.values()

    class Replaces:
        """Somebody writes the object anew after the first piece."""

        def write(self, data: bytes) -> None:
            s3.pipe_file("lab/hwcompat/x-1.jsonl", b"b" * (object_store._PIECE + 10))

    with pytest.raises(object_store.ChangedObjectError, match="changed while it was read"):
        store.read(one, Replaces())


def test_without_credentials_none_are_requested(ask, folder, network):
    """No address of a cloud's metadata is asked, and no secret is told."""
    done = ask("--collect-all", "--evidence", PLACE, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert done.returncode == 4
    assert "AWS_PROFILE" in done.stderr
    assert network.take() == []


def test_a_bucket_that_is_not_there_is_said_so_without_the_secret(ask, folder):
    done = ask("--collect-all", "--evidence", "s3://not-there/x")
    assert (done.returncode, "s3://not-there/x" in done.stderr) == (4, True)
    done = ask("--evidence", folder, "--publish", "s3://not-there/x")
    assert (done.returncode, "no such bucket" in done.stderr) == (4, True), done.stderr
    assert SECRET not in done.stdout + done.stderr
