"""Reading what a suite says of itself: never by importing it, and never believing what isn't a suite."""

from __future__ import annotations

import pytest

from hardware.errors import BrokenInput
from hardware.testing.suite_file import read_suite

SUITE = """\
import nothing_that_exists
from transformers import BertConfig, BertForMaskedLM

CELL = "bert/fill-mask/cpu/float32"
SUBJECT = "tiny"
ARCHITECTURE = "encoder-only"
CONFIG_HASH = "abc"


def make_model():
    raise SystemExit("must never run")


def test_builds(case):
    pass


def test_backward(case):
    pass
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "test_x.py"
    path.write_text(SUITE)
    return path


def test_a_suite_is_read_without_running_it(suite):
    found = read_suite(suite)
    assert found is not None
    assert found.cell.id == "bert/fill-mask/cpu/float32"
    assert found.checks == ("builds", "backward")
    assert (found.subject, found.architecture, found.config_hash) == ("tiny", "encoder-only", "abc")
    assert found.model_revision is None
    assert found.library_names == ("BertConfig", "BertForMaskedLM")


def test_the_plan_names_the_file_and_not_its_folder(suite):
    found = read_suite(suite)
    assert found is not None
    planned = found.planned({"level": "high"})
    assert planned.suite == "test_x.py"
    assert planned.checks == ("builds", "backward")
    assert planned.verdict == {"level": "high"}


def test_any_change_of_the_file_changes_its_hash(suite):
    before = read_suite(suite)
    suite.write_text(SUITE + "\n")
    after = read_suite(suite)
    assert before is not None
    assert after is not None
    assert before.suite_hash != after.suite_hash


@pytest.mark.parametrize("text", ["", "x = 1\n", "CELL = 3\n", "CELL = f'{1}'\n", "def test_mine(): pass\n"])
def test_a_persons_own_test_file_is_no_suite(suite, text):
    suite.write_text(text)
    assert read_suite(suite) is None


@pytest.mark.parametrize(
    "data",
    [
        b"def (",
        b"\xff\xfe\x00",
        b"x = 1\0",
        b"CELL = 'bert'\n",
        b"CELL = '../../x/y/z'\n",
        b"(" * 5000,
        b"x = " + b"-" * 100_000 + b"1\n",
    ],
    ids=["syntax", "not-utf8", "null", "no-cell", "path", "brackets", "nested"],
)
def test_a_broken_suite_names_its_file(suite, data):
    suite.write_bytes(data)
    with pytest.raises(BrokenInput, match=r"the suite test_x\.py"):
        read_suite(suite)
