"""Suites as JSON: all of standard output can be read, and it says what the lines say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front_doors import invoke
from recorded_machines import XEON, computer

from generators.suites.verify import Publication, Verification, VerifiedSuite
from reports.suites_text import published_text, verified_text

BERT = "bert/fill-mask/cpu/float32"
GOOD = VerifiedSuite(path=Path("test_a.py"), compiles=True, collected=True, passes=True, mutant="m", caught_by="c")
BAD = VerifiedSuite(path=Path("test_b.py"), compiles=True, problem="it has no check")


@pytest.fixture(autouse=True)
def recorded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.detection.LiveMachine", lambda: computer(XEON))


def printed(*words: str) -> str:
    done = invoke(*words)
    assert done.code == 0, done.err
    return done.out


def answer(*words: str) -> tuple[Any, int]:
    """Return what a command prints on standard output, read as JSON, and its exit code."""
    done = invoke(*words, "--format", "json")
    return done.document, done.code


def test_cells_are_listed_and_explained_with_their_prediction_and_rules() -> None:
    listed, code = answer("generate", "--model", "bert", "--device", "cpu", "--list")
    (cell,) = listed["cells"]
    assert (cell["cell"], cell["predicted"]["level"], code) == (BERT, "high", 0)
    (cell,) = answer("explain", "--model", "bert", "--device", "cpu")[0]["cells"]
    assert cell["model"]["type"] == "bert"
    assert [rule["id"] for rule in cell["rules"]] == cell["predicted"]["rule_ids"] != []
    text = printed("explain", "--model", "bert", "--device", "cpu")
    found = dict(line.strip().split("  ", 1) for line in text.splitlines() if "  " in line.strip())
    assert text.startswith(f"{BERT}\n")
    assert found["Predicted"].strip() == "high (predicted)"
    assert found["Weights"].strip().startswith("tiny, 90,416 parameters, recipe of transformers")
    assert found["Rule"].strip() == "torch_cpu.float32, see docs/DECISIONS.md#predictions-for-the-cpu"
    text = printed("explain", "--model", "bert", "--device", "auto")
    assert "auto selected cpu: " in text
    assert "not available: cuda" in text


def test_what_is_written_is_reported_the_same_when_nothing_changed_and_is_compared(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    words = ("generate", "--model", "bert", "--device", "cpu", "--output-dir", str(folder))
    first, _ = answer(*words)
    (one,) = first["suites"]
    assert Path(one["path"]).is_file()
    assert one["predicted"] == {"level": "high", "basis": "predicted"}
    assert answer(*words)[0]["suites"] == first["suites"]
    path = Path(one["path"])
    path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    found, code = answer("check", str(folder))
    assert [(each["name"], each["state"]) for each in found["suites"]] == [(path.name, "edited")]
    assert code == 1


def test_a_verification_says_which_step_failed() -> None:
    found = Verification(suites=(GOOD, BAD))
    plain = json.loads(verified_text(found, "json"))["suites"]
    assert [(one["name"], one["passes"], one["caught_by"], one["problem"]) for one in plain] == [
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
    plain = json.loads(published_text(published, "json"))
    assert (plain["published"], plain["kept_back"], len(plain["suites"])) == (["test_a.py"], ["test_b.py"], 2)
