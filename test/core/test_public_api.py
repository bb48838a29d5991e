"""The public API: its names, and its tables for pandas."""

from __future__ import annotations

import json
import sys
from dataclasses import fields

import pytest
from click.testing import CliRunner
from evidence_lines import check_line

import hwcompat
from hardware.errors import HwCompatError
from hardware.evidence.latest import Latest
from hardware.evidence.record import CheckLine
from hwcompat.cli.main_program import program


def test_every_public_name_is_there_and_no_other_is_made_up():
    assert all(getattr(hwcompat, name).__name__ == name for name in hwcompat.__all__)
    with pytest.raises(AttributeError, match="detcet"):
        hwcompat.detcet  # noqa: B018


def test_results_and_inventory_are_tables():
    results = Latest(checks=(check_line(max_rel_error=1e-6), check_line(check_name="backward"))).to_frame()
    assert [*results.columns] == [one.name for one in fields(CheckLine)]
    assert [*results["max_rel_error"].notna()] == [True, False]
    devices = hwcompat.detect().to_frame()
    assert devices["device_type"][0] == "cpu"
    assert devices["memory_bytes"][0] > 2**30


def test_without_pandas_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HwCompatError, match="pip install pandas"):
        Latest().to_frame()


@pytest.mark.parametrize(
    "line",
    [
        *("classify bert", "devices list", "devices capabilities", "generate --model bert --list"),
        *("backlog qnn", "coverage", "matrix", "explain bert/fill-mask/cpu/float32", "doctor --no-check"),
        *("explain --model bert", "check test/recorded/suites", "devices fit --memory-gb 0.1"),
    ],
)
def test_json_is_an_object_with_a_schema_version(line: str) -> None:
    done = CliRunner().invoke(program, [*line.split(), "--format", "json"], standalone_mode=False)
    assert json.loads(done.stdout)["schema_version"] >= 1
