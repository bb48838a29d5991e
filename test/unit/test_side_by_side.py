"""Ours beside rivals: ratios, a page that says what couldn't be measured, and no script left out of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.side_by_side.drawing import svg
from benchmarks.side_by_side.inventory import fields_of
from benchmarks.side_by_side.page import missing_scripts, page, picture_name, read_scripts
from benchmarks.side_by_side.processes import in_turns, wall_time
from benchmarks.side_by_side.result import Comparison, Curve, Result, keep_results, read_results
from benchmarks.side_by_side.rivals import rival, tried

ROOT = Path(__file__).parents[2]

COMPARED = Comparison(
    what="w", ours="o", rival="r", unit="s", ours_values=(1.0, 2.0, 9.0), rival_values=(4.0, 4.0, 5.0)
)
CURVE = Curve(
    title="Some <growth>", x="rows", y="seconds", points={"ours": ((1, 0.1), (10, 0.2)), "theirs": ((1, 1),)}
)


def _result(name: str, *compared: Comparison) -> Result:
    return Result(
        bench=name,
        title=name,
        date="2026-01-01",
        machine="m",
        versions={"torch": "2"},
        comparisons=compared,
        curves=(CURVE,),
    )


def test_a_ratio_is_that_of_medians() -> None:
    assert COMPARED.ratio == 0.5
    absent = Comparison(what="w", ours="o", rival="r", unit="s", ours_values=(1.0,), missing="not installed")
    assert absent.ratio is None


def test_results_come_back_and_newer_ones_replace_older(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "kept.jsonl"
    keep_results(file, [_result("a"), _result("b", COMPARED)])
    keep_results(file, [_result("a", COMPARED)])
    found = {name: one.to_json() for name, one in read_results(file).items()}
    assert found == {name: _result(name, COMPARED).to_json() for name in ("a", "b")}


def test_the_page_shows_ratios_and_why_there_is_none() -> None:
    absent = Comparison(what="w", ours="o", rival="gone", unit="s", ours_values=(1.0,), missing="gone isn't here")
    text = page({"a": _result("a", COMPARED, absent)}, read_scripts())
    assert "**0.50**" in text
    (row,) = [line for line in text.splitlines() if "| gone " in line]
    assert "not measured" in row
    assert "gone isn't here" in row
    assert f"(images/benchmarks/{picture_name(CURVE)})" in text


def test_every_script_of_benchmarks_is_on_the_page() -> None:
    assert missing_scripts(read_scripts()) == []
    assert missing_scripts([one for one in read_scripts() if one.name != "crashes"]) == ["crashes"]
    assert all(one.page or one.in_bench for one in read_scripts())


def test_pages_that_hold_results_are_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    assert [one.page for one in read_scripts() if one.page and not (docs / one.page).is_file()] == []


def test_a_picture_is_whole_xml_with_all_names() -> None:
    text = svg(CURVE)
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    shown = "".join(root.itertext())
    assert "Some <growth>" in shown
    assert {"ours", "theirs"} <= set(shown.split("\n")) or ("ours" in shown and "theirs" in shown)
    assert text.count("<circle") == 3


def test_turns_leave_the_first_round_out() -> None:
    given = iter(range(100))
    assert in_turns({"a": lambda: float(next(given)), "b": lambda: float(next(given))}, 2) == {
        "a": (2.0, 4.0),
        "b": (3.0, 5.0),
    }


def test_a_failure_is_no_fast_run() -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        wall_time((sys.executable, "-c", "raise SystemExit(3)"))
    assert wall_time((sys.executable, "-c", "raise SystemExit(1)"), allowed=(0, 1)) > 0


def test_a_rival_that_is_missing_or_fails_says_so() -> None:
    assert "make setup-rivals" in rival("nobody", "nothing").missing
    assert "it fails here: SystemExit" not in tried((sys.executable, "-c", "pass")).missing
    assert tried((sys.executable, "-c", "import sys; sys.exit('no way')")).missing == "it fails here: no way"


def test_fields_of_a_listing_are_told_by_section() -> None:
    text = "CPU\n---\n  Cores: 2\n  Name: x\n\nML\n----\n  Not installed: a, b\n"
    assert fields_of(text) == [("CPU", "Cores"), ("CPU", "Name"), ("ML", "a"), ("ML", "b")]


def test_every_module_of_benchmarks_can_be_imported() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "benchmarks").rglob("*.py")]
    run = [name for name in names if not name.endswith("__") and not re.search(r"planting|boxed", name)]
    code = f"import importlib\nfor name in {run}:\n    importlib.import_module(name)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
