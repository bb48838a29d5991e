"""Suites told as JSON: all of standard output can be read, and it says what the lines say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from generators.models.recipe_store import load_recipe
from generators.suites.verify import Publication, Verification, VerifiedSuite
from reports.suites_text import published_text, verified_text
from run_test_generation import main

BERT = "bert/fill-mask/cpu/float32"
GOOD = VerifiedSuite(path=Path("test_a.py"), compiles=True, collected=True, passes=True, mutant="m", caught_by="c")
BAD = VerifiedSuite(path=Path("test_b.py"), compiles=True, problem="it has no check")


@pytest.fixture(autouse=True)
def known() -> None:
    if load_recipe("bert") is None:
        pytest.skip("no recipe ships for this transformers")


def said(folder: Path, *words: str) -> tuple[Any, int]:
    """What a command prints on standard output, read as JSON, and its exit code."""
    done = CliRunner().invoke(main, [*words, "--format", "json"], standalone_mode=False)
    assert done.exception is None, done.exception
    return json.loads(done.stdout), done.return_value


def test_cells_are_listed_with_what_is_predicted(tmp_path: Path) -> None:
    (cell,), code = said(tmp_path, "--model", "bert", "--device", "cpu", "--list")
    assert (cell["cell"], cell["predicted"]["level"], code) == (BERT, "high", 0)


def test_a_choice_is_explained_with_its_rules(tmp_path: Path) -> None:
    (cell,), _ = said(tmp_path, "--model", "bert", "--device", "cpu", "--explain")
    assert cell["model"]["type"] == "bert"
    assert [rule["id"] for rule in cell["rules"]] == cell["predicted"]["rule_ids"] != []


def test_a_choice_is_explained_in_lines(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--model", "bert", "--device", "cpu", "--explain"], standalone_mode=False)
    told = dict(line.strip().split("  ", 1) for line in done.stdout.splitlines() if "  " in line.strip())
    assert done.stdout.startswith(f"{BERT}\n")
    assert told["Predicted"].strip() == "high (predicted)"
    assert told["Weights"].strip().startswith("tiny, 90,416 parameters, recipe of transformers")
    assert told["Rule"].strip() == "torch_cpu.float32, see docs/DECISIONS.md#predictions-for-the-cpu"


def test_a_target_that_was_chosen_says_what_was_passed_over(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--model", "bert", "--device", "auto", "--explain"], standalone_mode=False)
    assert "Chosen" in done.stdout
    assert "Passed over" in done.stdout


def test_what_is_written_is_told_the_same_when_nothing_changed_and_is_compared(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    words = ("--model", "bert", "--device", "cpu", "--output-dir", str(folder))
    first, _ = said(tmp_path, *words)
    (one,) = first["suites"]
    assert Path(one["path"]).is_file()
    assert one["predicted"] == {"level": "high", "basis": "predicted"}
    assert said(tmp_path, *words)[0]["suites"] == first["suites"]
    path = Path(one["path"])
    path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    found, code = said(tmp_path, "--check", str(folder))
    assert [(each["name"], each["state"]) for each in found["suites"]] == [(path.name, "edited")]
    assert code == 1


def test_a_verification_says_which_step_failed() -> None:
    found = Verification(suites=(GOOD, BAD))
    told = json.loads(verified_text(found, "json"))["suites"]
    assert [(one["name"], one["passes"], one["caught_by"], one["problem"]) for one in told] == [
        ("test_a.py", True, "c", ""),
        ("test_b.py", False, "", "it has no check"),
    ]
    published = Publication(
        folder=Path("out"),
        verification=found,
        published=("test_a.py",),
        kept_back=("test_b.py",),
        taken_away=(),
        edited=(),
    )
    told = json.loads(published_text(published, "json"))
    assert (told["published"], told["kept_back"], len(told["suites"])) == (["test_a.py"], ["test_b.py"], 2)
