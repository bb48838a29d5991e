"""Reading what a suite says of itself: never by importing it, and never believing what isn't a suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware.errors import BrokenInput
from hardware.testing.suite_file import read_suite

SUITE = """\
import nothing_that_exists
from transformers import BertConfig, BertForMaskedLM

CELL = "bert/fill-mask/cpu/float32"
WEIGHTS = "tiny"
ARCHITECTURE = "encoder-only"
CONFIG_HASH = "abc"


def make_model():
    raise SystemExit("must never run")


def test_builds(case):
    pass


def test_backward(case):
    pass
"""
OTHERS = (b"", b"x = 1\n", b"CELL = 3\n", b"CELL = f'{1}'\n", b"def test_mine(): pass\n")
BROKEN = (
    *(b"def (", b"\xff\xfe\x00", b"x = 1\0", b"CELL = 'bert'\n", b"CELL = '../../x/y/z'\n", b"(" * 5000),
    b"x = " + b"-" * 100_000 + b"1\n",
)


def test_a_suite_is_read_without_running_it(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(SUITE)
    found = read_suite(path)
    assert found is not None
    assert found.cell.id == "bert/fill-mask/cpu/float32"
    assert found.checks == ("builds", "backward")
    assert (found.subject, found.architecture, found.config_hash) == ("tiny", "encoder-only", "abc")
    assert found.model_revision is None
    assert found.library_names == ("BertConfig", "BertForMaskedLM")
    planned = found.planned({"level": "high"})
    assert (planned.suite, planned.checks) == ("test_x.py", found.checks)  # the file, and not its folder
    assert planned.verdict == {"level": "high"}
    path.write_text(SUITE + "\n")
    after = read_suite(path)
    assert after is not None
    assert found.suite_hash != after.suite_hash


def test_a_persons_own_test_file_is_no_suite_and_a_broken_suite_is_named(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    for data in OTHERS:
        path.write_bytes(data)
        assert read_suite(path) is None, data
    for data in BROKEN:
        path.write_bytes(data)
        with pytest.raises(BrokenInput, match=r"the suite test_x\.py"):
            read_suite(path)
